"""The key that encrypts gossip in a closed filesystem.

It begins with its generation, so that of two keys, of which one was made while its node was away or cut off, everybody
knows the newer one.

Serf has a ring of keys, and hands a new one to all nodes by itself: to whoever has the old one, which a new key is to
keep out.  So keys travel between members over TLS (`basefs/sync/net/keys.py`), and Serf is started with one.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from dataclasses import dataclass
from pathlib import Path

from basefs.durable import write_file
from basefs.errors import AgentError

#: The name of the file, beside the log.
KEY_FILE = "gossip.key"
#: Bytes of a key: AES-256.
_SIZE = 32
#: Bytes of it that are the generation, a big-endian number: the other 192 bits are random.
_GENERATION = 8
#: Generations by which a key may be newer than another: a member that jumps to the last one could never be outdone.
_MAX_JUMP = 2**20


@dataclass(frozen=True, slots=True)
class GossipKey:
    """One key, `_SIZE` bytes.  Raises ValueError for another number."""

    raw: bytes

    def __post_init__(self) -> None:
        if len(self.raw) != _SIZE:
            raise ValueError(f"a key of gossip has {_SIZE} bytes, not {len(self.raw)}")

    @classmethod
    def first(cls) -> GossipKey:
        """The key of a new filesystem."""
        return cls._make(1)

    @classmethod
    def substitute(cls) -> GossipKey:
        """A key for a node that could ask nobody yet: every other one replaces it."""
        return cls._make(0)

    def next(self) -> GossipKey:
        """A new key of the next generation."""
        return self._make(self.generation + 1)

    @classmethod
    def _make(cls, generation: int) -> GossipKey:
        return cls(generation.to_bytes(_GENERATION, "big") + secrets.token_bytes(_SIZE - _GENERATION))

    @property
    def generation(self) -> int:
        """How many there were before, those that were never used included."""
        return int.from_bytes(self.raw[:_GENERATION], "big")

    def replaces(self, other: GossipKey) -> bool:
        """Whether a node with the other key should take this one."""
        return self.raw > other.raw and self.generation - other.generation <= _MAX_JUMP

    def as_serf(self) -> str:
        """The key as Serf takes it."""
        return base64.b64encode(self.raw).decode()

    @classmethod
    def load(cls, path: Path) -> GossipKey | None:
        """The key in a file; `None` where there is none.  Raises `AgentError` for a damaged one."""
        try:
            return cls(base64.b64decode(path.read_bytes().strip(), validate=True))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, binascii.Error) as error:
            raise AgentError(
                f"{path} holds no key of gossip ({error}): delete it, other members have the key"
            ) from None

    def save(self, path: Path) -> None:
        """Write the file, readable by its owner only.  Raises OSError; the old one is whole then."""
        write_file(path, self.as_serf().encode() + b"\n", mode=0o600)
