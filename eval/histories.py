"""A long history for benchmarks: some thousand files in directories, written over and over."""

from __future__ import annotations

import random
from collections.abc import Iterator

from basefs.log.blocks import Block, split
from basefs.log.codecs import STORED
from basefs.log.entries import ROOT_NAME, Action, Entry
from basefs.log.extensions import Extensions
from basefs.log.keys import SigningKey

#: Live paths that a history ends with if it is long enough (docs/performance.md), and files in each directory.
LIVE_PATHS = 4300
_FILES_A_DIRECTORY = 20
_BORN = 1_500_000_000


def history(key: SigningKey, count: int, seed: int = 0) -> Iterator[tuple[Entry, list[Block]]]:
    """`count` entries, each with the blocks that it names: first the paths are made, then files are written at random.

    Every write has a content of its own, of one block.
    """
    chance = random.Random(seed)
    root = key.sign(bytes(28), _BORN, Action.MKDIR, ROOT_NAME)
    yield root, []
    yield key.sign(root.hash, _BORN, Action.GRANT, b"root", key.public), []
    tips: list[Entry] = []
    parent = root
    for number in range(count - 2):
        stamp = _BORN + number
        content = b"%d = " % number + chance.randbytes(40).hex().encode() + b"\n"
        blocks = split(bytes((STORED.tag,)) + content)
        if len(tips) >= min(LIVE_PATHS, count // 3):
            position = chance.randrange(len(tips))
            tip = tips[position]
            entry = key.sign(tip.hash, stamp, Action.WRITE, tip.name, blocks[0].hash, Extensions(len(content)))
            tips[position] = entry
            yield entry, blocks
        elif number % (_FILES_A_DIRECTORY + 1) == 0:
            parent = key.sign(root.hash, stamp, Action.MKDIR, b"d%d" % number)
            yield parent, []
        else:
            entry = key.sign(
                parent.hash, stamp, Action.WRITE, b"f%d" % number, blocks[0].hash, Extensions(len(content))
            )
            tips.append(entry)
            yield entry, blocks
