"""States: the state of a path after an entry, and the step from one to the next (docs/formats.md, section 1)."""

from __future__ import annotations

import enum
from typing import NamedTuple

from basefs.errors import InvalidEntry
from basefs.log.entries import Action, Entry
from basefs.log.hashes import EntryHash

#: Permission bits that a path has before any mode entry; others cost an entry.
FILE_MODE = 0o644
DIRECTORY_MODE = 0o755
LINK_MODE = 0o777
#: The bits that an entry holds, with setuid, setgid and sticky; a mount shows the lower nine.
MODE_MASK = 0o7777


#: Names of owner and group; `None` is the mounting user.
Owner = tuple[bytes, bytes]


class Kind(enum.Enum):
    """The kind of object at a path."""

    ABSENT = "absent"
    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"


class State(NamedTuple):
    """The state of a path after an entry.

    Attributes:
        kind: the kind of object.
        mode: permission bits, within `MODE_MASK`.
        owner: names of owner and group, or `None` for the mounting user.
        mtime: nanoseconds since 1970; what `ls` shows.
        size: bytes of a file, or of a symbolic link's target.
        content: the write entry that holds a file's content.
        origin: the entry that began this file, directory or symbolic link; names of one file share it.
        target: of a symbolic link.
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
    complete: bool = True
    remains: State | None = None


ABSENT = State(Kind.ABSENT)
#: A state that is not known yet, because an entry that it refers to has not arrived.
UNKNOWN = State(Kind.ABSENT, complete=False)


def encode_mode(mode: int, owner: Owner | None) -> bytes:
    """The content of a mode entry: permission bits, big endian; then, if kept, owner and group after their lengths."""
    bits = (mode & MODE_MASK).to_bytes(2, "big")
    return bits if owner is None else bits + b"".join(bytes((len(name),)) + name for name in owner)


def decode_mode(content: bytes) -> tuple[int, Owner | None]:
    """The permission bits and the owner and group of a mode entry.  Raises `InvalidEntry`."""
    mode = int.from_bytes(content[:2], "big")
    if len(content) < 2 or mode & ~MODE_MASK:
        raise InvalidEntry("a mode has twelve bits")
    if len(content) == 2:
        return mode, None
    names: list[bytes] = []
    offset = 2
    while offset < len(content) and len(names) < 2:
        end = offset + 1 + content[offset]
        names.append(content[offset + 1 : end])
        offset = end
    if offset != len(content) or len(names) != 2 or not all(names) or b"\x00" in content[2:]:
        raise InvalidEntry("owner and group do not fill the mode entry, or hold NUL")
    return mode, (names[0], names[1])


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
        case Action.DELETE | Action.NODE:
            # This version shows no special files: the log keeps them for one that does.
            return State(Kind.ABSENT, remains=before if before.kind is Kind.DIRECTORY else before.remains)
        case Action.MODE:
            try:
                mode, owner = decode_mode(entry.content)
            except InvalidEntry:
                # No version of ours writes it; the log has accepted it, so the view must live with it.
                return before
            mtime = before.mtime if entry.extensions.mtime is None else entry.extensions.mtime
            if before.kind in (Kind.FILE, Kind.DIRECTORY):
                return before._replace(mode=mode, owner=owner, mtime=mtime)
            if before.kind is Kind.SYMLINK:
                return before._replace(owner=owner, mtime=mtime)
            if before.remains is not None:
                # A deleted directory in which something lives.
                return before._replace(remains=step(before.remains, entry, complete=complete))
            return before
        case Action.ACK | Action.XATTR:
            return before
        case _:
            raise AssertionError(f"{entry.action.name} has no step of its own")
