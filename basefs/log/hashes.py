"""Identities: SHA-224 digests, and the key fingerprints derived from them (paper, section 3.0.1)."""

from __future__ import annotations

import hashlib
from typing import NewType

HASH_SIZE = 28
FINGERPRINT_SIZE = HASH_SIZE

#: SHA-224 of the signed part of an entry.
EntryHash = NewType("EntryHash", bytes)
#: SHA-224 of a block.
BlockHash = NewType("BlockHash", bytes)
#: SHA-224 of a raw Ed25519 public key.
Fingerprint = NewType("Fingerprint", bytes)

ZERO_HASH = bytes(HASH_SIZE)

#: Bytes of a sum of the Merkle tree.  So many keep the holder of a key from choosing entries whose sum it wants: with
#: 2^30 of them in a log that costs 2^96 steps (Wagner's k-list algorithm), against 2^112 for a collision of SHA-224.
SUM_SIZE = 256
#: Sums are modulo 2^2048.
SUM_MASK = (1 << 8 * SUM_SIZE) - 1


def sha224(data: bytes) -> bytes:
    """The 28-byte SHA-224 digest of `data`."""
    return hashlib.sha224(data).digest()


def addend(contribution: bytes) -> int:
    """What a hash adds to the sum of a path in the Merkle tree (docs/formats.md, section 7)."""
    return int.from_bytes(hashlib.shake_128(contribution).digest(SUM_SIZE), "big")


def sum_hash(total: int) -> bytes:
    """The hash of a path with this sum; `ZERO_HASH` where nothing contributes."""
    return sha224(total.to_bytes(SUM_SIZE, "big")) if total else ZERO_HASH


def new_digest() -> hashlib._Hash:
    """A SHA-224 digest to be fed piece by piece."""
    return hashlib.sha224()
