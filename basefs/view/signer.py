"""The signer: this node's keys, and which of them may sign at a path."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from basefs.errors import PermissionDenied
from basefs.log.entries import MAX_MADE
from basefs.log.extensions import MAX_TIME, MIN_TIME
from basefs.log.keys import SigningKey
from basefs.path import Path, display
from basefs.view.permissions import Authority


class Signer:
    """Signs for this node.

    Attributes:
        clock: UNIX seconds.
        keys: private keys; the one with the highest authority at a path signs there.
        none: what to say where none of them is valid.
    """

    def __init__(
        self, keys: Sequence[SigningKey], clock: Callable[[], float], none: str = "no key of this node may write"
    ) -> None:
        self.clock = clock
        self.keys = list(keys)
        self.none = none

    def may_write(self, authority: Authority) -> bool:
        """Whether any of the keys is valid there."""
        return any(authority.allows(key.fingerprint) for key in self.keys)

    def valid(self, authority: Authority) -> list[SigningKey]:
        """The keys that are valid there, the highest authority first."""
        valid = [key for key in self.keys if authority.allows(key.fingerprint)]
        return sorted(valid, key=lambda key: (authority.depths[key.fingerprint], key.fingerprint))

    def key_for(self, authority: Authority, path: Path) -> SigningKey:
        """The key with the highest authority at a path.  Raises `PermissionDenied`."""
        valid = self.valid(authority)
        if not valid:
            raise PermissionDenied(f"{self.none} at {display(path)}: ask a key holder for 'basefs grant'")
        return valid[0]

    def now(self) -> int:
        """The node's clock, in nanoseconds since 1970."""
        return min(clamp_time(int(self.clock() * 10**9)), MAX_MADE)


def clamp_time(nanoseconds: int) -> int:
    """The nearest time that an entry can hold, from 1901 to 2446."""
    return min(max(nanoseconds, MIN_TIME), MAX_TIME)
