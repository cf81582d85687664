"""What a node remembers of its peers: contacts, bytes, bans, repeated log lines.  Time is an argument."""

from __future__ import annotations

import threading
from dataclasses import dataclass, fields
from typing import Protocol

from basefs.log.interface import Digest
from basefs.sync.net.parties import Party
from basefs.sync.session.recent import Recent
from basefs.sync.session.result import Reason, Result, SessionCounters

#: Where a peer accepts sessions: host and port.
Address = tuple[str, int]

#: Seconds of the longest ban, reached with the eleventh offence in a row.
LONGEST = 3600.0


@dataclass(slots=True)
class _Interval:
    """When it ends, how long it is, and how often it was asked about meanwhile."""

    until: float
    length: float
    asked: int = 0


class _Intervals:
    """Growing intervals by key: twice as long each time, forgotten when as long as the longest has passed in peace.

    An offence during a running interval does not extend it.
    """

    def __init__(self, first: float, longest: float, most: int) -> None:
        """`most`: keys remembered; beyond that the oldest interval is forgotten, also where it has not ended."""
        self._first = first
        self._longest = longest
        self._found: Recent[object, _Interval] = Recent(most)

    def __len__(self) -> int:
        """Keys remembered."""
        return len(self._found)

    def running(self, key: object, now: float) -> _Interval | None:
        """The interval of a key, if it has not ended."""
        found = self._found.get(key)
        return found if found is not None and now < found.until else None

    def begin(self, key: object, now: float) -> _Interval:
        """Start the next interval of a key, unless one is running."""
        running = self.running(key, now)
        if running is not None:
            return running
        old = self._found.get(key)
        if old is None or now >= old.until + self._longest:
            length = self._first
        else:
            length = min(2 * old.length, self._longest)
        self._found[key] = new = _Interval(now + length, length)
        return new

    def asked(self, key: object) -> int:
        """How often `running` of the last interval was counted."""
        found = self._found.get(key)
        return found.asked if found else 0


class PenaltyBox:
    """Bans: by key, or by endpoint where no key was proved."""

    def __init__(self, first: float = 5.0, longest: float = LONGEST, most: int = 4096) -> None:
        """Seconds of the first ban, which makes flooding pointless, and of the longest; `most`: parties remembered."""
        self._bans = _Intervals(first, longest, most)

    def punish(self, who: Party, now: float) -> float:
        """Ban a party, longer than the last time, unless it is banned.  Returns the seconds of the ban."""
        return self._bans.begin(who, now).length

    def banned(self, who: Party, now: float) -> bool:
        """Whether a party is refused now."""
        return self._bans.running(who, now) is not None

    def remaining(self, who: Party, now: float) -> float | None:
        """Seconds for which a party is refused still, `None` if it is not."""
        ban = self._bans.running(who, now)
        return None if ban is None else ban.until - now


class Pace:
    """How often each key may begin something: a number at once, then evenly (a leaky bucket for each)."""

    def __init__(self, a_second: float = 10.0, at_once: int = 60, most: int = 4096) -> None:
        """`most`: keys remembered.

        The defaults are for sessions: thirty nodes behind one address begin six a second, one each in five seconds, and
        comparing equal logs costs 1 ms.
        """
        self._step = 1 / a_second
        self._slack = (at_once - 1) * self._step
        #: When the next beginning of a key would be due, were they all even.
        self._due: Recent[object, float] = Recent(most)

    def delay(self, key: object, now: float) -> float:
        """Count a beginning; returns the seconds that it has to wait."""
        wait = self.wait(key, now)
        self._due[key] = max(self._due.get(key, now), now) + self._step
        return wait

    def wait(self, key: object, now: float) -> float:
        """The seconds that a beginning would have to wait."""
        return max(self._due.get(key, now) - self._slack - now, 0.0)

    def rest(self, key: object, now: float, seconds: float) -> None:
        """Have the next beginning wait for so long, if it does not wait longer anyway."""
        self._due[key] = max(self._due.get(key, now), now + self._slack + seconds)


