"""Blocks and manifests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basefs.errors import InvalidEntry
from basefs.log import blocks
from basefs.log.blocks import (
    GOSSIP_BLOCK_DATA,
    LISTED,
    MAX_GOSSIP_BLOCKS,
    MAX_LISTED,
    SYNC_BLOCK_DATA,
    Block,
    BlockPlace,
    BlockRole,
    Encoded,
    Manifest,
    block_count,
    block_size,
    listed,
    places,
    root_role,
    split,
)
from basefs.log.hashes import HASH_SIZE, BlockHash, sha224
from tests.support.helpers import noise

SMALL = GOSSIP_BLOCK_DATA * MAX_GOSSIP_BLOCKS
LENGTHS = [
    1,
    GOSSIP_BLOCK_DATA,
    GOSSIP_BLOCK_DATA + 1,
    SMALL,
    SMALL + 1,
    SYNC_BLOCK_DATA,
    SYNC_BLOCK_DATA + 1,
    3 * SYNC_BLOCK_DATA,
    3 * SYNC_BLOCK_DATA + 1,
]


@pytest.mark.parametrize("length", LENGTHS)
def test_a_manifest_leads_to_all_bytes(length: int) -> None:
    data = noise(1, length)
    root, made = split(data)
    there = {block.hash: block.data for block in made}
    found = list(places(Encoded(root, 0, length).place, there.get))
    assert len(found) == block_count(length) and {place.hash for place in found} == set(there)
    assert all(place.fits(len(there[place.hash])) for place in found)
    assert b"".join(there[place.hash] for place in found if place.role not in LISTED) == data
    assert made[0].hash == root and all(block.hash == sha224(block.data) for block in made)
    parts = [place for place in found if place.role not in LISTED]
    assert all(len(there[place.hash]) == block_size(length) for place in parts[:-1])


def test_small_contents_and_their_manifests_fill_events() -> None:
    assert 1 + GOSSIP_BLOCK_DATA == 512
    for length in (GOSSIP_BLOCK_DATA, GOSSIP_BLOCK_DATA + 1, SMALL):
        assert all(len(block.data) <= GOSSIP_BLOCK_DATA for block in split(noise(1, length))[1])


@pytest.mark.parametrize("parts", [MAX_LISTED, MAX_LISTED + 1, 2 * MAX_LISTED, 2 * MAX_LISTED + 1])
def test_two_levels_of_lists(parts: int) -> None:
    length = (parts - 1) * SYNC_BLOCK_DATA + 1
    hashes = [BlockHash(sha224(b"%d" % number)) for number in range(parts)]
    manifest = Manifest(length)
    for hash in hashes:
        manifest.add(hash)
    root = manifest.seal()
    there = {block.hash: block.data for block in manifest.lists}
    encoded = Encoded(root, 0, length)
    assert encoded.place.role is (BlockRole.LIST if parts <= MAX_LISTED else BlockRole.TOP)
    found = list(places(encoded.place, there.get))
    assert [place.hash for place in found if place.role is BlockRole.PART] == hashes
    assert len(found) == block_count(length)
    assert all(place.fits(len(there[place.hash])) for place in found if place.role in LISTED)


def test_what_is_below_a_list_that_is_not_here_is_not_known() -> None:
    root, made = split(noise(1, 5000))
    place = Encoded(root, 0, 5000).place
    assert list(places(place, {}.get)) == [place]
    assert list(places(place, {root: b"x" * 10}.get)) == [place], "nor below one of another size"
    assert list(places(place, {root: made[0].data}.get)) == [place, *listed(place, made[0].data)]


@pytest.mark.parametrize(
    ("place", "fitting", "others"),
    [
        (BlockPlace(BlockHash(b""), BlockRole.PART, 100, exact=True), [100], [99, 101]),
        (BlockPlace(BlockHash(b""), BlockRole.PART, 100, exact=False), [1, 100], [0, 101]),
        (BlockPlace(BlockHash(b""), BlockRole.LIST, 56, exact=True), [56], [28, 84]),
        (BlockPlace(BlockHash(b""), BlockRole.LIST, 56, exact=False), [28, 56], [0, 27, 29, 84]),
    ],
)
def test_the_size_of_a_block_follows_from_its_place(place: BlockPlace, fitting: list[int], others: list[int]) -> None:
    assert all(map(place.fits, fitting)) and not any(map(place.fits, others))


@given(st.integers(1, blocks.most_encoded(blocks.MAX_CONTENT_BYTES)))
def test_no_content_needs_more_than_two_levels(length: int) -> None:
    parts = -(-length // block_size(length))
    most = {BlockRole.PART: 1, BlockRole.SMALL_LIST: MAX_GOSSIP_BLOCKS, BlockRole.LIST: MAX_LISTED}
    assert parts <= most.get(root_role(length), MAX_LISTED**2)
    assert (root_role(length) is BlockRole.PART) == (parts == 1)


@given(st.binary(min_size=HASH_SIZE, max_size=HASH_SIZE), st.integers(0, 255), st.integers(1, 2**40))
def test_an_encoded_content_is_named_in_one_way(root: bytes, codec: int, length: int) -> None:
    encoded = Encoded(BlockHash(root), codec, length)
    assert Encoded.decode(encoded.encode()) == encoded


@pytest.mark.parametrize("more", [b"", b"\x00", b"\x00\x00", b"\x00\x80\x00", b"\x00\x01x", b"\x00\x80"])
def test_any_other_way_is_refused(more: bytes) -> None:
    with pytest.raises(InvalidEntry):
        Encoded.decode(bytes(HASH_SIZE) + more)


@pytest.mark.parametrize("size", [1, SYNC_BLOCK_DATA])
def test_accepted_at_the_limit(size: int) -> None:
    assert Block.decode(b"x" * size).data == b"x" * size


@pytest.mark.parametrize("size", [0, SYNC_BLOCK_DATA + 1])
def test_refused(size: int) -> None:
    with pytest.raises(InvalidEntry):
        Block.decode(b"x" * size)
