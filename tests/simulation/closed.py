"""A closed filesystem: newcomers come in, and no host that is no member reads anything."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from itertools import islice

from basefs.errors import BaseFSError
from basefs.log.entries import Entry
from basefs.log.keys import SigningKey
from basefs.replica.replica import Replica
from basefs.sync.net.tls import Credentials
from basefs.sync.net.transport import Session, SessionContext, sync_with
from basefs.sync.session.result import Reason
from basefs.tasks import within
from basefs.view.invitations import Invitation
from tests.simulation.bus import SYNC_PORT, Bus
from tests.simulation.loop import PROCESS, Loop, Process, Trace
from tests.simulation.node import Node
from tests.support.helpers import make_key

#: Seconds after the arrival of a revoke for which the sessions of its key may go on: 2 as promised, and a slow disk.
GRACE = 4.0
#: Seconds for which an invitation holds.
_INVITED = 86_400
#: Seconds that a newcomer waits for one member.
_PATIENCE = 60.0


class Newcomers:
    """The nodes that come during a run.

    Attributes:
        found: what is not as it must be.
    """

    def __init__(
        self, loop: Loop, trace: Trace, nodes: list[Node], newcomers: Sequence[Node], seed: int, *, invites: bool
    ) -> None:
        """`nodes`: those that are there from the beginning; newcomers are added once they have come.

        `invites`: whether they come with invitations; otherwise a member grants their keys.
        """
        self._loop, self._trace, self._nodes, self._newcomers = loop, trace, nodes, newcomers
        self._seed, self._invites = seed, invites

    async def run(self, seconds: float, hosts: Sequence[str]) -> None:
        """Bring all of them, each at some moment of so many seconds; `hosts`: of the whole cluster."""
        await asyncio.gather(*(self._loop.create_task(self._bring(each, seconds, hosts)) for each in self._newcomers))

    async def _bring(self, node: Node, seconds: float, hosts: Sequence[str]) -> None:
        rng = random.Random(f"{self._seed} newcomer {node.host}")
        PROCESS.set(Process(node.host, rng))
        replica, entries = node.begin(self._nodes[0].replica.identity)
        until = self._loop.time() + seconds
        await asyncio.sleep(rng.uniform(0.0, 0.7 * seconds))
        attempts = 0
        while True:
            running = [each for each in self._nodes if each.running]
            # In the end it is the holder of the root key, whom nobody can keep from it.
            inviter = rng.choice(running) if running and self._loop.time() < until else self._nodes[0]
            attempts += 1
            shown = self._let_in(inviter, node, attempts) if inviter.running else None
            if shown is not None and await self._join(node, replica, inviter, shown, rng):
                break
            await asyncio.sleep(rng.uniform(0.5, 3.0))
        replica.close()
        node.entries = dict(entries)
        self._nodes.append(node)
        await node.start(hosts, self._seed)

    def _let_in(self, inviter: Node, node: Node, attempts: int) -> SigningKey | None:
        """Have a member invite a newcomer, or grant its key; returns the key with which that comes, if it may."""
        own = node.keys[0]
        shown = make_key(f"{self._seed} invitation {node.host} {attempts}") if self._invites else own
        name = f"machine {node.host} {attempts}".encode()
        if self._invites:
            name = Invitation(name, int(inviter.clock()) + _INVITED).encode()
        if own.public in inviter.replica.members():
            # Another one has granted it, or it was here before.
            return own
        try:
            inviter.act(lambda author: author.grant((), name, shown.public))
        except BaseFSError as error:
            self._trace(inviter.host, f"cannot let in {node.host}: {error}")
            return None
        self._trace(inviter.host, f"lets in {node.host}")
        return shown

    async def _join(self, node: Node, replica: Replica, inviter: Node, shown: SigningKey, rng: random.Random) -> bool:
        """Fetch everything from some member, and give it the grant of the newcomer's own key."""
        members = sorted(inviter.replica.members())
        there = [each for each in self._nodes if each.running]
        for member in rng.sample(there, len(there)):
            if not await self._fetch(replica, member, Credentials(shown, members), rng):
                continue
            if not self._redeem(node, replica, shown):
                return False
            # Once it has been adopted it is known by its own key.
            for key in (shown, node.keys[0]):
                if await self._fetch(replica, member, Credentials(key, members), rng):
                    self._trace(node.host, f"has joined at {member.host}")
                    return True
        return False

    def _redeem(self, node: Node, replica: Replica, shown: SigningKey) -> bool:
        """Have an invite key grant the newcomer's own one; whether that is a member's then."""
        own, name = node.keys[0], f"machine {node.host}".encode()
        if own.public in replica.members():
            return True
        try:
            replica.commit(lambda author: author.grant((), name, own.public), key=shown)
        except BaseFSError as error:
            self._trace(node.host, f"cannot join: {error}")
            return False
        return True

    async def _fetch(self, replica: Replica, member: Node, credentials: Credentials, rng: random.Random) -> bool:
        shared = SessionContext(credentials=credentials, rng=rng)
        try:
            result = await within(_PATIENCE, sync_with(replica, member.host, SYNC_PORT, shared=shared))
        except asyncio.TimeoutError:
            return False
        self._trace(f"{PROCESS.get().host} {member.host}", f"newcomer: {result.reason.value}: {result.detail}")
        return result.reason is Reason.COMPLETE and result.equal


