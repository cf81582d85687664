"""The holder of a key cannot choose entries behind which those of others hide, in a path or in a part of one.

The hashes of entries are as good as random, and their signer may draw as many as it likes.  So whatever is linear in
their bits, as XOR is, can be made to add up to anything: some of 225 hashes always give the XOR that is wanted.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Sequence
from itertools import count

import pytest

from basefs.log.entries import Action, Entry
from basefs.log.hashes import HASH_SIZE, EntryHash
from basefs.replica.replica import Replica
from basefs.sync.wire.limits import MAX_ITEMS
from tests.support.helpers import ALICE, ROOT_KEY, copy_replica, make_replica, path
from tests.sync.helpers import Pair

WEB = path("/web")


def some_that_xor_to(wanted: int, candidates: Sequence[Entry]) -> list[Entry]:
    """Linear algebra over GF(2): some of these entries the XOR of whose hashes is this number."""
    basis: dict[int, tuple[int, int]] = {}
    for number, entry in enumerate(candidates):
        value, chosen = int.from_bytes(entry.hash, "big"), 1 << number
        while value and value.bit_length() in basis:
            row = basis[value.bit_length()]
            value, chosen = value ^ row[0], chosen ^ row[1]
        if value:
            basis[value.bit_length()] = value, chosen
    chosen = 0
    while wanted:
        row = basis[wanted.bit_length()]
        wanted, chosen = wanted ^ row[0], chosen ^ row[1]
    return [entry for number, entry in enumerate(candidates) if chosen >> number & 1]


def acks(parent: EntryHash, name: bytes, first_digit: str | None = None) -> Iterator[Entry]:
    """Entries of alice that change nothing, with a hash that begins with some digit."""
    signed = (ALICE.sign(parent, number, Action.ACK, name) for number in count())
    return (entry for entry in signed if first_digit in (None, entry.hash.hex()[0]))


@pytest.fixture
def one(tmp_path: pathlib.Path) -> Iterator[Replica]:
    """A node with /web, for which alice has a key."""
    replica = make_replica(tmp_path / "one", [ROOT_KEY])
    replica.commit(lambda author: author.make_directory(WEB))
    replica.commit(lambda author: author.key_holder.grant(WEB, b"alice", ALICE.public).draft)
    yield replica
    replica.close()


@pytest.fixture
def other(one: Replica, tmp_path: pathlib.Path) -> Iterator[Replica]:
    """Another one with the same log."""
    one.sync_to_disk()
    replica = copy_replica(one, tmp_path / "other")
    yield replica
    replica.close()


@pytest.mark.parametrize("aggregated", [False, True])
def test_a_key_does_not_hide_its_revoke(one: Replica, other: Replica, aggregated: bool) -> None:
    made = one.attributes(WEB).entry
    before = set(one.walk(()))
    revoked = one.commit(lambda author: author.key_holder.revoke(WEB, b"alice", ALICE.fingerprint).draft)
    assert all(entry in revoked.entries for entry in map(Entry.decode, set(one.walk(())) - before))
    # Where there is more than a list of entries, hashes are compared by their first digit.
    more = acks(made, b"web")
    filler = [next(more) for _ in range(MAX_ITEMS + 1)] if aggregated else []
    digits = {entry.hash.hex()[0] for entry in revoked.entries} if aggregated else {None}
    chosen: list[Entry] = []
    for digit in digits:
        wanted = 0
        for entry in revoked.entries:
            if digit in (None, entry.hash.hex()[0]):
                wanted ^= int.from_bytes(entry.hash, "big")
        source = acks(made, b"web", digit)
        fresh = (entry for entry in source if entry not in filler)
        chosen += some_that_xor_to(wanted, [next(fresh) for _ in range(8 * HASH_SIZE + 64)])
    for replica in (one, other):
        assert not replica.apply(filler, []).rejected
    assert not other.apply(chosen, []).rejected
    Pair(other, one).run()
    for entry in revoked.entries:
        assert other.entry(entry.hash) is not None, "a revoke is hidden behind entries of the revoked key"
    assert one.digest() == other.digest()


def test_a_path_whose_entries_cancel_out_is_not_absent(one: Replica, other: Replica) -> None:
    # The first entry of a path is one of them, so that all of the path adds up to nothing.
    made = one.attributes(WEB).entry
    first = ALICE.sign(made, 1, Action.MKDIR, b"hidden")
    source = acks(first.hash, b"hidden")
    chosen = some_that_xor_to(int.from_bytes(first.hash, "big"), [next(source) for _ in range(8 * HASH_SIZE + 64)])
    assert not one.apply([first, *chosen], []).rejected
    Pair(other, one).run()
    assert other.entry(first.hash) is not None
    assert one.digest() == other.digest()
