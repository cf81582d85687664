"""The lines of the protocol as frozen objects: one class a section (paper, section 3.2.2)."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from basefs.log.hashes import BlockHash, EntryHash
from basefs.log.interface import Digest
from basefs.path import Path

#: An iterator of lines yields this where it has worked a while and has no line yet.
PAUSE = b""
#: And this where it can only go on when another session has brought something.
LATER = b"-"


class Refusal(enum.Enum):
    """Why a node closes without finishing.  The words are the wire format: append, never rename."""

    IDENTITY = "identity"  # another filesystem
    VERSION = "version"  # another version of the protocol
    BUSY = "busy"  # too many sessions
    BANNED = "banned"  # earlier misbehaviour
    PROTOCOL = "protocol"  # the peer broke a rule
    USELESS = "useless"  # much traffic, nothing gained
    TIMEOUT = "timeout"
    FAILURE = "failure"  # trouble of the sender's own
    ENOUGH = "enough"  # somebody else has brought what was asked for
    FULL = "full"  # the sender's disk takes nothing more
    TLS = "tls"  # this is not how one talks to the sender: a closed filesystem speaks TLS, an open one does not
    KEY = "key"  # the key of the peer may not read this filesystem any more


class ItemKind(enum.Enum):
    """Which items of a path an LS is about."""

    ALL = "-"
    ENTRIES = "e"
    CHILDREN = "c"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a path's items: all, or those of one kind whose key begins with `prefix`.

    The key of an own entry is its hash, that of a child the SHA-224 of its name.

    Attributes:
        kind: which items.
        prefix: 1 to 56 lower-case hexadecimal digits; '' if and only if the kind is ALL.
    """

    kind: ItemKind = ItemKind.ALL
    prefix: str = ""


WHOLE = Part()


@dataclass(frozen=True, slots=True)
class Hash:
    """Greeting and start of a round.

    Attributes:
        version: of the protocol.
        identity: hash of the root entry (28 bytes).
        log: the sender's.
        port: its own sync port, or 0.
        full: whether its disk takes nothing, so that it only hands out.
    """

    version: int
    identity: bytes
    log: Digest
    port: int
    full: bool = False


@dataclass(frozen=True, slots=True)
class Ls:
    """The sender's items in one part of a path.

    Attributes:
        path: where.
        part: which part.
        entries: own entries.
        children: name and hash of sub-paths.
        entry_buckets: next digit of the key -> hash, instead of entries; None if listed.
        child_buckets: the same instead of children.
    """

    path: Path
    part: Part
    entries: tuple[EntryHash, ...] = ()
    children: tuple[tuple[bytes, bytes], ...] = ()
    entry_buckets: dict[str, bytes] | None = None
    child_buckets: dict[str, bytes] | None = None


@dataclass(frozen=True, slots=True)
class PathReq:
    """Everything at and below a path is wanted; or, where names are given, at and below each of these sub-paths."""

    path: Path
    names: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class EntryReq:
    """Entries are wanted."""

    hashes: tuple[EntryHash, ...]


@dataclass(frozen=True, slots=True)
class BlockReq:
    """Blocks are wanted."""

    hashes: tuple[BlockHash, ...]


@dataclass(frozen=True, slots=True)
class Entries:
    """Encoded entries, each after its parent."""

    encoded: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks."""

    blocks: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Eof:
    """End of the answer to the oldest request."""


@dataclass(frozen=True, slots=True)
class Close:
    """The sender has nothing outstanding, has answered so many requests of this round, and has this log."""

    answered: int
    log: Digest


@dataclass(frozen=True, slots=True)
class Stay:
    """The sender would keep, or keeps, the session open: what is new goes over it unasked."""


@dataclass(frozen=True, slots=True)
class Same:
    """The answer to a HASH with the root that is here: HASH and `CLOSE OK 0` in one, with the own sync port or 0.

    The sender's disk takes more, and no content is missing there.
    """

    port: int


@dataclass(frozen=True, slots=True)
class Wait:
    """What was asked for comes later: the sender's connection is slow, and others are before this peer."""


@dataclass(frozen=True, slots=True)
class Root:
    """In a session that stands: the sender's log, and how many entries it has kept back for GRAFT."""

    log: Digest
    kept: int


@dataclass(frozen=True, slots=True)
class Have:
    """In a session that stands: the sender has these blocks of a content.

    Attributes:
        root: hash of its first block.
        blocks: which of them, in the order of the content, the list first: bit 0 for the first one.  Not 0.
    """

    root: BlockHash
    blocks: int


@dataclass(frozen=True, slots=True)
class Prune:
    """In a session that stands: what came was known, so keep further news back and tell the root hash instead."""


@dataclass(frozen=True, slots=True)
class Graft:
    """In a session that stands: send what was kept back, and news unasked from now on."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The sender ends the session, and why (up to 200 bytes of UTF-8)."""

    refusal: Refusal
    text: str


Request = Ls | PathReq | EntryReq | BlockReq
Data = Entries | Blocks
Message = Hash | Same | Request | Data | Eof | Wait | Close | Stay | Root | Have | Prune | Graft | Refuse
