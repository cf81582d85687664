"""The 512-byte event codec."""

from __future__ import annotations

import hashlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basefs.errors import LocalProtocolError, RemoteProtocolError
from basefs.gossip.events import (
    HASH_SIZE,
    MAX_BLOCK,
    MAX_EVENT,
    MIN_ENTRY,
    Address,
    Announcement,
    GossipEvent,
    decode_event,
    encode_announcement,
    encode_events,
    is_announcement,
)

ROOT = bytes(range(28))
ENTRY = b"\x03" + bytes(MIN_ENTRY - 1)
V4 = Address("192.0.2.1", 18375)
V6 = Address("2001:db8::1", 1)

addresses = st.builds(
    Address, st.ip_addresses().map(str).filter(lambda text: "%" not in text), st.integers(min_value=1, max_value=65535)
)
hashes = st.binary(min_size=28, max_size=28)
entries = st.binary(min_size=MIN_ENTRY - 1, max_size=MAX_EVENT - 1).map(lambda data: b"\x03" + data)
blocks = st.binary(min_size=1, max_size=MAX_BLOCK)


def merged(payloads: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    events = [decode_event(payload) for payload in payloads]
    return [e for event in events for e in event.entries], [b for event in events for b in event.blocks]


VECTORS = [
    (ENTRY, GossipEvent(entries=(ENTRY,))),
    (b"\x02" + ROOT + b"data", GossipEvent(blocks=(ROOT + b"data",))),
    (b"\x01" + ROOT + bytes(3), GossipEvent(announcements=(Announcement(ROOT, None, ()),))),
    (
        b"\x01" + ROOT + bytes.fromhex("47c704c0000201") + ROOT,
        GossipEvent(announcements=(Announcement(ROOT, V4, (ROOT,)),)),
    ),
    (bytes.fromhex("04000110") + bytes.fromhex("20010db8000000000000000000000001"), GossipEvent(origin=V6)),
    (
        b"\x00" + b"\x84\x01" + ENTRY + b"\x08" + bytes.fromhex("0447c704c0000201"),
        GossipEvent(entries=(ENTRY,), origin=V4),
    ),
    (
        b"\x00" + b"\xc8\x01" + b"\x02" + bytes(199) + b"\x84\x01" + ENTRY,
        GossipEvent(entries=(ENTRY,), blocks=(bytes(199),)),
    ),
]


@pytest.mark.parametrize(("payload", "event"), VECTORS)
def test_vectors(payload: bytes, event: GossipEvent) -> None:
    assert decode_event(payload) == event


REJECTED = {
    "empty": b"",
    "unknown tag": b"\x05" + bytes(200),
    "oversize": b"\x02" + bytes(MAX_EVENT),
    "short entry": b"\x03" + bytes(MIN_ENTRY - 2),
    "short block": b"\x02",
    "announcement without address": b"\x01" + ROOT,
    "announcement cut off": b"\x01" + ROOT[:-1],
    "announcement ends in a hash": b"\x01" + ROOT + bytes(3) + ROOT[:-1],
    "address of 5 bytes": b"\x04\x00\x01\x05" + bytes(5),
    "address cut off": b"\x04\x00\x01\x04" + bytes(3),
    "origin unknown": b"\x04" + bytes(3),
    "origin with a tail": b"\x04\x00\x01\x04" + bytes(5),
    "address without port": b"\x04\x00\x00\x04" + bytes(4),
    "port without address": b"\x01" + ROOT + b"\x00\x01\x00",
    "pack of nothing": b"\x00",
    "pack of one": b"\x00\x84\x01" + ENTRY,
    "pack in a pack": b"\x00\x84\x01" + ENTRY + b"\x03\x00\x01\x01",
    "empty item": b"\x00\x84\x01" + ENTRY + b"\x00",
    "item cut off": b"\x00\x84\x01" + ENTRY + b"\x85\x01" + ENTRY,
    "length cut off": b"\x00\x84\x01" + ENTRY + b"\x80",
    "length not minimal": b"\x00\x84\x01" + ENTRY + b"\xf5\x00" + ENTRY,
    "length of 3 bytes": b"\x00\x84\x01" + ENTRY + b"\xf5\x80\x00" + ENTRY,
    "two origins": b"\x00" + 2 * (b"\x08" + bytes.fromhex("0447c704c0000201")),
}


@pytest.mark.parametrize("payload", REJECTED.values(), ids=REJECTED.keys())
def test_rejected(payload: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_event(payload)


@given(st.one_of(st.binary(max_size=MAX_EVENT + 2), st.binary(max_size=MAX_EVENT - 1).map(lambda data: b"\x00" + data)))
def test_any_bytes_are_an_event_or_a_remote_error(payload: bytes) -> None:
    try:
        event = decode_event(payload)
    except RemoteProtocolError:
        return
    assert payload[0] != 0 or len(event.entries) + len(event.blocks) + len(event.announcements) + bool(event.origin) > 1


@given(st.sampled_from(VECTORS), st.data())
def test_a_changed_event_is_an_event_or_a_remote_error(vector: tuple[bytes, GossipEvent], data: st.DataObject) -> None:
    payload = bytearray(vector[0])
    payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(0, len(payload)))
    with suppress(RemoteProtocolError):
        decode_event(bytes(payload[:end]))


@given(st.lists(entries, max_size=8), st.lists(blocks, max_size=8), st.none() | addresses)
def test_round_trip(some: list[bytes], chain: list[bytes], origin: Address | None) -> None:
    payloads = encode_events(some, chain, origin)
    assert merged(payloads) == (some, chain)
    for payload in payloads:
        assert len(payload) <= MAX_EVENT
        event = decode_event(payload)
        assert event.origin in (None, origin)
        assert event.origin is None or event.entries
        if event.entries and origin is not None and event.origin is None:
            # A single item has to become a pack first: one byte for the pack, two for the item's length.
            pack = 3 if payload[0] else 0
            assert len(payload) + pack + (21 if ":" in origin.host else 9) > MAX_EVENT


@given(hashes, st.none() | addresses, st.lists(hashes, max_size=20))
def test_announcement_round_trip(root: bytes, address: Address | None, some: list[bytes]) -> None:
    payload = encode_announcement(root, address, some)
    assert len(payload) <= MAX_EVENT
    assert is_announcement(payload)
    (announcement,) = decode_event(payload).announcements
    assert (announcement.root, announcement.address) == (root, address)
    kept = len(announcement.entry_hashes)
    assert list(announcement.entry_hashes) == some[:kept]
    assert kept == len(some) or len(payload) + HASH_SIZE > MAX_EVENT


def test_an_announcement_holds_17_hashes() -> None:
    (announcement,) = decode_event(encode_announcement(ROOT, V4, [ROOT] * 18)).announcements
    assert len(announcement.entry_hashes) == 17


def test_a_full_block_is_an_event_of_512_bytes() -> None:
    (payload,) = encode_events([], [bytes(MAX_BLOCK)], V4)
    assert len(payload) == MAX_EVENT


def test_limits_of_what_is_encoded() -> None:
    assert len(encode_events([b"\x03" + bytes(511)], [], V4)[0]) == MAX_EVENT
    too_much: list[tuple[list[bytes], list[bytes]]] = [
        ([b"\x03" + bytes(512)], []),
        ([b"\x03" + bytes(MIN_ENTRY - 2)], []),
        ([b"\x02" + bytes(200)], []),
        ([], [bytes(MAX_BLOCK + 1)]),
        ([], [b""]),
    ]
    for some, chain in too_much:
        with pytest.raises(LocalProtocolError):
            encode_events(some, chain, V4)
    with pytest.raises(LocalProtocolError):
        encode_announcement(ROOT[:-1], V4, [])
    with pytest.raises(LocalProtocolError):
        encode_announcement(ROOT, V4, [ROOT + b"\x00"])


def test_nothing_is_no_event() -> None:
    assert encode_events([], [], V4) == []


def test_an_entry_travels_with_its_first_block() -> None:
    # Packed blindly, the first entry of 200 bytes would share its event with the second, and the second block would be
    # alone; each entry with its own block fits into one event.
    chains = [[bytes([n]) * 28 + bytes(100)] for n in range(4)]
    some = [b"\x03" + hashlib.sha224(chain[0]).digest() + bytes([n]) * 200 for n, chain in enumerate(chains)]
    payloads = encode_events(some, [block for chain in chains for block in chain], V4)
    events = [decode_event(payload) for payload in payloads]
    assert [(event.entries, event.blocks, event.origin) for event in events] == [
        ((entry,), tuple(chain), V4) for entry, chain in zip(some, chains, strict=True)
    ]


def test_an_entry_moves_to_the_next_event_to_be_with_its_first_block() -> None:
    block = bytes(28) + bytes(150)
    last = b"\x03" + hashlib.sha224(block).digest() + bytes(121)
    payloads = encode_events([b"\x03" + bytes(199), last], [block], None)
    assert [decode_event(payload).entries for payload in payloads] == [(b"\x03" + bytes(199),), (last,)]
    assert decode_event(payloads[1]).blocks == (block,)


def test_small_entries_share_an_event_and_name_the_origin() -> None:
    some = [bytes([3, n]) + bytes(148) for n in range(9)]
    events = [decode_event(payload) for payload in encode_events(some, [], V4)]
    assert [len(event.entries) for event in events] == [3, 3, 3]
    assert all(event.origin == V4 for event in events)


@pytest.mark.parametrize(
    ("host", "port"), [("localhost", 1), ("192.0.2.1", 0), ("192.0.2.1", 65536), ("fe80::1%eth0", 1), ("", 1)]
)
def test_an_address_is_checked(host: str, port: int) -> None:
    with pytest.raises(LocalProtocolError):
        Address(host, port)


def test_an_address_is_canonical() -> None:
    assert Address("2001:DB8:0::1", 7) == ("2001:db8::1", 7)
