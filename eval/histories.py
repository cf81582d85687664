"""A long history for benchmarks: some thousand files in directories, written over and over."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Iterator
from pathlib import Path

from basefs.daemon.config import Home
from basefs.log.blocks import Block, Encoded, split
from basefs.log.codecs import STORED
from basefs.log.entries import ROOT_NAME, Action, Entry
from basefs.log.extensions import Extensions
from basefs.log.keys import SigningKey
from basefs.replica.replica import Replica
from tests.support.node import Node
from tests.support.ports import free_port

#: What signs a history.
KEY = SigningKey.from_seed(bytes(32))
#: Live paths that a history ends with if it is long enough (docs/performance.md), and files in each directory.
LIVE_PATHS = 4300
_FILES_A_DIRECTORY = 20
_BORN = 1_500_000_000
#: Entries given to the log at once while one is made.
_SLICE = 512


def history(count: int, key: SigningKey = KEY, seed: int = 0) -> Iterator[tuple[Entry, list[Block]]]:
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
        manifest, blocks = split(content)
        named = Encoded(manifest, STORED.tag, len(content)).encode()
        if len(tips) >= min(LIVE_PATHS, count // 3):
            position = chance.randrange(len(tips))
            tip = tips[position]
            entry = key.sign(tip.hash, stamp, Action.WRITE, tip.name, named, Extensions(len(content)))
            tips[position] = entry
            yield entry, blocks
        elif number % (_FILES_A_DIRECTORY + 1) == 0:
            parent = key.sign(root.hash, stamp, Action.MKDIR, b"d%d" % number)
            yield parent, []
        else:
            entry = key.sign(parent.hash, stamp, Action.WRITE, b"f%d" % number, named, Extensions(len(content)))
            tips.append(entry)
            yield entry, blocks


def make_log(log: Path, count: int) -> None:
    """Make a log with a history of `count` entries in a directory that is made."""
    log.mkdir(parents=True)
    pairs = history(count)
    first = next(pairs)
    replica = Replica.create(log, first[0].hash)
    pairs = itertools.chain([first], pairs)
    while batch := list(itertools.islice(pairs, _SLICE)):
        replica.add([entry.encode() for entry, _ in batch], [block.encode() for _, blocks in batch for block in blocks])
        replica.sync_to_disk()
    assert replica.totals()["entries"] == count
    replica.close()


@contextlib.contextmanager
def keeper(directory: Path) -> Iterator[Node]:
    """A node on the loopback address that has the key of the histories."""
    node = Node(directory, "127.0.0.1", free_port())
    node.home.mkdir(mode=0o700)
    KEY.save(Home(node.home).default_key)
    try:
        yield node
    finally:
        node.clean_up()
