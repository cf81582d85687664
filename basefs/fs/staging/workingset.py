"""The working set: what was changed on this node and is not published yet (docs/fs.md).

Invariants

1. A name is what the overlay says, and otherwise what the view shows.
2. An inode is in the overlay under all of its `names`.
3. What is pending and was closed is in the journal.
4. `by_origin` holds the inode to which the names of a file of the view lead, if it is open or pending.
5. An older version is an inode that was opened before another node changed its file.  It has no `names`, is in `opened`
   alone, and finds its file by `origin`, or by `home` where the file is not in the view.

Everything here is done holding `lock`, which is taken before the replica's and never after it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from basefs.errors import (
    Exists,
    NotADirectory,
    NotFound,
    NotPermitted,
    PathError,
    PermissionDenied,
    ReadOnly,
    StoreError,
)
from basefs.fs.machine import THIS_MACHINE, Machine
from basefs.fs.owners import Owners
from basefs.fs.staging.identity import Identities
from basefs.fs.staging.inode import Inode
from basefs.fs.staging.journal import StagingJournal
from basefs.fs.staging.overlay import MISSING, Overlay
from basefs.fs.staging.replay import Found, Made, Replay, known
from basefs.fs.staging.scratch import HIDDEN_PREFIX, ScratchNames
from basefs.fs.staging.spool import Spool, TornSpool
from basefs.fs.staging.vacancies import HIDE_SECONDS, Vacancies
from basefs.log.content import BytesContent, Content
from basefs.log.entries import Entry
from basefs.log.hashes import EntryHash
from basefs.path import Path, check_length, check_name, display
from basefs.replica.replica import Applied, Attributes, Replica
from basefs.view.changes import removed_origins
from basefs.view.observed import Version, follow
from basefs.view.quotas import Use, exceeded, is_within
from basefs.view.states import Kind, Owner, State

log = logging.getLogger(__name__)

DIRECTORY = "working"
#: Seconds after which the journal is told that libfuse took the name away from an open file: a rename that gives it to
#: another one has come by then, and if this process is killed before it, what was removed is back, but nothing that was
#: being replaced is lost.
NOTE_SECONDS = 0.002

#: Entries that publishing a name takes at the most: what it is, and its mode.
_ENTRIES_A_NAME = 2


class WorkingSet:
    """Names and inodes of this node.

    Attributes:
        lock: held by whoever looks or changes something.
        replica: the filesystem below.
        owners: maps owners.
        machine: time and timers.
        overlay: names that are not what the view shows.
        identities: inode numbers and times.
        by_origin: inodes of the view that are open or pending.
        opened: inodes with handles.
        hidden: open files without a name, by the name that libfuse gave them.
        in_flight: names that are being published.
        mirrored: whether the mirror parts what is open from what another node makes of its path.
        moving: directories that are being renamed here.
        vacancies: removed names that may be given to another file in a moment.
        journal: what of this survives the death of the process.
        scratch: the names that never leave this node.
    """

    def __init__(
        self,
        replica: Replica,
        owners: Owners,
        clock: Callable[[], float],
        scratch: ScratchNames | None = None,
        machine: Machine = THIS_MACHINE,
    ) -> None:
        """Load what an earlier process left.  Raises `StoreError`."""
        self.lock = threading.RLock()
        self.replica = replica
        self.owners = owners
        self.machine = machine
        self.scratch = scratch or ScratchNames()
        self.overlay = Overlay()
        self.identities = Identities(clock)
        self.by_origin: dict[EntryHash, Inode] = {}
        self.hidden: dict[Path, Inode] = {}
        self.opened: set[Inode] = set()
        self.in_flight: set[Path] = set()
        self.mirrored = False
        self.moving: tuple[Path, ...] = ()
        self._clock = clock
        self._listeners: list[Callable[[bool, bool], None]] = []
        self._overruled: list[Callable[[Path, State | None, State], None]] = []
        #: What began files that the view does not show any more, and of which numbers and times may be kept.
        self._gone: deque[EntryHash] = deque()
        self.vacancies = Vacancies(self.overlay, self._note_gone, machine.steady)
        self.journal = StagingJournal(replica.directory / DIRECTORY, self.overlay, replica)
        #: Held for a whole sync, so that whoever finds another one syncing waits for it.
        self._syncing = threading.Lock()
        self._is_closed = False
        self._load()
        replica.subscribe(self._on_applied)

    def _on_applied(self, applied: Applied) -> None:
        # Without the lock: whoever commits may hold it, and wait for this to end.
        self._gone.extend(removed_origins(applied.changes))

    def on_change(self, listener: Callable[[bool, bool], None]) -> None:
        """Have `listener` called after each change; it is given the arguments of `changed`."""
        self._listeners.append(listener)

    def changed(self, *, urgent: bool = False, closed: bool = False) -> None:
        """Something may have to be published.

        `urgent`: at once, a file that others know was rewritten in place; `closed`: soon, a new one is complete.
        """
        for listener in self._listeners:
            listener(urgent, closed)

    def on_overruled(self, listener: Callable[[Path, State | None, State], None]) -> None:
        """Have `listener` called where another node's version shows in the place of what was changed here.

        Its arguments are the path, what was there until now, and what is there now.  It must not wait for anything.
        """
        self._overruled.append(listener)

    def overruled(self, path: Path, before: State | None, after: State) -> None:
        """What was changed here is published, and another node's version has won."""
        for listener in self._overruled:
            listener(path, before, after)

    def close(self) -> None:
        """Make everything durable and release the files.  Raises `StoreError`."""
        with self._syncing:
            try:
                # So the journal of what is published ends, and nothing depends on receipts.
                self._sync()
            finally:
                with self.lock:
                    self._is_closed = True
                    self.journal.close()

    def now(self) -> int:
        """Nanoseconds since 1970."""
        return int(self._clock() * 1_000_000) * 1000

    def new_spool(self, content: Content | None = None) -> Spool:
        """A place for the content of a file."""
        return self.journal.new_spool(content)

    # -- looking ------------------------------------------------------------------------------------------------------

    def find(self, path: Path) -> tuple[Inode | None, Attributes | None]:
        """What is at a path: its inode if it is open or pending, and what the view shows, if it is in the view.

        Raises `NotFound`, `NotADirectory`.
        """
        slot = self.overlay.get(path)
        if slot is None:
            raise NotFound(f"{display(path)} was removed")
        if slot is not MISSING:
            return slot, self.attributes(slot)
        if path and path[-1].startswith(HIDDEN_PREFIX) and path in self.hidden:
            inode = self.hidden[path]
            return inode, self.attributes(inode)
        if self.overlay.hides(path):
            raise NotFound(f"{display(path)} does not exist")
        attributes = self.replica.attributes(path)
        if not self.by_origin or attributes.origin is None:
            return None, attributes
        known = self.by_origin.get(attributes.origin)
        if known is not None and not known.dirty and known.base != attributes.content:
            # Who has it open keeps the version that they opened.  While the kernel takes both for one file, everybody
            # else sees that version too, or its size would be that of the one and its pages those of the other.
            if self.mirrored and known.handles and not known.parted:
                return known, known.shown
            known = self._opened(attributes)
        return known, attributes

    def _opened(self, attributes: Attributes) -> Inode | None:
        """The inode by which somebody has this version of a file open, to which its names do not lead."""
        version = attributes.origin, attributes.content
        return next((inode for inode in self.opened if (inode.origin, inode.base) == version and not inode.dirty), None)

    def attributes(self, inode: Inode) -> Attributes | None:
        """What the view shows of an inode; what it showed last, if that is gone; `None` if it was never published."""
        if inode.home is None or inode.origin is None:
            return inode.shown
        try:
            found = self.replica.attributes(inode.home)
        except PathError:
            return inode.shown
        return found if found.origin == inode.origin and self._is_current(inode, found) else inode.shown

    @staticmethod
    def _is_current(inode: Inode, attributes: Attributes) -> bool:
        return inode.dirty or inode.base == attributes.content

    def exists(self, path: Path) -> bool:
        """Whether there is anything at a path."""
        try:
            self.find(path)
        except (NotFound, NotADirectory):
            return False
        return True

    def is_published(self, path: Path) -> bool:
        """Whether the log has something live at a path, or is being given it."""
        if path in self.in_flight:
            return True
        try:
            self.replica.attributes(path)
        except PathError:
            return False
        return True

    def is_directory_of_view(self, path: Path) -> bool:
        """Whether the view shows a directory at a path, whatever is there on this node."""
        try:
            return self.replica.attributes(path).kind is Kind.DIRECTORY
        except PathError:
            return False

    def directory(self, path: Path) -> tuple[Inode | None, Attributes | None]:
        """A directory.  Raises `NotFound`, `NotADirectory`."""
        inode, attributes = self.find(path)
        kind = inode.kind if inode is not None else attributes.kind if attributes is not None else Kind.ABSENT
        if kind is not Kind.DIRECTORY:
            raise NotADirectory(f"{display(path)} is not a directory")
        return inode, attributes

    def kinds(self, path: Path) -> dict[bytes, tuple[Kind, int]]:
        """The names in a directory, with kind and inode number.  Raises `NotFound`, `NotADirectory`."""
        inode, _ = self.directory(path)
        found: dict[bytes, tuple[Kind, int]] = {}
        if inode is None or not inode.is_new:
            number = self.identities.number
            # Another node may have removed a directory whose mode or time was set here.
            with contextlib.suppress(PathError):
                found = {name: (kind, number(origin)) for name, kind, origin in self.replica.entries_in(path)}
        for name, slot in self.overlay.within(path):
            if slot is None:
                found.pop(name, None)
            else:
                found[name] = (slot.kind, slot.number)
        return found

    def links(self, inode: Inode) -> int:
        """How many names a file has."""
        if inode.unlinked:
            return 0
        newest = None if inode.names else self._newest(inode)
        if newest is not None and newest.names:
            # An older version of a file that is staged under these names.
            return self.links(newest)
        if inode.is_new or inode.home is None:
            return len(inode.names)
        return len(self.live_names(inode))

    def is_moving(self, path: Path) -> bool:
        """Whether a path changes because this node renames a directory above it."""
        return any(path[: len(moved)] == moved for moved in self.moving)

    def stale(self, origin: EntryHash | None, content: EntryHash | None) -> list[Inode]:
        """The open inodes of a file with another content than this one, which another node has given to it."""
        with self.lock:
            return [
                inode
                for inode in self.opened
                if inode.origin == origin and inode.base != content and not inode.names and not inode.parted
            ]

    def published_links(self, path: Path, attributes: Attributes) -> int:
        """How many names something of the view has, without those that were removed here."""
        if attributes.links == 1 or attributes.kind is Kind.DIRECTORY or not self.overlay:
            return attributes.links
        return sum(map(self.shows_view, self.replica.names_of(path)))

    def shows_view(self, path: Path) -> bool:
        """Whether a path is here what the view shows there."""
        try:
            return self.overlay.get(path) is MISSING and not self.overlay.hides(path)
        except NotADirectory:
            return False

    def live_names(self, inode: Inode) -> set[Path]:
        """All names of an inode."""
        live = set(inode.names)
        if inode.home is not None and inode.origin is not None:
            if self._is_home(inode, inode.home):
                published = self.replica.names_of(inode.home)
            else:
                # Another node may have moved the file away from what was changed here.
                published = self.replica.names_from(inode.origin)
            live.update(filter(self.shows_view, published))
        return live

    def _other_homes(self, inode: Inode) -> set[Path]:
        """Where the view has an inode, too; of one that is staged nowhere if another node has taken its home away."""
        is_home = inode.home is not None and self._has_home(inode, inode.home)
        return self.live_names(inode).difference(inode.names) if is_home or not inode.names else set()

    def catch_up(self, inode: Inode) -> None:
        """An inode learns its new origin where another node has written to a file whose first name is gone.

        All names of the file then lead to it again.
        """
        attributes = None
        if inode.origin is not None and inode.home is not None:
            with contextlib.suppress(PathError):
                attributes = self.replica.attributes(inode.home)
        shown = None if attributes is None else attributes.origin
        if attributes is None or shown is None or shown == inode.origin:
            return
        other = self.by_origin.get(shown)
        if other is not None and other is not inode and other.names and inode.names:
            # Both were changed, as files of their own.
            return
        origin: EntryHash | None = shown
        while origin is not None and origin != inode.origin:
            origin = self.replica.continues(origin)
        if origin is None:
            return
        if self.by_origin.get(origin) is inode:
            del self.by_origin[origin]
        inode.origin = shown
        if inode.names:
            self.identities.carry(inode.number, origin, attributes)
            self.by_origin[shown] = inode
        else:
            inode.number = self.identities.number(shown)

    # -- rights -------------------------------------------------------------------------------------------------------

    def check_writable(self, path: Path, attributes: Attributes | None) -> None:
        """Raise `PermissionDenied` or `ReadOnly` where this node may not write.

        Args:
            path: the path.
            attributes: what the view shows there; `None` if it was never published, and the directory above decides.
        """
        slots = self.overlay.along(path[:-1]) if attributes is None else []
        depth = len(path)
        while attributes is None:
            depth -= 1
            slot = slots[depth] if depth < len(slots) else None
            if slot is None or slot is MISSING:
                attributes = self.replica.attributes(path[:depth])
            else:
                attributes = self.attributes(slot)
        if not attributes.writable:
            if self.replica.damaged:
                raise ReadOnly("the log is damaged and takes no writes: see 'basefs check'")
            raise PermissionDenied(
                f"no key of this node may write at {display(path[:depth])}: ask a key holder for 'basefs grant'"
            )
        if attributes.limited:
            self._check_quotas(path, None, 0)

    def check_growth(self, inode: Inode, size: int) -> None:
        """Raise `QuotaExceeded` where a file of this size does not fit into a quota any more."""
        path = next(iter(inode.names), inode.home)
        if path is not None and self._is_limited(path):
            self._check_quotas(path, inode, size)

    def check_move(self, source: Path, inode: Inode | None, attributes: Attributes | None, target: Path) -> None:
        """Raise `QuotaExceeded` where what was found at a path does not fit into the quota of another one."""
        if not self._is_limited(target):
            return
        size = attributes.size if attributes is not None else 0 if inode is None else inode.size
        left, before = self.replica.quota_left(target), self.replica.quota_left(source)
        # Within its quotas a file is moved by a link, otherwise it is copied.
        is_same = left is not None and before is not None and left.keys() == before.keys()
        if not is_same or (inode is not None and inode.dirty):
            self._check_quotas(target, inode, size)

    def _is_limited(self, path: Path) -> bool:
        """Whether the key of this node that signs at a path has a quota."""
        while self.replica.has_quotas:
            try:
                return self.replica.attributes(path).limited
            except (NotFound, NotADirectory):
                path = path[:-1]
        return False

    def _check_quotas(self, path: Path, inode: Inode | None, size: int) -> None:
        """Raise `QuotaExceeded` if a change at a path does not fit with what is staged; `size`: of this inode."""
        left = self.replica.quota_left(path)
        if left is None:
            return
        for top, rest in left.items():
            staged = [one for at, one in self.overlay.items() if at[: len(top)] == top and at != path]
            files = {id(one): one.size for one in staged if isinstance(one, Inode) and one.dirty and one is not inode}
            if is_within(rest, Use(size + sum(files.values()), _ENTRIES_A_NAME * (len(staged) + 1))):
                return
        raise exceeded(path)

    @staticmethod
    def check_name(path: Path) -> None:
        """Raise `NameTooLong`, `InvalidName` or `NotPermitted` for a name that nothing can have."""
        check_name(path[-1])
        check_length(path)
        if path[-1].startswith(HIDDEN_PREFIX):
            raise NotPermitted(f"names that begin with {HIDDEN_PREFIX.decode()} belong to FUSE")

    def check_new(self, path: Path) -> None:
        """Raise what making a path would raise: `Exists`, `NotFound`, `NotADirectory`, `PermissionDenied`, ..."""
        if not path:
            raise Exists("/ exists already")
        self.check_name(path)
        _, attributes = self.directory(path[:-1])
        if self.exists(path):
            raise Exists(f"{display(path)} exists already")
        self.check_writable(path, attributes)

    def owner_of(self, caller: tuple[int, int] | None) -> Owner | None:
        """The owner of what a user makes; `None` for whoever mounts."""
        return None if caller is None else self.owners.maker(*caller)

    # -- inodes -------------------------------------------------------------------------------------------------------

    def adopt(self, path: Path, attributes: Attributes) -> Inode:
        """The inode of something that the view shows, in order to open or change it."""
        inode = Inode(
            self.identities.number(attributes.origin),
            attributes.kind,
            home=path,
            origin=attributes.origin,
            shown=attributes,
            base=attributes.content,
        )
        if attributes.kind is Kind.SYMLINK:
            inode.target = self.replica.read_link(path)
        assert attributes.origin is not None
        self.lead(attributes.origin, inode)
        return inode

    def open_content(self, write: EntryHash | None) -> Content:
        """The content of a write entry, empty without one.  Raises `StoreError`."""
        return BytesContent(b"") if write is None else self.replica.open_write(write)

    def load(self, inode: Inode) -> None:
        """Have the content of a file at hand.  Raises `StoreError`."""
        if not inode.is_loaded:
            inode.snapshot = self.open_content(inode.base)

    def make_spool(self, inode: Inode, *, empty: bool = False) -> Spool:
        """The content of a file, ready to be changed.  Raises `StoreError`."""
        if inode.spool is None:
            if not empty:
                self.load(inode)
            inode.spool = self.journal.new_spool(None if empty else inode.snapshot)
            inode.forget_snapshot()
        elif inode.spool.is_recorded:
            # The journal must find what was closed, whatever becomes of what is being written.
            closed, inode.spool = inode.spool, self.journal.copy_spool(inode.spool)
            if inode.journaled:
                inode.kept = closed
            else:
                closed.close()
        self.attach(inode)
        return inode.spool

    def lead(self, origin: EntryHash, inode: Inode) -> None:
        """An inode is this file of the view: the file's names lead to it, unless another one has them now."""
        other = self.by_origin.get(origin)
        if other is None or not other.names:
            self.by_origin[origin] = inode

    def attach(self, inode: Inode) -> None:
        """Give a pending inode a place in the overlay from which it is published: the name that the view has of it."""
        if inode.unlinked or inode.home is None or not self.stays_here(inode):
            return
        self.catch_up(inode)
        if self.unite(inode):
            return
        slot = self.overlay.get(inode.home)
        if slot is inode:
            return
        if not self.find_home(inode) and slot is not MISSING:
            return
        if inode.mode is None and inode.shown is not None and not self.is_published(inode.home):
            # Another node has removed it: it is made again, with the attributes that it had.
            inode.mode, inode.owner = inode.shown.mode, inode.shown.owner
        if inode.origin is not None:
            self.by_origin[inode.origin] = inode
        opened = self.attributes(inode)
        self.give(inode.home, inode, None if opened is None else opened.version)

    def _newest(self, inode: Inode) -> Inode | None:
        """The inode to which the names of this inode's file lead, maybe another version; `None` if to the view."""
        if inode.origin is not None:
            return self.by_origin.get(inode.origin)
        slot = MISSING if inode.home is None else self.overlay.get(inode.home)
        return slot if isinstance(slot, Inode) else None

    def _older(self, inode: Inode) -> list[Inode]:
        """The older versions that were opened by a name which this inode has here."""
        return [
            each
            for each in self.opened
            if each is not inode
            and each.origin == inode.origin
            and each.home in inode.names
            and not (each.names or each.unlinked)
        ]

    def unite(self, inode: Inode) -> bool:
        """An inode that is changed gets the names of another version of its file; returns whether that had any.

        One of them was opened before another node had changed the file, and one after: the last one that writes wins,
        and what it writes was made on the version that it has opened.
        """
        other = self._newest(inode)
        if other is None or other is inode or not other.names:
            return False
        opened = self.attributes(inode)
        for path in other.names:
            self.overlay.put(path, inode)
        if other.home in other.names and opened is not None:
            self.overlay.see(other.home, opened.version)
        inode.names, other.names = {**inode.names, **other.names}, {}
        inode.take_unset(other.mode, other.owner)
        if inode.mtime is None:
            inode.mtime, inode.exact = other.mtime, other.exact
        # All names of a file have one number, whichever version they show.
        inode.number = other.number
        if inode.origin is None:
            # What has the names of a new file has no home; the other version keeps the path by which it was open.
            inode.home, other.home = None, inode.home
        else:
            self.by_origin[inode.origin] = inode
        return True

    def place(self, inode: Inode, shown: Attributes | None, home: Path | None) -> None:
        """An inode is what the view shows at this path, or has no place there any more.

        Its older versions go with it, as they go with its names.  What names lead to it is told by `lead`, and `shown`
        of the inode is the caller's to set.
        """
        origin = None if shown is None else shown.origin
        if origin != inode.origin:
            for each in self._older(inode):
                each.origin = origin
                if shown is not None and each.shown is not None:
                    # What it was opened at belongs to the old path, and nothing at the new one can be a fork of that.
                    each.home, each.shown = home, each.shown._replace(version=shown.version)
        if inode.origin is not None and self.by_origin.get(inode.origin) is inode:
            del self.by_origin[inode.origin]
        inode.origin, inode.home = origin, home

    def give(self, path: Path, inode: Inode, seen: Version | None = None) -> None:
        """Give a name to an inode; `seen`: the version that it is made of, otherwise it is what the name shows."""
        self.vacancies.filled(path)
        if seen is None and self.overlay.get(path) is MISSING:
            seen = self._shown(path)
        self.overlay.put(path, inode, seen)
        inode.names[path] = None
        inode.version += 1
        if inode.journaled:
            self.journal.put_name(path, inode)

    def _shown(self, path: Path) -> Version | None:
        """What a name shows here, of which nothing is told; `None` where the view does not tell."""
        try:
            _, attributes = self.find(path)
        except PathError:
            return ()
        return None if attributes is None else attributes.version

    def take(self, path: Path, *, is_given: bool = False, is_moved: bool = False) -> None:
        """Take a name away from whatever has it.  The inode lives on while it has another one or is open.

        `is_given`: another inode gets the name at once, so the journal keeps the old one until that is closed;
        `is_moved`: the inode gets another name in a moment, and the caller calls `follow_names` then.
        """
        slot = self.overlay.get(path)
        inode = slot if isinstance(slot, Inode) else None
        seen = None
        if inode is None:
            inode, attributes = self.find(path)
            seen = None if attributes is None else attributes.version
        if inode is not None and path in inode.names:
            del inode.names[path]
            inode.version += 1
        if self.is_published(path):
            self.overlay.put(path, None, seen)
            if not is_given and path not in self.vacancies:
                self.journal.put_name(path, None)
        else:
            self.overlay.drop(path)
            if not is_given:
                self.journal.withdraw(path)
        if inode is not None:
            has_home = self.find_home(inode)
            if not (has_home or inode.names or is_moved):
                self._part(inode)
            elif has_home and inode.is_pending and self.stays_here(inode):
                # What was changed under the name that goes is published under one that stays.
                self.attach(inode)
                self.record(inode)
        if not is_moved:
            self.follow_names(path, inode)

    def follow_names(self, gone: Path, inode: Inode | None) -> None:
        """Older versions that were open by a name that `inode` has lost go on by another name of their file, if any."""
        for stale in self.opened:
            if stale is inode or stale.home != gone or stale.names:
                continue
            # A version whose file is not in the view knows it by the path alone: it was what has just lost that.
            current = inode if stale.origin is None else self.by_origin.get(stale.origin)
            left = self.live_names(stale) | (set() if current is None else set(current.names))
            if left:
                stale.home = min(left)
            else:
                self._part(stale)

    def find_home(self, inode: Inode) -> bool:
        """Whether the view still has a name of this inode, and moves the home there."""
        if inode.home is None:
            return False
        if self.overlay.get(inode.home) is MISSING and self._has_home(inode, inode.home):
            return True
        others = self._other_homes(inode)
        if others:
            self._move_home(inode, min(others))
        return bool(others)

    def leave_home(self, inode: Inode) -> None:
        """After a move: an inode that the view has nowhere any more is a file of its own from now on.

        Another node has removed it.  Otherwise a revert that brings that back would make it a name of this file.

        Raises `NoSpace`, `StoreError`.
        """
        if inode.origin is None or inode.home is None or not inode.names:
            return
        # This node may still say itself what is at the old place.
        is_ours = inode.home in inode.names or self.overlay.get(inode.home) is None
        if not is_ours and not self.replica.names_from(inode.origin):
            self.uproot(inode)

    def _has_home(self, inode: Inode, home: Path) -> bool:
        """Whether the view has an inode at this path: another node may have removed it."""
        self.catch_up(inode)
        return self._is_home(inode, home)

    def _is_home(self, inode: Inode, path: Path) -> bool:
        try:
            return self.replica.attributes(path).origin == inode.origin
        except PathError:
            return False

    def _move_home(self, inode: Inode, home: Path) -> None:
        """The view has an inode at this path, too, and the path that was its home goes to something else."""
        inode.home = home
        if inode.journaled:
            self.journal.put_home(inode)

    def _part(self, inode: Inode) -> None:
        """An inode has lost its last name."""
        if inode.handles:
            # Who has it open can still ask for its attributes.
            inode.shown = self.attributes(inode)
        inode.unlinked = True
        if inode.origin is not None and self.by_origin.get(inode.origin) is inode:
            del self.by_origin[inode.origin]
        self.forget_idle(inode)

    def touch_directory(self, path: Path, now: int) -> None:
        """The names in a directory have changed at `now` (nanoseconds)."""
        try:
            inode, attributes = self.find(path)
        except PathError:
            # Another node has removed it in this moment.
            return
        if inode is not None:
            inode.mtime = inode.ctime = now
            inode.exact = False
        elif attributes is not None and attributes.origin is not None:
            self.identities.remember(attributes, now, now)

    def settle_directory(self, path: Path) -> None:
        """What this node changed in a directory is published: it goes on showing when that was."""
        with contextlib.suppress(PathError):
            self.identities.confirm(self.replica.attributes(path))

    def hide(self, path: Path, hidden: Path) -> None:
        """An open file loses its name and stays reachable under another one for those who have it open."""
        inode, attributes = self.find(path)
        if inode is None:
            assert attributes is not None
            inode = self.adopt(path, attributes)
            self.load(inode)
        inode.handles += 1
        if self.overlay.get(path) is not None and self.is_published(path):
            # The rename that follows may give the name to another file: until then nobody needs to know.
            self.vacancies.keep(path, HIDE_SECONDS)
            self.machine.later(NOTE_SECONDS, partial(self._note_hidden, path))
        self.take(path)
        self.hidden[hidden] = inode

    def _note_hidden(self, path: Path) -> None:
        """What was hidden has lost its name for good, unless that was given to another file at once."""
        with self.lock:
            self.vacancies.note(path)

    def _note_gone(self, path: Path) -> bool:
        try:
            self.journal.put_name(path, None)
        except StoreError as error:
            log.error("cannot sync the removal of %s, not durable yet: %s", display(path), error)
            return False
        return True

    def unhide(self, hidden: Path) -> bool:
        """The last handle of a hidden file is closed; returns whether there was one of that name."""
        inode = self.hidden.pop(hidden, None)
        if inode is None:
            return False
        inode.handles -= 1
        self.forget_idle(inode)
        return True

    def separate(self, inode: Inode) -> None:
        """Make what an inode is under its names here a file of its own, that was never published."""
        attributes = self.attributes(inode)
        mtime, ctime = (self.now(),) * 2 if attributes is None else self.identities.times(attributes)
        other = Inode(
            self.identities.new_number(),
            inode.kind,
            names=inode.names,
            target=inode.target,
            mode=inode.mode if inode.mode is not None or attributes is None else attributes.mode,
            owner=inode.owner if inode.owner is not None or attributes is None else attributes.owner,
            mtime=mtime if inode.mtime is None else inode.mtime,
            ctime=inode.ctime or ctime,
            dirty=inode.kind is Kind.FILE,
        )
        if inode.kind is Kind.FILE:
            if inode.spool is not None:
                other.spool = self.journal.copy_spool(inode.spool)
            else:
                self.load(inode)
                other.spool = self.new_spool(inode.snapshot)
        for path in other.names:
            self.overlay.put(path, other)
        self.journal.put_inode(other, detached=True)
        for older in self._older(inode):
            older.origin = None
        inode.names = {}
        inode.version += 1
        inode.settle()
        if not self.find_home(inode):
            self._part(inode)
        self.forget_idle(inode)

    def uproot(self, inode: Inode) -> None:
        """Make an inode a file of its own, that was never published: another one gets its place in the view.

        Its content stays the published one until somebody changes it.  Raises `NoSpace`, `StoreError`.
        """
        attributes = self.attributes(inode)
        if attributes is not None:
            mtime, ctime = self.identities.times(attributes)
            inode.take_unset(attributes.mode, attributes.owner)
            inode.mtime = mtime if inode.mtime is None else inode.mtime
            inode.ctime = ctime if inode.ctime is None else inode.ctime
        assert inode.origin is not None
        if not inode.handles and self.stays_here(inode):
            # Its number follows from the place that it has lost; who stays here for long must have another.
            inode.number = self.identities.new_number()
        else:
            # Its number goes with it, so what gets its place has another one, also when it is removed and comes back.
            self.identities.part(inode.origin)
        self.place(inode, None, None)
        inode.shown = attributes
        inode.version += 1
        if inode.names:
            self.journal.put_inode(inode, detached=True)

    def forget_idle(self, inode: Inode) -> None:
        """Forget an inode that nobody has open and that holds nothing of its own."""
        if inode.handles or inode.names:
            return
        if inode.origin is not None and self.by_origin.get(inode.origin) is inode:
            del self.by_origin[inode.origin]
        inode.forget_content()

    @contextlib.contextmanager
    def renaming(self, *moving: Path) -> Iterator[None]:
        """The log is given inside that directories of the view are renamed, by which these paths change."""
        self.moving = moving
        try:
            yield
        finally:
            self.moving = ()

    def move(self, source: Path, target: Path) -> None:
        """What stands at a path of the view has moved: what is pending there and below goes along."""
        size = len(source)
        self.journal.moved(source, target)
        here = self.overlay.get(source)
        pending = [*self.overlay.below(source), *([] if here is MISSING else [(source, here)])]
        versions = [self.overlay.seen(path) for path, _ in pending]
        for path, _ in pending:
            self.overlay.drop(path)
        for (path, inode), seen in zip(pending, versions, strict=True):
            moved = (*target, *path[size:])
            self.overlay.put(moved, inode, seen)
            if inode is not None:
                inode.names = {moved if other == path else other: None for other in inode.names}
        for inode in {*self.by_origin.values(), *self.opened, *(i for _, i in self.overlay.items() if i is not None)}:
            if inode.home is not None and inode.home[:size] == source:
                inode.home = (*target, *inode.home[size:])
        for path in [path for path in self.hidden if path[:size] == source]:
            moved = (*target, *path[size:])
            self.hidden[moved] = self.hidden.pop(path)

    # -- the journal --------------------------------------------------------------------------------------------------

    def record(self, inode: Inode, *, empty: bool = False) -> None:
        """Make what was closed of a pending inode survive the death of this process.

        `empty`: also a file that is still as it was created.  Raises `NoSpace`, `StoreError`.
        """
        if inode.names:
            self.journal.put_inode(inode, empty=empty)

    def record_attributes(self, inode: Inode) -> None:
        """`record` after attributes or names have changed, and nothing else.  Raises `NoSpace`, `StoreError`."""
        if inode.names and inode.journaled:
            self.journal.put_attributes(inode)
        else:
            self.record(inode)

    def follow(self, entries: Sequence[EntryHash]) -> None:
        """What was published here has been seen here.

        Those are not only the names that were published: an entry that changes a file under one name follows a version
        that its other names share.
        """
        overlay = self.overlay
        for path, placed in self.replica.places(entries):
            for at in {path, *overlay.based_on(placed.entry.parent)}:
                seen = overlay.seen(at)
                if seen is not None:
                    overlay.see(at, follow(seen, placed, is_here=at == path))

    def drop(self, path: Path) -> None:
        """The view shows what the overlay said of a name: say nothing more."""
        self.journal.forget(path)
        self.overlay.drop(path)

    def withdraw(self, path: Path) -> None:
        """What the overlay says of a name will not be published: the name is what the view shows."""
        self.journal.withdraw(path)
        self.overlay.drop(path)

    def tidy(self) -> None:
        """Forget what is needed no longer, here and in the journal.  Raises `StoreError`."""
        with self.lock:
            self._forget_gone()
            # What is being published is taken from the journal that it was read from.
            if not self.in_flight:
                self.journal.tidy()

    def _forget_gone(self) -> None:
        """Let go of the identities of removed files that nobody has open."""
        used = {*self.by_origin, *(inode.origin for inode in (*self.opened, *self.hidden.values()))}
        for _ in range(len(self._gone)):
            origin = self._gone.popleft()
            if origin in used:
                self._gone.append(origin)
            elif not self.replica.names_from(origin):
                # It has not moved to where nobody has looked yet.
                self.identities.forget(origin)

    @property
    def is_durable(self) -> bool:
        """Whether all that is staged and published is synced, or another thread syncs it; without a lock."""
        return self.journal.is_durable and self.replica.is_durable

    def sync(self) -> None:
        """Make all that was closed survive a power cut.  Raises `StoreError`."""
        with self._syncing:
            # One that has waited for `close` has nothing left to do, and no files to do it with.
            if not self._is_closed:
                self._sync()

    def _sync(self) -> None:
        with self.lock:
            taken_up = self.journal.begin_sync()
        try:
            self.journal.finish_sync(taken_up)
        except BaseException:
            with self.lock:
                self.journal.undo_sync(taken_up)
            raise
        self.tidy()

    def reclaim(self) -> bool:
        """Give back the room that was needed by what is published already; returns whether there was any.

        Raises `StoreError`.
        """
        if not self.journal.has_dead:
            return False
        self.sync()
        return True

    # -- after a crash ------------------------------------------------------------------------------------------------

    def _load(self) -> None:
        """Put back what an earlier process left.  Raises `StoreError`."""
        frames, rows, is_whole = self.journal.load()
        left = known(frames, rows)
        spools: dict[str, Spool] = {}
        while True:
            replay = Replay(self.overlay, self.follow, self._made)
            try:
                replay.run(left, rows)
            except (ValueError, KeyError) as error:
                self.journal.keep_unreadable(error)
                is_whole, end = False, replay.position
            else:
                found = [each for each in replay.inodes.values() if each.inode.names]
                torn = [each.written for each in found if not self._reopen(each, spools)]
                if not torn:
                    break
                end = min(torn)
            left = left[:end]
            self.overlay.clear()
        self._follow_all([hashes for _, hashes in rows])
        if lost := len(frames) - len(left):
            log.info("lost %d changes in a power cut, which no program had synced", lost)
        for each in found:
            if each.inode.names:
                self._enter(each)
        used = [each.inode for each in found if each.inode.names]
        self.journal.loaded(used, is_whole=is_whole)
        for spool in set(spools.values()).difference(inode.spool for inode in used if inode.spool is not None):
            spool.close()
        if self.overlay:
            log.info("restored %d unpublished names from the journal", len(self.overlay))

    def _made(self, path: Path, entries: Sequence[EntryHash]) -> Made | None:
        """Origin and content of a path after entries of this node; as the view shows it if they changed nothing."""
        for where, placed in reversed(self.replica.places(entries)):
            if where == path and (state := self.replica.state_after(placed.entry.hash)) is not None:
                return (state.origin, state.content) if state.origin is not None else None
        with contextlib.suppress(PathError):
            attributes = self.replica.attributes(path)
            return attributes.origin, attributes.content
        return None

    def _follow_all(self, transactions: Sequence[Sequence[EntryHash]]) -> None:
        """What was staged while something was being published has seen that, too."""
        overlay = self.overlay
        # It may have been made and published while it was being changed further, or made anew since.
        made = {path for path, _ in overlay.items() if overlay.seen(path) == ()}
        for entries in transactions:
            for where, placed in self.replica.places(entries):
                for path in {*overlay.based_on(placed.entry.parent), *made.intersection([where])}:
                    is_here = path == where and path in made
                    overlay.see(path, follow(overlay.seen(path) or (), placed, is_here=is_here))

    def _reopen(self, found: Found, spools: dict[str, Spool]) -> bool:
        """Give an inode what was written to it; false if that did not reach the disk.  `spools`: what is open."""
        inode, content = found.inode, found.content
        if content is None:
            return True
        if isinstance(content, bytes):
            inode.spool = self.new_spool(BytesContent(content))
        else:
            try:
                inode.spool = spools.get(content[0]) or self.journal.reopen_spool(content)
            except TornSpool as error:
                where = display(min(inode.names))
                log.error("lost the last save of %s in a power cut: %s", where, error)
                return False
            spools[content[0]] = inode.spool
        inode.dirty = inode.spool.is_recorded = True
        return True

    def _enter(self, found: Found) -> None:
        """Find the place of a staged inode in the view."""
        inode = found.inode
        if inode.origin is None:
            self._make_new(inode, found.face if found.detached else None)
            return
        # The number that it had in the last process may follow from a place in the view that is another file's now.
        inode.number = self.identities.number(inode.origin)
        self.catch_up(inode)
        try:
            inode.shown = self.replica.attributes(inode.home or ())
        except PathError:
            inode.shown = None
        if inode.kind is Kind.DIRECTORY and (inode.shown is None or inode.shown.kind is not Kind.DIRECTORY):
            # Another node has removed it, and what was set of it does not bring it back.
            for path in inode.names:
                self.overlay.drop(path)
            inode.names = {}
        elif inode.shown is None or inode.shown.origin != inode.origin:
            # Its file is gone or another one now: it begins again as a new one.
            self._make_new(inode, found.face)
        else:
            if not inode.dirty:
                # Not an older one, if others have changed it or what was written here is torn.
                inode.base = inode.shown.content
            self.by_origin[inode.origin] = inode

    def _make_new(self, inode: Inode, face: tuple[int, Owner | None] | None) -> None:
        """It has no place in the view; what was not written here goes on being the content that was published."""
        if inode.kind is Kind.FILE and inode.spool is None and inode.base is None:
            inode.spool = self.new_spool()
            inode.dirty = True
        if face is not None:
            inode.take_unset(*face)
        if inode.base is not None and (raw := self.replica.entry(inode.base)) is not None:
            inode.base_size = Entry.decode(raw).size
        # The one that follows from its place in the view may be that of another file now.
        inode.number = self.identities.new_number()
        inode.origin = inode.home = inode.shown = None

    def unpublished(self) -> int:
        """How many names wait for being published; scratch names never do."""
        with self.lock:
            return sum(not self.scratch.is_scratch(path) for path, _ in self.overlay.items())

    def stays_here(self, inode: Inode) -> bool:
        """Whether none of the names that the overlay has of an inode may leave this node."""
        return all(map(self.scratch.is_scratch, inode.names))
