"""Gossip without Serf: a bus with Serf's limits and habits, and what a node sees of it.

Events have at most 512 bytes.  They reach a member by any way of links, late, out of order, some not at all and some
twice; a member that cannot be reached misses what was sent meanwhile, mostly.  Members that cannot be reached fail
after a while, members that come back are noticed after another while, and now and then a member that works is taken
for one that failed.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
import zlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from basefs.errors import AgentError, RemoteProtocolError
from basefs.gossip.events import MAX_EVENT, GossipEvent, decode_event
from basefs.gossip.members import Peer, join_host_port
from basefs.gossip.outgoing import Pacer
from basefs.gossip.service import Counters
from tests.simulation.loop import PROCESS, Loop, Trace
from tests.simulation.network import Network
from tests.simulation.sending import Sender

#: Where each host gossips, and where it answers the sync protocol.
GOSSIP_PORT, SYNC_PORT = 18374, 18375
#: Seconds until a member that cannot be reached counts as failed, and until one that can be reached again is back.
FAILS_AFTER = (3.0, 12.0)
BACK_AFTER = (1.0, 8.0)
#: Seconds between two looks at the members, and for which a member that works may be taken for a failed one.
LOOK = 1.0
MISTAKEN = (1.0, 10.0)


@dataclass(frozen=True, slots=True)
class Habits:
    """What the bus does to events and members of one run, as shares of them.

    Attributes:
        loses: of events, for each member.
        repeats: of events that come once more.
        delay: seconds on the way at the most; a tenth of them takes up to ten times as long.
        remembers: of events that reach a member which could not be reached when they were sent.
        mistakes: of looks at a member that find it failed although it works.
        buffer: Lamport times after which a member takes an event for one that it has had; not a share.
    """

    loses: float = 0.0
    repeats: float = 0.0
    delay: float = 0.5
    remembers: float = 0.0
    mistakes: float = 0.0
    buffer: int = 512


class Bus:
    """Brings events to all members that have the same gossip key.

    Attributes:
        ghosts: members that all hear of, and that are not there.
        on_change: is called after a member has come, or has another gossip key.
    """

    def __init__(self, network: Network, habits: Habits, rng: random.Random, trace: Trace) -> None:
        self.loop: Loop = network.loop
        self.habits = habits
        self.rng = rng
        self.trace = trace
        self._network = network
        self._members: dict[str, SimulatedGossip] = {}
        self._time = 0
        self.ghosts: set[str] = set()
        self.on_change: Callable[[], None] = lambda: None

    @property
    def hosts(self) -> list[str]:
        """All that take part."""
        return sorted(self._members)

    def join(self, gossip: SimulatedGossip) -> None:
        """A process takes part from now on, in place of an earlier one of its host."""
        self._members[gossip.host] = gossip
        self.on_change()

    def part(self, gossip: SimulatedGossip) -> None:
        """A process takes part no more."""
        if self._members.get(gossip.host) is gossip:
            del self._members[gossip.host]

    def key(self, host: str) -> str:
        """The gossip key of a host, "" if it has none or takes no part."""
        gossip = self._members.get(host)
        return "" if gossip is None else gossip.key

    def reachable(self, host: str) -> set[str]:
        """The members that a host reaches and that reach it, by any way."""
        if host not in self._members:
            return set()
        found, todo = {host}, [host]
        while todo:
            here = todo.pop()
            near = {
                there
                for there in self._members.keys() - found
                if self._network.passes(here, there)
                and self._network.passes(there, here)
                and self.key(there) == self.key(here)
            }
            found |= near
            todo += near
        return found

    def spread(self, origin: str, payload: bytes) -> None:
        """Send an event to all, its origin included.  Raises `AgentError` for one that Serf refuses."""
        if len(payload) > MAX_EVENT:
            raise AgentError(f"user event exceeds limit of {MAX_EVENT} bytes")
        self.trace(origin, f"event {len(payload)} {zlib.crc32(payload):08x}")
        reached = self.reachable(origin)
        event = payload, self._time + 1, self.key(origin)
        self._time += 1
        for host in self.hosts:
            times = 1 + (self.rng.random() < self.habits.repeats)
            for _ in range(times):
                misses = host not in reached and self.rng.random() >= self.habits.remembers
                if host != origin and (misses or self.rng.random() < self.habits.loses):
                    continue
                most = self.habits.delay * (10 if self.rng.random() < 0.1 else 1)
                delay = 0.001 if host == origin else self.rng.uniform(0.005, most)
                self.loop.call_later(delay, self._arrive, origin, host, event, 8)

    def _arrive(self, origin: str, host: str, event: tuple[bytes, int, str], tries: int) -> None:
        gossip = self._members.get(host)
        payload, time, key = event
        if gossip is not None and gossip.key != key:
            # What an agent had in its queue is gone once it has been started with another key.
            return
        if gossip is None or (origin in self._members and host not in self.reachable(origin)):
            # What a member still has in its queue reaches others later, unless it is forgotten meanwhile.
            if tries and self.rng.random() < max(self.habits.remembers, 0.5):
                self.loop.call_later(self.rng.uniform(1.0, 5.0), self._arrive, origin, host, event, tries - 1)
            return
        if time + self.habits.buffer < gossip.heard:
            self.trace(host, f"is too late for {zlib.crc32(payload):08x}")
            return
        gossip.heard = max(gossip.heard, time)
        gossip.receive(payload)


class SimulatedGossip:
    """What a node uses of `Gossip`, over the bus; queue and pace are the real ones.

    Attributes:
        heard: the latest Lamport time that it knows.
        key: with which it encrypts, "" for none.
    """

    def __init__(self, bus: Bus, host: str, names: Sequence[str]) -> None:
        """`names`: the hosts of the cluster, which have met before."""
        self.host = host
        self.counters = Counters()
        self.heard = 0
        self.key = ""
        self._bus = bus
        self._loop = bus.loop
        self._process = PROCESS.get()
        self._context = contextvars.copy_context()
        self._rng = self._process.rng
        self._pacer = Pacer("wan", self._loop.time())
        self._sender = Sender(self._loop, self._process, self._pacer, self.counters, partial(bus.spread, host))
        self._status = {name: "failed" for name in names if name != host}
        #: When a member changes its status, unless it does so by itself before; and until when it is mistaken for one
        #: that failed.
        self._due: dict[str, float] = {}
        self._mistaken: dict[str, float] = {}
        self._told: list[Peer] | None = None
        self._on_event: Callable[[GossipEvent], None] = lambda event: None
        self._on_members: Callable[[list[Peer]], None] = lambda peers: None
        self._on_overflow: Callable[[], None] = lambda: None

    def start(
        self,
        on_event: Callable[[GossipEvent], None],
        on_members: Callable[[list[Peer]], None],
        on_overflow: Callable[[], None],
    ) -> None:
        """Take part."""
        self._on_event, self._on_members, self._on_overflow = on_event, on_members, on_overflow
        self._bus.join(self)
        for other in self._bus.reachable(self.host) - {self.host}:
            self._status[other] = "alive"
        self._look()

    def stop(self) -> None:
        """Take part no more."""
        self._bus.part(self)
        self._sender.stop()

    @property
    def peers(self) -> list[Peer]:
        """As `Gossip.peers`."""
        return [Peer(host, host, GOSSIP_PORT, SYNC_PORT, status) for host, status in sorted(self._status.items())]

    @property
    def expected(self) -> list[Peer]:
        """As `Gossip.expected`: here nobody leaves."""
        return self.peers

    @property
    def candidates(self) -> list[str]:
        """As `Gossip.candidates`."""
        return [join_host_port(peer.host, peer.gossip_port) for peer in self.peers]

    async def encrypt(self, key: str) -> None:
        """As `Gossip.encrypt`: the agent is started again, so it knows of nobody for a moment."""
        self.key = key
        self._bus.trace(self.host, "has another gossip key")
        self._bus.on_change()
        await asyncio.sleep(self._rng.uniform(0.1, 1.0))

    def send(self, payloads: Sequence[bytes]) -> None:
        """As `Gossip.send`."""
        self._sender.send(payloads, self._on_overflow)

    def met(self, address: tuple[str, int]) -> None:
        """As `Gossip.met`: this one remembers nobody."""

    def call(self, command: str, body: dict[str, Any]) -> Awaitable[object]:
        """As `Gossip.call`: only `join` is known, which tells of members that are there again."""
        assert command == "join"
        return self._rejoin([address.rpartition(":")[0] for address in body["Existing"]])

    async def _rejoin(self, hosts: Sequence[str]) -> None:
        await asyncio.sleep(self._rng.uniform(0.05, 0.5))
        for host in hosts:
            if host in self._status and host in self._bus.reachable(self.host):
                self._status[host] = "alive"
        self._tell()

    def receive(self, payload: bytes) -> None:
        """An event arrives."""
        if not self._process.alive:
            return
        self._bus.trace(self.host, f"hears {zlib.crc32(payload):08x}")
        try:
            event = decode_event(payload)
        except RemoteProtocolError:
            self.counters.malformed += 1
            return
        self.counters.received += 1
        self._context.copy().run(self._on_event, event)

    def _look(self) -> None:
        """Notice who has failed and who is back."""
        if not self._process.alive:
            return
        now = self._loop.time()
        for ghost in self._bus.ghosts:
            self._status.setdefault(ghost, "failed")
        reached = self._bus.reachable(self.host) | self._bus.ghosts
        for host, status in sorted(self._status.items()):
            if status == "alive" and host in reached and self._rng.random() < self._bus.habits.mistakes:
                self._mistaken[host] = now + self._rng.uniform(*MISTAKEN)
            works = host in reached and self._mistaken.get(host, 0.0) <= now
            if works == (status == "alive"):
                self._due.pop(host, None)
                continue
            patience = self._rng.uniform(*(BACK_AFTER if works else FAILS_AFTER))
            if host in self._mistaken:
                patience = 0.0
            if now >= self._due.setdefault(host, now + patience):
                del self._due[host]
                self._status[host] = "alive" if works else "failed"
        alive = sum(status == "alive" for status in self._status.values())
        self._pacer.observe_nodes(alive + 1, now)
        self._tell()
        self._loop.call_later(self._rng.uniform(0.5, 1.5) * LOOK, self._look)

    def _tell(self) -> None:
        peers = self.peers
        if self._process.alive and peers != self._told:
            self._told = peers
            seen = " ".join(peer.host.rpartition(".")[2] for peer in peers if peer.status == "alive")
            self._bus.trace(self.host, f"members alive: {seen}")
            self._context.copy().run(self._on_members, peers)
