"""Looking things up in the working set: a name is what the overlay says, and otherwise what the view shows."""

from __future__ import annotations

import contextlib
import threading

from basefs.errors import (
    Exists,
    NotADirectory,
    NotFound,
    NotPermitted,
    PathError,
    PermissionDenied,
    ReadOnly,
)
from basefs.fs.owners import Owners
from basefs.fs.staging.identity import Identities
from basefs.fs.staging.inode import Inode
from basefs.fs.staging.overlay import MISSING, Overlay
from basefs.fs.staging.scratch import HIDDEN_PREFIX
from basefs.log.hashes import EntryHash
from basefs.path import Path, check_name, display
from basefs.replica.replica import Attributes, Replica
from basefs.view.states import Kind, Owner


class Lookup:
    """The reading half of `WorkingSet`, which says what the attributes are."""

    def __init__(self, replica: Replica, owners: Owners) -> None:
        self.lock = threading.RLock()
        self.replica = replica
        self.owners = owners
        self.overlay = Overlay()
        self.identities = Identities()
        self.by_origin: dict[EntryHash, Inode] = {}
        self.hidden: dict[Path, Inode] = {}
        self.opened: set[Inode] = set()
        self.in_flight: set[Path] = set()
        self.mirrored = False
        self.moving: tuple[Path, ...] = ()

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
            known = None
        return known, attributes

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
            found = {name: (kind, number(origin)) for name, kind, origin in self.replica.entries_in(path)}
        for name, slot in self.overlay.within(path):
            if slot is None:
                found.pop(name, None)
            else:
                found[name] = (slot.kind, slot.number)
        return found

    def links(self, inode: Inode, attributes: Attributes | None) -> int:
        """How many names a file has."""
        if inode.unlinked:
            return 0
        if inode.is_new or inode.home is None:
            return len(inode.names)
        if attributes is not None and attributes.links == 1 and not inode.names:
            return 1 if self.overlay.get(inode.home) is MISSING else 0
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
        return sum(self.overlay.get(other) is MISSING for other in self.replica.names_of(path))

    def live_names(self, inode: Inode) -> set[Path]:
        """All names of an inode."""
        live = set(inode.names)
        if inode.home is not None and inode.origin is not None:
            with contextlib.suppress(PathError):
                if self.replica.attributes(inode.home).origin == inode.origin:
                    published = self.replica.names_of(inode.home)
                    live.update(path for path in published if self.overlay.get(path) is MISSING)
        return live

    def catch_up(self, inode: Inode) -> None:
        """An inode learns its new origin where another node has written to a file whose first name is gone.

        All names of the file then lead to it again.
        """
        shown = None
        if inode.origin is not None and inode.home is not None:
            with contextlib.suppress(PathError):
                shown = self.replica.attributes(inode.home).origin
        if shown is None or shown == inode.origin:
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
            self.by_origin[shown] = inode

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
                raise ReadOnly("the log is damaged and takes no writes: 'basefs check' tells more")
            raise PermissionDenied(
                f"no key of this node may write at {display(path[:depth])}: ask a key holder for 'basefs grant'"
            )

    @staticmethod
    def check_name(path: Path) -> None:
        """Raise `NameTooLong`, `InvalidName` or `NotPermitted` for a name that nothing can have."""
        check_name(path[-1])
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
