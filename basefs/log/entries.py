"""Entries: the signed operations that form the Merkle DAG (paper, section 3.0.1; layout in `docs/formats.md`).

    offset  size     field
    0       1        tag, 0x03: an entry of format 3
    1       28       parent: hash of the parent entry; of the root entry: a random nonce
    29      8        made: nanoseconds since 1970 at which it was signed, signed big endian
    37      1        action
    38      1 + n    name: length, then bytes ('/' for the root)
            v + n    content: varint length, then bytes
            n        extensions (`basefs/log/extensions.py`)
            28       fingerprint of the signing key
            64       Ed25519 signature over DOMAIN and all the bytes before it

The encoding does not contain its length: the store or the sender frames it.  An entry has exactly one
encoding; `Entry.decode` refuses every other one, so that hash, signature, store and wire always agree.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from dataclasses import InitVar, dataclass, field
from typing import Final

from basefs import path
from basefs.errors import InvalidEntry, PathError, UnsupportedEntry
from basefs.log import varint
from basefs.log.blocks import MAX_CONTENT_BYTES, Encoded, most_encoded
from basefs.log.ed25519 import SIGNATURE_SIZE
from basefs.log.extensions import MAX_UNKNOWN, NO_EXTENSIONS, TIME_SIZE, Extensions
from basefs.log.hashes import FINGERPRINT_SIZE, HASH_SIZE, EntryHash, Fingerprint, sha224
from basefs.path import MAX_NAME

TAG = 0x03
#: Prefix of the signed bytes, so that a signature of an entry is never valid for anything else.
DOMAIN = b"basefs entry v3\x00"

#: Longest content: a symbolic link's target (Linux PATH_MAX less the terminating NUL).
MAX_CONTENT = 4095
#: Latest time of signing, in the year 2262.
MAX_MADE = 2**63 - 1
#: Longest content of an annotation: no key has a limit on their number, and every node stores them.
MAX_ANNOTATION = 512
ROOT_NAME = b"/"
#: Actions from this number up are annotations: stored and synced by every version, known to it or not.
FIRST_ANNOTATION = 64

_HEADER = struct.Struct(">B28sqB")
#: Places in an encoding, where decoding all of it costs too much.
_ACTION_AT = _HEADER.size - 1
_NAME_AT = _HEADER.size
_TRAILER_SIZE = FINGERPRINT_SIZE + SIGNATURE_SIZE
_MIN_ENTRY = _HEADER.size + 1 + 1 + _TRAILER_SIZE
#: That of a symbolic link with all that it may have.
MAX_ENTRY = _HEADER.size + 1 + MAX_NAME + 2 + MAX_CONTENT + TIME_SIZE + MAX_UNKNOWN + _TRAILER_SIZE


class Action(enum.IntEnum):
    """The operation of an entry.  The numbers are the format: append, never renumber."""

    MKDIR = 1
    WRITE = 2
    DELETE = 3
    REVERT = 4
    GRANT = 5
    REVOKE = 6
    ACK = 7
    LINK = 8
    SLINK = 9
    MODE = 10
    NODE = 11
    XATTR = 12
    ADMIT = 13
    GOSSIP_KEY = 65

    @classmethod
    def _missing_(cls, value: object) -> Action | None:
        if not isinstance(value, int) or not FIRST_ANNOTATION <= value <= 255:
            return None
        annotation = int.__new__(cls, value)
        annotation._name_, annotation._value_ = f"ANNOTATION_{value}", value
        return annotation

    @property
    def is_annotation(self) -> bool:
        """Whether it only says something about its path, which the view ignores."""
        return self >= FIRST_ANNOTATION

    @property
    def is_state(self) -> bool:
        """Whether it is a step in the life of its path, and does not merely hang on it."""
        return self in _STATE_ACTIONS


#: Looking one up in a dictionary takes a tenth of the time that the class takes.
_ACTIONS = {int(action): action for action in (*Action, *map(Action, range(FIRST_ANNOTATION, 256)))}
#: Actions that begin the chain of a path when their parent is a mkdir.
CHILD_ACTIONS = frozenset({Action.MKDIR, Action.WRITE, Action.LINK, Action.SLINK, Action.NODE})
#: Actions about the keys of a path.
KEY_ACTIONS = frozenset({Action.GRANT, Action.REVOKE, Action.ADMIT})
#: Actions that begin what keys are granted on: a directory, or a file.
BEARING_ACTIONS = frozenset({Action.MKDIR, Action.WRITE, Action.LINK})
#: Actions whose content is the hash of another entry.
NAMING_ACTIONS = frozenset({Action.LINK, Action.REVERT})
_STATE_ACTIONS = frozenset(action for action in Action if not action.is_annotation) - KEY_ACTIONS
#: Actions behind which a path is the file or directory, with the content, that it was before.
KEEPING_ACTIONS = frozenset({Action.MODE, Action.XATTR, Action.ACK})

#: Allowed lengths of the content of each action, in bytes.
_CONTENT_SIZES: dict[Action, range | frozenset[int]] = {
    Action.MKDIR: frozenset({0}),
    Action.WRITE: frozenset({0, *range(HASH_SIZE + 2, HASH_SIZE + 8)}),
    Action.DELETE: frozenset({0}),
    Action.REVERT: frozenset({HASH_SIZE}),
    Action.GRANT: frozenset({32}),
    Action.REVOKE: frozenset({FINGERPRINT_SIZE}),
    Action.ACK: frozenset({0}),
    Action.LINK: frozenset({HASH_SIZE}),
    Action.SLINK: range(1, MAX_CONTENT + 1),
    Action.MODE: range(2, MAX_CONTENT + 1),
    Action.NODE: frozenset({1, 9}),
    Action.XATTR: range(MAX_CONTENT + 1),
    Action.ADMIT: frozenset({32}),
    Action.GOSSIP_KEY: frozenset({32}),
}
_ANNOTATION_SIZES = range(MAX_ANNOTATION + 1)


# Not `frozen`, which takes 2 us for the ten attributes, of the 10 of decoding: mypy refuses changes of what is `Final`.
@dataclass(slots=True, unsafe_hash=True)
class Entry:
    """One signed operation.

    Attributes:
        parent: hash of the parent entry (28 bytes).
        made: when it was signed by the signer's clock, nanoseconds since 1970; it decides nothing.
        action: its operation.
        name: last component of the path, or the key's name for grant, revoke and admit; `b"/"` for the root.
        content: depends on the action, see `docs/formats.md`.
        extensions: its optional fields.
        fingerprint: of the key that signed (28 bytes).
        signature: Ed25519 (64 bytes).
        hash: SHA-224 of the encoding before the signature; derived.
        body: the bytes before the signature; derived.
    """

    parent: Final[EntryHash]
    made: Final[int]
    action: Final[Action]
    name: Final[bytes]
    content: Final[bytes]
    extensions: Final[Extensions]
    fingerprint: Final[Fingerprint]
    signature: Final[bytes]
    hash: Final[EntryHash] = field(init=False, compare=False, repr=False)
    body: Final[bytes] = field(init=False, compare=False, repr=False)
    known_body: InitVar[bytes | None] = None
    known_hash: InitVar[EntryHash | None] = None

    def __post_init__(self, known_body: bytes | None, known_hash: EntryHash | None) -> None:
        """`known_body`: the bytes before the signature, if the caller has just decoded the fields from them.

        `known_hash`: the hash of these.
        """
        self.body = known_body or signed_part(  # type: ignore[misc]  # made once, here
            self.parent, self.made, self.action, self.name, self.content, self.extensions, self.fingerprint
        )
        self.hash = known_hash or EntryHash(sha224(self.body))  # type: ignore[misc]

    @property
    def is_root(self) -> bool:
        """Whether this can only be a root entry: no other may be named '/' and make a directory."""
        return self.action is Action.MKDIR and self.name == ROOT_NAME

    @property
    def encoded(self) -> Encoded | None:
        """The encoded content of a write; `None` for an empty file and all other actions."""
        return Encoded.decode(self.content) if self.action is Action.WRITE and self.content else None

    @property
    def size(self) -> int:
        """Bytes of the file after a write, otherwise 0."""
        return self.extensions.size

    @property
    def needs(self) -> tuple[EntryHash, ...]:
        """The entries that come before this one: its parent, then what a link or revert names."""
        return (self.parent, EntryHash(self.content)) if self.action in NAMING_ACTIONS else (self.parent,)

    @property
    def mtime(self) -> int:
        """The modification time of what it makes, nanoseconds since 1970."""
        return self.made if self.extensions.mtime is None else self.extensions.mtime

    def encode(self) -> bytes:
        """The canonical encoding."""
        return self.body + self.signature

    @classmethod
    def decode(cls, data: bytes, hash: EntryHash | None = None) -> Entry:
        """Parse the canonical encoding, whose `hash_of` the caller may know; the signature is not verified.

        Raises `UnsupportedEntry` for an entry that a later version may know, `InvalidEntry` for anything else.
        """
        if not _MIN_ENTRY <= len(data) <= MAX_ENTRY:
            raise InvalidEntry(f"an entry has {_MIN_ENTRY} to {MAX_ENTRY} bytes, not {len(data)}")
        tag, parent, made, code = _HEADER.unpack_from(data)
        if tag != TAG:
            raise InvalidEntry(f"tag {tag:#04x} is not an entry of a known format")
        action = _ACTIONS.get(code)
        if action is None:
            raise UnsupportedEntry(f"an entry with action {code}")
        end = len(data) - _TRAILER_SIZE
        name_end = _NAME_AT + 1 + data[_NAME_AT]
        name = data[_NAME_AT + 1 : name_end]
        length, offset = varint.decode(data, name_end, 2)
        content_end = offset + length
        if content_end > end:
            raise InvalidEntry("the fields do not fit into the entry")
        content = data[offset:content_end]
        extensions = Extensions.decode(data[content_end:end]) if content_end < end else NO_EXTENSIONS
        check_fields(action, name, content, extensions)
        signed = end + FINGERPRINT_SIZE
        fingerprint, signature = Fingerprint(data[end:signed]), data[signed:]
        # An entry has one encoding, so this begins with the bytes to which the fields would be encoded.
        return cls(parent, made, action, name, content, extensions, fingerprint, signature, data[:signed], hash)


def hash_of(encoded: bytes) -> EntryHash:
    """The hash of an encoded entry, without decoding it: the signature is no part of it."""
    return EntryHash(sha224(encoded[:-SIGNATURE_SIZE]))


def needs_of(encoded: bytes) -> tuple[EntryHash, ...]:
    """`Entry.needs` of an encoded entry, without decoding it."""
    parent = EntryHash(encoded[1 : 1 + HASH_SIZE])
    if encoded[_ACTION_AT] not in NAMING_ACTIONS:
        return (parent,)
    content = _NAME_AT + 2 + encoded[_NAME_AT]
    return parent, EntryHash(encoded[content : content + HASH_SIZE])


def signer_of(encoded: bytes) -> Fingerprint:
    """The fingerprint of the key that signed an encoded entry, without decoding it."""
    return Fingerprint(encoded[-_TRAILER_SIZE : FINGERPRINT_SIZE - _TRAILER_SIZE])


def is_gossip_key(encoded: bytes) -> bool:
    """Whether an encoded entry is a gossip key, without decoding it."""
    return encoded[_ACTION_AT] == Action.GOSSIP_KEY


def encoded_of(encoded: bytes) -> Encoded | None:
    """How an encoded entry names its content, without decoding the rest of it; `None` if it names none."""
    content = _NAME_AT + 2 + encoded[_NAME_AT]
    if encoded[_ACTION_AT] != Action.WRITE or not encoded[content - 1]:
        return None
    return Encoded.decode(encoded[content : content + encoded[content - 1]])


def signed_part(
    parent: bytes,
    made: int,
    action: Action,
    name: bytes,
    content: bytes,
    extensions: Extensions,
    fingerprint: bytes,
) -> bytes:
    """The bytes of an entry before its signature: they are hashed, and signed after DOMAIN."""
    return b"".join(
        (
            _HEADER.pack(TAG, parent, made, action),
            bytes((len(name),)),
            name,
            varint.encode(len(content)),
            content,
            extensions.encode(),
            fingerprint,
        )
    )


def check_fields(action: Action, name: bytes, content: bytes, extensions: Extensions) -> None:
    """The rules that an entry obeys whatever its place in the DAG.  Raises `InvalidEntry`."""
    if action in _STATE_ACTIONS:
        check_name(name)
    elif len(name) > MAX_NAME or b"\x00" in name:
        raise InvalidEntry("the name of a key has up to 255 bytes and no NUL")
    if len(content) not in _CONTENT_SIZES.get(action, _ANNOTATION_SIZES):
        raise InvalidEntry(f"{action.name.lower()} cannot have a content of {len(content)} bytes")
    if action is Action.WRITE:
        _check_write(content, extensions.size)
    if extensions is not NO_EXTENSIONS:
        _check_extensions(action, name, extensions)
    check = _CHECKS.get(action)
    if check is not None:
        check(content)


def _check_extensions(action: Action, name: bytes, extensions: Extensions) -> None:
    if sum(2 + len(value) for _, value in extensions.unknown) > MAX_UNKNOWN:
        raise InvalidEntry(f"the extensions of an entry that this version does not know have up to {MAX_UNKNOWN} bytes")
    if extensions.size and action is not Action.WRITE:
        raise InvalidEntry("only a write has a size")
    is_root = action is Action.MKDIR and name == ROOT_NAME
    if extensions.is_open and not is_root:
        raise InvalidEntry("only the root entry says that a filesystem is open")
    if extensions.recovery_keys is not None and not is_root:
        raise InvalidEntry("only the root entry names recovery keys")
    if extensions.recovery is not None and action is not Action.GRANT:
        raise InvalidEntry("only a grant is a recovery")


def _check_write(content: bytes, size: int) -> None:
    if bool(size) != bool(content):
        raise InvalidEntry("a write has blocks exactly if the file is not empty")
    if not content:
        return
    encoded = Encoded.decode(content)
    if size > MAX_CONTENT_BYTES:
        raise InvalidEntry(f"a content of {size} bytes is more than a node can hold")
    if encoded.length > most_encoded(size):
        raise InvalidEntry(f"a content of {size} bytes cannot have {encoded.length} bytes when it is encoded")


def _check_target(content: bytes) -> None:
    if b"\x00" in content:
        raise InvalidEntry("the target of a symbolic link holds a NUL byte")


def _check_node(content: bytes) -> None:
    if len(content) == 1:
        if content[0] != _FIFO:
            raise InvalidEntry("a node is a fifo (1), or a character (2) or block device (3) with its numbers")
        return
    kind, major, minor = _NODE.unpack(content)
    if kind not in _DEVICES or major > _MAX_MAJOR or minor > _MAX_MINOR:
        raise InvalidEntry("a device is a character (2) or block device (3), with the numbers that Linux has for it")


def _check_xattrs(content: bytes) -> None:
    names = [name for name, _ in xattrs_in(content)]
    if names != sorted(set(names)) or b"" in names or any(b"\x00" in name for name in names):
        raise InvalidEntry("extended attributes are in the order of their names, each once, and have no NUL in these")


def xattrs_in(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The names, without their prefix, and values in the content of an xattr entry.  Raises `InvalidEntry`."""
    at = 0
    while at < len(content):
        value = at + 1 + content[at] + 2
        end = value + int.from_bytes(content[value - 2 : value], "big")
        if end > len(content) or value - 1 - at - 2 > _MAX_XATTR_NAME:
            raise InvalidEntry("an extended attribute is cut off, or its name too long")
        yield content[at + 1 : value - 2], content[value:end]
        at = end


_FIFO, _DEVICES = 1, (2, 3)
_NODE = struct.Struct(">BII")
#: Of Linux.
_MAX_MAJOR, _MAX_MINOR = 2**12 - 1, 2**20 - 1
#: Without "user."; the kernel takes 255 bytes.
_MAX_XATTR_NAME = 250
_CHECKS = {Action.SLINK: _check_target, Action.NODE: _check_node, Action.XATTR: _check_xattrs}


def check_name(name: bytes) -> None:
    """Check that a name is '/' (the root) or a component of a path.  Raises `InvalidEntry`."""
    if name == ROOT_NAME:
        return
    try:
        path.check_name(name)
    except PathError as error:
        raise InvalidEntry(str(error)) from None
