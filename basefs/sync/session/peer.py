"""What the other side of a session has told of itself and of its log.

It may lie.  Hashes are compared with what arrives; the number of entries is for people only, and nothing depends on it.
"""

from __future__ import annotations

from collections.abc import Callable

from basefs.log.hashes import ZERO_HASH
from basefs.log.interface import Digest
from basefs.sync.wire.messages import Hash


class Peer:
    """One peer.

    Attributes:
        greeting: its first line, `None` until that has come.
        identity: hash of the root entry that it gave, `ZERO_HASH` if it gave none yet.
        port: its own sync port, 0 if unknown.
        host: where it is, '' if unknown.
    """

    def __init__(self) -> None:
        self.greeting: Hash | None = None
        self.host = ""
        self._tell: Callable[[int, Digest], None] | None = None

    @property
    def greeted(self) -> bool:
        """Whether its first line has been read."""
        return self.greeting is not None

    @property
    def identity(self) -> bytes:
        """See the class."""
        return self.greeting.identity if self.greeting else ZERO_HASH

    @property
    def port(self) -> int:
        """See the class."""
        return self.greeting.port if self.greeting else 0

    @property
    def address(self) -> tuple[str, int] | None:
        """Its host and its own sync port, `None` unless both are known."""
        return (self.host, self.port) if self.host and self.port else None

    def subscribe(self, callback: Callable[[int, Digest], None]) -> None:
        """Have `callback` called with its sync port and its log, each time that it tells of its log."""
        self._tell = callback

    def greets(self, greeting: Hash) -> None:
        """Its first line, or that of another round."""
        self.greeting = greeting
        self.tells(Digest(greeting.root, greeting.entries))

    def tells(self, log: Digest) -> None:
        """Its log, as it is now."""
        if self._tell is not None:
            self._tell(self.port, log)
