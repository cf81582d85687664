"""Identities: SHA-224 digests, and the key fingerprints derived from them (paper, section 3.0.1)."""

from __future__ import annotations

import hashlib
from typing import NewType

HASH_SIZE = 28
FINGERPRINT_SIZE = 16

#: SHA-224 of the signed part of an entry.
EntryHash = NewType("EntryHash", bytes)
#: SHA-224 of a block: next hash and data.
BlockHash = NewType("BlockHash", bytes)
#: The first 16 bytes of the SHA-224 of a raw Ed25519 public key.
Fingerprint = NewType("Fingerprint", bytes)

ZERO_HASH = bytes(HASH_SIZE)


def sha224(data: bytes) -> bytes:
    """The 28-byte SHA-224 digest of `data`."""
    return hashlib.sha224(data).digest()


def xor(left: bytes, right: bytes) -> bytes:
    """Bitwise XOR of two digests of equal size."""
    return (int.from_bytes(left, "big") ^ int.from_bytes(right, "big")).to_bytes(len(left), "big")


def new_digest() -> hashlib._Hash:
    """A SHA-224 digest to be fed piece by piece."""
    return hashlib.sha224()
