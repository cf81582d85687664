"""Gossip as the daemon uses it: events and peers in, events out, across failures of the Serf agent.

1. The supervisor owns the agent and the main connection; slow commands get a connection of their own (`dial`).
2. Queued events survive a restart of the agent; an event handed to an agent that dies may be lost.  Gossip promises
   nothing: `sync` repairs.
3. Callbacks run on the event loop, one at a time, and never while `send` is running, except `on_overflow`, which `send`
   calls.  A callback that raises is logged and costs nothing else.
4. Events of this node come back through Serf and are delivered like all others.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from basefs.errors import AgentError, RemoteProtocolError
from basefs.gossip.binary import find_serf
from basefs.gossip.client import Client, Subscription
from basefs.gossip.config import AgentConfig
from basefs.gossip.events import GossipEvent, decode_event
from basefs.gossip.joiner import Joiner
from basefs.gossip.members import (
    PEERS_FILE,
    TAG_FS,
    TAG_KEY,
    TAG_SYNC,
    Member,
    Peer,
    PeerBook,
    PeerFilter,
    clones,
    display_names,
    split_host_port,
)
from basefs.gossip.outgoing import Outbox, Pacer
from basefs.gossip.queries import ClockReading, decode_reading, encode_time
from basefs.gossip.rpc import Body
from basefs.gossip.statsd import SerfTraffic, listen
from basefs.gossip.supervisor import Supervisor
from basefs.tasks import first_of, is_set_within

log = logging.getLogger(__name__)

#: Seconds after the last event for which Serf's queue is watched.
POLL_LINGER = 10.0
#: Seconds between looks at the members while they are not settled (`_watch_members`).
MEMBERS_INTERVAL = 1.0
#: Seconds for which members are looked at after they have changed: longer than Serf's agent holds its events back.
MEMBERS_SETTLE = 4.0
#: How often a node has its former agent leave: one that has just joined may be behind the logical clock of the others,
#: so what it says may count as old.
LEAVES_TOLD = 5
#: Seconds for which two machines have used one key before that is logged: a machine that has crashed and is back at
#: another address counts as alive at both until Serf has noticed that.
CLONE_SECONDS = 60.0
#: Commands that would pull the connection or the agent from under the supervisor, or that answer with a stream.
_REFUSED = frozenset({"handshake", "auth", "leave", "stop", "stream", "monitor"})


@dataclasses.dataclass(slots=True)
class Counters:
    """Totals since the service was made.

    Events: `sent` to Serf; `received` and decoded; `dropped` before sending (overflow, or refused by Serf); `missed`
    because we were too slow; `malformed`.  `refused`: entries and blocks that the subscriber did not accept; the
    subscriber counts them.  `foreign`: members of other filesystems.
    """

    sent: int = 0
    received: int = 0
    dropped: int = 0
    missed: int = 0
    malformed: int = 0
    refused: int = 0
    foreign: int = 0


class Gossip:
    """The service.  All methods belong to the event loop's thread, which must live as long as the agent shall."""

    def __init__(
        self,
        config: AgentConfig,
        *,
        rundir: Path,
        fsid: bytes,
        on_event: Callable[[GossipEvent], None],
        on_members: Callable[[list[Peer]], None],
        on_overflow: Callable[[], None] | None = None,
        met_at: Callable[[Peer], float | None] = lambda peer: time.time(),
        view_hash: Callable[[bytes], bytes] = lambda state: b"",
    ) -> None:
        """`met_at`: when a session has shown last that a machine is where it says (UNIX seconds), `None` if none has:
        no others are remembered, since a member may name any address as its own.  Call `met` after each answer.

        `view_hash`: the answer to `view_hashes` of others, found in a thread of its own.
        """
        self.config = dataclasses.replace(config, tags={**config.tags, TAG_FS: fsid.hex()})
        self.counters = Counters()
        #: The name of our user events.  Part of the identity is in it, so that the agent itself filters out the events
        #: of another filesystem whose cluster was joined by mistake.  Short, because it travels with each event.
        self.event_name = "b" + fsid.hex()[:8]
        #: The name of the query for the time of all nodes, which is answered by those of this filesystem only.
        self.clock_query = "c" + fsid.hex()[:8]
        #: The name of the query for the hashes of what other nodes show, and those that wait for an answer.
        self.view_query = "v" + fsid.hex()[:8]
        self._view_hash = view_hash
        self._view_questions: asyncio.Queue[Body] = asyncio.Queue(8)
        #: Events in Serf's own queue, as last seen.
        self.serf_queue_depth = 0
        #: What the agent says of its traffic.
        self.traffic = SerfTraffic()
        self._ear: asyncio.DatagramTransport | None = None
        self._on_event = on_event
        self._on_members = on_members
        self._on_overflow = on_overflow
        self._met_at = met_at
        self._clock = time.monotonic
        self._filter = PeerFilter(fsid)
        self._book = PeerBook(config.peers_path or rundir.parent / PEERS_FILE)
        self._pacer = Pacer(config.profile, self._clock())
        self._outbox = Outbox()
        self._queued = asyncio.Event()
        self._members_changed = asyncio.Event()
        self._members: list[Member] = []
        self._peers: list[Peer] | None = None
        self._supervisor = Supervisor(self.config, rundir, self._serve, self._clock)
        self._joiner = Joiner(
            lambda: self.candidates, self._alive_addresses, self._supervisor.dial, self._members_changed.set
        )
        self._last_sent = self._clock() - POLL_LINGER
        #: The keys that several members use -> since when, and whether that was logged.
        self._clones: dict[str, tuple[float, bool]] = {}
        #: Names of former agents of this machine -> how often they were made to leave.
        self._former: dict[str, int] = {}

    @property
    def queue_depth(self) -> int:
        """Events that wait here for their turn."""
        return len(self._outbox)

    @property
    def rate(self) -> float:
        """Events that may leave in a second at the moment."""
        return self._pacer.rate

    @property
    def connected(self) -> bool:
        """Whether events flow at the moment."""
        return self._supervisor.connected.is_set()

    @property
    def trouble(self) -> str:
        """Why a node that answers did not let this one into its cluster, '' if none refused."""
        return self._joiner.trouble

    @property
    def agent_pid(self) -> int | None:
        """The process number of the agent, None while there is none."""
        return self._supervisor.agent_pid

    @property
    def restarts(self) -> int:
        """How often the agent had to be started again."""
        return self._supervisor.restarts

    @property
    def peers(self) -> list[Peer]:
        """The peers as last reported to `on_members`."""
        return list(self._peers or [])

    def members(self) -> list[Member]:
        """All members of the Serf cluster as last seen, this node and strangers included, without forgotten ones.

        Machines that Serf has lost sight of count as failed.  One that has returned with another name or address is one
        member.
        """
        found = [member for member in self._members if member.status == "alive"]
        present = {member.machine for member in found}
        for member in self._members:
            known = self._book.get(member.machine)
            if member.machine not in present and known is not None and known.name == member.name:
                found.append(member)
                present.add(member.machine)
        for peer in self._book.missed:
            if peer.name and peer.machine not in present:
                host, port = split_host_port(peer.address)
                tags = {TAG_FS: self.config.tags[TAG_FS], TAG_SYNC: str(peer.sync_port)}
                if peer.machine != peer.name:
                    tags[TAG_KEY] = peer.machine
                found.append(Member(peer.name, host, port, tags, "failed"))
        return found

    @property
    def expected(self) -> list[Peer]:
        """The peers among `members`: those of whom Serf has not heard since its start, and those that left, too."""
        return self._filter.peers(self.members(), self.config.agent_name)

    def is_ours(self, member: Member) -> bool:
        """Whether a member is one of this filesystem."""
        return member.tags.get(TAG_FS) == self.config.tags[TAG_FS]

    @property
    def candidates(self) -> list[str]:
        """Where nodes to join may be, "host:port": those that were named, and those that were ever seen."""
        return list(dict.fromkeys([*self.config.join, *self._book.addresses]))

    def ours(self) -> list[Member]:
        """Those of `members` that are of this filesystem."""
        return list(filter(self.is_ours, self.members()))

    def met(self, address: tuple[str, int]) -> None:
        """A session has shown who is at a sync address."""
        for peer in self._peers or ():
            if peer.sync_address == address and peer.status == "alive" and not self._knows(peer):
                self._members_changed.set()

    @property
    def remembered(self) -> list[tuple[str, int]]:
        """The sync addresses of the members that are remembered."""
        return self._book.sync_addresses

    async def forget(self, name: str) -> None:
        """Forget a member that will not come back, here, and on other nodes that list it still.

        `name`: of its agent.  Raises AgentError, OSError; it is forgotten here all the same.
        """
        known = {member.name: member.machine for member in self.members()}
        self._book.forget(known.get(name, name))
        await asyncio.to_thread(self._book.save)
        self._members_changed.set()
        if any(member.name == name for member in self._members):
            await self.call("force-leave", {"Node": name})

    async def start(self, timeout: float = 15.0) -> None:
        """Start the agent and wait until events flow.  Raises AgentError, with the agent's own reason, after `timeout`.

        It does not wait for other nodes: joining goes on in the background.  A port that is still in use by the agent
        of the run before is free after 3 s, and on a busy machine each try may take as long as that.
        """
        find_serf(self.config.serf_path)
        snapshot = self.config.snapshot_path
        self._joiner.replay = snapshot is not None and snapshot.exists()
        self._ear, address = await listen(self.traffic)
        try:
            self.config = dataclasses.replace(self.config, statsd=address)
            await self._supervisor.replace(self.config)
            await self._supervisor.start(timeout)
        except BaseException:
            self._ear.close()
            raise

    async def stop(self) -> None:
        """Send queued events, leave the cluster, end the agent.  Takes 2 to 3 s if other nodes run.  Idempotent."""
        await self._supervisor.stop(self._flush)
        if self._ear is not None:
            self._ear.close()

    async def advertise(self, address: str) -> None:
        """Advertise another address of this node, "ip:port", from now on; this replaces the agent."""
        known = bool(self.peers)
        self.config = dataclasses.replace(self.config, advertise=address)
        await self._supervisor.replace(self.config, leaves=known)

    async def encrypt(self, key: str) -> None:
        """Encrypt with another key from now on, base64 of 16, 24 or 32 bytes; this replaces the agent."""
        self.config = dataclasses.replace(self.config, encrypt_key=key)
        await self._supervisor.replace(self.config)

    async def restore_keys(self) -> None:
        """Call now and then: any member can have Serf use other keys on all nodes."""
        await self._supervisor.restore_keys()

    def send(self, event_payloads: Sequence[bytes]) -> None:
        """Queue encoded events; they leave at the rate that Serf can carry.

        If they do not fit the queue, all queued events are dropped and `on_overflow` is called, once each time: the
        caller then sends an announcement instead, which is never dropped.
        """
        dropped = self._outbox.put(event_payloads)
        self._queued.set()
        if dropped:
            self.counters.dropped += dropped
            log.info("gossip queue full: dropped %d events, announcing instead", dropped)
            if self._on_overflow is not None:
                _guarded(self._on_overflow)

    async def call(self, command: str, body: Body | None = None) -> Body:
        """One raw RPC command, on a connection of its own.  `query` collects: {"Acks": [...], "Responses": {...}}.

        Raises AgentError if the agent is away or refuses, LocalProtocolError for an unknown command.
        """
        if command in _REFUSED:
            raise AgentError(f"{command} would stop the gossip of this node: use basefs unmount to leave")
        async with await self._supervisor.dial() as client:
            if command != "query":
                return await client.call(command, body, timeout=60.0)
            acks: list[str] = []
            responses: dict[str, Any] = {}
            async for record in await client.open_stream("query", body or {}):
                if record.get("Type") == "ack":
                    acks.append(record["From"])
                elif record.get("Type") == "response":
                    responses[record["From"]] = record["Payload"]
            return {"Acks": acks, "Responses": responses}

    async def clocks(self, timeout: float) -> list[ClockReading]:
        """The clocks of all other nodes that answer within `timeout` seconds.  Raises AgentError."""
        readings: dict[str, ClockReading] = {}
        called = display_names(self.ours())
        asked = time.time()
        async for name, payload in self._answers(self.clock_query, b"", timeout):
            with contextlib.suppress(RemoteProtocolError):
                readings[name] = decode_reading(called.get(name, name), payload, asked, time.time())
        return sorted(readings.values(), key=lambda reading: reading.name)

    async def view_hashes(self, state: bytes, timeout: float) -> dict[str, bytes]:
        """What the other nodes answer that have a log in this state, within so many seconds, by the names of agents.

        Answers are not signed.  Raises AgentError.
        """
        return {name: payload async for name, payload in self._answers(self.view_query, state, timeout)}

    async def _answers(self, query: str, payload: bytes, timeout: float) -> AsyncIterator[tuple[str, bytes]]:
        """The answers of other nodes to a query, and the names of their agents, until all have answered."""
        missing = {peer.name for peer in self.peers if peer.status == "alive"}
        if not missing:
            return
        async with await self._supervisor.dial() as client:
            async for record in await client.query(query, payload, timeout=timeout):
                name = str(record.get("From"))
                if record.get("Type") == "response" and name != self.config.agent_name:
                    yield name, record.get("Payload") or b""
                    missing.discard(name)
                if not missing:
                    break

    async def _serve(self, client: Client) -> str:
        """Serve one connection until it breaks; returns or raises why."""
        types = ["user:" + self.event_name, "query:" + self.clock_query, "query:" + self.view_query]
        types += ["member-" + what for what in ("join", "leave", "failed", "update", "reap")]
        stream = await client.subscribe(",".join(types))
        self._members_changed.set()
        self._supervisor.connected.set()
        try:
            return str(
                await first_of(
                    self._pump(client, stream),
                    self._watch_members(client),
                    self._send_queued(client),
                    self._watch_depth(client),
                    self._answer_views(client),
                    self._joiner.run(),
                )
            )
        except RemoteProtocolError as error:
            return str(error)

    async def _pump(self, client: Client, stream: Subscription) -> str:
        missed = self.counters.missed
        async for record in stream:
            self.counters.missed = missed + stream.dropped
            if record.get("Event") == "user":
                self._receive(record.get("Payload") or b"")
            elif record.get("Event") == "query":
                await self._answer(client, record)
            else:
                self._members_changed.set()
            # A flood of events must not keep the loop from its other work.
            await asyncio.sleep(0)
        return "the Serf agent ended the event stream"

    async def _answer(self, client: Client, record: Body) -> None:
        if record.get("Name") == self.view_query:
            with contextlib.suppress(asyncio.QueueFull):
                self._view_questions.put_nowait(record)
            return
        await self._respond(client, record, encode_time(time.time()))

    async def _answer_views(self, client: Client) -> str:
        """Answer one question after the other: a tree takes seconds to hash."""
        while True:
            record = await self._view_questions.get()
            await self._respond(
                client, record, await asyncio.to_thread(self._view_hash, bytes(record.get("Payload") or b""))
            )

    async def _respond(self, client: Client, record: Body, payload: bytes) -> None:
        # Who asked may have given up by now; then the agent refuses the answer.
        with contextlib.suppress(AgentError):
            await client.respond(record["ID"], payload)

    def _receive(self, payload: bytes) -> None:
        try:
            event = decode_event(payload)
        except RemoteProtocolError as error:
            self.counters.malformed += 1
            log.debug("dropped a malformed event: %s", error)
            return
        self.counters.received += 1
        _guarded(self._on_event, event)

    async def _watch_members(self, client: Client) -> None:
        """Read the members after each event, and again until they are settled, since Serf does not tell all.

        It tells nothing when a member begins to leave.  And it collects events for up to 3 s, and tells nothing of a
        member whose state is then the one that it told last (hashicorp/serf, serf/coalesce_member.go): of one that left
        and came back at once, a list that was read in between would say for ever that it has left.
        """
        settled_at = 0.0
        while True:
            is_settled = self._clock() >= settled_at and not self._clones and not self._former
            await is_set_within(self._members_changed, None if is_settled else MEMBERS_INTERVAL)
            self._members_changed.clear()
            before, self._members = self._members, await client.members()
            if self._members != before:
                settled_at = self._clock() + MEMBERS_SETTLE
            await self._leave_former()
            alive = [member for member in self._members if member.status == "alive"]
            self._pacer.observe_nodes(len(alive), self._clock())
            peers = self._filter.peers(self._members, self.config.agent_name)
            self.counters.foreign = self._filter.foreign
            self._keep_book(peers)
            self._report_clones()
            if peers != self._peers:
                self._peers = peers
                _guarded(self._on_members, list(peers))
            if self._book.changed:
                try:
                    await asyncio.to_thread(self._book.save)
                except OSError as error:
                    log.warning("cannot save the addresses of peers: %s", error)

    async def _leave_former(self) -> None:
        """Have the agent leave that this machine had under another name or address before it crashed.

        Otherwise the others count it until they have noticed that, half a minute later.  The agent of a copied home
        runs, and refutes it: then there are two machines.
        """
        key, own = self.config.tags.get(TAG_KEY), self.config.agent_name
        if not key:
            return
        former = self._book.note_own(key, own, self.config.advertise or self.config.bind)
        if former:
            self._former[former] = 0
        alive = {member.name for member in self._members if member.status == "alive"}
        if alive <= {own}:
            # Nobody would hear of it.
            return
        for name, times in list(self._former.items()):
            if name == own or times == LEAVES_TOLD or (times and name in alive):
                del self._former[name]
                continue
            self._former[name] += 1
            try:
                await self.call("force-leave", {"Node": name})
            except AgentError as error:
                log.info("cannot make %s leave: %s", name, error)

    def _report_clones(self) -> None:
        now, found = self._clock(), clones(self.ours())
        for key in self._clones.keys() - found.keys():
            if self._clones.pop(key)[1]:
                log.info("only one member is using the key %s now", key)
        for key, addresses in found.items():
            since, is_logged = self._clones.get(key, (now, False))
            if not is_logged and now - since >= CLONE_SECONDS:
                is_logged = True
                log.warning("%d members are using the key %s: %s", len(addresses), key, ", ".join(addresses))
            self._clones[key] = since, is_logged

    def _keep_book(self, peers: Sequence[Peer]) -> None:
        before = {peer.name: peer for peer in self._peers or ()}
        peers = [peer for peer in peers if peer.machine != self.config.tags.get(TAG_KEY)]
        # Of two machines with one key the first one is remembered.
        here = {peer.machine: peer for peer in reversed(peers) if peer.status == "alive"}
        for peer in here.values():
            if before.get(peer.name) != peer or not self._knows(peer):
                self._remember(peer)
        for peer in peers:
            was = before[peer.name].status if peer.name in before else ""
            if peer.machine in here:
                continue
            if peer.status == "failed" and was == "alive":
                self._remember(peer)
            elif peer.status == "left" and self._knows(peer):
                # It cannot have left by itself where it had failed: some node was told to forget it.
                (self._book.forget if was == "failed" else self._book.leave)(peer.machine)

    def _knows(self, peer: Peer) -> bool:
        """Whether a machine is remembered as it is, and no other one where it is."""
        known = self._book.get(peer.machine)
        if known is None or known.name != peer.name or (known.left and peer.status == "alive"):
            return False
        return self._book.machines_at(peer.gossip_address) == [peer.machine]

    def _remember(self, peer: Peer) -> None:
        met_at = self._met_at(peer)
        if met_at is not None:
            self._book.see(peer, time.time(), met_at)

    async def _send_queued(self, client: Client) -> None:
        while True:
            payload = self._outbox.peek()
            if payload is None:
                self._queued.clear()
                await self._queued.wait()
            elif delay := self._pacer.take(self._clock()):
                await asyncio.sleep(delay)
            else:
                await self._send_one(client, payload)

    async def _send_one(self, client: Client, payload: bytes) -> None:
        try:
            await client.user_event(self.event_name, payload)
        except AgentError as error:
            if client.closed:
                raise  # it stays in the outbox for the next connection
            log.warning("cannot send an event of %d bytes: %s", len(payload), error)
            self.counters.dropped += 1
        else:
            self.counters.sent += 1
            self._last_sent = self._clock()
        self._outbox.done(payload)

    async def _flush(self, client: Client) -> None:
        # Peers cannot fetch from a node that has left, so the last changes leave now, regardless of the pace.
        while (payload := self._outbox.peek()) is not None:
            await self._send_one(client, payload)

    async def _watch_depth(self, client: Client) -> None:
        asked_at = self._clock()
        while True:
            await asyncio.sleep(self.config.poll_interval)
            sends = self._outbox or self._clock() - self._last_sent < POLL_LINGER
            if sends or self._clock() - asked_at >= self.config.probe_interval:
                asked_at = self._clock()
                depth = (await client.stats()).get("serf", {}).get("event_queue", "0")
                self.serf_queue_depth = int(depth)
                if sends:
                    self._pacer.observe_depth(self.serf_queue_depth, self._clock())

    async def _alive_addresses(self) -> Iterable[str]:
        async with await self._supervisor.dial() as client:
            return [member.gossip_address for member in await client.members() if member.status == "alive"]


def _guarded(callback: Callable[..., None], *args: object) -> None:
    try:
        callback(*args)
    except Exception:
        log.exception("gossip callback failed")
