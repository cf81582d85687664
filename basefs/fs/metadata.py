"""Metadata: what stat(2) shows, and chmod, chown, utimens, extended attributes."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from basefs.errors import NoData, NotFound, PathError
from basefs.fs.staging.inode import PERMISSION_BITS, Inode
from basefs.fs.staging.workingset import WorkingSet
from basefs.path import Path, display
from basefs.replica.replica import Attributes
from basefs.view.signer import clamp_time
from basefs.view.states import DIRECTORY_MODE, FILE_MODE, LINK_MODE, Kind, Owner

KIND_BITS = {Kind.FILE: stat.S_IFREG, Kind.DIRECTORY: stat.S_IFDIR, Kind.SYMLINK: stat.S_IFLNK}
_DEFAULT_MODES = {Kind.FILE: FILE_MODE, Kind.DIRECTORY: DIRECTORY_MODE, Kind.SYMLINK: LINK_MODE}
#: The extended attributes of every path; read-only (docs/posix.md).
ATTRIBUTES = tuple(f"user.basefs.{name}" for name in ("hash", "author", "state", "conflicts", "revisions"))


@dataclass(slots=True)
class Stat:
    """What `stat(2)` shows.

    Mode with type bits, number of names, user, group, bytes, nanoseconds, inode number; `atime` is `None` unless it was
    set here, and the modification time stands for it.
    """

    mode: int
    links: int
    uid: int
    gid: int
    size: int
    mtime: int
    ctime: int
    number: int
    atime: int | None = None


class Metadata:
    """The operations on attributes."""

    def __init__(self, working: WorkingSet) -> None:
        self._working = working

    # -- looking ------------------------------------------------------------------------------------------------------

    def stat(self, path: Path) -> Stat:
        """Raises `NotFound`, `NotADirectory`."""
        working = self._working
        with working.lock:
            inode, attributes = working.find(path)
            if inode is not None:
                return self._stat_inode(inode, attributes)
            assert attributes is not None
            found = self._stat_published(attributes)
            found.links = working.published_links(path, attributes)
            found.atime = working.identities.accessed(found.number)
            return found

    def stat_inode(self, inode: Inode) -> Stat:
        """What fstat(2) shows."""
        working = self._working
        with working.lock:
            return self._stat_inode(inode, working.attributes(inode))

    def _stat_published(self, attributes: Attributes) -> Stat:
        working = self._working
        uid, gid = working.owners.ids(attributes.owner)
        mode = attributes.mode & PERMISSION_BITS
        if not attributes.writable and attributes.kind is not Kind.SYMLINK:
            mode &= ~0o222
        mtime, ctime = working.identities.times(attributes)
        number = working.identities.number(attributes.origin)
        mode |= KIND_BITS[attributes.kind]
        return Stat(mode, attributes.links, uid, gid, attributes.size, mtime, ctime, number)

    def _stat_inode(self, inode: Inode, attributes: Attributes | None) -> Stat:
        working = self._working
        if attributes is not None:
            found = self._stat_published(attributes)
            found.number = inode.number
            if inode.kind is not Kind.DIRECTORY:
                found.links = working.links(inode)
        else:
            links = 2 if inode.kind is Kind.DIRECTORY else working.links(inode)
            uid, gid = working.owners.ids(inode.owner)
            mode = KIND_BITS[inode.kind] | _DEFAULT_MODES[inode.kind]
            found = Stat(mode, links, uid, gid, len(inode.target), 0, 0, inode.number)
        if inode.mode is not None:
            found.mode = KIND_BITS[inode.kind] | inode.mode & PERMISSION_BITS
        if inode.owner is not None:
            found.uid, found.gid = working.owners.ids(inode.owner)
        if inode.kind is Kind.FILE and (inode.dirty or attributes is None):
            found.size = inode.size
        if inode.mtime is not None:
            found.mtime = found.ctime = inode.mtime
        if inode.ctime is not None:
            found.ctime = inode.ctime
        found.atime = working.identities.accessed(found.number)
        return found

    def other_names(self, path: Path) -> list[Path]:
        """The other names of a file; none where there is nothing."""
        working = self._working
        with working.lock:
            try:
                inode, attributes = working.find(path)
            except PathError:
                return []
            links = 1 if attributes is None else attributes.links
            if links + (0 if inode is None else len(inode.names)) < 2 or (inode or attributes).kind is Kind.DIRECTORY:  # type: ignore[union-attr]
                return []
            if inode is not None:
                live = working.live_names(inode)
            else:
                live = set(filter(working.shows_view, working.replica.names_of(path)))
            return [other for other in live if other != path]

    def list(self, path: Path) -> list[tuple[bytes, int, int]]:
        """The names in a directory with their type bits and inode numbers.  Raises `NotFound`, `NotADirectory`."""
        with self._working.lock:
            return [(name, KIND_BITS[kind], number) for name, (kind, number) in self._working.kinds(path).items()]

    def read_link(self, path: Path) -> bytes:
        """Raises `NotFound`, `NotADirectory`."""
        with self._working.lock:
            inode, _ = self._working.find(path)
            return self._working.replica.read_link(path) if inode is None else inode.target

    def space(self) -> os.statvfs_result:
        """The disk that holds the log."""
        return os.statvfs(self._working.replica.directory)

    # -- changing -----------------------------------------------------------------------------------------------------

    def _change(self, path: Path) -> Inode:
        """The inode whose attributes are about to change.  Raises what says that they cannot."""
        working = self._working
        inode, attributes = working.find(path)
        if inode is None or not inode.unlinked:
            working.check_writable(path, attributes)
        if inode is None:
            assert attributes is not None
            inode = working.adopt(path, attributes)
        return inode

    def _changed(self, inode: Inode) -> None:
        working = self._working
        inode.version += 1
        if inode.unlinked:
            return
        working.attach(inode)
        working.record_attributes(inode)
        working.changed()

    def set_mode(self, path: Path, mode: int) -> None:
        """chmod(2); bits outside 0777 are dropped.  Raises `NotFound`, `NotADirectory`, `PermissionDenied`, ..."""
        working = self._working
        with working.lock:
            inode = self._change(path)
            if inode.kind is Kind.SYMLINK:
                return
            bits = mode & PERMISSION_BITS
            if stat.S_IMODE(self._stat_inode(inode, working.attributes(inode)).mode) == bits:
                working.forget_idle(inode)
                return
            inode.mode, inode.ctime = bits, working.now()
            self._changed(inode)

    def set_owner(self, path: Path, uid: int, gid: int) -> None:
        """chown(2); -1 keeps user or group.  Raises `NotPermitted` unless owners are kept, or nothing changes."""
        working = self._working
        with working.lock:
            current = self.stat(path)
            wanted = current.uid if uid == -1 else uid, current.gid if gid == -1 else gid
            if wanted == (current.uid, current.gid):
                return
            owner: Owner | None = working.owners.names(*wanted)
            if owner is not None:
                inode = self._change(path)
                inode.owner, inode.ctime = owner, working.now()
                self._changed(inode)

    def set_times(self, path: Path, mtime: int | None) -> None:
        """utimensat(2), nanoseconds, `None` is now."""
        working = self._working
        with working.lock:
            inode = self._change(path)
            now = working.now()
            stamp = now if mtime is None else mtime
            inode.mtime, inode.ctime, inode.exact = clamp_time(stamp), now, True
            self._changed(inode)

    def set_access_time(self, path: Path, atime: int | None) -> None:
        """The other half of utimensat(2), which stays on this node: nanoseconds, `None` is now."""
        working = self._working
        with working.lock:
            number = self.stat(path).number
            working.identities.set_accessed(number, working.now() if atime is None else atime)

    # -- extended attributes ------------------------------------------------------------------------------------------

    def attribute(self, path: Path, name: str) -> bytes:
        """getxattr(2).  Raises `NoData` for an attribute that nothing has."""
        working = self._working
        with working.lock:
            inode, _ = working.find(path)
            pending = inode is not None and bool(inode.names)
            if name not in ATTRIBUTES or (inode is not None and (inode.is_new or inode.home is None)):
                if name == "user.basefs.state":
                    return b"unpublished"
                raise NoData(f"{display(path)} has no attribute {name}")
            home = path if inode is None or inode.home is None else inode.home
            try:
                survey = working.replica.survey(home)
                attributes = working.replica.attributes(home)
            except PathError:
                raise NotFound(f"{display(path)} does not exist") from None
            if name.endswith("hash"):
                return attributes.entry.hex().encode()
            if name.endswith("author"):
                return self._author(attributes)
            if name.endswith("state"):
                return b"pending" if pending else b"published"
            return str(len(survey.conflicts() if name.endswith("conflicts") else survey.entries)).encode()

    def _author(self, attributes: Attributes) -> bytes:
        fingerprint = self._working.replica.signer_of(attributes.entry)
        name = self._working.replica.key_names().get(fingerprint)
        return (name or fingerprint.hex()).encode("utf-8", "surrogateescape")
