"""A member of a later version has entries that this version must refuse: it says what to upgrade, blames nobody for
them, and goes on syncing all the rest.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path as FilePath

import pytest

from basefs.log import codecs
from basefs.log.entries import Action, Entry
from basefs.log.extensions import Extensions
from basefs.log.hashes import SUM_MASK, addend
from basefs.path import Path
from basefs.replica.replica import Replica
from basefs.sync.session.result import MAX_UNGRANTED, Reason, Result
from tests.support.helpers import BIRTH, ROOT_KEY, STRANGER, genesis, in_blocks, make_replica, path
from tests.support.memory import MemoryLog
from tests.sync.helpers import Pair

#: Extensions that no version knows yet: an even one, and an odd one that may be ignored.
EVEN, ODD = (200, b"later"), (201, b"later")


class LaterLog(MemoryLog):
    """A log of a later version, which knows all extensions."""

    def __init__(self) -> None:
        self.born = genesis()
        super().__init__(self.born[0].hash)
        assert not self.add([entry.encode() for entry in self.born], []).rejected
        self._made = 0

    def sign(
        self, parent: Entry, action: Action, name: str, content: bytes = b"", size: int = 0, *unknown: tuple[int, bytes]
    ) -> Entry:
        """Sign an entry and take it in."""
        self._made += 1
        extensions = Extensions(size, unknown=unknown)
        entry = ROOT_KEY.sign(parent.hash, BIRTH + self._made, action, name.encode(), content, extensions)
        if EVEN in unknown:
            self._take(entry)
        else:
            assert self.add([entry.encode()], []).accepted
        return entry

    def write(self, parent: Entry, name: str, text: bytes, *unknown: tuple[int, bytes]) -> Entry:
        """A file with its content."""
        tag, encoded = codecs.encode(text, b"", keyframe=True)
        named, blocks = in_blocks(encoded, tag)
        entry = self.sign(parent, Action.WRITE, name, named, len(text), *unknown)
        if EVEN in unknown:
            self._blocks.update({block.hash: block.encode() for block in blocks})
        else:
            assert not self.add([], [block.encode() for block in blocks]).rejected
        return entry

    def _take(self, entry: Entry) -> None:
        """Store an entry that this version cannot decode."""
        at: Path = self._place(entry)
        self._entries[entry.hash] = entry.encode(), at
        self._actions[entry.hash] = entry.action
        for depth in range(len(at) + 1):
            self._sums[at[:depth]] = (self._sums.get(at[:depth], 0) + addend(entry.hash)) & SUM_MASK
        self._own.setdefault(at, []).append(entry.hash)
        self._children.setdefault(at[:-1], set()).add(at[-1])


@pytest.fixture
def this(tmp_path: FilePath) -> Iterator[Replica]:
    with contextlib.closing(make_replica(tmp_path, (ROOT_KEY,), born=genesis())) as replica:
        yield replica


def meet(this: Replica, later: LaterLog, *, calls: bool) -> Result:
    """One session, which this node begins or the other one; returns how it went here."""
    pair = Pair(this, later) if calls else Pair(later, this)
    left, right = pair.run()
    here, there = (left, right) if calls else (right, left)
    for result in (here, there):
        assert result.reason is Reason.COMPLETE and not result.misbehaved, result
        assert not result.counters.offends, result.counters
    return here


@pytest.mark.parametrize("calls", [True, False])
def test_the_rest_is_synced_and_nobody_is_to_blame(this: Replica, calls: bool) -> None:
    later = LaterLog()
    root = later.born[0]
    # More than a peer may send of what is refused, each with a content, and things of this version before and behind.
    for number in range(100):
        later.write(root, f"n{number}", b"new %d" % number * 50, EVEN)
    directory = later.sign(root, Action.MKDIR, "d", b"", 0, EVEN)
    later.write(directory, "below", b"cannot be placed here")
    changed = later.write(root, "f", b"one", ODD)
    later.write(later.sign(changed, Action.MODE, "f", b"\x01\x80", 0, EVEN), "f", b"builds on what is refused")
    later.write(root, "last", b"text" * 1000)
    this.commit(lambda author: author.write(path("/own"), b"this node's"))
    for _ in range(5):
        result = meet(this, later, calls=calls)
        assert "extension 200" in result.counters.refusal
        assert "upgrade the package basefs on this node" in result.counters.refusal
        assert not result.equal
    assert this.read(path("/last")) == b"text" * 1000
    assert this.read(path("/f")) == b"one"
    assert {names for names, _ in this.live_paths()} == {(), path("/f"), path("/last"), path("/own")}
    assert any(entry.startswith(b"\x03") and b"own" in entry for entry in later.walk(path("/own")))
    assert this.check_view() == []
    # What comes later comes, too.
    later.write(changed, "f", b"two")
    this.commit(lambda author: author.write(path("/own"), b"again"))
    meet(this, later, calls=calls)
    assert this.read(path("/f")) == b"two"
    assert len(list(later.walk(path("/own")))) == 2


def test_after_the_upgrade_it_is_one_log(this: Replica, tmp_path: FilePath) -> None:
    """As far as this version can show: with an odd extension, nothing is refused in the first place."""
    later = LaterLog()
    later.write(later.born[0], "f", b"text", ODD)
    result = meet(this, later, calls=True)
    assert result.equal and not result.counters.refusal
    assert this.read(path("/f")) == b"text"


@pytest.mark.parametrize("forged", [True, False])
def test_what_no_key_of_the_log_has_signed_is_no_entry_of_a_later_version(this: Replica, forged: bool) -> None:
    """Anybody could send any number of it, and nobody would be to blame."""
    later = LaterLog()
    for number in range(MAX_UNGRANTED + 1):
        signer = ROOT_KEY if forged else STRANGER
        entry = signer.sign(
            later.born[0].hash, number, Action.MKDIR, b"%d" % number, extensions=Extensions(unknown=(EVEN,))
        )
        later._take(replace(entry, signature=bytes(64)) if forged else entry)
    result, _ = Pair(this, later).run()
    assert result.offends and "extension 200" in result.counters.refusal
    assert {names for names, _ in this.live_paths()} == {()}
