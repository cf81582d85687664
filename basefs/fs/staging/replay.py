"""Replay: what was staged when a process ended, from its journal and from what the log says it has published.

Frames of the journal are numbered from 0.  Each `Published` says after how many of them it was committed, and each
frame says how many commits were before it, so the two are one history.  The power may have been cut: then the journal,
the log, or both end earlier than they did, and some spool files are torn.  What is put back is the longest beginning of
that history of which everything is there.  Whoever was promised something waited for a sync of all three, so it is in
that.  What the log has published after that stays published.  Nothing here does I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from basefs.fs.staging.inode import Inode
from basefs.fs.staging.overlay import Overlay
from basefs.fs.staging.records import (
    Emptied,
    Frame,
    MovedTree,
    Published,
    Record,
    SpoolFile,
    StagedAttributes,
    StagedHome,
    StagedInode,
    StagedName,
    TakenInode,
    WithdrawnName,
)
from basefs.log.hashes import EntryHash
from basefs.path import Path
from basefs.view.observed import Version
from basefs.view.states import Kind, Owner

#: What a transaction has made of a path: the origin of the file, and the write entry with its content.
Made = tuple[EntryHash | None, EntryHash | None]
#: A transaction of the log, and its entries.
Row = tuple[Published, Sequence[EntryHash]]


@dataclass(slots=True)
class Found:
    """An inode of the journal.

    Attributes:
        inode: it.
        stamp: the number of the last frame about it.
        written: the number of the frame with its content, -1 if that is published.
        content: what was written and is not published.
        published: the last content that was.
        replaced: the write entry with the content before that.
        face: mode and owner that it had in the view.
        detached: whether its place in the view was taken.
    """

    inode: Inode
    stamp: int
    written: int = -1
    content: bytes | SpoolFile | None = None
    published: bytes | SpoolFile | None = None
    replaced: EntryHash | None = None
    face: tuple[int, Owner | None] | None = None
    detached: bool = False


class Replay:
    """Puts back what was staged.

    Attributes:
        inodes: by the numbers that they had.
        position: the number of the frame that is being played.
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
        self.position = 0

    def run(self, frames: Sequence[Frame], published: Sequence[Row]) -> None:
        """Play all of it.  Raises `ValueError` or `KeyError` for a record that cannot follow the ones before it."""
        rows = list(reversed(published))
        start = _start(frames)
        while rows and rows[-1][0].position < start:
            rows.pop()
        for stamp, frame in enumerate(frames[start:], start):
            self.position = stamp
            while rows and rows[-1][0].position <= stamp:
                self._take_away(*rows.pop())
            for record in frame.records:
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
            inode = None if record.number is None else self.inodes[record.number].inode
            self._put(stamp, record.path, inode, record.version)
        elif isinstance(record, StagedHome):
            self.inodes[record.number].inode.home = record.home
        elif isinstance(record, WithdrawnName):
            self._drop(record.path)
        elif isinstance(record, MovedTree):
            self._move(record.source, record.target)

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
        found = Found(inode, stamp, stamp, record.content, face=record.face, detached=record.detached)
        before = self.inodes.get(record.number)
        stamps: dict[Path, int] = {}
        if before is not None:
            stamps = {path: self._stamps[path] for path in before.inode.names}
            for path in stamps:
                self._drop(path)
            self._compare(found, before)
            if inode.origin is None and not record.detached:
                # It was published while this was written.
                inode.origin, inode.home = before.inode.origin, before.inode.home
                inode.base = inode.base or before.inode.base
                found.detached = before.detached
        self.inodes[record.number] = found
        for path, version in record.names:
            self._put(stamps.get(path, stamp), path, inode, version)

    @staticmethod
    def _compare(found: Found, before: Found) -> None:
        """An inode may be recorded again as it was, while it is being published.

        On a version that another node has made since, the same content is a change.
        """
        found.published, found.replaced = before.published, before.replaced
        is_same = found.content is not None and found.content == before.published
        if is_same and found.inode.base in (before.inode.base, before.replaced):
            found.content, found.written = None, -1
            found.inode.base = before.inode.base
        elif found.content == before.content:
            found.written = before.written
            if _attributes(found.inode) == _attributes(before.inode):
                found.stamp = before.stamp

    def _put(self, stamp: int, path: Path, inode: Inode | None, version: Version | None) -> None:
        self._drop(path)
        self._overlay.put(path, inode, version)
        self._stamps[path] = stamp
        if inode is not None:
            inode.names[path] = None

    def _drop(self, path: Path) -> None:
        slot = self._overlay.get(path)
        if isinstance(slot, Inode):
            slot.names.pop(path, None)
        self._overlay.drop(path)
        self._stamps.pop(path, None)

    def _move(self, source: Path, target: Path) -> None:
        for path, seen, slot in self._overlay.take_tree(source):
            moved = (*target, *path[len(source) :])
            stamp = self._stamps.pop(path)
            names = {} if slot is None else {moved if name == path else name: None for name in slot.names}
            self._put(stamp, moved, slot, seen)
            if slot is not None:
                slot.names = names
        for found in self.inodes.values():
            home = found.inode.home
            if home is not None and home[: len(source)] == source:
                found.inode.home = (*target, *home[len(source) :])

    # -- the log ------------------------------------------------------------------------------------------------------

    def _take_away(self, row: Published, entries: Sequence[EntryHash]) -> None:
        taken = row.taken
        self._follow(entries)
        for source, target in taken.moves:
            self._move(source, target)
        for each in taken.inodes:
            self._catch_up(each, taken.planned)
        self._part({path: each.number for each in taken.inodes for path in each.names}, entries)
        pending: set[Inode] = set()
        for each in taken.inodes:
            found = self.inodes.get(each.number)
            if found is not None:
                self._publish(found, each, taken.planned, entries)
                if found.stamp >= taken.planned:
                    pending.add(found.inode)
        names = [path for each in taken.inodes if each.is_whole for path in each.names]
        for path in (*names, *taken.gone):
            if self._is_older(path, taken.planned) and self._overlay.get(path) not in pending:
                self._drop(path)

    def _is_older(self, path: Path, planned: int) -> bool:
        return self._stamps.get(path, planned) < planned

    def _catch_up(self, taken: TakenInode, planned: int) -> None:
        """An inode had these names when it was published, whatever the journal has lost of how it came to them."""
        found = self.inodes.get(taken.number)
        old = [] if found is None else [path for path in found.inode.names if self._is_older(path, planned)]
        for path in old:
            if path in taken.names or path in taken.kept:
                continue
            if found is not None and found.inode.kind is Kind.DIRECTORY:
                self._move(path, taken.names[0])
            else:
                self._drop(path)

    def _part(self, numbers: Mapping[Path, int], entries: Sequence[EntryHash]) -> None:
        """What was at a name that another inode has in the view now is a file of its own; `numbers`: of those."""
        for number, found in self.inodes.items():
            inode = found.inode
            if inode.home is None or numbers.get(inode.home, number) == number:
                continue
            made = self._made(inode.home, entries)
            if made is not None and made[0] == inode.origin:
                inode.origin = inode.home = None
                found.detached = True

    def _publish(self, found: Found, taken: TakenInode, planned: int, entries: Sequence[EntryHash]) -> None:
        inode = found.inode
        if taken.is_whole and found.stamp < planned:
            inode.mode = inode.owner = inode.mtime = inode.ctime = None
            inode.exact = False
        made = self._made(taken.names[0], entries)
        if made is not None:
            inode.origin, inode.home = made[0], taken.names[0]
            found.detached = False
        if found.written < planned and made is not None:
            found.replaced, inode.base = inode.base, made[1]
            found.published = found.content or found.published
            found.content, found.written = None, -1


def _attributes(inode: Inode) -> tuple[object, ...]:
    return inode.mode, inode.owner, inode.mtime, inode.ctime, inode.exact


def _start(frames: Sequence[Frame]) -> int:
    """The number of the first frame that counts."""
    void = (n for n, frame in enumerate(reversed(frames)) if Emptied() in frame.records)
    return len(frames) - next(void, len(frames))


def known(frames: Sequence[Frame], published: Sequence[Row]) -> Sequence[Frame]:
    """The frames before the first one that came behind a transaction which the log has lost."""
    start = _start(frames)
    before = frames[start - 1].behind if start else 0
    rows = sum(row.position >= start for row, _ in published)
    lost = (n for n, frame in enumerate(frames) if n >= start and frame.behind > before + rows)
    return frames[: next(lost, len(frames))]
