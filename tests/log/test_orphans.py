"""Orphans: bounded per peer, whatever arrives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from basefs.log.blocks import Block
from basefs.log.entries import Action, Entry
from basefs.log.hashes import HASH_SIZE
from basefs.log.orphans import Orphans
from tests.support.helpers import ALICE


def entry(number: int) -> Entry:
    """Some entry."""
    return ALICE.sign(number.to_bytes(HASH_SIZE, "big"), number, Action.MKDIR, b"d")


ENTRIES = [entry(number) for number in range(12)]


def small() -> Orphans:
    """Orphans with limits that tests reach."""
    return Orphans(per_peer=3, most=6, block_bytes=100)


def test_released_once_with_their_peers() -> None:
    orphans = small()
    orphans.hold(ENTRIES[0], b"need", "a")
    orphans.hold(ENTRIES[0], b"need", "b")
    orphans.hold(ENTRIES[1], b"other", "a")
    assert len(orphans) == 3
    assert sorted(orphans.release(b"need"), key=lambda found: found[1]) == [(ENTRIES[0], "a"), (ENTRIES[0], "b")]
    assert orphans.release(b"need") == []
    assert len(orphans) == 1


def test_a_peer_pushes_out_its_own() -> None:
    orphans = small()
    orphans.hold(ENTRIES[0], b"need", "quiet")
    for one in ENTRIES:
        orphans.hold(one, b"need", "loud")
    assert len(orphans) == 1 + 3
    assert orphans.dropped == len(ENTRIES) - 3
    released = orphans.release(b"need")
    assert {peer for _, peer in released} == {"quiet", "loud"}
    assert {found.hash for found, peer in released if peer == "loud"} == {one.hash for one in ENTRIES[-3:]}


def test_many_peers_push_out_what_they_have_sent_themselves() -> None:
    orphans = small()
    orphans.hold(ENTRIES[0], b"need", "quiet")
    for number, one in enumerate(ENTRIES):
        orphans.hold(one, b"need", f"loud{number % 4}")
    assert len(orphans) == 6
    assert {peer for _, peer in orphans.release(b"need")} == {"quiet", "loud0", "loud1", "loud2", "loud3"}


HOLD = st.tuples(st.integers(0, len(ENTRIES) - 1), st.sampled_from([b"x", b"y"]), st.sampled_from("abcd"))


@given(st.lists(HOLD | st.sampled_from([b"x", b"y"])))
def test_bounds_hold_after_anything(actions: list[tuple[int, bytes, str] | bytes]) -> None:
    orphans = small()
    held = released = 0
    for action in actions:
        if isinstance(action, bytes):
            released += len(orphans.release(action))
        else:
            number, need, peer = action
            before = len(orphans), orphans.dropped
            orphans.hold(ENTRIES[number], need, peer)
            held += (len(orphans), orphans.dropped) != before
        assert len(orphans) <= 6
        assert len(orphans) == held - released - orphans.dropped
    assert len(orphans.release(b"x")) + len(orphans.release(b"y")) == held - released - orphans.dropped
    assert len(orphans) == 0


def test_blocks_are_bounded_by_bytes() -> None:
    orphans = small()
    blocks = [Block(bytes((number,)) * 40) for number in range(3)]
    for block in blocks:
        orphans.hold_block(block)
        orphans.hold_block(block)
    assert [orphans.release_block(block.hash) for block in blocks] == [None, *blocks[1:]]
    assert orphans.release_block(blocks[1].hash) is None
    assert orphans.dropped == 1