class Throttle:
    """Which of many equal log lines to write."""

    def __init__(self, first: float = 10.0, longest: float = LONGEST) -> None:
        """Seconds in which the second line of a kind is not written, and the most; they double like a ban."""
        self._silences = _Intervals(first, longest, 4096)

    def allow(self, key: object, now: float) -> int | None:
        """None if the line should not be written; otherwise how many were left out since the last one."""
        running = self._silences.running(key, now)
        if running is not None:
            running.asked += 1
            return None
        left_out = self._silences.asked(key)
        self._silences.begin(key, now)
        return left_out


#: Seconds for which a peer whose disk is full is left alone if it has nothing more; once it has room it comes itself.
FULL_SECONDS = 300.0
#: Ends after which nobody knows how the peer is.
_AWAY = frozenset({Reason.UNREACHABLE, Reason.LOST, Reason.TIMEOUT})


#: Seconds for which the answer of a peer counts: what it wrote since then is unknown here.
FRESH_SECONDS = 1.75
#: Seconds for which entries may be on their way to a peer that counts as in step.  Both are less than the 2 s of
#: docs/operations.md by what a command takes to print.
ON_THE_WAY_SECONDS = 1.0


class LogPast:
    """The logs that this node has had lately, and when each of them grew.  May be used in any thread."""

    def __init__(self, most: int = 4096) -> None:
        """`most`: logs remembered: more than a peer falls behind within hours of ordinary work.

        Of one that is farther behind only the numbers of entries tell something.
        """
        self._current: Digest | None = None
        self._left: Recent[Digest, float] = Recent(most)
        self._lock = threading.Lock()

    def note(self, log: Digest, now: float) -> None:
        """The log is this one now."""
        log = log.entries_alone()
        with self._lock:
            if log == self._current:
                return
            if self._current is not None:
                # A content that arrives again after a pause brings an earlier hash back.
                self._left[self._current] = now
            self._current = log

    def left(self, log: Digest) -> float | None:
        """When the log grew beyond this one; `None` if it is so still, or if it is unknown here."""
        log = log.entries_alone()
        with self._lock:
            return None if log == self._current else self._left.get(log)


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a peer and this node are apart, as far as the peer has told.

    Numbers cannot tell more: where both have something that the other lacks, each lacks more than the difference.

    Attributes:
        in_step: the peer has told a moment ago that it has all that is here, and nothing else, but for entries that may
            be on their way.  Of contents both may lack the same: nobody can get them from either.
        behind: entries that the peer lacks, at least.
        ahead: entries that it has and this node lacks, at least.
        since: seconds since the first of them was here, or since the difference was found; `None` without one.
        missing: contents that have not arrived at the peer, unless the same are missing here.
        waiting: those that it has no room for.
        incomplete: contents are missing on this node that the peer has, of logs that are equal otherwise.
    """

    in_step: bool = False
    behind: int = 0
    ahead: int = 0
    since: float | None = None
    missing: int = 0
    waiting: int = 0
    incomplete: bool = False


@dataclass(slots=True)
class Contact:
    """One peer.  Times are seconds of the event loop's clock.

    Attributes:
        sent, received: bytes of all sessions that have ended, without TCP.
        trouble: why the last session failed, '' if it did not, or if the peer was heard since.
        away: whether nothing was heard of the peer in it: no connection, or one that carried nothing any more.
        refuses: whether the peer turned this node away in it.
        full_at: when it said last that its disk is full, `None` if that is over.
        emptied: its log when all was compared that it has, while its disk was full.
        heard_at: when it was heard last, `None` if never.
        log: its log as it told last, `None` if it never did; it may have told that long before it arrived here.
        asked: its log as it told when it was asked, and not before `asked_at`.
        apart_at: since when its log has been one that never was here.
        missing_at: since when contents are missing there.
    """

    sent: int = 0
    received: int = 0
    trouble: str = ""
    away: bool = False
    refuses: bool = False
    full_at: float | None = None
    emptied: Digest | None = None
    heard_at: float | None = None
    log: Digest | None = None
    asked: Digest | None = None
    asked_at: float = 0.0
    apart_at: float = 0.0
    missing_at: float = 0.0

    def lag(self, ours: Digest, past: LogPast, now: float) -> Lag | None:
        """How far we are apart, `ours` being the log that is here now; `None` if it has told nothing yet."""
        if self.log is None:
            return None
        left = past.left(self.log)
        same, waiting = self.log.same_entries(ours), self.log.waiting
        missing = 0 if self.log.lacks_same(ours) else self.log.missing
        lacks_nothing = same or (left is not None and now - left <= ON_THE_WAY_SECONDS)
        # What it had when it was asked is here.
        asked = self.asked
        brings_nothing = asked is not None and (asked.same_entries(ours) or past.left(asked) is not None)
        if asked and lacks_nothing and brings_nothing and not missing and now - self.asked_at <= FRESH_SECONDS:
            is_whole = not ours.missing or (self.log.lacks_same(ours) and asked.lacks_same(ours))
            return Lag(in_step=is_whole, incomplete=not is_whole)
        if same:
            return Lag(missing=missing, waiting=waiting, since=now - self.missing_at if missing else None)
        behind = max(ours.entries - self.log.entries, 0)
        ahead = max(self.log.entries - ours.entries, 0)
        since = self.apart_at if left is None else left
        return Lag(behind=behind, ahead=ahead, since=now - since, missing=missing, waiting=waiting)


class Contacts:
    """The peers of this node, by the address at which they accept sessions.

    Attributes:
        past: the logs that this node has had.
    """

    def __init__(self) -> None:
        self.past = LogPast()
        self._found: Recent[Address, Contact] = Recent()

    def get(self, address: Address) -> Contact:
        """What is known of a peer; nothing if there was no session with it."""
        return self._found.get(address, Contact())

    def lag(self, address: Address, ours: Digest, now: float) -> Lag | None:
        """See `Contact.lag`."""
        self.past.note(ours, now)
        return self.get(address).lag(ours, self.past, now)

    def _of(self, address: Address) -> Contact:
        self._found[address] = contact = self._found.get(address) or Contact()
        return contact

    def told(self, address: Address, theirs: Digest, ours: Digest, now: float, asked_at: float | None = None) -> None:
        """A peer has told of its log; `ours` is what is here at this moment.

        `asked_at`: when this node opened the connection, if it did: the peer cannot have told it before.
        """
        contact = self._of(address)
        was = contact.log
        if was is None or was.same_entries(ours) or self.past.left(was) is not None:
            contact.apart_at = now
        if was is None or not was.missing:
            contact.missing_at = now
        contact.log, contact.heard_at = theirs, now
        if asked_at is not None:
            contact.asked, contact.asked_at = theirs, asked_at
        if contact.away:
            # It is there again, and this session may last for hours on a narrow link.
            contact.trouble, contact.away = "", False

    def has_room(self, address: Address, has_room: bool, now: float) -> None:
        """A peer has told whether its disk takes something."""
        self._of(address).full_at = None if has_room else now

    def only_lacks(self, address: Address, now: float) -> bool:
        """Whether a peer has told a while ago at most that its disk is full, and has nothing that is not here."""
        contact = self.get(address)
        if contact.full_at is None or now - contact.full_at >= FULL_SECONDS or contact.log is None:
            return False
        return contact.log.same_entries(contact.emptied) or self.past.left(contact.log) is not None

    def ended(self, address: Address, result: Result, now: float) -> None:
        """A session has ended, or has begun to stand."""
        contact = self._of(address)
        if result.reason is Reason.COMPLETE:
            contact.emptied, contact.trouble, contact.away, contact.refuses = contact.log, "", False, False
        elif result.reason is Reason.FULL:
            contact.full_at = now if result.by_peer else contact.full_at
        elif result.reason is not Reason.ENOUGH:
            # A session that ends early because it has brought enough does not tell that the next one would go well.
            contact.trouble, contact.away = _trouble(result), result.reason in _AWAY
            contact.refuses = result.by_peer
        if result.by_peer:
            contact.heard_at = now
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
