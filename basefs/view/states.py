"""States: the state of a path after an entry, and the step from one to the next (docs/formats.md, section 1)."""

from __future__ import annotations

import enum
import os
import struct
from typing import NamedTuple

from basefs.errors import InvalidEntry, NotPermitted, TooLarge
from basefs.log.entries import MAX_CONTENT, Action, Entry, xattrs_in
from basefs.log.hashes import EntryHash
from basefs.path import display

#: Permission bits that a path has before any mode entry; others cost an entry.
FILE_MODE = 0o644
DIRECTORY_MODE = 0o755
LINK_MODE = 0o777
#: The bits that an entry holds: permissions, setuid, setgid and sticky.
MODE_MASK = 0o7777
#: The largest user or group id: the kernel has no user with the number behind it.
MAX_ID = 2**32 - 2
#: Names of extended attributes begin with this, and entries leave it out: no other one can be in the log.
XATTR_PREFIX = b"user."

#: Extended attributes, name and value, by name.
Xattrs = tuple[tuple[bytes, bytes], ...]


class Owner(NamedTuple):
    """Owner and group: their names, which mean the same on all machines, and their numbers, for those without a name.

    Attributes:
        user, group: names of up to 255 bytes; empty where the machine that signed knows none.
        uid, gid: 0 to `MAX_ID`.
    """

    user: bytes
    group: bytes
    uid: int
    gid: int


class Kind(enum.Enum):
    """The kind of object at a path."""

    ABSENT = "absent"
    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    FIFO = "fifo"
    CHARACTER = "character device"
    BLOCK = "block device"

    @property
    def is_linkable(self) -> bool:
        """Whether a link can name such an object."""
        return self is not Kind.ABSENT and self is not Kind.DIRECTORY

    @property
    def has_xattrs(self) -> bool:
        """Whether such an object has extended attributes: the kernel allows those of users for no others."""
        return self is Kind.FILE or self is Kind.DIRECTORY


_NODES = {1: Kind.FIFO, 2: Kind.CHARACTER, 3: Kind.BLOCK}
_NODE_CODES = {kind: code for code, kind in _NODES.items()}
_DEVICE = struct.Struct(">BII")


class State(NamedTuple):
    """The state of a path after an entry.

    Attributes:
        kind: the kind of object.
        mode: permission bits, within `MODE_MASK`.
        owner: `None` for the mounting user.
        mtime: nanoseconds since 1970; what `ls` shows.
        size: bytes of a file, or of a symbolic link's target.
        content: the write entry that holds a file's content; it may be one of another path, behind a link.
        origin: the entry of this path that began this file, directory or other object.
        target: of a symbolic link.
        rdev: of a device, as `stat` shows it; 0 of anything else.
        xattrs: of a file or directory, by name.
        complete: whether all of the content is here; an incomplete state is never shown.
        remains: the directory that a delete removed; it is back if something lives in it.
    """

    kind: Kind
    mode: int = 0
    owner: Owner | None = None
    mtime: int = 0
    size: int = 0
    content: EntryHash | None = None
    origin: EntryHash | None = None
    target: bytes = b""
    rdev: int = 0
    xattrs: Xattrs = ()
    complete: bool = True
    remains: State | None = None


ABSENT = State(Kind.ABSENT)
#: A state that is not known yet, because an entry that it refers to has not arrived.
UNKNOWN = State(Kind.ABSENT, complete=False)


def encode_mode(mode: int, owner: Owner | None) -> bytes:
    """The content of a mode entry: permission bits; then, if kept, name and number of the owner, and of the group."""
    bits = (mode & MODE_MASK).to_bytes(2, "big")
    if owner is None:
        return bits
    parts = ((owner.user, owner.uid), (owner.group, owner.gid))
    return bits + b"".join(bytes((len(name),)) + name + number.to_bytes(4, "big") for name, number in parts)


def decode_mode(content: bytes) -> tuple[int, Owner | None]:
    """The permission bits and the owner of a mode entry.  Raises `InvalidEntry`."""
    mode = int.from_bytes(content[:2], "big")
    if len(content) < 2 or mode & ~MODE_MASK:
        raise InvalidEntry("a mode has twelve bits")
    if len(content) == 2:
        return mode, None
    user, uid, at = _decode_id(content, 2)
    group, gid, at = _decode_id(content, at)
    if at != len(content):
        raise InvalidEntry("owner and group do not fill the mode entry")
    return mode, Owner(user, group, uid, gid)


