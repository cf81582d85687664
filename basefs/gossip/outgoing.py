"""Outgoing events: the queue in which they wait, and the rate at which Serf gets them.  Pure: the time is an argument.

Serf sends each event `4 * ceil(log10(N + 1))` times from every node.  Once every gossip interval a node sends one
packet to each of a few others, and two of our events fit into a packet.  So, with N nodes,

    slots(N)   = min(gossip nodes, N - 1) * 2 / interval             events that leave a node per second
    sustained  = slots(N) / (4 * ceil(log10(N + 1)))                 new events per second in the *whole cluster*

which is 2/s for 30 nodes in the wan profile and 1/s for two (measured there: 64 events sent at once arrive at 4/s and
have left the queue after 61 s).  Above that rate nothing is lost at first: Serf prefers the events it has sent least
often, so new ones still go out, and old ones lose their repetitions, that is, their reliability.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from basefs.gossip.events import is_announcement


@dataclass(frozen=True, slots=True)
class Profile:
    """Serf's timing: to how many nodes it gossips at once, and how often (seconds).  From memberlist's `config.go`."""

    gossip_nodes: int
    interval: float


PROFILES = {"wan": Profile(4, 0.5), "lan": Profile(3, 0.2), "local": Profile(3, 0.1)}

#: Depth of Serf's event queue below which we speed up, and from which we slow down.  At the sustained rate an event
#: stays for a few intervals, so a healthy queue holds a handful.  A lower mark would punish the normal burst, a higher
#: one would let the queue of the whole cluster fill before anyone yields.
QUEUE_LOW = 16
QUEUE_HIGH = 48
#: Bounds of the rate, as multiples of the sustained one.  Twice leaves every event half of its repetitions, which still
#: reach every node; a quarter keeps us going while others fill the queue.
RATE_MAX = 2.0
RATE_MIN = 0.25
#: A lower bound of the burst: an editor's save and its directory's mode, also with a single peer.
BURST_MIN = 4.0


def slots(profile: str, nodes: int) -> float:
    """Events that leave one node per second, for a cluster of `nodes` (counting us)."""
    timing = PROFILES[profile]
    # Two events of 512 B (about 550 B with Serf's header) fit into one packet of 1400 B.
    return min(timing.gossip_nodes, max(nodes - 1, 1)) * 2 / timing.interval


def sustained_rate(profile: str, nodes: int) -> float:
    """New events per second that a cluster of `nodes` carries without its queues growing."""
    return slots(profile, nodes) / (4 * math.ceil(math.log10(max(nodes, 1) + 1)))


class TokenBucket:
    """Lets `rate` events a second pass, and `burst` at once after a pause.

    Invariants: 0 <= tokens <= burst; over any stretch of t seconds at most burst + rate * t are taken.  A clock that
    goes backwards gives no tokens and takes none.
    """

    def __init__(self, rate: float, burst: float, now: float) -> None:
        if rate <= 0 or burst < 1:
            raise ValueError("a bucket needs a positive rate and room for one token")
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._at = now

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self._rate

    @property
    def burst(self) -> float:
        """Most tokens that can be saved up."""
        return self._burst

    def take(self, now: float, amount: float = 1.0) -> float:
        """Take so many tokens and return 0.0, or take none and return the seconds until there are."""
        self._fill(now)
        if self._tokens >= amount:
            self._tokens -= amount
            return 0.0
        return (amount - self._tokens) / self._rate

    def adjust(self, rate: float, burst: float, now: float) -> None:
        """Change rate and burst from now on; tokens saved so far were saved at the old rate."""
        self._fill(now)
        self._rate = rate
        self._burst = burst
        self._tokens = min(self._tokens, burst)

    def _fill(self, now: float) -> None:
        if now > self._at:
            # The comparison below needs whole tokens in spite of rounding: 1e-9 of a token is not worth a wakeup.
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate + 1e-9)
            self._at = now


class Pacer:
    """A bucket whose rate follows the size of the cluster and the depth of Serf's own queue.

    The burst is what this node's packets carry in one second: each of the events leaves at least once within a second,
    so a burst delays other nodes by at most that.  The rate is additive increase, multiplicative decrease, as in TCP:
    all nodes see the same queue, because every event is in every node's queue, and share it fairly without a message.
    """

    def __init__(self, profile: str, now: float) -> None:
        self._profile = profile
        self._nodes = 1
        self._factor = 1.0
        self._bucket = TokenBucket(1.0, BURST_MIN, now)
        self._apply(now)

    @property
    def rate(self) -> float:
        """Events per second at the moment."""
        return self._bucket.rate

    @property
    def burst(self) -> float:
        """Events that may go at once after a pause."""
        return self._bucket.burst

    def take(self, now: float) -> float:
        """As `TokenBucket.take`."""
        return self._bucket.take(now)

    def observe_nodes(self, nodes: int, now: float) -> None:
        """The cluster has this many nodes alive, counting us."""
        if nodes != self._nodes:
            self._nodes = nodes
            self._apply(now)

    def observe_depth(self, depth: int, now: float) -> None:
        """Serf's event queue holds `depth` events.  Called about once a second while we send."""
        if depth >= QUEUE_HIGH:
            self._factor = max(RATE_MIN, self._factor / 2)
        elif depth <= QUEUE_LOW:
            self._factor = min(RATE_MAX, self._factor + 0.25)
        self._apply(now)

    def _apply(self, now: float) -> None:
        rate = self._factor * sustained_rate(self._profile, self._nodes)
        self._bucket.adjust(rate, max(BURST_MIN, slots(self._profile, self._nodes)), now)


class Outbox:
    """A bounded queue of encoded events.

    1. At most `limit` events and one announcement are queued.
    2. If a burst does not fit, all queued events are dropped and the caller announces itself instead ("sync with me"),
       because half a burst only makes the receivers request the other half.
    3. Of several announcements only the newest is queued: its root hash covers the others.  It is never dropped, and it
       is sent last, after the events that were queued before it.
    """

    def __init__(self, limit: int = 32) -> None:
        """At the 2 events/s of 30 nodes 32 are a quarter of a minute, by when an announcement and a sync (about 1.5 s)
        would have carried any number of them; less would turn one 16-block file into an announcement.
        """
        self._limit = limit
        self._events: deque[bytes] = deque()
        self._announcement: bytes | None = None

    def __len__(self) -> int:
        return len(self._events) + (self._announcement is not None)

    def put(self, payloads: Sequence[bytes]) -> int:
        """Queue the payloads.  Returns 0, or how many events were dropped because they did not fit."""
        events = [payload for payload in payloads if not is_announcement(payload)]
        for payload in payloads:
            if is_announcement(payload):
                self._announcement = payload
        if len(self._events) + len(events) > self._limit:
            dropped = len(self._events) + len(events)
            self._events.clear()
            return dropped
        self._events.extend(events)
        return 0

    def peek(self) -> bytes | None:
        """The next payload, which stays queued until `done`; None if nothing waits."""
        return self._events[0] if self._events else self._announcement

    def done(self, payload: bytes) -> None:
        """Remove what `peek` returned, unless an overflow or a newer announcement has replaced it meanwhile."""
        if self._events and self._events[0] is payload:
            self._events.popleft()
        elif self._announcement is payload:
            self._announcement = None
