"""Entries: the signed operations that form the Merkle DAG (paper, section 3.0.1; layout in `docs/formats.md`).

    offset  size     field
    0       1        tag, 0x01: an entry of format 1
    1       28       parent: hash of the parent entry; of the root entry: a random nonce
    29      4        timestamp: unsigned UNIX seconds, big endian; informative only
    33      1        action
    34      1 + n    name: length, then bytes ('/' for the root)
            v + n    content: varint length, then bytes
            0 - 6    size of the file in bytes, big endian without leading zeros; only in `write`
            16       fingerprint of the signing key
            64       Ed25519 signature over DOMAIN and all the bytes before it

The encoding does not contain its length: the store or the sender frames it.  An entry has exactly one
encoding; `Entry.decode` refuses every other one, so that hash, signature, store and wire always agree.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import InitVar, dataclass, field

from basefs import path
from basefs.errors import InvalidEntry, PathError
from basefs.log import varint
from basefs.log.hashes import FINGERPRINT_SIZE, HASH_SIZE, EntryHash, Fingerprint, sha224
from basefs.path import MAX_NAME

TAG = 0x01
SIGNATURE_SIZE = 64
#: Prefix of the signed bytes, so that a signature of an entry is never valid for anything else.
DOMAIN = b"basefs entry v1\x00"

#: Longest content: a symbolic link's target (Linux PATH_MAX less the terminating NUL).
MAX_CONTENT = 4095
MAX_SIZE = 2**48 - 1
MAX_TIMESTAMP = 2**32 - 1
ROOT_NAME = b"/"

_HEADER = struct.Struct(">B28sIB")
_TRAILER_SIZE = FINGERPRINT_SIZE + SIGNATURE_SIZE
_MIN_ENTRY = _HEADER.size + 2 + 1 + _TRAILER_SIZE
MAX_ENTRY = _HEADER.size + 1 + MAX_NAME + 2 + MAX_CONTENT + 6 + _TRAILER_SIZE


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


#: Looking one up in a dictionary takes a tenth of the time that the class takes.
_ACTIONS = {int(action): action for action in Action}
#: Actions that begin the chain of a path when their parent is a mkdir.
CHILD_ACTIONS = frozenset({Action.MKDIR, Action.WRITE, Action.LINK, Action.SLINK})
#: Actions that hang on a path without being a state of it.
KEY_ACTIONS = frozenset({Action.GRANT, Action.REVOKE})

#: Allowed lengths of the content of each action, in bytes.
_CONTENT_SIZES: dict[Action, range | frozenset[int]] = {
    Action.MKDIR: frozenset({0}),
    Action.WRITE: frozenset({0, HASH_SIZE}),
    Action.DELETE: frozenset({0}),
    Action.REVERT: frozenset({HASH_SIZE}),
    Action.GRANT: frozenset({32}),
    Action.REVOKE: frozenset({FINGERPRINT_SIZE}),
    Action.ACK: frozenset({0}),
    Action.LINK: frozenset({HASH_SIZE}),
    Action.SLINK: range(1, MAX_CONTENT + 1),
    Action.MODE: range(2, MAX_CONTENT + 1),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One signed operation.

    Attributes:
        parent: hash of the parent entry (28 bytes).
        timestamp: UNIX seconds, 0 to 2**32 - 1; affects no decision.
        action: its operation.
        name: last component of the path, or the key's name for grant and revoke; `b"/"` for the root.
        content: depends on the action, see `docs/formats.md`.
        size: size in bytes of the file after a write, otherwise 0.
        fingerprint: of the key that signed (16 bytes).
        signature: Ed25519 (64 bytes).
        hash: SHA-224 of the encoding before the signature; derived.
        body: the bytes before the signature; derived.
    """

    parent: EntryHash
    timestamp: int
    action: Action
    name: bytes
    content: bytes
    size: int
    fingerprint: Fingerprint
    signature: bytes
    hash: EntryHash = field(init=False, compare=False, repr=False)
    body: bytes = field(init=False, compare=False, repr=False)
    known_body: InitVar[bytes | None] = None

    def __post_init__(self, known_body: bytes | None) -> None:
        """`known_body`: the bytes before the signature, if the caller has just decoded the fields from them."""
        body = known_body or signed_part(
            self.parent, self.timestamp, self.action, self.name, self.content, self.size, self.fingerprint
        )
        object.__setattr__(self, "body", body)
        object.__setattr__(self, "hash", EntryHash(sha224(body)))

    @property
    def is_root(self) -> bool:
        """Whether this can only be a root entry: no other may be named '/' and make a directory."""
        return self.action is Action.MKDIR and self.name == ROOT_NAME

    def encode(self) -> bytes:
        """The canonical encoding."""
        return self.body + self.signature

    @classmethod
    def decode(cls, data: bytes) -> Entry:
        """Parse the canonical encoding.  Raises `InvalidEntry` for anything else; the signature is not verified."""
        if not _MIN_ENTRY <= len(data) <= MAX_ENTRY:
            raise InvalidEntry(f"an entry has {_MIN_ENTRY} to {MAX_ENTRY} bytes, not {len(data)}")
        tag, parent, timestamp, code = _HEADER.unpack_from(data)
        if tag != TAG:
            raise InvalidEntry(f"tag {tag:#04x} is not an entry of a known format")
        action = _ACTIONS.get(code)
        if action is None:
            raise InvalidEntry(f"unknown action {code}")
        offset = _HEADER.size
        end = len(data) - _TRAILER_SIZE
        name_end = offset + 1 + data[offset]
        name = data[offset + 1 : name_end]
        length, offset = varint.decode(data, name_end, max_bytes=2)
        content = data[offset : offset + length]
        offset += length
        if not 0 <= end - offset <= 6:
            raise InvalidEntry("the fields do not fill the entry")
        raw_size = data[offset:end]
        if raw_size[:1] == b"\x00":
            raise InvalidEntry("the size is not in its shortest form")
        size = int.from_bytes(raw_size, "big")
        check_fields(action, name, content, size)
        return cls(
            parent=EntryHash(parent),
            timestamp=timestamp,
            action=action,
            name=name,
            content=content,
            size=size,
            fingerprint=Fingerprint(data[end : end + FINGERPRINT_SIZE]),
            signature=data[end + FINGERPRINT_SIZE :],
            # An entry has one encoding, so these are the bytes to which the fields would be encoded.
            known_body=data[: end + FINGERPRINT_SIZE],
        )