def _decode_id(content: bytes, at: int) -> tuple[bytes, int, int]:
    """The name and number of a user or group in a mode entry, and where they end.  Raises `InvalidEntry`."""
    end = at + 5 + (content[at] if at < len(content) else 0)
    name, number = content[at + 1 : end - 4], int.from_bytes(content[end - 4 : end], "big")
    if end > len(content) or b"\x00" in name or number > MAX_ID:
        raise InvalidEntry("an owner of a mode entry is cut off, holds NUL, or is no number of a user")
    return name, number, end


def encode_node(kind: Kind, rdev: int = 0) -> bytes:
    """The content of a node entry: the kind, and of a device its numbers."""
    code = _NODE_CODES[kind]
    return bytes((code,)) if kind is Kind.FIFO else _DEVICE.pack(code, os.major(rdev), os.minor(rdev))


def _decode_node(content: bytes) -> tuple[Kind, int]:
    if len(content) == 1:
        return _NODES[content[0]], 0
    code, major, minor = _DEVICE.unpack(content)
    return _NODES[code], os.makedev(major, minor)


def encode_xattrs(xattrs: Xattrs) -> bytes:
    """The content of an entry with all extended attributes of a path: lengths, names without the prefix, and values.

    Raises `TooLarge` where they do not fit into an entry, `NotPermitted` for a name without the prefix.
    """
    parts: list[bytes] = []
    for name, value in sorted(xattrs):
        if not name.startswith(XATTR_PREFIX) or len(name) == len(XATTR_PREFIX):
            raise NotPermitted(f"{display((name,))[1:]} is kept nowhere: only attributes named 'user.*' are")
        short = name[len(XATTR_PREFIX) :]
        parts += [bytes((len(short),)), short, len(value).to_bytes(2, "big"), value]
    encoded = b"".join(parts)
    if len(encoded) > MAX_CONTENT:
        raise TooLarge(f"the extended attributes of a path have up to {MAX_CONTENT} bytes together")
    return encoded


def step(before: State, entry: Entry, *, complete: bool) -> State:
    """The state after a successor or child that depends on nothing but the state before it.

    Args:
        before: state at the entry's parent; `ABSENT` for a child.
        entry: any state but link and revert, which take their state from elsewhere.
        complete: for a write: whether its content can be read.
    """
    match entry.action:
        case Action.MKDIR:
            return State(Kind.DIRECTORY, DIRECTORY_MODE, mtime=entry.mtime, origin=entry.hash)
        case Action.WRITE:
            same_file = before.kind is Kind.FILE
            return State(
                Kind.FILE,
                before.mode if same_file else FILE_MODE,
                before.owner if same_file else None,
                entry.mtime,
                entry.size,
                content=entry.hash,
                origin=before.origin if same_file else entry.hash,
                xattrs=before.xattrs if same_file else (),
                complete=complete,
            )
        case Action.SLINK:
            return State(
                Kind.SYMLINK,
                LINK_MODE,
                mtime=entry.mtime,
                size=len(entry.content),
                origin=entry.hash,
                target=entry.content,
            )
        case Action.NODE:
            kind, rdev = _decode_node(entry.content)
            return State(kind, FILE_MODE, mtime=entry.mtime, origin=entry.hash, rdev=rdev)
        case Action.DELETE:
            return State(Kind.ABSENT, remains=before if before.kind is Kind.DIRECTORY else before.remains)
        case Action.MODE | Action.XATTR:
            if before.remains is not None:
                # A deleted directory in which something lives.
                return before._replace(remains=step(before.remains, entry, complete=complete))
            return _with_mode(before, entry) if entry.action is Action.MODE else _with_xattrs(before, entry)
        case Action.ACK:
            return before
        case _:
            raise AssertionError(f"{entry.action.name} has no step of its own")


def _with_mode(before: State, entry: Entry) -> State:
    try:
        mode, owner = decode_mode(entry.content)
    except InvalidEntry:
        # No version of ours writes it; the log has accepted it, so the view must live with it.
        return before
    if before.kind is Kind.ABSENT:
        return before
    mtime = before.mtime if entry.extensions.mtime is None else entry.extensions.mtime
    return before._replace(mode=LINK_MODE if before.kind is Kind.SYMLINK else mode, owner=owner, mtime=mtime)


def _with_xattrs(before: State, entry: Entry) -> State:
    if not before.kind.has_xattrs:
        return before
    return before._replace(xattrs=tuple((XATTR_PREFIX + name, value) for name, value in xattrs_in(entry.content)))
