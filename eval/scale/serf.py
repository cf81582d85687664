"""Serf among thousands of simulated nodes: who sees which members, and when an event reaches whom.

Events spread as memberlist spreads them: once every gossip interval a node sends what is new to some random members,
`4 * ceil(log10(N + 1))` times in all.  Members fail and return after the delays of its failure detector.  A node sees
at most `VIEW` random members: tables of all members on all nodes are N squared, which one process cannot hold.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from basefs.gossip.events import GossipEvent, decode_event
from basefs.gossip.members import Peer, join_host_port
from basefs.gossip.outgoing import PROFILES, Pacer
from basefs.gossip.service import Counters
from tests.simulation.bus import GOSSIP_PORT, SYNC_PORT
from tests.simulation.loop import PROCESS, Loop
from tests.simulation.sending import Sender

#: Members that a node sees at the most.
VIEW = 64
_PROFILE = "wan"
#: Of memberlist's wan profile: seconds between two probes of a node, and of those that a suspect has to refute,
#: `SUSPECTED * max(1, log10(N))` probe intervals.
_PROBE, _SUSPECTED = 5.0, 6
#: Bytes of an event beside its payload: Serf's and memberlist's headers, and half of those of IP and UDP, since two
#: events share a packet.
_HEADERS = 30 + 14
#: Seconds until a join has exchanged the members with one node.
_JOIN = (0.05, 0.5)


def detection(nodes: int) -> float:
    """Seconds until all of so many nodes count one as failed that went silent."""
    # Each probes one of the others, so the first probe of it is 1 / (1 - 1/e) intervals away.
    return _PROBE / (1 - math.exp(-1)) + _SUSPECTED * _PROBE * max(1.0, math.log10(nodes))


class Serf:
    """The agents of all nodes.

    Attributes:
        carried: bytes of events that all agents have sent.
    """

    def __init__(self, loop: Loop, rng: random.Random, apart: Callable[[str, str], bool]) -> None:
        """`apart`: whether nothing passes between two hosts."""
        self.loop = loop
        self.carried = 0
        self._rng = rng
        self._apart = apart
        self._agents: dict[str, Agent] = {}
        self._hosts: list[str] = []
        #: Who sees a host.
        self._seen_by: dict[str, set[str]] = {}
        self._is_parted = False

    @property
    def size(self) -> int:
        """Nodes that take part."""
        return len(self._agents)

    def begin(self, agents: Sequence[Agent]) -> None:
        """Nodes that have met before take part, all at once."""
        hosts = [agent.host for agent in agents]
        for agent in agents:
            self._enter(agent)
        for agent in agents:
            some = self._rng.sample(hosts, min(VIEW + 1, len(hosts)))
            for host in [host for host in some if host != agent.host][:VIEW]:
                self._see(agent.host, host)
            agent.tell()

    def join(self, agent: Agent) -> None:
        """A node comes, or is back: it sees some members, and some see it within the rounds of an event."""
        old = [host for host in agent.status if host in self._agents]
        self._enter(agent)
        others = [host for host in self._hosts if host != agent.host and not self._apart(agent.host, host)]
        new = self._rng.sample(others, max(0, min(VIEW - len(old), len(others))))
        for host in [*old, *new]:
            self._see(agent.host, host)
        delay = self._rng.uniform(*_JOIN)
        self.loop.call_later(delay, agent.tell)
        back = self._seen_by.setdefault(agent.host, set())
        missing = max(0, min(VIEW, len(others)) - len(back))
        strange = [host for host in others if host not in back]
        for host in [*sorted(back), *self._rng.sample(strange, min(missing, len(strange)))]:
            self.loop.call_later(delay + self._round_trip(), self._turn, host, agent.host, "alive")

    def fail(self, agent: Agent) -> None:
        """A node goes silent."""
        self._leave(agent)
        after = detection(self.size)
        for host in sorted(self._seen_by.get(agent.host, ())):
            self.loop.call_later(self._rng.uniform(0.9, 1.1) * after, self._turn, host, agent.host, "failed")

    def cut(self) -> None:
        """Hosts have come apart: each side takes the other one for failed."""
        self._is_parted = True
        after = detection(self.size)
        for agent in self._agents.values():
            self.loop.call_later(self._rng.uniform(0.9, 1.1) * after, self._look, agent)

    def spread(self, origin: str, payload: bytes) -> None:
        """Send an event to all, its origin included."""
        timing = PROFILES[_PROFILE]
        rounds = math.ceil(math.log10(self.size + 1))
        left = {origin: rounds}
        reached = {origin}
        self._arrive(0.001, origin, payload)
        number = 0
        while left:
            number += 1
            for host in list(left):
                for other in self._rng.choices(self._hosts, k=timing.gossip_nodes):
                    self.carried += len(payload) + _HEADERS
                    if other not in reached and not self._apart(host, other):
                        reached.add(other)
                        left[other] = rounds + 1
                        self._arrive((number - self._rng.random()) * timing.interval, other, payload)
                left[host] -= 1
            left = {host: times for host, times in left.items() if times > 0}

    def _round_trip(self) -> float:
        """Seconds until an event has reached one of all nodes."""
        timing = PROFILES[_PROFILE]
        last = math.log(self.size + 1, timing.gossip_nodes + 1) + 1
        return self._rng.uniform(0.0, last) * timing.interval

    def _enter(self, agent: Agent) -> None:
        self._agents[agent.host] = agent
        self._hosts.append(agent.host)

    def _leave(self, agent: Agent) -> None:
        if self._agents.get(agent.host) is agent:
            del self._agents[agent.host]
            self._hosts.remove(agent.host)

    def _see(self, here: str, there: str) -> None:
        self._agents[here].status[there] = "alive"
        self._seen_by.setdefault(there, set()).add(here)

    def _turn(self, here: str, there: str, status: str) -> None:
        """A node notices what another one is, if that is still so."""
        agent, is_there = self._agents.get(here), there in self._agents
        if agent is None or is_there != (status == "alive"):
            return
        agent.status[there] = status
        self._seen_by.setdefault(there, set()).add(here)
        agent.tell()

    def _look(self, agent: Agent) -> None:
        if self._agents.get(agent.host) is agent:
            for host in agent.status:
                there = host in self._agents and not self._apart(agent.host, host)
                agent.status[host] = "alive" if there else "failed"
            agent.tell()

    def _arrive(self, delay: float, host: str, payload: bytes) -> None:
        agent = self._agents[host]
        self.loop.call_later(delay, agent.receive, payload)

    def rejoin(self, here: str, hosts: Sequence[str]) -> None:
        """A node joins others that it takes for failed: after a cut, all see each other again soon."""
        if self._is_parted and any(host in self._agents and not self._apart(here, host) for host in hosts):
            self._is_parted = False
            for agent in self._agents.values():
                self.loop.call_later(self._round_trip(), self._look, agent)


class Agent:
    """What one process uses of `Gossip`; queue and pace are the real ones.

    Attributes:
        status: of the members that it sees.
    """

    def __init__(self, serf: Serf, host: str, status: dict[str, str]) -> None:
        """`status`: what it remembers of an earlier run."""
        self.host = host
        self.counters = Counters()
        self.status = status
        self._serf = serf
        self._loop = serf.loop
        self._process = PROCESS.get()
        self._context = contextvars.copy_context()
        self._pacer = Pacer(_PROFILE, self._loop.time())
        self._sender = Sender(self._loop, self._process, self._pacer, self.counters, partial(serf.spread, host))
        self._told: dict[str, str] = {}
        self._on_event: Callable[[GossipEvent], None] = lambda event: None
        self._on_members: Callable[[list[Peer]], None] = lambda peers: None
        self._on_overflow: Callable[[], None] = lambda: None

    def start(
        self,
        on_event: Callable[[GossipEvent], None],
        on_members: Callable[[list[Peer]], None],
        on_overflow: Callable[[], None],
    ) -> None:
        """As `Gossip.start`."""
        self._on_event, self._on_members, self._on_overflow = on_event, on_members, on_overflow

    @property
    def peers(self) -> list[Peer]:
        """As `Gossip.peers`."""
        return [_peer(host, status) for host, status in self.status.items()]

    @property
    def alive(self) -> list[tuple[str, int]]:
        """Where those that are alive answer the sync protocol."""
        return [(host, SYNC_PORT) for host, status in self.status.items() if status == "alive"]

    @property
    def sync_addresses(self) -> set[str]:
        """As `Gossip.sync_addresses`."""
        return {join_host_port(host, SYNC_PORT) for host in self.status}

    def send(self, payloads: Sequence[bytes]) -> None:
        """As `Gossip.send`."""
        self._sender.send(payloads, self._on_overflow)

    def met(self, address: tuple[str, int]) -> None:
        """As `Gossip.met`: this one remembers nobody."""

    def call(self, command: str, body: dict[str, Any]) -> Awaitable[object]:
        """As `Gossip.call`: only `join` is known."""
        assert command == "join"
        return self._join([address.rpartition(":")[0] for address in body["Existing"]])

    async def _join(self, hosts: Sequence[str]) -> None:
        await asyncio.sleep(self._process.rng.uniform(*_JOIN))
        self._serf.rejoin(self.host, hosts)

    def receive(self, payload: bytes) -> None:
        """An event arrives."""
        if self._process.alive:
            self.counters.received += 1
            self._context.copy().run(self._on_event, decode_event(payload))

    def tell(self) -> None:
        """Tell the process what members there are, if that has changed."""
        if self._process.alive and self.status != self._told:
            self._told = dict(self.status)
            self._pacer.observe_nodes(self._serf.size, self._loop.time())
            self._context.copy().run(self._on_members, self.peers)


_PEERS: dict[tuple[str, str], Peer] = {}


def _peer(host: str, status: str) -> Peer:
    """The same object each time: thousands of nodes see it."""
    found = _PEERS.get((host, status))
    if found is None:
        found = _PEERS[host, status] = Peer(host, host, GOSSIP_PORT, SYNC_PORT, status)
    return found