def hash_of(encoded: bytes) -> EntryHash:
    """The hash of an encoded entry, without decoding it: the signature is no part of it."""
    return EntryHash(sha224(encoded[:-SIGNATURE_SIZE]))


def parent_of(encoded: bytes) -> EntryHash:
    """The hash of the parent of an encoded entry, without decoding it."""
    return EntryHash(encoded[1 : 1 + HASH_SIZE])


def signed_part(
    parent: bytes, timestamp: int, action: Action, name: bytes, content: bytes, size: int, fingerprint: bytes
) -> bytes:
    """The bytes of an entry before its signature: they are hashed, and signed after DOMAIN."""
    return b"".join(
        (
            _HEADER.pack(TAG, parent, timestamp, action),
            bytes((len(name),)),
            name,
            varint.encode(len(content)),
            content,
            size.to_bytes((size.bit_length() + 7) // 8, "big"),
            fingerprint,
        )
    )


def check_fields(action: Action, name: bytes, content: bytes, size: int) -> None:
    """The rules that an entry obeys whatever its place in the DAG.  Raises `InvalidEntry`."""
    if action not in KEY_ACTIONS:
        check_name(name)
    elif len(name) > MAX_NAME or b"\x00" in name:
        raise InvalidEntry("the name of a key has up to 255 bytes and no NUL")
    if len(content) not in _CONTENT_SIZES[action]:
        raise InvalidEntry(f"{action.name.lower()} cannot have a content of {len(content)} bytes")
    if size and action is not Action.WRITE:
        raise InvalidEntry("only a write has a size")
    if action is Action.WRITE and bool(size) != bool(content):
        raise InvalidEntry("a write has blocks exactly if the file is not empty")
    if action is Action.SLINK and b"\x00" in content:
        raise InvalidEntry("the target of a symbolic link holds a NUL byte")


def check_name(name: bytes) -> None:
    """Check that a name is '/' (the root) or a component of a path.  Raises `InvalidEntry`."""
    if name == ROOT_NAME:
        return
    try:
        path.check_name(name)
    except PathError as error:
        raise InvalidEntry(str(error)) from None
