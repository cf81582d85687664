"""The journal of the staging area: what was closed here and may not be in the log yet, so that it survives a crash.

Journal and log are one history (`replay`): a frame of the journal says how many transactions of the log were before it,
and a transaction that publishes something says how many frames were.  So a crash leaves a beginning of that history,
and there is no order in which the two must reach the disk.  Two rules hold this together: who syncs one of them syncs
both, with the files beside the journal that hold large contents (`spool`); and neither a frame nor such a file goes
before what made it superfluous is synced.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from basefs.durable import sync_directory, sync_file
from basefs.errors import NoSpace, StoreError
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
    Taken,
    WithdrawnName,
    decode,
    decode_published,
    encode,
    encode_published,
)
from basefs.fs.staging.replay import Row
from basefs.fs.staging.spool import Spool, TornSpool, as_store_error
from basefs.fs.staging.wal import WriteAheadLog
from basefs.log.content import Content
from basefs.log.receipts import Receipt
from basefs.path import Path
from basefs.replica.replica import Applied, Replica

log = logging.getLogger(__name__)

JOURNAL_FILE = "journal"
#: Bytes from which on it is written anew without what is not needed, and by how much it must have grown since then.
COMPACT_BYTES = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Sync:
    """What is being synced.

    Attributes:
        spools: spool files.
        dead: files that can go afterwards.
        detached: how many files have lost their place in the view.
    """

    spools: set[Spool]
    dead: set[pathlib.Path]
    detached: int


class StagingJournal:
    """What of the staging area is on disk."""

    def __init__(self, directory: pathlib.Path, overlay: Overlay, replica: Replica) -> None:
        """Open the journal in a directory that is made if it is missing.  Raises `StoreError`."""
        try:
            if not directory.exists():
                directory.mkdir(mode=0o700)
                sync_directory(directory.parent)
        except OSError as error:
            raise as_store_error(error, directory) from None
        self._overlay = overlay
        self._replica = replica
        self._directory = directory
        self._wal = WriteAheadLog(directory / JOURNAL_FILE)
        #: Of the next spool file; an earlier process may have left some.
        self._numbers = itertools.count(1 + max(map(_number_of, directory.glob("*.spool")), default=-1))
        #: Whether it is that of an earlier process, which knew the inodes by other numbers.
        self._is_stale = not self._wal.is_fresh
        #: Whether nothing that it holds counts.
        self._is_void = True
        #: What the frame will have that is being made.
        self._frame: list[Record] | None = None
        #: Inodes that it tells of, and the spool file of each that it names.
        self._known: dict[int, str | None] = {}
        #: Likewise names.  One that was given to a file which nobody has closed is still that of the one before.
        self._told: dict[Path, str | None] = {}
        #: Spool files that only a crash could need, those of them that a name kept at the last sync, and those that are
        #: not synced.
        self._dead: set[pathlib.Path] = set()
        self._held: set[pathlib.Path] = set()
        self._unsynced: set[Spool] = set()
        #: Files whose place in the view goes to another one, and how many of them are synced.
        self._detached = self._synced_detached = 0
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

    def _remove(self, path: pathlib.Path) -> None:
        """A spool file that a record has is not needed any more, but after a crash."""
        self._dead.add(path)

    # -- writing ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def frame(self) -> Iterator[None]:
        """A crash leaves all that is recorded inside, or nothing.  Raises `NoSpace`, `StoreError` at the end."""
        if self._frame is not None:
            yield
            return
        self._frame = []
        try:
            yield
        finally:
            records, self._frame = self._frame, None
            self._write(records)

    def _append(self, record: Record) -> None:
        if self._frame is None:
            self._write([record])
        else:
            self._frame.append(record)

    def _write(self, records: Sequence[Record]) -> None:
        if records:
            self.renew()
            frame = Frame(self._replica.receipt_count(self._wal.generation), tuple(records))
            try:
                self._wal.append(encode(frame))
            except BaseException:
                self._known.clear()
                raise
            self._is_void = False
            for record in records:
                self._tell(record)

    def _tell(self, record: Record) -> None:
        """Note what a crash would leave of the names in a record that was written."""
        if isinstance(record, StagedInode):
            spool = record.content[0] if isinstance(record.content, tuple) else None
            self._told.update((path, spool) for path, _ in record.names)
        elif isinstance(record, StagedName):
            self._told[record.path] = None if record.number is None else self._known[record.number]
        elif isinstance(record, WithdrawnName):
            self.forget(record.path)

    def put_inode(self, inode: Inode, *, empty: bool = False, detached: bool = False) -> None:
        """The state of an inode and its names, with the content that was closed last.

        `empty`: also a file that is still as it was created; `detached`: its place in the view was taken.  Raises
        `NoSpace`, `StoreError`.
        """
        if inode.unflushed and inode.is_new and inode.kept is None and inode.base is None and not empty:
            # Nothing of it was closed.
            return
        self._append(self._record_of(inode, detached=detached))
        self._note(inode)
        if (spool := _closed_spool(inode)) is not None:
            self._unsynced.add(spool)
        inode.journaled = True
        self._detached += detached
        if inode.kept is not None and not inode.unflushed:
            inode.kept.close()
            inode.kept = None

    def _note(self, inode: Inode) -> None:
        """The journal has an inode, with what was closed of its content."""
        spool = _closed_spool(inode)
        self._known[inode.number] = _file_of(spool)
        if spool is not None:
            spool.is_recorded = True

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

    def put_home(self, inode: Inode) -> None:
        """The path in the view of an inode.  Raises `NoSpace`, `StoreError`."""
        if inode.number in self._known:
            self._append(StagedHome(inode.number, inode.home))

    def withdraw(self, path: Path) -> None:
        """Nothing is staged at a name any more, and nothing was published.  Raises `NoSpace`, `StoreError`."""
        if path in self._told or self._frame:
            self._append(WithdrawnName(path))

    def forget(self, path: Path) -> None:
        """A crash leaves nothing staged at a name: it is published, or was withdrawn."""
        self._told.pop(path, None)

    def moved(self, source: Path, target: Path) -> None:
        """A directory has moved, with everything in it."""
        size = len(source)
        for path in [path for path in self._told if path[:size] == source]:
            self._told[target + path[size:]] = self._told.pop(path)

    def move_tree(self, source: Path, target: Path) -> None:
        """A directory that was never published is moved, with everything in it.  Raises `NoSpace`, `StoreError`."""
        self._append(MovedTree(source, target))

    @property
    def position(self) -> int:
        """How many frames there are."""
        return self._wal.count

    def publish(self, commit: Callable[..., Applied], taken: Callable[[], Taken]) -> Applied:
        """Commit to the log what `taken` returns when it is drafted.  Raises what `commit` raises.

        `commit` is `Replica.commit` without its last argument, `receipt`.  The journal must not be written anew from
        the plan to the end of this.
        """

        def receipt() -> Receipt:
            self._receipts += 1
            row = encode_published(Published(self._wal.count, taken()))
            return Receipt(self._wal.generation, row, self._wal.is_only)

        return commit(receipt=receipt)

    # -- beginning again ----------------------------------------------------------------------------------------------

    def tidy(self) -> None:
        """Forget what was published and synced, if nothing else is staged or it has become long.

        Raises `StoreError`.
        """
        if self._receipts != self._synced_receipts or not self._wal.is_durable or self._unsynced:
            return
        if self._wal.size > COMPACT_BYTES + 2 * self._compacted:
            # What it holds is durable; on a full disk it stays.
            with contextlib.suppress(NoSpace):
                self._rewrite()
        elif not self._overlay and not self._is_void:
            self._write([Emptied()])
            self._forget()
            self._is_void = True

    def renew(self) -> None:
        """Begin again, if it is that of an earlier process still, because the disk was full.

        Raises `NoSpace`, `StoreError`.
        """
        if self._is_stale:
            spools = {_closed_spool(inode) for _, inode in self._overlay.items() if inode is not None}
            self._unsynced.update(spool for spool in spools if spool is not None)
            sync = self.begin_sync()
            try:
                self.finish_sync(sync)
                self._rewrite()
            except BaseException:
                self.undo_sync(sync)
                raise

    def _rewrite(self) -> None:
        """Begin again with all that is staged and was closed; everything must be synced."""
        records: list[Record] = []
        seen: set[Inode] = set()
        for path, inode in self._overlay.items():
            if inode is None:
                records.append(StagedName(path, None, self._overlay.seen(path)))
            elif inode.journaled and inode not in seen:
                seen.add(inode)
                records.append(self._record_of(inode))
        self._wal.reset(encode(Frame(0, (record,))) for record in records)
        self._forget()
        self._is_stale, self._is_void = False, not records
        for inode in seen:
            self._note(inode)
        for record in records:
            self._tell(record)
        self._compacted = self._wal.size
        # What is published from now on is recorded for the new journal, so the old one must not come back.
        self._wal.sync()

    def _forget(self) -> None:
        self._known.clear()
        self._told.clear()
        self._compacted = 0

    # -- durability ---------------------------------------------------------------------------------------------------

    @property
    def is_durable(self) -> bool:
        """Whether `sync` has nothing to do, or another thread does it."""
        return self._wal.is_durable and not self._dead and not self._unsynced and (self._is_void or bool(self._overlay))

    @property
    def is_first(self) -> bool:
        """Whether it must be synced before the log goes on: of a file whose place goes to another one it has all."""
        return self._detached != self._synced_detached

    @property
    def has_dead(self) -> bool:
        """Whether there are files that a sync would remove."""
        return bool(self._dead)

    def begin_sync(self) -> Sync:
        """Take up what has to be synced now, for `finish_sync`."""
        superfluous = self._dead | self._held
        needed = set(self._told.values()) if superfluous else set()
        self._held = {path for path in superfluous if path.name in needed}
        spools = {spool for spool in self._unsynced if spool.is_on_disk}
        sync = Sync(spools, superfluous - self._held, self._detached)
        self._unsynced, self._dead = set(), set()
        return sync

    def finish_sync(self, sync: Sync) -> None:
        """Make what was taken up survive a power cut, and remove the files that nothing needs then; needs no lock.

        Raises `StoreError`; the caller then calls `undo_sync`.
        """
        try:
            for spool in sorted(sync.spools, key=lambda spool: spool.path):
                # One that is gone is not needed.
                with contextlib.suppress(FileNotFoundError):
                    sync_file(spool.path)
            if sync.spools:
                sync_directory(self._directory)
        except OSError as error:
            raise as_store_error(error, self._directory) from None
        self._wal.sync()
        self.sync_log()
        self._synced_detached = max(self._synced_detached, sync.detached)
        for path in sorted(sync.dead):
            path.unlink(missing_ok=True)
        # This may need the room of those files.
        self._replica.write_back()

    def undo_sync(self, sync: Sync) -> None:
        """It is not known what of that is durable: another sync must take it up again."""
        self._unsynced |= sync.spools
        self._dead |= sync.dead

    def sync_log(self) -> None:
        """Make what was published until now survive a power cut; needs no lock.  Raises `StoreError`."""
        receipts = self._receipts
        self._replica.sync_to_disk()
        self._synced_receipts = max(self._synced_receipts, receipts)

    def close(self) -> None:
        """Release the file."""
        self._wal.close()

    # -- loading ------------------------------------------------------------------------------------------------------

    def load(self) -> tuple[list[Frame], list[Row], bool]:
        """What an earlier process left here and in the log, and whether that is all.

        A copy of what cannot be read is kept beside it.  Raises `StoreError`.
        """
        # What a killed process has written last may be lost yet.
        self._wal.sync()
        self.sync_log()
        frames: list[Frame] = []
        rows: list[Row] = []
        try:
            for raw, hashes in self._replica.receipts(self._wal.generation):
                rows.append((decode_published(raw), hashes))
            for raw in self._wal.load():
                frames.append(decode(raw))
        except ValueError as error:
            self.keep_unreadable(error)
            return frames, rows, False
        return frames, rows, True

    def keep_unreadable(self, error: Exception) -> None:
        """Nothing is thrown away: what could be read is used, the rest stays beside it for people."""
        kept = self._directory / f"{JOURNAL_FILE}.unreadable"
        try:
            kept.write_bytes((self._directory / JOURNAL_FILE).read_bytes())
        except OSError as full:
            raise as_store_error(full, kept) from None
        log.error("cannot read the journal of unpublished changes, kept as %s: %r", kept, error)

    def loaded(self, used: Iterable[Inode], *, is_whole: bool) -> None:
        """What was loaded is staged: write the journal anew, now or when there is room.

        Spool files that none of these inodes uses go; if not everything could be read, they are kept under another
        name.  Raises `StoreError`.
        """
        in_use = {inode.spool.path for inode in used if inode.spool is not None}
        unused = [path for path in self._directory.glob("*.spool") if path not in in_use]
        self._told = {path: None if inode is None else _file_of(inode.spool) for path, inode in self._overlay.items()}
        # On a full disk what it holds is there to be read, and whoever changes something gets the error.
        with contextlib.suppress(StoreError):
            self.renew()
        for path in unused:
            if not is_whole:
                path.replace(path.with_suffix(".unreadable"))
            else:
                self._dead.add(path)


def _number_of(path: pathlib.Path) -> int:
    return int(path.stem) if path.stem.isdigit() else -1


def _file_of(spool: Spool | None) -> str | None:
    return spool.path.name if spool is not None and spool.is_on_disk else None


def _closed_spool(inode: Inode) -> Spool | None:
    """What was closed of the content of an inode, `None` if that is the published one."""
    # What was written since the last close is no part of it; a published file then has its published content.
    spool = (
        inode.kept if inode.unflushed and (inode.kept is not None or inode.base or not inode.is_new) else inode.spool
    )
    return spool if inode.dirty else None
