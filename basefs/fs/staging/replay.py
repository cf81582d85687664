"""Replay: what was staged when a process ended, from its journal and from what the log says it has published.

Records of the journal are numbered from 0.  Each `Published` says after how many of them it was committed, so the two
are one history, and what is published is taken away on the way.  The power may have been cut: then the journal, the
log, or both end earlier than they did.  Nothing here does I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from basefs.fs.staging.inode import Inode
from basefs.fs.staging.overlay import MISSING, Overlay
from basefs.fs.staging.records import (
    MovedTree,
    Published,
    Record,
    SpoolFile,
    StagedAttributes,
    StagedInode,
    StagedName,
    WithdrawnName,
)
from basefs.log.hashes import EntryHash
from basefs.path import Path
from basefs.view.seen import Version
from basefs.view.states import Kind, Owner

#: What a transaction has made of a path: the origin of the file, and the write entry with its content.
Made = tuple[EntryHash | None, EntryHash | None]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A content that an inode had, and where it was in the view then.

    Attributes:
        content: bytes, or a spool file, which may be torn; `None`: that of `base`, which the log may have lost.
        base, origin, home: as in `Inode`.
    """

    content: bytes | SpoolFile | None
    base: EntryHash | None
    origin: EntryHash | None
    home: Path | None


@dataclass(slots=True)
class Found:
    """An inode of the journal.

    Attributes:
        inode: it.
        stamp: the number of the last record about it.
        written: the number of the last record with a content that is not published.
        candidates: its contents, the newest first: the first one that survived is its content.
        face: mode and owner that it had in the view.
        detached: whether its place in the view was taken.
    """

    inode: Inode
    stamp: int
    written: int = -1
    candidates: list[Candidate] = field(default_factory=list)
    face: tuple[int, Owner | None] | None = None
    detached: bool = False


