"""Digests."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from basefs.log.hashes import HASH_SIZE, SUM_SIZE, ZERO_HASH, addend, sha224, sum_hash

DIGESTS = st.binary(min_size=HASH_SIZE, max_size=HASH_SIZE)


def test_sha224_is_sha224() -> None:
    # FIPS 180-4, the message "abc".
    assert sha224(b"abc").hex() == "23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7"
    assert hashlib.sha224(b"").digest() == sha224(b"")


def test_an_addend_is_shake128() -> None:
    # FIPS 202, the empty message.
    assert addend(b"").to_bytes(SUM_SIZE, "big").startswith(bytes.fromhex("7f9c2ba4e88f827d616045507605853e"))
    assert SUM_SIZE * 8 == 2048


@given(st.sets(DIGESTS, max_size=4), st.sets(DIGESTS, max_size=4))
def test_sets_have_one_hash_if_they_are_equal(one: set[bytes], other: set[bytes]) -> None:
    hashes = [sum_hash(sum(map(addend, each)) % 2**2048) for each in (one, other)]
    assert (hashes[0] == hashes[1]) == (one == other)
    assert (hashes[0] == ZERO_HASH) == (not one)
