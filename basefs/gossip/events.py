"""The payload of one gossip event: at most 512 bytes, binary, no I/O.

    event        := item | pack
    pack         := 0x00 then two or more of (varint length, item)
    item         := entry | block | announcement | origin
    entry        := the log's encoding, whose first byte is 0x03; 132..512 B
    block        := 0x02, data (1..511 B)
    announcement := 0x01, root Merkle hash (28 B), address, then 0..n entry hashes (28 B each)
    origin       := 0x04, address
    address      := sync port (2 B, big endian), length (1 B: 4, 16, or 0 for unknown), IP address
    varint       := unsigned LEB128 in its shortest form, 1 or 2 bytes

Entries and blocks are opaque here: the log judges them.  Decoding is strict, one encoding per event: an unknown tag, a
pack in a pack, trailing or missing bytes, a long varint, an unknown address with a port (or a known one without), a
second origin: all are `RemoteProtocolError`.

512 bytes is Serf's default for a user event and the event size of the paper.  Two such events with Serf's own overhead
still share one UDP packet of memberlist (1400 B); one of 1300 B or more would never leave by UDP at all.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from basefs.errors import LocalProtocolError, RemoteProtocolError

#: Longest event payload, bytes.
MAX_EVENT = 512
#: A SHA-224 hash, bytes.
HASH_SIZE = 28
#: Shortest entry: 38 B header, empty name and content with their lengths, 28 B fingerprint, 64 B signature.
MIN_ENTRY = 132
MAX_ENTRY = MAX_EVENT
#: Bytes of a block that fills an event: 512 less the tag.
MAX_BLOCK = MAX_EVENT - 1

_PACK, _ANNOUNCEMENT, _BLOCK, _ENTRY, _ORIGIN = range(5)


class _HostPort(NamedTuple):
    host: str
    port: int


class Address(_HostPort):
    """Where a peer answers the sync protocol: an IP address (canonical text, no zone) and a TCP port 1..65535.

    Raises LocalProtocolError for anything else: names are resolved before they come here.
    """

    __slots__ = ()

    def __new__(cls, host: str, port: int) -> Address:
        ip = _canonical(host)
        if not 0 < port < 65536:
            raise LocalProtocolError(f"{port} is not a port")
        return super().__new__(cls, ip, port)


# 200 bytes each: each decision on a peer, and each look at the members, takes the addresses of all members, and parsing
# them was most of its time.
@lru_cache(maxsize=16 * 1024)
def _canonical(host: str) -> str:
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        raise LocalProtocolError(f"{host!r} is not an IP address") from None
    if "%" in host:
        raise LocalProtocolError(f"{host!r} has a zone, which means nothing on another machine")
    return str(ip)


@dataclass(frozen=True, slots=True)
class Announcement:
    """A request to sync: the sender's root hash, where it answers (None: unknown), some of its new entries' hashes."""

    root: bytes
    address: Address | None
    entry_hashes: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class GossipEvent:
    """One decoded event.  Entries include their leading 0x03; blocks are without the tag.

    `origin` is the node that sent the event, where missing parents can be asked for; None if it did not say.
    """

    entries: tuple[bytes, ...] = ()
    blocks: tuple[bytes, ...] = ()
    announcements: tuple[Announcement, ...] = ()
    origin: Address | None = None


def decode_event(payload: bytes) -> GossipEvent:
    """The event in `payload`.  Raises RemoteProtocolError for anything but the one encoding of an event."""
    if not payload:
        raise RemoteProtocolError("an event is empty")
    if len(payload) > MAX_EVENT:
        raise RemoteProtocolError(f"an event has at most {MAX_EVENT} bytes, not {len(payload)}")
    found = _items_by_tag(payload)
    if any(len(entry) < MIN_ENTRY for entry in found[_ENTRY]):
        raise RemoteProtocolError(f"an entry has at least {MIN_ENTRY} bytes")
    if any(len(block) < 2 for block in found[_BLOCK]):
        raise RemoteProtocolError("a block is empty")
    return GossipEvent(
        tuple(found[_ENTRY]),
        tuple(block[1:] for block in found[_BLOCK]),
        tuple(map(_decode_announcement, found[_ANNOUNCEMENT])),
        _decode_origin(found[_ORIGIN]),
    )


def _items_by_tag(payload: bytes) -> dict[int, list[bytes]]:
    items = _split_pack(payload) if payload[0] == _PACK else [payload]
    found: dict[int, list[bytes]] = {tag: [] for tag in (_ENTRY, _BLOCK, _ANNOUNCEMENT, _ORIGIN)}
    for item in items:
        if item[0] not in found:
            what = "a pack is inside a pack" if item[0] == _PACK else f"unknown tag {item[0]} in an event"
            raise RemoteProtocolError(what)
        found[item[0]].append(item)
    return found


def _decode_origin(items: Sequence[bytes]) -> Address | None:
    if not items:
        return None
    address, rest = _decode_address(items[0][1:])
    if address is None or rest or len(items) > 1:
        raise RemoteProtocolError("an event names one origin, with an address")
    return address


def encode_events(entries: Sequence[bytes], blocks: Sequence[bytes], origin: Address | None) -> list[bytes]:
    """As few events as a greedy, order-keeping packing gives.

    Each entry is followed by its own blocks (from that one on whose hash the entry contains), and shares an event with
    the first of them whenever the two fit into one.  An event that holds an entry also names
    the origin, where there is room.  Raises LocalProtocolError for an entry or block that no event can carry.
    """
    _check_sizes(entries, blocks)
    packs = _fill_packs(_groups(entries, blocks))
    if origin is not None:
        signature = bytes([_ORIGIN]) + _encode_address(origin)
        for pack in packs:
            if any(item[0] == _ENTRY for item in pack) and _fits([*pack, signature]):
                pack.append(signature)
    return [_join_pack(pack) for pack in packs]


def _check_sizes(entries: Sequence[bytes], blocks: Sequence[bytes]) -> None:
    for entry in entries:
        if not MIN_ENTRY <= len(entry) <= MAX_ENTRY or entry[0] != _ENTRY:
            raise LocalProtocolError(f"an entry of {len(entry)} bytes cannot be gossiped")
    for block in blocks:
        if not 0 < len(block) <= MAX_BLOCK:
            raise LocalProtocolError(f"a block of {len(block)} bytes cannot be gossiped")


def _fill_packs(groups: Sequence[Sequence[bytes]]) -> list[list[bytes]]:
    packs: list[list[bytes]] = []
    for group in groups:
        for index, item in enumerate(group):
            # An entry without its first block is of no use yet: rather than part them, open a new event for both.
            together = group[:2] if index == 0 else [item]
            apart = bool(packs) and not _fits([*packs[-1], *together]) and _fits(together)
            if not packs or apart or not _fits([*packs[-1], item]):
                packs.append([])
            packs[-1].append(item)
    return packs


def encode_announcement(root: bytes, address: Address | None, entry_hashes: Sequence[bytes]) -> bytes:
    """An event that asks receivers to sync with us, with as many of the hashes as fit (17 with an IPv4 address).

    Raises LocalProtocolError for a hash of another length than 28 bytes.
    """
    if any(len(digest) != HASH_SIZE for digest in (root, *entry_hashes)):
        raise LocalProtocolError(f"a hash has {HASH_SIZE} bytes")
    head = bytes([_ANNOUNCEMENT]) + root + _encode_address(address)
    room = (MAX_EVENT - len(head)) // HASH_SIZE
    return head + b"".join(entry_hashes[:room])


def is_announcement(payload: bytes) -> bool:
    """Whether an encoded event of ours is a bare announcement."""
    return payload[:1] == bytes([_ANNOUNCEMENT])


def _groups(entries: Sequence[bytes], blocks: Sequence[bytes]) -> list[list[bytes]]:
    """Each entry with its blocks after it, as items; blocks that follow no entry come last, as a group of their own."""
    groups: list[list[bytes]] = [[entry] for entry in entries]
    strays: list[bytes] = []
    group = strays if len(groups) != 1 else groups[0]
    for block in blocks:
        digest = hashlib.sha224(block).digest()
        group = next((groups[i] for i, entry in enumerate(entries) if digest in entry), group)
        group.append(bytes([_BLOCK]) + block)
    return [*groups, strays] if strays else groups


def _size(items: Sequence[bytes]) -> int:
    if len(items) == 1:
        return len(items[0])
    return 1 + sum(len(_encode_varint(len(item))) + len(item) for item in items)


def _fits(items: Sequence[bytes]) -> bool:
    return _size(items) <= MAX_EVENT


def _join_pack(items: Sequence[bytes]) -> bytes:
    if len(items) == 1:
        return items[0]
    return bytes([_PACK]) + b"".join(_encode_varint(len(item)) + item for item in items)


def _split_pack(payload: bytes) -> list[bytes]:
    items: list[bytes] = []
    at = 1
    while at < len(payload):
        length, at = _decode_varint(payload, at)
        if not 0 < length <= len(payload) - at:
            raise RemoteProtocolError("an item of a pack is empty or cut off")
        items.append(payload[at : at + length])
        at += length
    if len(items) < 2:
        raise RemoteProtocolError("a pack has at least two items")
    return items


def _decode_announcement(item: bytes) -> Announcement:
    root = item[1 : 1 + HASH_SIZE]
    if len(root) < HASH_SIZE:
        raise RemoteProtocolError("an announcement is cut off")
    address, rest = _decode_address(item[1 + HASH_SIZE :])
    if len(rest) % HASH_SIZE:
        raise RemoteProtocolError("an announcement ends within a hash")
    return Announcement(root, address, tuple(rest[i : i + HASH_SIZE] for i in range(0, len(rest), HASH_SIZE)))


def _encode_address(address: Address | None) -> bytes:
    if address is None:
        return bytes(3)
    packed = ipaddress.ip_address(address.host).packed
    return address.port.to_bytes(2, "big") + bytes([len(packed)]) + packed


def _decode_address(data: bytes) -> tuple[Address | None, bytes]:
    """The address at the start of `data`, and the bytes after it."""
    if len(data) < 3 or data[2] not in (0, 4, 16) or len(data) < 3 + data[2]:
        raise RemoteProtocolError("an address is cut off or of an unknown kind")
    port, packed, rest = int.from_bytes(data[:2], "big"), data[3 : 3 + data[2]], data[3 + data[2] :]
    if bool(port) != bool(packed):
        raise RemoteProtocolError("an address is known with its port or not at all")
    return (Address(str(ipaddress.ip_address(packed)), port) if packed else None), rest


def _encode_varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 0x7F | 0x80, value >> 7])


def _decode_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at `at` and where it ends."""
    value = 0
    for index in range(2):
        if at + index >= len(data):
            raise RemoteProtocolError("a length is cut off")
        byte = data[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 128:
            if index and not byte:
                raise RemoteProtocolError("a length is not in its shortest form")
            return value, at + index + 1
    raise RemoteProtocolError("a length is longer than two bytes")