class Replay:
    """Puts back what was staged.

    Attributes:
        inodes: by the numbers that they had.
        gone: published names that were removed, also where something else stands now.
    """

    def __init__(
        self,
        overlay: Overlay,
        follow: Callable[[Sequence[EntryHash]], object],
        made: Callable[[Path, Sequence[EntryHash]], Made | None],
    ) -> None:
        """`follow`: versions in the overlay follow these entries; `made`: what some of these have made of a path."""
        self._overlay = overlay
        self._follow = follow
        self._made = made
        self._stamps: dict[Path, int] = {}
        self.inodes: dict[int, Found] = {}
        self.gone: set[Path] = set()

    def run(self, records: Sequence[Record], published: Sequence[tuple[Published, Sequence[EntryHash]]]) -> None:
        """Play all of it.  Raises `ValueError` or `KeyError` for a record that cannot follow the ones before it."""
        rows = list(reversed(published))
        for stamp, record in enumerate(records):
            while rows and rows[-1][0].position <= stamp:
                self._take_away(*rows.pop())
            self._play(stamp, record)
        while rows:
            self._take_away(*rows.pop())

    # -- the journal --------------------------------------------------------------------------------------------------

    def _play(self, stamp: int, record: Record) -> None:
        if isinstance(record, StagedInode):
            self._play_inode(stamp, record)
        elif isinstance(record, StagedAttributes):
            self._play_attributes(stamp, record)
        elif isinstance(record, StagedName):
            if record.number is None:
                self.gone.add(record.path)
            inode = None if record.number is None else self.inodes[record.number].inode
            self._put(stamp, record.path, inode, record.version)
        elif isinstance(record, WithdrawnName):
            self._drop(record.path)
        elif isinstance(record, MovedTree):
            self._move(record.source, record.target)
        else:
            raise ValueError(f"a record that belongs to the log: {record}")

    def _play_attributes(self, stamp: int, record: StagedAttributes) -> None:
        found = self.inodes[record.number]
        found.stamp = stamp
        inode = found.inode
        inode.mode, inode.owner, inode.exact = record.mode, record.owner, record.exact
        inode.mtime, inode.ctime = record.mtime, record.ctime

    def _play_inode(self, stamp: int, record: StagedInode) -> None:
        inode = Inode(
            record.number,
            Kind(record.kind),
            home=record.home,
            origin=None if record.origin is None else EntryHash(record.origin),
            base=None if record.base is None else EntryHash(record.base),
            target=record.target,
            mode=record.mode,
            owner=record.owner,
            mtime=record.mtime,
            ctime=record.ctime,
            exact=record.exact,
            journaled=True,
        )
        found = Found(inode, stamp, face=record.face, detached=record.detached)
        before = self.inodes.get(record.number)
        if before is not None:
            for path in list(before.inode.names):
                self._clear(path)
            found.candidates, found.written = before.candidates, before.written
            if inode.origin is None and not record.detached:
                # It was published while this was written.
                inode.origin, inode.home = before.inode.origin, before.inode.home
                inode.base = inode.base or before.inode.base
                found.detached = before.detached
        if record.content is not None:
            found.written = stamp
        if record.content is not None or inode.base is not None:
            found.candidates.insert(0, Candidate(record.content, inode.base, inode.origin, inode.home))
        self.inodes[record.number] = found
        for path, version in record.names:
            self._put(stamp, path, inode, version)

    def _put(self, stamp: int, path: Path, inode: Inode | None, version: Version | None) -> None:
        if not version and self._overlay.get(path) is None:
            # What was removed there may be in the log again: the power cut took its removal.
            version = self._overlay.seen(path)
        self._clear(path)
        self._overlay.put(path, inode, version)
        self._stamps[path] = stamp
        if inode is not None:
            inode.names[path] = None

    def _clear(self, path: Path) -> None:
        slot = self._overlay.get(path)
        if isinstance(slot, Inode):
            slot.names.pop(path, None)
        self._overlay.drop(path)
        self._stamps.pop(path, None)

    def _drop(self, path: Path) -> None:
        self._clear(path)
        self.gone.discard(path)

    def _move(self, source: Path, target: Path) -> None:
        for path, seen, slot in self._overlay.take_tree(source):
            moved = (*target, *path[len(source) :])
            self._overlay.put(moved, slot, seen)
            self._stamps[moved] = self._stamps.pop(path)
            if path in self.gone:
                self.gone.remove(path)
                self.gone.add(moved)
            if slot is not None:
                slot.names = {moved if name == path else name: None for name in slot.names}
        for found in self.inodes.values():
            found.inode.home = _moved(found.inode.home, source, target)
            found.candidates = [replace(one, home=_moved(one.home, source, target)) for one in found.candidates]

    # -- the log ------------------------------------------------------------------------------------------------------

    def _take_away(self, row: Published, entries: Sequence[EntryHash]) -> None:
        taken = row.taken
        self._follow(entries)
        for path in row.withdrawn:
            if self._stamps.get(path, row.position) < row.position:
                self._drop(path)
        for number in row.detached:
            detached = self.inodes.get(number)
            if detached is not None and detached.inode.origin is not None:
                detached.inode.origin = detached.inode.home = None
                detached.detached = True
        # What was withdrawn before the rename had the old paths.
        for source, target in taken.moves:
            self._move(source, target)
        pending: set[Inode] = set()
        for number, path in (*taken.inodes, *taken.begun):
            found = self.inodes.get(number)
            if found is None:
                continue
            self._publish(found, path, taken.planned, entries, is_whole=(number, path) in taken.inodes)
            if found.stamp >= taken.planned:
                pending.add(found.inode)
        for path in taken.names:
            slot = self._overlay.get(path)
            if slot is not MISSING and self._stamps[path] < taken.planned and slot not in pending:
                self._drop(path)

    def _publish(self, found: Found, path: Path, planned: int, entries: Sequence[EntryHash], *, is_whole: bool) -> None:
        inode = found.inode
        if is_whole and found.stamp < planned:
            inode.mode = inode.owner = inode.mtime = inode.ctime = None
            inode.exact = False
        made = self._made(path, entries)
        if made is not None:
            inode.origin, inode.home = made[0], path
            found.detached = False
        if found.written < planned and made is not None:
            inode.base = made[1]
            found.candidates = [Candidate(None, inode.base, inode.origin, inode.home)]


def _moved(path: Path | None, source: Path, target: Path) -> Path | None:
    is_below = path is not None and path[: len(source)] == source
    return (*target, *path[len(source) :]) if path is not None and is_below else path
