"""The working set: what was changed on this node and is not published yet (docs/fs.md).

Invariants

1. A name is what the overlay says, and otherwise what the view shows.
2. An inode is in the overlay under all of its `names`.
3. What is pending and was closed is in the journal.
4. `by_origin` holds every inode of the view that is open or pending, so that all names of a file lead to it.

Everything here is done holding `lock`, which is taken before the replica's and never after it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

from basefs.errors import PathError, StoreError
from basefs.fs.owners import Owners
from basefs.fs.staging.inode import Inode
from basefs.fs.staging.ledger import Ledger, Move
from basefs.fs.staging.lookup import Lookup
from basefs.fs.staging.overlay import MISSING
from basefs.fs.staging.scratch import is_scratch
from basefs.fs.staging.spool import Spool
from basefs.fs.staging.vacancies import HIDE_SECONDS, Vacancies
from basefs.log.content import BytesContent, Content
from basefs.log.entries import Entry
from basefs.log.hashes import EntryHash
from basefs.path import Path, display
from basefs.replica.replica import Attributes, Replica
from basefs.view.seen import Version, follow
from basefs.view.states import Kind, State

log = logging.getLogger(__name__)

DIRECTORY = "working"
#: Seconds after which the journal is told that libfuse took the name away from an open file: a rename that gives it to
#: another one has come by then, and if this process is killed before it, what was removed is back, but nothing that was
#: being replaced is lost.
NOTE_SECONDS = 0.002


class WorkingSet(Lookup):
    """Names and inodes of this node.

    Attributes:
        lock: held by whoever looks or changes something.
        replica: the filesystem below.
        owners: maps owners.
        overlay: names that are not what the view shows.
        identities: inode numbers and times.
        by_origin: inodes of the view that are open or pending.
        opened: inodes with handles.
        hidden: open files without a name, by the name that libfuse gave them.
        in_flight: names that are being published.
        mirrored: whether the mirror parts what is open from what another node makes of its path.
        moving: directories that are being renamed here.
        vacancies: removed names that may be given to another file in a moment.
        must_sync: whether the journal must be on the disk before anything is published: it says what is no longer what
            the view shows at its place, and would be taken for what comes there.
    """

    def __init__(self, replica: Replica, owners: Owners, clock: Callable[[], float]) -> None:
        """Load what an earlier process left.  Raises `StoreError`."""
        super().__init__(replica, owners)
        self._clock = clock
        self._listeners: list[Callable[[bool, bool], None]] = []
        self._overruled: list[Callable[[Path, State | None, State], None]] = []
        self.must_sync = False
        self.vacancies = Vacancies(self.overlay, self._note_gone)
        self._ledger = Ledger(self, replica.directory / DIRECTORY)
        self._ledger.load()

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
        """Make everything durable and release the files."""
        with self.lock:
            self._ledger.close()

    def now(self) -> int:
        """Nanoseconds since 1970."""
        return int(self._clock() * 1_000_000) * 1000

    def new_spool(self, content: Content | None = None) -> Spool:
        """A place for the content of a file."""
        return self._ledger.new_spool(content)

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
        self.by_origin[attributes.origin] = inode
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
            inode.spool = self._ledger.new_spool(None if empty else inode.snapshot)
            inode.forget_snapshot()
        elif inode.journaled and inode.kept is None:
            # The journal must find what was closed, whatever becomes of what is being written.  Also what was published
            # since, of a file that was renamed meanwhile: the last record on the disk may be an older one.
            inode.kept, inode.spool = inode.spool, self._ledger.copy_spool(inode.spool)
        self.attach(inode)
        return inode.spool

    def attach(self, inode: Inode) -> None:
        """Give a pending inode a place in the overlay from which it is published: the name that the view has of it."""
        if inode.unlinked or inode.home is None or not _is_published_by_none(inode):
            return
        self.catch_up(inode)
        other = None if inode.origin is None else self.by_origin.get(inode.origin)
        if inode.origin is not None and other is not None and other is not inode and other.names:
            # Opened later, after another node had changed the file: the last one that writes wins.
            for path in other.names:
                self.overlay.put(path, inode)
            inode.names, other.names = {**inode.names, **other.names}, {}
            inode.take_unset(other.mode, other.owner)
            self.by_origin[inode.origin] = inode
            return
        slot = self.overlay.get(inode.home)
        if slot is inode:
            return
        if slot is not MISSING:
            others = self.live_names(inode).difference(inode.names)
            if not others:
                return
            inode.home = min(others)
        if inode.mode is None and inode.shown is not None and not self.is_published(inode.home):
            # Another node has removed it: it is made again, with the attributes that it had.
            inode.mode, inode.owner = inode.shown.mode, inode.shown.owner
        if inode.origin is not None:
            self.by_origin[inode.origin] = inode
        opened = self.attributes(inode)
        self.give(inode.home, inode, None if opened is None else opened.version)

    def give(self, path: Path, inode: Inode, seen: Version | None = None) -> None:
        """Give a name to an inode; `seen`: the version that it is made of, otherwise it is what the name shows."""
        self.vacancies.filled(path)
        if seen is None and self.overlay.get(path) is MISSING:
            seen = self._shown(path)
        self.overlay.put(path, inode, seen)
        inode.names[path] = None
        inode.version += 1
        if inode.journaled:
            self._ledger.note_name(path, inode)

    def _shown(self, path: Path) -> Version | None:
        """What a name shows here, of which nothing is told; `None` where the view does not tell."""
        try:
            _, attributes = self.find(path)
        except PathError:
            return ()
        return None if attributes is None else attributes.version

    def take(self, path: Path, *, is_given: bool = False) -> None:
        """Take a name away from whatever has it.  The inode lives on while it has another one or is open.

        `is_given`: another inode gets the name at once, so the journal keeps the old one until that is closed.
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
                self._ledger.note_gone(path)
        else:
            self.overlay.drop(path)
            if inode is not None and inode.journaled and not is_given:
                self._ledger.note_drop(path)
        if inode is not None:
            if not self.find_home(inode) and not inode.names:
                self._part(inode)
            elif inode.is_pending and not inode.is_new and _is_published_by_none(inode):
                # What was changed under the name that goes is published under one that stays.
                self.attach(inode)
                self.record(inode)
        for stale in self.opened:
            # Opened before another node changed the file, so the names do not lead to it any more.
            if stale is not inode and stale.home == path and stale.origin is not None and not stale.names:
                self._follow(stale, path)

    def _follow(self, stale: Inode, gone: Path) -> None:
        """An open inode learns where its file is now that it has lost a name, or that it has lost the last one."""
        current = None if stale.origin is None else self.by_origin.get(stale.origin)
        left = set() if current is None else set(current.names)
        with contextlib.suppress(PathError):
            if self.replica.attributes(gone).origin == stale.origin:
                left.update(other for other in self.replica.names_of(gone) if self.overlay.get(other) is MISSING)
        if left:
            stale.home = min(left)
        else:
            stale.unlinked = True

    def find_home(self, inode: Inode) -> bool:
        """Whether the view still has a name of this inode, and moves the home there."""
        if inode.home is None:
            return False
        if self.overlay.get(inode.home) is MISSING:
            return True
        others = self.live_names(inode).difference(inode.names)
        if others:
            inode.home = min(others)
        return bool(others)

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
            self.identities.remember(attributes, self.identities.number(attributes.origin), now, now)

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
            timer = threading.Timer(NOTE_SECONDS, self._note_hidden, (path,))
            timer.daemon = True
            timer.start()
        self.take(path)
        self.hidden[hidden] = inode

    def _note_hidden(self, path: Path) -> None:
        """What was hidden has lost its name for good, unless that was given to another file at once."""
        with self.lock:
            self.vacancies.note(path)

    def _note_gone(self, path: Path) -> bool:
        try:
            self._ledger.note_gone(path)
        except StoreError as error:
            log.error("that %s was removed is not durable yet: %s", display(path), error)
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
                other.spool = self._ledger.copy_spool(inode.spool)
            else:
                self.load(inode)
                other.spool = self.new_spool(inode.snapshot)
            # The log has what this is a copy of, under a name that is gone.
            other.spool.sync()
        for path in other.names:
            self.overlay.put(path, other)
        self._ledger.note_inode(other)
        self.must_sync = True
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
        if self.by_origin.get(inode.origin) is inode:
            del self.by_origin[inode.origin]
        inode.origin = inode.home = None
        inode.shown = attributes
        inode.version += 1
        if not inode.handles and all(map(is_scratch, inode.names)):
            # Its number follows from the place that it has lost; who stays here for long must have another.
            inode.number = self.identities.new_number()
        self.record(inode)
        self.must_sync = True

    def forget_idle(self, inode: Inode) -> None:
        """Forget an inode that nobody has open and that holds nothing of its own."""
        if inode.handles or inode.names:
            return
        if inode.origin is not None and self.by_origin.get(inode.origin) is inode:
            del self.by_origin[inode.origin]
        inode.forget_content()

    @contextlib.contextmanager
    def renaming(self, directory: Path, moves: Sequence[Move], moving: tuple[Path, ...]) -> Iterator[None]:
        """The log is told inside that a directory of the view is renamed.

        Who is killed in between finds what is pending at the new places if the log was told, else at the old ones.

        Args:
            directory: it.
            moves: what is at and below these paths moves along, one after the other; the caller has that done.
            moving: all paths that change.
        """
        # What it does not say yet of what was published there would come back, at the old places.
        self._ledger.sync(None)
        pends = any(self.overlay.get(place) is not MISSING or self.overlay.below(place) for place in moving)
        if pends:
            self._ledger.note_moves(directory, self.replica.attributes(directory).origin, moves)
        self.moving = moving
        try:
            yield
        except BaseException:
            if pends:
                self._ledger.cancel_moves()
            raise
        finally:
            self.moving = ()

    def finish_moves(self) -> None:
        """What is pending has moved with a directory that was renamed in the log."""
        self._ledger.finish_moves()

    def move(self, source: Path, target: Path) -> None:
        """What stands at a path of the view has moved: what is pending there and below goes along."""
        size = len(source)
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
            self._ledger.note_inode(inode, empty=empty)

    def record_attributes(self, inode: Inode) -> None:
        """`record` after attributes or names have changed, and nothing else.  Raises `NoSpace`, `StoreError`."""
        if inode.names and inode.journaled:
            self._ledger.note_attributes(inode)
        else:
            self.record(inode)

    def secure(self, inode: Inode) -> None:
        """What an inode is comes to stand where something is that may have been made to survive a power cut."""
        self._ledger.secure(inode)

    def follow(self, entries: Sequence[Entry]) -> list[Path]:
        """What was published here has been seen here: returns the names whose version has changed.

        Those are not only the names that were published: an entry that changes a file under one name follows a version
        that its other names share.
        """
        before: dict[Path, Version | None] = {}
        overlay = self.overlay
        for path, placed in self.replica.places(entries):
            for at in {path, *overlay.based_on(placed.entry.parent)}:
                seen = overlay.seen(at)
                if seen is not None:
                    before.setdefault(at, seen)
                    overlay.see(at, follow(seen, placed, is_here=at == path))
        return [at for at, seen in before.items() if seen != overlay.seen(at)]

    def record_versions(self, changed: Iterable[Path]) -> None:
        """What is still told of these paths was made on other versions than the journal knows.  Raises `StoreError`."""
        for path in changed:
            if self.overlay.get(path) is not MISSING:
                self._ledger.note_version(path)

    def drop(self, path: Path) -> None:
        """The view shows what the overlay said of a name: say nothing more."""
        self._ledger.note_drop(path)
        self.overlay.drop(path)

    def tidy(self) -> None:
        """Begin the journal again if nothing is pending, or most of it is superseded."""
        self._ledger.tidy()

    def rewrite(self) -> None:
        """Write the journal anew: names have changed in ways that single records do not tell."""
        self._ledger.rewrite()

    @property
    def is_synced(self) -> bool:
        """Whether some of what is pending was made to survive a power cut, or is about to be."""
        return self._ledger.is_synced

    @property
    def is_durable(self) -> bool:
        """Whether nothing is pending, and all that was published is synced or another thread syncs it; without a lock.

        What is pending may have to be promised (`sync`), whoever has synced the journal.
        """
        return not self.overlay and self._ledger.is_durable and self.replica.is_durable

    def sync(self, inode: Inode | None = None) -> None:
        """Make all that was closed survive a power cut, and the content of one inode.  Raises `StoreError`.

        Of what was published until now the journal may say that it is no longer pending, so the log comes first; and
        what is published from now on is in a log that was synced before the journal says so.
        """
        with self.lock:
            self._ledger.promise()
        # The log must not get ahead of the journal either: that would publish again what was replaced since.
        self.sync_journal()
        self.replica.sync_to_disk()
        if inode is None:
            self.sync_journal()
            return
        with self.lock:
            self._ledger.sync(inode)

    def sync_journal(self) -> None:
        """Make what is in the journal survive a power cut, for who does not hold the lock: nobody waits for the disk.

        Raises `StoreError`.
        """
        must_sync, self.must_sync = self.must_sync, False
        try:
            self._ledger.sync(None)
        except StoreError:
            self.must_sync |= must_sync
            raise

    def unpublished(self) -> int:
        """How many names wait for being published; scratch names never do."""
        with self.lock:
            return sum(not is_scratch(path) for path, _ in self.overlay.items())


def _is_published_by_none(inode: Inode) -> bool:
    """Whether none of the names that the overlay has of an inode may leave this node."""
    return all(map(is_scratch, inode.names))