class Secrecy:
    """Looks whether a node has anything that no other one may have given to it.

    A node gives what it has to the keys that are members as far as it knows, and, by gossip, to all that have the same
    gossip key.  So an entry may be on a node if another one had it while it might give it to that node.

    Attributes:
        found: what is not as it must be.
    """

    def __init__(self, loop: Loop, bus: Bus, nodes: Sequence[Node]) -> None:
        self._loop, self._bus, self._nodes = loop, bus, nodes
        #: Others, as a newcomer with an invitation, give what they sign to whom they want.
        self._signers = {node.keys[0].fingerprint for node in nodes}
        #: What each node may have: its own entries, and those that others might give to it.
        self._allowed: dict[str, set[bytes]] = {node.host: set() for node in nodes}
        #: Until when a node may give something to another one; and how much of its log was looked at, of which process.
        self._until: dict[tuple[str, str], float] = {}
        self._seen: dict[str, tuple[Process, int]] = {}
        self._members: dict[str, frozenset[bytes]] = {}
        #: Who lets in a node that is no member as far as it knows, and since when.
        self._behind: dict[tuple[str, str], float] = {}
        #: Sessions with keys that are no members, since when, and what they had sent then.
        self._expelled: dict[Session, tuple[float, int | None]] = {}
        self.found: list[str] = []

    def committed(self, node: Node) -> None:
        """The log of a node has grown, or a node has been started."""
        # One that leaves publishes and gives what programs have changed.
        if not node.process.alive:
            return
        self._members[node.host] = node.replica.members()
        self.look()
        process, count = self._seen.get(node.host, (None, 0))
        if process is not node.process:
            # What was there when it was started, it had been given before.
            count = 0
            self._allowed[node.host].update(hash for hash in node.entries if process is None)
        new: list[Entry] = list(islice(node.entries.values(), count, None))
        self._seen[node.host] = node.process, len(node.entries)
        own = node.keys[0].fingerprint
        self._allowed[node.host].update(entry.hash for entry in new if entry.fingerprint == own)
        secret = [
            entry.hash.hex()[:8]
            for entry in new
            if entry.hash not in self._allowed[node.host] and entry.fingerprint in self._signers
        ]
        if secret:
            self.found.append(f"{node.host} has {len(secret)} entries that nobody might give to it: {secret[0]}")
        for other in self._nodes:
            if other is not node and self._until.get((node.host, other.host), 0.0) >= self._loop.time():
                self._allowed[other.host].update(entry.hash for entry in new)

    def look(self) -> None:
        """Notice who may give something to whom: after each change of keys, and now and then."""
        now = self._loop.time()
        for giver in self._nodes:
            if not giver.running:
                continue
            members = self._members.get(giver.host, frozenset())
            for taker in self._nodes:
                pair = giver.host, taker.host
                may = taker.keys[0].public in members or self._bus.key(giver.host) == self._bus.key(taker.host) != ""
                if may and pair not in self._until:
                    self._allowed[taker.host].update(giver.entries)
                if may:
                    self._until[pair] = float("inf")
                elif self._until.get(pair) == float("inf"):
                    self._until[pair] = now + GRACE
                elif self._until.get(pair, now) < now:
                    del self._until[pair]

    def now(self) -> None:
        """At any time: no key is let in that is no member's, and no session with one goes on."""
        self.look()
        self._look_at_doors()
        self._look_at_sessions()

    def _look_at_doors(self) -> None:
        now, behind = self._loop.time(), {}
        for node in self._nodes:
            credentials = node.shared.credentials if node.running else None
            if credentials is None:
                continue
            expelled = (credentials.trusted or frozenset()) - node.replica.members()
            for other in self._nodes:
                if other is not node and other.keys[0].public in expelled:
                    pair = node.host, other.host
                    behind[pair] = since = self._behind.get(pair, now)
                    if now - since > GRACE:
                        self.found.append(f"{node.host} lets in {other.host}, which it knows to be expelled")
        self._behind = behind

    def _look_at_sessions(self) -> None:
        now = self._loop.time()
        current: dict[Session, tuple[float, int | None]] = {}
        for node in self._nodes:
            if not node.running:
                continue
            members = node.replica.members()
            for session in node.shared.sessions:
                if session.key in members:
                    continue
                since, sent = self._expelled.get(session, (now, None))
                counters = session.counters
                moved = counters.entries_sent + counters.blocks_sent
                if sent is None and now - since > GRACE:
                    sent = moved
                if sent is not None and moved > sent:
                    self.found.append(f"{node.host} goes on with the expelled {session.address[0]}")
                current[session] = since, sent
        self._expelled = current

    def end(self) -> list[str]:
        """Of a cluster that has settled: members have one gossip key, which no other host has."""
        members = self._nodes[0].replica.members()
        keys = {node.host: self._bus.key(node.host) for node in self._nodes if node.running}
        inside = {node.host for node in self._nodes if node.keys[0].public in members}
        found = []
        common = {key for host, key in keys.items() if host in inside}
        if len(common) > 1:
            found.append(f"members have {len(common)} gossip keys")
        # Where an old backup has taken all that names a key, nobody knows whom to keep out.
        known = set[bytes]().union(*(node.named_keys for node in self._nodes if node.host in inside))
        forgotten = set[bytes]().union(*(node.forgotten for node in self._nodes)) - known
        found += [
            f"{node.host} is no member and has the gossip key"
            for node in self._nodes
            if node.host not in inside and keys.get(node.host) in common and node.keys[0].public not in forgotten
        ]
        return found
