"""What a node remembers of its peers: contacts, bytes, bans, repeated log lines.  Time is an argument."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, fields
from typing import Protocol

from basefs.log.interface import Digest
from basefs.sync.session.result import Reason, Result, SessionCounters

#: Where a peer accepts sessions: host and port.
Address = tuple[str, int]

#: Seconds of the first ban.  Long enough to make flooding pointless, short enough for an address that a bad node shares
#: with good ones (NAT, several nodes on one machine).
FIRST_BAN = 5.0
#: Seconds of the longest ban, reached with the eleventh offence in a row.
LONGEST = 3600.0
#: Seconds in which the second line of a kind is not logged; doubles like a ban.
FIRST_SILENCE = 10.0
#: Sessions that one host may begin a second, and at once.  Thirty nodes behind one address begin six, one each in five
#: seconds; comparing equal logs costs 1 ms.
BEGINNINGS = 10.0
BEGINNINGS_AT_ONCE = 60
#: Keys remembered, about 200 bytes each, of bans, of lines in the log and of beginnings: beyond that the one of the
#: oldest ban, line or beginning is forgotten, also where the ban has not ended.
MAX_KEYS = 4096


@dataclass(slots=True)
class _Interval:
    """When it ends, how long it is, and how often it was asked about meanwhile."""

    until: float
    length: float
    asked: int = 0


class _Intervals:
    """Growing intervals by key: twice as long each time, forgotten when as long as the longest has passed in peace."""

    def __init__(self, first: float, longest: float, max_keys: int) -> None:
        self._first = first
        self._longest = longest
        self._max_keys = max_keys
        self._found: OrderedDict[object, _Interval] = OrderedDict()

    def __len__(self) -> int:
        """Keys remembered."""
        return len(self._found)

    def running(self, key: object, now: float) -> _Interval | None:
        """The interval of a key, if it has not ended."""
        found = self._found.get(key)
        return found if found is not None and now < found.until else None

    def begin(self, key: object, now: float) -> _Interval:
        """Start the next interval of a key."""
        old = self._found.pop(key, None)
        if old is None or now >= old.until + self._longest:
            length = self._first
        else:
            length = min(2 * old.length, self._longest)
        self._found[key] = new = _Interval(now + length, length)
        while len(self._found) > self._max_keys:
            self._found.popitem(last=False)
        return new

    def asked(self, key: object) -> int:
        """How often `running` of the last interval was counted."""
        found = self._found.get(key)
        return found.asked if found else 0


class PenaltyBox:
    """Addresses that are refused for a while."""

    def __init__(self, first: float = FIRST_BAN, longest: float = LONGEST, max_keys: int = MAX_KEYS) -> None:
        self._bans = _Intervals(first, longest, max_keys)

    def punish(self, address: str, now: float) -> float:
        """Ban an address, longer than the last time.  Returns the seconds."""
        return self._bans.begin(address, now).length

    def banned(self, address: str, now: float) -> bool:
        """Whether an address is refused now."""
        return self._bans.running(address, now) is not None

    def remaining(self, address: str, now: float) -> float | None:
        """Seconds for which an address is refused still, `None` if it is not."""
        ban = self._bans.running(address, now)
        return None if ban is None else ban.until - now


class Pace:
    """How often each key may begin something: a number at once, then evenly (a leaky bucket for each)."""

    def __init__(
        self, a_second: float = BEGINNINGS, at_once: int = BEGINNINGS_AT_ONCE, max_keys: int = MAX_KEYS
    ) -> None:
        self._step = 1 / a_second
        self._slack = (at_once - 1) * self._step
        self._max_keys = max_keys
        #: When the next beginning of a key would be due, were they all even.
        self._due: OrderedDict[object, float] = OrderedDict()

    def delay(self, key: object, now: float) -> float:
        """Count a beginning; returns the seconds that it has to wait."""
        due = max(self._due.pop(key, now), now)
        self._due[key] = due + self._step
        while len(self._due) > self._max_keys:
            self._due.popitem(last=False)
        return max(due - self._slack - now, 0.0)


class Throttle:
    """Which of many equal log lines to write."""

    def __init__(self, first: float = FIRST_SILENCE, longest: float = LONGEST, max_keys: int = MAX_KEYS) -> None:
        self._silences = _Intervals(first, longest, max_keys)

    def allow(self, key: object, now: float) -> int | None:
        """None if the line should not be written; otherwise how many were left out since the last one."""
        running = self._silences.running(key, now)
        if running is not None:
            running.asked += 1
            return None
        left_out = self._silences.asked(key)
        self._silences.begin(key, now)
        return left_out


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
        if len(self._found) > MAX_KEYS:
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


_SUMS = tuple(field.name for field in fields(SessionCounters) if field.type == "int")


class Moving(Protocol):
    """A session, as far as its bytes are counted.

    Attributes:
        address: of the peer, as far as it is known.
    """

    address: Address

    @property
    def counters(self) -> SessionCounters:
        """What it has moved so far."""


class Traffic:
    """Adds up the counters of sessions."""

    def __init__(self) -> None:
        self._past = SessionCounters()
        self._open: set[Moving] = set()

    def began(self, session: Moving) -> None:
        """A session counts from now on."""
        self._open.add(session)

    def ended(self, session: Moving) -> None:
        """It will not count any more than it has by now."""
        self._open.remove(session)
        _add(self._past, session.counters)

    def open_with(self, address: Address) -> SessionCounters:
        """What the open sessions with a peer have moved; `refusal` is empty."""
        total = SessionCounters()
        for session in self._open:
            if session.address == address:
                _add(total, session.counters)
        return total

    def total(self) -> SessionCounters:
        """The sum so far; `refusal` is empty."""
        total = SessionCounters()
        for counters in (self._past, *(session.counters for session in self._open)):
            _add(total, counters)
        return total


def _add(total: SessionCounters, counters: SessionCounters) -> None:
    for name in _SUMS:
        setattr(total, name, getattr(total, name) + getattr(counters, name))
