"""The journal of the staging area: what was closed here and may not be in the log yet, so that it survives a crash.

One rule holds everything together: the journal forgets nothing before the log is synced, and the transaction of the
log that publishes something says so (`Published`).  So after a crash `replay` takes from the journal what is in the
log, and there is no order in which the two must reach the disk.  Files beside the journal hold large contents
(`spool`); one that is not needed goes after the next sync of both.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import pathlib
from collections.abc import Callable, Iterable, Sequence

from basefs.durable import sync_directory
from basefs.errors import StoreError
from basefs.fs.staging.inode import Inode
from basefs.fs.staging.overlay import Overlay
from basefs.fs.staging.records import (
    MovedTree,
    Published,
    Record,
    SpoolFile,
    StagedAttributes,
    StagedInode,
    StagedName,
    Taken,
    WithdrawnName,
    decode,
    encode,
)
from basefs.fs.staging.spool import Spool, TornSpool, as_store_error
from basefs.fs.staging.wal import WriteAheadLog
from basefs.log.content import Content
from basefs.log.receipts import Receipt
from basefs.path import Path
from basefs.replica.replica import Applied

log = logging.getLogger(__name__)

JOURNAL_FILE = "journal"
#: Bytes of records from which on those that are not needed are left out, and by how much they must have grown since the
#: last time.
COMPACT_BYTES = 8 * 1024 * 1024


class StagingJournal:
    """What of the staging area is on disk."""

    def __init__(self, directory: pathlib.Path, overlay: Overlay, sync_log: Callable[[], None]) -> None:
        """Open the journal in a directory that is made if it is missing; `sync_log` makes the log survive a power cut.

        Raises `StoreError`.
        """
        try:
            if not directory.exists():
                directory.mkdir(mode=0o700)
                sync_directory(directory.parent)
        except OSError as error:
            raise as_store_error(error, directory) from None
        self._overlay = overlay
        self._really_sync_log = sync_log
        self._directory = directory
        self._wal = WriteAheadLog(directory / JOURNAL_FILE)
        #: Of the next spool file; an earlier process may have left some.
        self._numbers = itertools.count(1 + max(map(_number_of, directory.glob("*.spool")), default=-1))
        #: Whether it is that of an earlier process, which knew the inodes by other numbers.
        self._is_stale = False
        #: Inodes that it tells of.
        self._known: set[int] = set()
        #: Names of spool files that its records name, and those of them that only a crash could need.
        self._named: set[str] = set()
        self._dead: set[pathlib.Path] = set()
        #: The inodes that have a newer content than these files.
        self._heirs: dict[pathlib.Path, Inode] = {}
        #: Of what was in the journal and is not staged any more: for the next transaction of the log.
        self._withdrawn: set[Path] = set()
        self._detached: set[int] = set()
        #: Transactions that have published something, and how many of them are synced.
        self._receipts = self._synced_receipts = 0
        self._compacted = 0

    # -- spool files --------------------------------------------------------------------------------------------------

    def new_spool(self, content: Content | None = None) -> Spool:
        """A place for the content of a file.  Raises `StoreError`."""
        path = self._new_path()
        return Spool(path, self._remove) if content is None else Spool.of(path, content, self._remove)

    def copy_spool(self, spool: Spool) -> Spool:
        """Another place with the same content.  Raises `StoreError`."""
        return spool.copy(self._new_path())

    def reopen_spool(self, file: SpoolFile) -> Spool:
        """What an earlier process left.  Raises `TornSpool`; what is left of the file is then kept beside it."""
        name, size, checksum = file
        path = self._directory / pathlib.Path(name).name
        try:
            return Spool.reopen(path, size, checksum, self._remove)
        except TornSpool as error:
            kept = path.with_suffix(".torn")
            with contextlib.suppress(OSError):
                path.replace(kept)
            raise TornSpool(f"{error}; see {kept}") from None

    def _new_path(self) -> pathlib.Path:
        return self._directory / f"{next(self._numbers)}.spool"

    def names(self, spool: Spool) -> bool:
        """Whether a record names this file, so that it must stay as it is."""
        return spool.is_on_disk and spool.path.name in self._named

    def _remove(self, path: pathlib.Path) -> None:
        """A spool file is not needed any more."""
        if path.name in self._named:
            self._dead.add(path)
        else:
            path.unlink(missing_ok=True)

    def take_dead(self) -> list[pathlib.Path]:
        """The spool files that can go when the journal and the log are synced.  Raises `StoreError`."""
        for path in self._dead:
            heir = self._heirs.pop(path, None)
            spool = None if heir is None else _closed_spool(heir)
            if spool is not None:
                spool.sync()
        dead, self._dead = list(self._dead), set()
        return dead

    def remove(self, dead: Iterable[pathlib.Path]) -> None:
        """Remove spool files."""
        for path in dead:
            path.unlink(missing_ok=True)

    def put_back(self, dead: Iterable[pathlib.Path]) -> None:
        """These spool files must stay until another sync."""
        self._dead.update(dead)

    def secure(self, inode: Inode, replaced: Inode) -> None:
        """Have the content of an inode on the disk, before it takes the name of another one that may survive a crash.

        Raises `StoreError`.
        """
        spool = _closed_spool(inode)
        is_in_log = not replaced.journaled and self._receipts == self._synced_receipts
        if spool is not None and self._wal.may_survive and not is_in_log:
            spool.sync()

    # -- writing ------------------------------------------------------------------------------------------------------

    def _append(self, record: Record) -> None:
        if self._is_stale:
            self.rewrite()
        self._wal.append(encode(record))

    def put_inode(self, inode: Inode, *, empty: bool = False, detached: bool = False) -> None:
        """The state of an inode and its names, with the content that was closed last.

        `empty`: also a file that is still as it was created; `detached`: its place in the view was taken.  Raises
        `NoSpace`, `StoreError`.
        """
        if inode.unflushed and inode.is_new and inode.kept is None and inode.base is None and not empty:
            # Nothing of it was closed.
            return
        spool = _closed_spool(inode) if inode.journaled and self._wal.may_survive else None
        if spool is not None:
            # It takes the place of a content that may be on the disk.
            spool.sync()
        record = self._record_of(inode, detached=detached)
        self._append(record)
        self._note(inode, record)
        self._withdrawn.difference_update(inode.names)
        inode.journaled = True
        if inode.kept is not None and not inode.unflushed:
            self._heirs[inode.kept.path] = inode
            inode.kept.close()
            self._heirs = {path: heir for path, heir in self._heirs.items() if path in self._dead}
            inode.kept = None

    def _note(self, inode: Inode, record: StagedInode) -> None:
        self._known.add(inode.number)
        if isinstance(record.content, tuple):
            self._named.add(record.content[0])

    def _record_of(self, inode: Inode, *, detached: bool = False) -> StagedInode:
        content: bytes | SpoolFile | None = None
        spool = _closed_spool(inode)
        if spool is not None:
            content = (spool.path.name, len(spool), spool.checksum()) if spool.is_on_disk else spool.read(len(spool), 0)
        return StagedInode(
            number=inode.number,
            kind=inode.kind.value,
            names=tuple((path, self._overlay.seen(path)) for path in inode.names),
            home=inode.home,
            origin=inode.origin,
            base=inode.base,
            target=inode.target,
            mode=inode.mode,
            owner=inode.owner,
            mtime=inode.mtime,
            ctime=inode.ctime,
            exact=inode.exact,
            content=content,
            face=None if inode.is_new or inode.shown is None else (inode.shown.mode, inode.shown.owner),
            detached=detached,
        )

    def put_attributes(self, inode: Inode) -> None:
        """The attributes of an inode that the journal knows.  Raises `NoSpace`, `StoreError`."""
        if inode.number not in self._known:
            self.put_inode(inode)
            return
        self._append(StagedAttributes(inode.number, inode.mode, inode.owner, inode.mtime, inode.ctime, inode.exact))

    def put_name(self, path: Path, inode: Inode | None) -> None:
        """A name was given to an inode that the journal knows, or a published one was removed.

        Raises `NoSpace`, `StoreError`.
        """
        if inode is not None and inode.number not in self._known:
            self.put_inode(inode)
            return
        self._append(StagedName(path, None if inode is None else inode.number, self._overlay.seen(path)))
        self._withdrawn.discard(path)

    def withdraw(self, path: Path) -> None:
        """Nothing is staged at a name any more, and nothing was published.  Raises `NoSpace`, `StoreError`."""
        self._append(WithdrawnName(path))
        self._withdrawn.add(path)

    def detach(self, inode: Inode, number: int) -> None:
        """What an inode with this number was gets another file in its place in the view.

        Raises `NoSpace`, `StoreError`.
        """
        self.put_inode(inode, detached=True)
        self._detached.add(number)

    def move_tree(self, source: Path, target: Path) -> None:
        """A directory that was never published is moved, with everything in it.  Raises `NoSpace`, `StoreError`."""
        self._append(MovedTree(source, target))
        old = {source, *(path for path, _ in self._overlay.below(source))}
        self._withdrawn |= old
        self._withdrawn -= {(*target, *path[len(source) :]) for path in old}

    @property
    def position(self) -> int:
        """How many records there are."""
        return self._wal.count

    def publish(self, commit: Callable[..., Applied], taken: Callable[[], Taken]) -> Applied:
        """Commit to the log what `taken` returns when it is drafted.  Raises what `commit` raises.

        `commit` is `Replica.commit` without its last argument, `receipt`.
        """
        made: list[Published] = []

        def receipt() -> Receipt:
            # The staging area is not locked now, so the position comes first: what is withdrawn before it is withdrawn
            # in the record.
            position = self._wal.count
            made.append(Published(position, taken(), tuple(self._withdrawn), tuple(self._detached)))
            self._receipts += 1
            return Receipt(self._wal.generation, encode(made[-1]), self._wal.is_only)

        applied = commit(receipt=receipt)
        for record in made:
            self._withdrawn.difference_update(record.withdrawn)
            self._detached.difference_update(record.detached)
        return applied

    # -- beginning again ----------------------------------------------------------------------------------------------

    @property
    def wants_compaction(self) -> bool:
        """Whether most of it may not be needed any more."""
        return self._wal.size > COMPACT_BYTES + 2 * self._compacted

    def tidy(self) -> None:
        """Begin again if all receipts are synced, and nothing is staged or most is not needed.  Raises `StoreError`."""
        if self._receipts != self._synced_receipts or not self._wal.is_durable:
            return
        if not self._overlay:
            self._begin_again([])
            self._known.clear()
            self._is_stale = False
        elif self.wants_compaction:
            self.rewrite()

    def rewrite(self) -> None:
        """Begin again with all that is staged and was closed.  Raises `NoSpace`, `StoreError`."""
        self.sync_log()
        records: list[Record] = []
        seen: dict[Inode, StagedInode] = {}
        for path, inode in self._overlay.items():
            if inode is None:
                records.append(StagedName(path, None, self._overlay.seen(path)))
            elif inode.journaled and inode not in seen:
                spool = _closed_spool(inode)
                if spool is not None:
                    # An older content is not in the new journal.
                    spool.sync()
                seen[inode] = self._record_of(inode)
                records.append(seen[inode])
        self._begin_again(records)
        # What is published from now on is recorded for the new journal, so the old one must not come back.
        self._wal.sync()
        self._is_stale = False
        self._known.clear()
        for inode, record in seen.items():
            self._note(inode, record)
        self._compacted = self._wal.size

    def _begin_again(self, records: Sequence[Record]) -> None:
        self._wal.reset(map(encode, records))
        self._named.clear()
        self._withdrawn.clear()
        self._detached.clear()
        self._compacted = 0

    # -- durability ---------------------------------------------------------------------------------------------------

    @property
    def is_durable(self) -> bool:
        """Whether `sync` and `tidy` have nothing to do, or another thread does it."""
        has_ended = self._wal.count and not self._overlay
        return not has_ended and not self._dead and self._wal.is_durable

    @property
    def has_dead(self) -> bool:
        """Whether there are files that a sync would remove."""
        return bool(self._dead)

    def sync_log(self) -> None:
        """Make what was published until now survive a power cut; needs no lock.  Raises `StoreError`."""
        receipts = self._receipts
        self._really_sync_log()
        self._synced_receipts = max(self._synced_receipts, receipts)

    def sync(self) -> None:
        """Make the journal survive a power cut; needs no lock.  Raises `StoreError`."""
        self._wal.sync()

    def close(self) -> None:
        """Make everything durable and release the file.  Raises `StoreError`."""
        for _, inode in self._overlay.items():
            spool = None if inode is None else _closed_spool(inode)
            if spool is not None:
                spool.sync()
        self.sync()
        self._wal.close()

    # -- loading ------------------------------------------------------------------------------------------------------

    @property
    def generation(self) -> int:
        """The number by which receipts name it."""
        return self._wal.generation

    def load(self) -> tuple[list[Record], bool]:
        """What an earlier process left, and whether that is all; a copy of what cannot be read is kept beside it.

        Raises `StoreError`.
        """
        # What a killed process has written last may be lost yet.
        self._wal.sync()
        records: list[Record] = []
        try:
            for raw in self._wal.load():
                records.append(decode(raw))
        except ValueError as error:
            self.keep_unreadable(error)
            return records, False
        return records, True

    def keep_unreadable(self, error: Exception) -> None:
        """Nothing is thrown away: what could be read is used, the rest stays beside it for people."""
        kept = self._directory / f"{JOURNAL_FILE}.unreadable"
        try:
            kept.write_bytes((self._directory / JOURNAL_FILE).read_bytes())
        except OSError as full:
            raise as_store_error(full, kept) from None
        log.error("cannot read all of the unpublished changes (%r); the journal is kept in %s", error, kept)

    def loaded(self, used: Iterable[Inode], *, is_whole: bool, had_records: bool) -> None:
        """What was loaded is staged: write the journal anew, now or when there is room.

        Spool files that none of these inodes uses go; if not everything could be read, they are kept under another
        name.  Raises `StoreError`.
        """
        in_use = {inode.spool.path for inode in used if inode.spool is not None}
        unused = [path for path in self._directory.glob("*.spool") if path not in in_use]
        self._is_stale = had_records
        if had_records:
            # On a full disk what it holds is there to be read, and whoever changes something gets the error.
            with contextlib.suppress(StoreError):
                self.rewrite()
        for path in unused:
            if not is_whole:
                path.replace(path.with_suffix(".unreadable"))
            else:
                self._dead.add(path)


def _number_of(path: pathlib.Path) -> int:
    return int(path.stem) if path.stem.isdigit() else -1


def _closed_spool(inode: Inode) -> Spool | None:
    """What was closed of the content of an inode, `None` if that is the published one."""
    # What was written since the last close is no part of it; a published file then has its published content.
    spool = inode.kept if inode.unflushed and (inode.kept or inode.base or not inode.is_new) else inode.spool
    return spool if inode.dirty else None
