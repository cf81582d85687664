"""Digests."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from basefs.log.hashes import HASH_SIZE, ZERO_HASH, sha224, xor

DIGESTS = st.binary(min_size=HASH_SIZE, max_size=HASH_SIZE)


def test_sha224_is_sha224() -> None:
    # FIPS 180-4, the message "abc".
    assert sha224(b"abc").hex() == "23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7"
    assert hashlib.sha224(b"").digest() == sha224(b"")


@given(DIGESTS, DIGESTS, DIGESTS)
def test_xor_is_a_group(a: bytes, b: bytes, c: bytes) -> None:
    assert xor(a, b) == xor(b, a)
    assert xor(xor(a, b), c) == xor(a, xor(b, c))
    assert xor(a, a) == ZERO_HASH
    assert xor(a, ZERO_HASH) == a
