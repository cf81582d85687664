"""The ledger: keeps the working set in the journal and in spool files, and brings it back after a crash.

Records (see `journal` for their frame); paths are lists of names, `inode` is its number:

    ("i", inode, kind, names, home, origin, base, target, mode, owner, mtime, ctime, exact, content, face, versions)
    ("a", inode, mode, owner, mtime, ctime, exact)
    ("n", path, inode, version)     a name was given to an inode
    ("g", path, version)            a published name was removed
    ("v", path, version)            what is told of a name was made on another version
    ("d", path)                     the working set says nothing more about a name
    ("m", path, origin, [(old, new), ...])
                            a directory of the view is being renamed, and with it what is at and below these paths, one
                            after the other; if the log still has this origin at the path, or a record follows that
                            has no moves, it was not

`content` is `None` if it is the published one, the bytes of a small file, or name, size and CRC-32 of a spool file.  A
power cut can leave the record and not the file, which is then not what was closed: it is never published.  The CRC-32
is `None` for large files that were not written from the beginning to the end.  `face` is mode and owner of a published
file, `None` of others.  A version is what the name showed when it was changed (`basefs/view/seen.py`), `None` where
that was being published just then; `versions` has one for each name.  Older records end before these.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import pathlib
from collections.abc import Sequence, Set
from typing import TYPE_CHECKING, Any

from basefs.durable import sync_directory
from basefs.errors import NoSpace, PathError, StoreError
from basefs.fs.staging.inode import Inode
from basefs.fs.staging.journal import Journal, Record
from basefs.fs.staging.spool import Spool, TornSpool, as_store_error
from basefs.log.content import BytesContent, Content
from basefs.log.entries import Entry
from basefs.log.hashes import EntryHash
from basefs.path import Path, display
from basefs.view.seen import Version
from basefs.view.states import Kind, Owner

if TYPE_CHECKING:
    from basefs.fs.staging.workingset import WorkingSet

log = logging.getLogger(__name__)

JOURNAL_FILE = "journal"
#: Where these stand in the record of an inode.
_CONTENT, _FACE, _VERSIONS = 13, 14, 15
#: An old and a new place of what is pending.
Move = tuple[Path, Path]
#: Name, size and checksum of a spool file; older records told no checksum.
_File = tuple[str, int] | tuple[str, int, "int | None"]


class Ledger:
    """What of the working set is on disk.

    Attributes:
        is_synced: whether any of it was made to survive a power cut, or is about to be.
    """

    def __init__(self, working: WorkingSet, directory: pathlib.Path) -> None:
        """Open the journal in a directory that is made if it is missing.  Raises `StoreError`."""
        try:
            if not directory.exists():
                directory.mkdir(mode=0o700)
                sync_directory(directory.parent)
        except OSError as error:
            raise as_store_error(error, directory) from None
        self._working = working
        self._directory = directory
        self._journal = Journal(directory / JOURNAL_FILE)
        #: Of the next spool file; an earlier process may have left some.
        self._numbers = itertools.count(1 + max(map(_number_of, directory.glob("*.spool")), default=-1))
        self.is_synced = False
        #: Whether the journal is that of an earlier process, which knew the inodes by other numbers.
        self._is_stale = False
        #: Whether the last record that counts is that of a directory that is being renamed.
        self._has_moves = False
        #: Inodes that the journal has told of since it was begun.
        self._known: set[int] = set()
        #: Spool files that a record on the disk may name, while a record that says otherwise may not be there.
        self._superseded: list[pathlib.Path] = []

    def new_spool(self, content: Content | None = None) -> Spool:
        """A place for the content of a file.  Raises `StoreError`."""
        path = self._new_path()
        return Spool(path, self._remove) if content is None else Spool.of(path, content, self._remove)

    def copy_spool(self, spool: Spool) -> Spool:
        """Another place with the same content.  Raises `StoreError`."""
        return spool.copy(self._new_path())

    def _new_path(self) -> pathlib.Path:
        return self._directory / f"{next(self._numbers)}.spool"

    def _remove(self, path: pathlib.Path) -> None:
        """A spool file is not needed any more."""
        if self.is_synced:
            self._superseded.append(path)
        else:
            path.unlink(missing_ok=True)

    # -- writing ------------------------------------------------------------------------------------------------------

    def note_inode(self, inode: Inode, *, empty: bool = False) -> None:
        """The state of an inode and its names, with the content that was closed last.

        `empty`: also a file that is still as it was created.  Raises `NoSpace`, `StoreError`.
        """
        if inode.unflushed and inode.is_new and inode.kept is None and inode.base is None and not empty:
            # Nothing of it was closed.
            return
        if inode.journaled:
            self.secure(inode)
        self._append(self._record_of(inode))
        self._known.add(inode.number)
        inode.journaled = True
        if inode.kept is not None and not inode.unflushed:
            inode.kept.close()
            inode.kept = None

    def _record_of(self, inode: Inode) -> Record:
        content: Any = None
        spool = _closed_spool(inode)
        if spool is not None:
            content = (spool.path.name, len(spool), spool.checksum()) if spool.is_on_disk else spool.read(len(spool), 0)
        return (
            "i",
            inode.number,
            inode.kind.value,
            list(inode.names),
            inode.home,
            inode.origin,
            inode.base,
            inode.target,
            inode.mode,
            inode.owner,
            inode.mtime,
            inode.ctime,
            inode.exact,
            content,
            None if inode.is_new or inode.shown is None else (inode.shown.mode, inode.shown.owner),
            [self._version(path) for path in inode.names],
        )

    def secure(self, inode: Inode) -> None:
        """Have its content on the disk before a record says that it takes the place of one that may be there.

        After a power cut there would be neither, where that was never published.  Raises `StoreError`.
        """
        spool = _closed_spool(inode)
        if self.is_synced and spool is not None:
            spool.sync()

    def note_attributes(self, inode: Inode) -> None:
        """The attributes of an inode that the journal knows.  Raises `NoSpace`, `StoreError`."""
        if inode.number not in self._known:
            self.note_inode(inode)
            return
        self._append(("a", inode.number, inode.mode, inode.owner, inode.mtime, inode.ctime, inode.exact))

    def note_name(self, path: Path, inode: Inode) -> None:
        """A name was given to an inode that the journal knows.  Raises `NoSpace`, `StoreError`."""
        if inode.number not in self._known:
            self.note_inode(inode)
            return
        self._append(("n", path, inode.number, self._version(path)))

    def note_gone(self, path: Path) -> None:
        """A published name was removed.  Raises `NoSpace`, `StoreError`."""
        self._append(("g", path, self._version(path)))

    def note_version(self, path: Path) -> None:
        """What is told of a name was made on another version than before.  Raises `NoSpace`, `StoreError`."""
        self._append(("v", path, self._version(path)))

    def _version(self, path: Path) -> Version | None:
        # What is being published now is seen as soon as it is; who is killed in between cannot tell it from others'.
        return None if path in self._working.in_flight else self._working.overlay.seen(path)

    def note_drop(self, path: Path) -> None:
        """The working set says nothing more about a name.  Raises `NoSpace`, `StoreError`."""
        self._append(("d", path))

    def note_moves(self, directory: Path, origin: EntryHash | None, moves: Sequence[Move]) -> None:
        """What the log is about to be told of a directory moves what is pending.  Survives a power cut.

        Raises `NoSpace`, `StoreError`.
        """
        self._append(("m", directory, origin, moves))
        self.sync(None)
        self._has_moves = True

    def cancel_moves(self) -> None:
        """The log would not be told."""
        try:
            self._append(("m", (), None, ()))
            self._has_moves = False
        except StoreError:
            self._is_stale = True

    def finish_moves(self) -> None:
        """The log was told: write the journal anew, at once or when there is room; until then it tells of the moves."""
        if not self._has_moves:
            return
        try:
            # It forgets where what is pending was.
            self._working.replica.sync_to_disk()
            self.rewrite()
        except StoreError as error:
            log.error("a directory was renamed, and what is not published in it is written down later: %s", error)
            self._is_stale = True

    def _append(self, record: Record) -> None:
        if self._is_stale:
            self.rewrite()
        self._journal.append(record)

    def tidy(self) -> None:
        """Begin the journal again if nothing is in the overlay, or if it is long and most of it superseded."""
        if not self._working.overlay:
            self._journal.reset()
            self._known.clear()
            self.is_synced = self._is_stale = self._has_moves = False
        elif self._journal.wants_compaction:
            self.rewrite()

    def rewrite(self) -> None:
        """Begin the journal again with all that is pending and was closed.  Raises `NoSpace`, `StoreError`."""
        records: list[Record] = []
        seen: set[Inode] = set()
        for path, inode in self._working.overlay.items():
            if inode is None:
                records.append(("g", path, self._version(path)))
            elif inode.journaled and inode not in seen:
                seen.add(inode)
                if inode.is_new:
                    # What its names stood for before is not told again.
                    self.secure(inode)
                records.append(self._record_of(inode))
        self._journal.reset(records)
        self._is_stale = self._has_moves = False
        self._known = {inode.number for inode in seen}

    def promise(self) -> None:
        """Before the log is synced, and then the journal: from now on what that forgets is in a log that was synced."""
        self.is_synced |= bool(self._working.overlay)

    @property
    def is_durable(self) -> bool:
        """Whether `sync` has nothing to do, or another thread does it."""
        return not self._superseded and self._journal.is_durable

    def sync(self, inode: Inode | None) -> None:
        """Make the journal, and the content of one inode, survive a power cut.  Raises `StoreError`."""
        if inode is not None and inode.spool is not None:
            inode.spool.sync()
        superseded, self._superseded = self._superseded, []
        try:
            self._journal.sync()
        except StoreError:
            self._superseded += superseded
            raise
        for path in superseded:
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Make everything durable and release the file.  Raises `StoreError`."""
        for _, inode in self._working.overlay.items():
            spool = None if inode is None else _closed_spool(inode)
            if spool is not None:
                spool.sync()
        self.sync(None)
        self._journal.close()

    # -- loading ------------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Put back what an earlier process left.  Raises `StoreError`."""
        # What a killed process has written last may be lost yet: neither the journal nor a spool file forgets anything
        # that is only in such a log.
        self._journal.sync()
        self._working.replica.sync_to_disk()
        records = self._journal.load()
        inodes: dict[int, Inode] = {}
        # Opened at the end: what earlier records name may have been published and removed since.
        spools: dict[int, _File] = {}
        faces: dict[int, tuple[int, Owner | None] | None] = {}
        #: What was removed, also where something else stands now.
        gone: set[Path] = set()
        moving: Record = ()
        overlay = self._working.overlay
        is_whole = True
        try:
            for record in records:
                self._replay(record, inodes, spools)
                if record[0] == "g":
                    gone.add(record[1])
                elif record[0] == "d":
                    gone.discard(record[1])
                elif record[0] == "m":
                    moving = record
                elif record[0] == "i":
                    faces[record[1]] = record[_FACE] if len(record) > _FACE else None
        except (ValueError, TypeError, KeyError, IndexError, StoreError) as error:
            # Nothing is thrown away: what could be read is used, the rest stays beside it for people.
            kept = self._directory / f"{JOURNAL_FILE}.unreadable"
            try:
                kept.write_bytes((self._directory / JOURNAL_FILE).read_bytes())
            except OSError as full:
                raise as_store_error(full, kept) from None
            is_whole, moving = False, ()
            log.error("what was not published could not be read in full (%r); it is kept in %s", error, kept)
        if moving:
            self._finish(*moving[1:])
        for number, file in spools.items():
            if inodes[number].names:
                self._reopen(inodes[number], gone, *file)
        for number, inode in inodes.items():
            if not inode.names:
                continue
            if inode.origin is None:
                if inode.kind is not Kind.DIRECTORY or not self._is_published(inode, gone):
                    self._make_new(inode, None)
            else:
                self._working.catch_up(inode)
                try:
                    inode.shown = self._working.replica.attributes(inode.home or ())
                except PathError:
                    inode.shown = None
                if inode.kind is Kind.DIRECTORY and (inode.shown is None or inode.shown.kind is not Kind.DIRECTORY):
                    # Another node has removed it, and what was set of it does not bring it back.
                    for at in inode.names:
                        overlay.drop(at)
                    inode.names = {}
                elif inode.shown is None or inode.shown.origin != inode.origin:
                    # Its file is gone or another one now: it begins again as a new one.
                    self._make_new(inode, faces.get(number))
                else:
                    if not inode.dirty:
                        # Not an older one, if others have changed it or what was written here is torn.
                        inode.base = inode.shown.content
                    self._working.by_origin[inode.origin] = inode
        self._recall_versions()
        used = {inode.spool.path for inode in inodes.values() if inode.spool is not None and inode.names}
        for path in self._directory.glob("*.spool"):
            if path in used:
                continue
            if is_whole:
                path.unlink(missing_ok=True)
            else:
                path.replace(path.with_suffix(".unreadable"))
        # The process before may have promised any of it, also what is to be left out of the journal now.
        self.is_synced = bool(overlay)
        if records:
            log.info("%d names were not published yet", sum(1 for _ in overlay.items()))
            self._is_stale = True
            # On a full disk what it holds is there to be read, and whoever changes something is told of the disk.
            with contextlib.suppress(NoSpace):
                self.rewrite()

    def _finish(self, directory: Path, origin: bytes | None, moves: Sequence[Move]) -> None:
        """A process has ended while it renamed a directory: if the log was told, what is pending goes along."""
        try:
            if self._working.replica.attributes(directory).origin == origin:
                return
        except PathError:
            pass
        for old, new in moves:
            self._working.move(old, new)

    def _recall_versions(self) -> None:
        """What is told of a name follows what is shown, where that is what this node itself had published.

        A kill between two files leaves the journal behind the log, and so does a power cut.
        """
        overlay, replica = self._working.overlay, self._working.replica
        for path, _ in overlay.items():
            seen = overlay.seen(path)
            if seen is not None and (not replica.is_version(path, seen) or replica.is_own_since(path, seen)):
                overlay.see(path, None)

    def _reopen(self, inode: Inode, gone: Set[Path], name: str, size: int, checksum: int | None = None) -> None:
        path = self._directory / pathlib.Path(name).name
        try:
            inode.spool = Spool.reopen(path, size, checksum, self._remove)
        except TornSpool as error:
            kept = path.with_suffix(".torn")
            with contextlib.suppress(OSError):
                path.replace(kept)
            where = display(min(inode.names))
            log.error("%s is as before it was saved last, when the power was cut (%s); see %s", where, error, kept)
            inode.dirty = inode.exact = False
            inode.mtime = inode.ctime = None
            if inode.base is None:
                # There was nothing before, or what others still see and was removed here.
                for at in inode.names:
                    if at in gone:
                        self._working.overlay.put(at, None)
                    else:
                        self._working.overlay.drop(at)
                inode.names = {}

    def _is_published(self, inode: Inode, gone: Set[Path]) -> bool:
        """Whether the log got a new directory before the power was cut; it is that one then, with all that is in it."""
        (at,) = inode.names
        try:
            attributes = self._working.replica.attributes(at)
        except PathError:
            return False
        if attributes.kind is not Kind.DIRECTORY or attributes.origin is None or at in gone:
            return False
        inode.origin, inode.home, inode.shown = attributes.origin, at, attributes
        self._working.by_origin[attributes.origin] = inode
        return True

    def _make_new(self, inode: Inode, face: tuple[int, Owner | None] | None) -> None:
        """It has no place in the view; what was not written here goes on being the content that was published."""
        if inode.kind is Kind.FILE and inode.spool is None and inode.base is None:
            inode.spool = self.new_spool()
            inode.dirty = True
        if face is not None:
            inode.take_unset(*face)
        if inode.base is not None and (raw := self._working.replica.entry(inode.base)) is not None:
            inode.base_size = Entry.decode(raw).size
        # The one that follows from its place in the view may be that of another file now.
        inode.number = self._working.identities.new_number()
        inode.origin = inode.home = inode.shown = None

    def _replay(self, record: Record, inodes: dict[int, Inode], spools: dict[int, _File]) -> None:
        overlay = self._working.overlay
        if record[0] == "i":
            found = self._inode_of(record)
            previous = inodes.get(found.number)
            if previous is not None:
                for at in previous.names:
                    overlay.drop(at)
            inodes[found.number] = found
            spools.pop(found.number, None)
            if isinstance(record[_CONTENT], tuple):
                spools[found.number] = record[_CONTENT]
            versions = record[_VERSIONS] if len(record) > _VERSIONS else [None] * len(found.names)
            for at, version in zip(found.names, versions, strict=True):
                self._release(at)
                overlay.put(at, found)
                overlay.see(at, version)
            return
        if record[0] == "a":
            changed = inodes[record[1]]
            changed.mode, changed.owner, changed.mtime, changed.ctime, changed.exact = record[2:]
            return
        if record[0] == "m":
            return
        at = record[1]
        if record[0] == "v":
            overlay.see(at, record[2])
            return
        self._release(at)
        if record[0] == "n":
            inode = inodes[record[2]]
            inode.names[at] = None
            overlay.put(at, inode)
            overlay.see(at, record[3] if len(record) > 3 else None)
        elif record[0] == "g":
            overlay.put(at, None)
            overlay.see(at, record[2] if len(record) > 2 else None)
        elif record[0] == "d":
            overlay.drop(at)
        else:
            raise ValueError(f"unknown record {record[0]!r}")

    def _release(self, path: Path) -> None:
        slot = self._working.overlay.get(path)
        if isinstance(slot, Inode):
            slot.names.pop(path, None)

    def _inode_of(self, record: Record) -> Inode:
        _, number, kind, names, home, origin, base, target, mode, owner, mtime, ctime, exact, content, *_ = record
        inode = Inode(
            number,
            Kind(kind),
            names=dict.fromkeys(names),
            home=home,
            origin=None if origin is None else EntryHash(origin),
            base=None if base is None else EntryHash(base),
            target=target,
            mode=mode,
            owner=owner,
            mtime=mtime,
            ctime=ctime,
            exact=exact,
            dirty=content is not None,
            journaled=True,
        )
        if isinstance(content, bytes):
            inode.spool = self.new_spool(BytesContent(content))
        return inode


def _number_of(path: pathlib.Path) -> int:
    return int(path.stem) if path.stem.isdigit() else -1


def _closed_spool(inode: Inode) -> Spool | None:
    """What was closed of the content of an inode, `None` if that is the published one."""
    # What was written since the last close is no part of it; a published file then has its published content.
    spool = inode.kept if inode.unflushed and (inode.kept or inode.base or not inode.is_new) else inode.spool
    return spool if inode.dirty else None
