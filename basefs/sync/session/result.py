"""How a session went: what the core counts, and what it reports at the end."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from basefs.errors import NetworkError, PeerUnreachable, RemoteProtocolError, WrongFilesystem
from basefs.log.hashes import ZERO_HASH
from basefs.log.interface import Digest
from basefs.sync.wire.messages import Hash, Refusal


class Reason(enum.Enum):
    """Why a session ended."""

    COMPLETE = "complete"  # both sides closed with nothing outstanding
    WRONG_FILESYSTEM = "wrong filesystem"
    WRONG_VERSION = "wrong version"
    RUBBISH = "rubbish"  # the peer broke a rule
    ACCUSED = "accused"  # the peer says that we broke a rule
    BUSY = "busy"
    BANNED = "banned"
    USELESS = "no progress"
    TIMEOUT = "time-out"
    LOST = "connection lost"
    ENOUGH = "enough"  # what it should bring has come from somebody else
    FULL = "no room"  # the disk of one side takes nothing more
    FAILURE = "failure"  # an error of this node, or the peer reports one of its own
    UNREACHABLE = "unreachable"  # there was no connection
    NO_TLS = "no TLS"  # one side speaks TLS, the other does not
    UNKNOWN_KEY = "unknown key"  # the key of one side is no member of the filesystem


#: Entries of keys that are granted nowhere here that an honest peer may send in a session: a key was granted, and its
#: holder wrote, while the logs were compared.
MAX_UNGRANTED = 16

#: What a refusal means to the side that receives it.
REFUSED = {
    Refusal.IDENTITY: Reason.WRONG_FILESYSTEM,
    Refusal.VERSION: Reason.WRONG_VERSION,
    Refusal.BUSY: Reason.BUSY,
    Refusal.BANNED: Reason.BANNED,
    Refusal.PROTOCOL: Reason.ACCUSED,
    Refusal.USELESS: Reason.USELESS,
    Refusal.TIMEOUT: Reason.TIMEOUT,
    Refusal.FAILURE: Reason.FAILURE,
    Refusal.ENOUGH: Reason.ENOUGH,
    Refusal.FULL: Reason.FULL,
    Refusal.TLS: Reason.NO_TLS,
    Refusal.KEY: Reason.UNKNOWN_KEY,
}


@dataclass(slots=True)
class SessionCounters:
    """What a session has moved so far.

    Attributes:
        entries_sent, entries_received: entries, known ones included.
        blocks_sent, blocks_received: blocks, known ones included.
        accepted: entries and blocks that were new to this log.
        accepted_bytes: of what was given to the log at once, with something new in it.
        rejected: entries and blocks that this log refused.
        ungranted: of these, entries of a key that was granted nowhere here, so that they may have overtaken its grant.
        barren: requests for entries that the peer has listed, and that it answered with none.
        refusal: why the last of them was refused.
        bytes_sent, bytes_received: on the connection, without TCP.
        rounds: comparisons begun.
    """

    entries_sent: int = 0
    entries_received: int = 0
    blocks_sent: int = 0
    blocks_received: int = 0
    accepted: int = 0
    accepted_bytes: int = 0
    rejected: int = 0
    ungranted: int = 0
    barren: int = 0
    refusal: str = ""
    bytes_sent: int = 0
    bytes_received: int = 0
    rounds: int = 0
    _before: int = 0  # entries received until the last answer was complete

    def answer_ended(self, wanted: int) -> None:
        """An answer of the peer is complete; `wanted`: how much was asked for with entries, as it has listed."""
        self.barren += wanted if self.entries_received == self._before else 0
        self._before = self.entries_received

    @property
    def offends(self) -> bool:
        """Whether an honest peer would not have sent what was refused: what it has, it has verified."""
        return self.rejected > self.ungranted or self.ungranted > MAX_UNGRANTED

    @property
    def gained(self) -> int:
        """Grows exactly when the session is of use to someone."""
        return self.accepted + self.entries_sent + self.blocks_sent


@dataclass(frozen=True, slots=True)
class Result:
    """The end of a session.

    Attributes:
        reason: why it ended.
        detail: one line for the log, without the peer's address.
        equal: whether both root hashes were equal at the end; False unless complete.
        counters: what was moved.
        peer_identity: root entry hash that the peer gave, `ZERO_HASH` if it gave none.
        peer_port: the peer's own sync port, 0 if unknown.
        by_peer: the peer ended it, so `detail` are its words.
        stood: it was kept open for news, which were passed on as they came.
        key: the raw public key that the peer has proved to hold; empty in an open filesystem.
    """

    reason: Reason
    detail: str
    equal: bool
    counters: SessionCounters
    peer_identity: bytes = ZERO_HASH
    peer_port: int = 0
    by_peer: bool = False
    stood: bool = False
    key: bytes = b""

    @property
    def misbehaved(self) -> bool:
        """Whether the peer broke a rule, or wasted so much that it might as well have."""
        return self.reason is Reason.RUBBISH or (self.reason is Reason.USELESS and not self.by_peer)

    @property
    def offends(self) -> bool:
        """Whether the peer has misbehaved, or sent what no honest one sends; hanging up in time does not help."""
        return self.misbehaved or (bool(self.counters.refusal) and self.counters.offends)

    def raise_for_reason(self) -> None:
        """Raise what a command reports: nothing if complete, else `WrongFilesystem`, `RemoteProtocolError`,
        `PeerUnreachable` or (any other) `NetworkError`."""
        if self.reason in (Reason.WRONG_FILESYSTEM, Reason.WRONG_VERSION):
            raise WrongFilesystem(self.detail)
        if self.reason is Reason.RUBBISH:
            raise RemoteProtocolError(self.detail)
        if self.reason in (Reason.UNREACHABLE, Reason.LOST, Reason.TIMEOUT, Reason.NO_TLS, Reason.UNKNOWN_KEY):
            raise PeerUnreachable(self.detail)
        if self.reason is not Reason.COMPLETE:
            raise NetworkError(f"{self.reason.value}: {self.detail}")


class RemotePeer:
    """One peer.

    Attributes:
        greeting: its first line, `None` until that has come.
        identity: hash of the root entry that it gave, `ZERO_HASH` if it gave none yet.
        port: its own sync port, 0 if unknown.
        host: where it is, '' if unknown.
        party: party of the peer (`parties.py`); its orphans count against that party.
        is_member: whether it is a member by the log of now; it is asked for each gossip key that the peer would get.
    """

    def __init__(
        self,
        host: str = "",
        party: str = "",
        on_log: Callable[[int, Digest], None] | None = None,
        on_room: Callable[[int, bool], None] | None = None,
        is_member: Callable[[], bool] = lambda: True,
    ) -> None:
        """Each is called with its sync port: `on_log` with its log each time that it tells of it, `on_room` with
        whether its disk takes something each time that it greets."""
        self.greeting: Hash | None = None
        self.host = host
        self.party = party
        self.is_member = is_member
        self._on_log = on_log
        self._on_room = on_room

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

    @property
    def name(self) -> str:
        """Where it is, for people: with its own sync port, if that is known."""
        if self.address is None:
            return self.host or "a peer"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def greets(self, greeting: Hash) -> None:
        """Its first line, or that of another round."""
        self.greeting = greeting
        self.tells(greeting.log)
        if self._on_room is not None:
            self._on_room(greeting.port, not greeting.full)

    def tells(self, log: Digest) -> None:
        """Its log, as it is now."""
        if self._on_log is not None:
            self._on_log(self.port, log)
