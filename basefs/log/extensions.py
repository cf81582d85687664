"""Extensions: the optional fields of an entry, by number (docs/formats.md, section 1).

    extensions   := extension, any number of times, their numbers ascending
    extension    := number (1 B), varint length, value

A version ignores extensions with an odd number that it does not know, but keeps and syncs them; it refuses an entry
with an even one, which may change what the entry means.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from basefs.errors import InvalidEntry, UnsupportedEntry
from basefs.log import varint
from basefs.log.ed25519 import PUBLIC_KEY_SIZE, SIGNATURE_SIZE

#: Bytes of all extensions of an entry, and of those that a version does not know, numbers and lengths included.
MAX_EXTENSIONS = 1024
MAX_UNKNOWN = 64
#: Bytes of a modification time.
TIME_SIZE = 11
#: Nanoseconds since 1970 at which a file can have been modified, 1901 to 2446: what ext4 can store.
MIN_TIME, MAX_TIME = -(2**31) * 10**9, (2**34 - 2**31) * 10**9 - 1

#: Recovery keys of a filesystem: more than people can keep apart, and their signatures fit into an entry.
MAX_RECOVERY_KEYS = 15
#: The number of a recovery has 8 bytes.
MAX_RECOVERY_NUMBER = 2**64 - 1

_MTIME, _SIZE, _OPEN, _RECOVERY_KEYS, _RECOVERY = 1, 2, 4, 6, 8
_NUMBER_SIZE = 8


@dataclass(frozen=True, slots=True)
class RecoveryKeys:
    """The keys of which some together replace the root key.

    Attributes:
        threshold: how many of them it takes, from 1 on.
        publics: raw public keys (32 bytes each), ascending, 1 to `MAX_RECOVERY_KEYS`.
    """

    threshold: int
    publics: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Recovery:
    """What makes a grant replace the root key.

    Attributes:
        number: 1 to `MAX_RECOVERY_NUMBER`; the highest one counts.
        signatures: indexes of recovery keys, ascending, each with its signature (64 bytes) over `recovery.message`.
    """

    number: int
    signatures: tuple[tuple[int, bytes], ...]


class Extensions(NamedTuple):
    """The optional fields of an entry.

    Attributes:
        size: bytes of the file after a write; 0 without one.
        mtime: nanoseconds since 1970, `MIN_TIME` to `MAX_TIME`; `None` without one.
        unknown: number and value of those that this version does not know, all odd, ascending.
        is_open: of the root entry: whether anybody may read the filesystem.
        recovery_keys: of the root entry; `None` where nothing replaces the root key.
        recovery: of a grant that replaces the root key; `None` of all others.
    """

    size: int = 0
    mtime: int | None = None
    unknown: tuple[tuple[int, bytes], ...] = ()
    is_open: bool = False
    recovery_keys: RecoveryKeys | None = None
    recovery: Recovery | None = None

    def encode(self) -> bytes:
        """The one encoding of these fields."""
        values = dict(self.unknown)
        if self.mtime is not None:
            values[_MTIME] = _encode_time(self.mtime)
        if self.size:
            values[_SIZE] = self.size.to_bytes((self.size.bit_length() + 7) // 8, "big")
        if self.is_open:
            values[_OPEN] = b""
        if self.recovery_keys is not None:
            values[_RECOVERY_KEYS] = bytes((self.recovery_keys.threshold,)) + b"".join(self.recovery_keys.publics)
        if self.recovery is not None:
            signed = (bytes((index,)) + signature for index, signature in self.recovery.signatures)
            values[_RECOVERY] = self.recovery.number.to_bytes(_NUMBER_SIZE, "big") + b"".join(signed)
        return b"".join(
            bytes((number,)) + varint.encode(len(value)) + value for number, value in sorted(values.items())
        )

    @classmethod
    def decode(cls, data: bytes) -> Extensions:
        """Parse the one encoding.  Raises `UnsupportedEntry` for an unknown even number, `InvalidEntry`."""
        if len(data) > MAX_EXTENSIONS:
            raise InvalidEntry(f"the extensions of an entry have up to {MAX_EXTENSIONS} bytes")
        fields: list[Any] = list(NO_EXTENSIONS)
        unknown: list[tuple[int, bytes]] = []
        at, last = 0, -1
        while at < len(data):
            number = data[at]
            length, start = varint.decode(data, at + 1, 2)
            at = start + length
            if number <= last or at > len(data):
                raise InvalidEntry("the extensions of an entry are cut off or out of order")
            last = number
            known = _KNOWN.get(number)
            if known is not None:
                position, parse = known
                fields[position] = parse(data[start:at])
            elif number % 2:
                unknown.append((number, data[start:at]))
            else:
                raise UnsupportedEntry(f"an entry with extension {number}")
        if unknown:
            fields[_UNKNOWN] = tuple(unknown)
        return cls(*fields)


NO_EXTENSIONS = Extensions()
_UNKNOWN = Extensions._fields.index("unknown")


def _encode_time(time: int) -> bytes:
    bits = max(time, ~time).bit_length()
    return time.to_bytes(bits // 8 + 1, "big", signed=True)


def _mtime(value: bytes) -> int:
    mtime = int.from_bytes(value, "big", signed=True)
    if not MIN_TIME <= mtime <= MAX_TIME or value != _encode_time(mtime):
        raise InvalidEntry("a modification time is in the years 1901 to 2446, without leading bytes")
    return mtime


def _size(value: bytes) -> int:
    if not 0 < len(value) <= 6 or value[0] == 0:
        raise InvalidEntry("a size has up to 6 bytes and no leading zero")
    return int.from_bytes(value, "big")


def _mark(value: bytes) -> bool:
    if value:
        raise InvalidEntry("the mark of an open filesystem has no value")
    return True


def _recovery_keys(value: bytes) -> RecoveryKeys:
    count, rest = divmod(len(value) - 1, PUBLIC_KEY_SIZE)
    if rest or not 0 < count <= MAX_RECOVERY_KEYS or not 0 < value[0] <= count:
        raise InvalidEntry(f"recovery keys are 1 to {MAX_RECOVERY_KEYS}, and a threshold of at most their number")
    publics = tuple(value[at : at + PUBLIC_KEY_SIZE] for at in range(1, len(value), PUBLIC_KEY_SIZE))
    if list(publics) != sorted(set(publics)):
        raise InvalidEntry("recovery keys are in ascending order, each once")
    return RecoveryKeys(value[0], publics)


def _recovery(value: bytes) -> Recovery:
    size = 1 + SIGNATURE_SIZE
    number, signed = int.from_bytes(value[:_NUMBER_SIZE], "big"), value[_NUMBER_SIZE:]
    count, rest = divmod(len(signed), size)
    if rest or number == 0 or not 0 < count <= MAX_RECOVERY_KEYS:
        raise InvalidEntry(f"a recovery has a number from 1 on, and 1 to {MAX_RECOVERY_KEYS} signatures")
    signatures = tuple((signed[at], signed[at + 1 : at + size]) for at in range(0, len(signed), size))
    indexes = [index for index, _ in signatures]
    if indexes != sorted(set(indexes)):
        raise InvalidEntry("the signatures of a recovery are in the order of the recovery keys, one of each")
    return Recovery(number, signatures)


#: Number of an extension -> the position of its field in `Extensions`, and the parser of its value.
_KNOWN: dict[int, tuple[int, Callable[[bytes], object]]] = {
    number: (Extensions._fields.index(name), parse)
    for number, name, parse in (
        (_MTIME, "mtime", _mtime),
        (_SIZE, "size", _size),
        (_OPEN, "is_open", _mark),
        (_RECOVERY_KEYS, "recovery_keys", _recovery_keys),
        (_RECOVERY, "recovery", _recovery),
    )
}
