"""The key that encrypts gossip in a closed filesystem.

It begins with its generation, so that of two keys, of which one was made while its node was away or cut off, everybody
knows the newer one.

Serf has a ring of keys, and hands a new one to all nodes by itself: to whoever has the old one, which a new key is to
keep out.  So keys travel between members over TLS (`basefs/sync/net/keys.py`), and Serf is started with one.
"""

from __future__ import annotations

import base64
import random
from dataclasses import dataclass

#: Bytes of a key: AES-256.
KEY_SIZE = 32
#: Bytes of it that are the generation, a big-endian number: the other 192 bits are random.
_GENERATION = 8
#: Draws keys: random bits of the operating system.
SYSTEM = random.SystemRandom()


@dataclass(frozen=True, slots=True, order=True)
class GossipKey:
    """One key, `KEY_SIZE` bytes; the newer one is the greater one.  Raises ValueError for another number."""

    raw: bytes

    def __post_init__(self) -> None:
        if len(self.raw) != KEY_SIZE:
            raise ValueError(f"a gossip key has {KEY_SIZE} bytes, not {len(self.raw)}")

    @classmethod
    def of(cls, generation: int, rng: random.Random = SYSTEM) -> GossipKey:
        """A new random key.  That of a new filesystem has generation 1, that of a node without one generation 0."""
        number = min(generation, 256**_GENERATION - 1)
        return cls(number.to_bytes(_GENERATION, "big") + rng.randbytes(KEY_SIZE - _GENERATION))

    @property
    def generation(self) -> int:
        """How many there were before, those that were never used included."""
        return int.from_bytes(self.raw[:_GENERATION], "big")

    def as_serf(self) -> str:
        """The key as Serf takes it."""
        return base64.b64encode(self.raw).decode()
