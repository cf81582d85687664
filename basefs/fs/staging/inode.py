"""Inodes: files, directories and symbolic links that are open here, or differ from what the view shows."""

from __future__ import annotations

from dataclasses import dataclass, field

from basefs.fs.staging.spool import Spool
from basefs.log.content import Content
from basefs.log.hashes import EntryHash
from basefs.path import Path
from basefs.replica.replica import Attributes
from basefs.view.states import Kind, Owner

#: The bits that a mount shows and sets: setuid, setgid and sticky stay in the log.
PERMISSION_BITS = 0o777


@dataclass(slots=True, eq=False)
class Inode:
    """One file, directory or symbolic link of this node.

    Attributes:
        number: `st_ino`.
        kind: what it is.
        names: those that the overlay gives to it; empty while it is where the view shows it.
        home: its path in the view, `None` while it has none; of an older version of a new file, where it was open.
        origin: the entry that began it in the view, `None` while its file is not in the view.
        shown: what the view showed of it when it was found there.
        base: the write entry whose content it has, unless it was changed.
        base_size: its bytes, where the view shows nothing of it.
        snapshot: that content, once somebody has opened it.
        spool: its content, if it was written here.
        kept: the spool that the journal names, while the content is changed further.
        target: of a symbolic link.
        mode, owner: set here and not published; `None` is as in the view.
        mtime: nanoseconds, set here and not published.
        ctime: nanoseconds; `None` is `mtime`.
        exact: whether an application has chosen the modification time.
        dirty: whether the content differs from the published one.
        unflushed: whether a writer has not closed or synced what it wrote.
        written: whether bytes came since the last flush.
        journaled: whether the journal knows it.
        unlinked: whether it has lost its last name; it lives on for those who have it open.
        parted: whether the kernel knows it from what another node has made of its path since it was opened.
        refused: why the log would not take it, empty while nothing is wrong.
        closed_at: when a writer has last closed or synced it, on the monotonic clock.
        handles, writers: open files, and how many of them may write.
        version, content_version: counted up by each change, and by each change of the content.
    """

    number: int
    kind: Kind
    names: dict[Path, None] = field(default_factory=dict)
    home: Path | None = None
    origin: EntryHash | None = None
    shown: Attributes | None = None
    base: EntryHash | None = None
    base_size: int = 0
    snapshot: Content | None = None
    spool: Spool | None = None
    kept: Spool | None = None
    target: bytes = b""
    mode: int | None = None
    owner: Owner | None = None
    mtime: int | None = None
    ctime: int | None = None
    exact: bool = False
    dirty: bool = False
    unflushed: bool = False
    written: bool = False
    journaled: bool = False
    unlinked: bool = False
    parted: bool = False
    refused: str = ""
    closed_at: float = 0.0
    handles: int = 0
    writers: int = 0
    version: int = 0
    content_version: int = 0

    @property
    def is_new(self) -> bool:
        """Whether it was never published."""
        return self.origin is None

    def take_unset(self, mode: int | None, owner: Owner | None) -> None:
        """Have this mode and owner, where none was set here."""
        self.mode = mode if self.mode is None else self.mode
        self.owner = owner if self.owner is None else self.owner

    def close(self, now: float) -> None:
        """A writer has closed or synced it at `now`, on the monotonic clock."""
        self.written = self.unflushed = False
        self.closed_at = now

    @property
    def is_loaded(self) -> bool:
        """Whether its content is at hand."""
        return self.spool is not None or self.snapshot is not None

    @property
    def is_pending(self) -> bool:
        """Whether anything was set here that is not published."""
        return self.dirty or (self.mode, self.owner, self.mtime) != (None, None, None)

    @property
    def size(self) -> int:
        """Bytes of its content, or of the target of a symbolic link."""
        if self.spool is not None:
            return len(self.spool)
        if self.snapshot is not None:
            return self.snapshot.size
        return max(len(self.target), self.base_size) if self.shown is None else self.shown.size

    def read(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes from `offset`.  Raises `StoreError`."""
        if self.spool is not None:
            return self.spool.read(size, offset)
        assert self.snapshot is not None
        return self.snapshot.read(offset, size)

    def touch(self, now: int) -> None:
        """The content has changed at `now` (nanoseconds)."""
        self.mtime = self.ctime = now
        self.exact = False
        self.dirty = self.unflushed = self.written = True
        self.version += 1
        self.content_version += 1

    def settle(self) -> None:
        """What was set here is published."""
        self.mode = self.owner = self.mtime = self.ctime = None
        self.exact = self.dirty = self.journaled = False
        self.refused = ""
        if self.kept is not None:
            self.kept.close()
            self.kept = None

    def forget_content(self) -> None:
        """Nobody has it open, and the log has it."""
        for spool in (self.spool, self.kept):
            if spool is not None:
                spool.close()
        self.spool = self.kept = None
        self.forget_snapshot()

    def forget_snapshot(self) -> None:
        """Let go of the published content."""
        if self.snapshot is not None:
            self.snapshot.close()
            self.snapshot = None
