"""What is known of each peer from the sessions with it: when, how it went, how many bytes.  Time is an argument."""

from __future__ import annotations

from dataclasses import dataclass

from basefs.log.interface import Digest
from basefs.sync.net.schedule import Address
from basefs.sync.session.result import Reason, Result

#: Peers remembered, about 300 bytes each; far beyond any cluster, so that the table cannot grow for ever.
_MAX_REMEMBERED = 10_000


#: Ends after which nobody knows how the peer is.
_AWAY = frozenset({Reason.UNREACHABLE, Reason.LOST, Reason.TIMEOUT})


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a peer and this node are apart, as far as the peer has told.

    Numbers cannot tell more: where both have something that the other lacks, each lacks more than the difference.

    Attributes:
        behind: entries that the peer lacks, at least.
        ahead: entries that it has and this node lacks, at least.
        differs: the logs are not equal; both numbers may be 0 then.
    """

    behind: int = 0
    ahead: int = 0
    differs: bool = False


@dataclass(slots=True)
class Contact:
    """One peer.

    Attributes:
        compared_at: seconds of the loop's clock when both logs were last compared to the end, `None` if never.
        equal: whether they were equal then.
        sent, received: bytes of all sessions that have ended, without TCP.
        trouble: why the last session failed, '' if it did not, or if the peer was heard since.
        away: whether nothing was heard of the peer in it: no connection, or one that carried nothing any more.
        equal_at: seconds of the same clock when they were last found equal, `None` if never.
    """

    compared_at: float | None = None
    equal: bool = False
    sent: int = 0
    received: int = 0
    trouble: str = ""
    equal_at: float | None = None
    away: bool = False
    _told: tuple[Digest, Digest] | None = None

    @property
    def differed(self) -> bool:
        """Whether the logs were not equal when they were last compared."""
        return self.compared_at is not None and not self.equal

    def tells(self, theirs: Digest, ours: Digest) -> None:
        """The peer's log as it says, and ours when it said so."""
        # Of equal trees, entries may be left out whose blocks are arriving: they are no lag.
        self._told = (ours if theirs.root == ours.root else theirs), ours

    def lag(self, ours: Digest, *, away: bool) -> Lag | None:
        """How far we are apart, `ours` being the log that is here now; `None` if it has told nothing yet.

        `away`: nobody reaches the peer, so what has come here since it told counts as lacking there, although the first
        of it may have arrived.  Who can be reached may have got all of it.
        """
        if self._told is None:
            return None
        theirs, then = self._told
        if theirs.root == ours.root:
            return Lag()
        behind = max((ours if away else then).entries - theirs.entries, 0)
        ahead = max(theirs.entries - ours.entries, 0)
        as_many = theirs.root != then.root and theirs.entries == then.entries == ours.entries
        return Lag(behind, ahead, differs=bool(behind or ahead or as_many))


class Contacts:
    """The peers of this node, by the address at which they accept sessions."""

    def __init__(self) -> None:
        self._found: dict[Address, Contact] = {}

    def get(self, address: Address) -> Contact:
        """What is known of a peer; nothing if there was no session with it."""
        return self._found.get(address, Contact())

    def _of(self, address: Address) -> Contact:
        contact = self._found.pop(address, None) or Contact()
        self._found[address] = contact
        if len(self._found) > _MAX_REMEMBERED:
            del self._found[next(iter(self._found))]
        return contact

    def told(self, address: Address, theirs: Digest, ours: Digest) -> None:
        """A peer has told of its log; `ours` is what is here at this moment."""
        contact = self._of(address)
        contact.tells(theirs, ours)
        # What was wrong before is over: this session may last for hours on a narrow link.
        contact.trouble, contact.away = "", False

    def ended(self, address: Address, result: Result, now: float) -> None:
        """A session has ended, or has begun to stand."""
        contact = self._of(address)
        if result.reason is not Reason.COMPLETE:
            contact.trouble, contact.away = _trouble(result), result.reason in _AWAY
        else:
            contact.trouble, contact.away = "", False
            if not result.stood:
                contact.compared_at, contact.equal = now, result.equal
                if result.equal:
                    contact.equal_at = now
        contact.sent += result.counters.bytes_sent
        contact.received += result.counters.bytes_received


def _trouble(result: Result) -> str:
    """Why a session failed, in one line, and whose word it is."""
    if result.reason is Reason.UNREACHABLE:
        return result.detail
    if result.by_peer:
        return f"it turned this node away: {result.reason.value}: {result.detail}"
    return f"{result.reason.value}: {result.detail}"
