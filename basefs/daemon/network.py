"""The network half of a daemon: gossip, sync, and what propagates changes between them and the log."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

from basefs.daemon import config
from basefs.daemon.addresses import Whereabouts, advertised, free_pair, own_addresses, resolve_bind, try_gossip
from basefs.daemon.config import is_ip, parse_address
from basefs.daemon.gossipkeys import GossipKeys, first_key
from basefs.daemon.handover import HandOver, lack_of
from basefs.daemon.lasting import repeat
from basefs.daemon.membership import Membership
from basefs.daemon.options import DaemonOptions
from basefs.errors import AgentError, BaseFSError, UsageError
from basefs.gossip.account import NAME as SERF_USER
from basefs.gossip.account import Account
from basefs.gossip.config import AgentConfig
from basefs.gossip.events import Address
from basefs.gossip.members import PEERS_FILE, TAG_KEY, TAG_SYNC, Peer, display_names, join_host_port
from basefs.gossip.service import Gossip
from basefs.log.keys import SigningKey, fingerprint_of
from basefs.replica.bootstrap import CLUSTER_FILE
from basefs.replica.replica import Replica
from basefs.replication.propagation import Propagation, PropagationSettings
from basefs.sync.net.service import SyncService
from basefs.sync.net.transport import SessionContext
from basefs.tasks import cancel

log = logging.getLogger(__name__)


class Network:
    """Gossip and sync of one node.  Made and used in the event loop."""

    def __init__(self, options: DaemonOptions, replica: Replica, rundir: Path) -> None:
        """`rundir`: an existing directory for the Serf agent, unless there is an account for it.

        Raises `UsageError` for a bad interface, for a closed filesystem without a key of this node or with another one
        for gossip than its own, and `AgentError` where the account cannot be used.
        """
        host, port = resolve_bind(options.bind, options.interface)
        settings = options.settings
        self._replica = replica
        self._gossip_address = Address(host, port)
        self._sync_address = Address(host, port + config.SYNC_PORT_OFFSET)
        named = [*options.join, *_cluster_file(replica)]
        # This one is among them if it is named.
        self._others = [other for other, _ in named if is_ip(other)]
        snapshot, account = replica.directory / "serf.snapshot", Account.find(replica.directory)
        if account is not None:
            try:
                account.prepare(snapshot)
            except OSError as error:
                raise AgentError(f"Serf cannot run as the user {SERF_USER}: {error}") from None
            snapshot, rundir = account.snapshot, account.directory
        self._membership = membership = None if replica.is_open else Membership(replica)
        if membership is not None and options.encrypt_key is not None:
            raise UsageError(f"gossip of {options.name} has a key of its own: leave --encrypt-key-file out")
        self.gossip = Gossip(
            AgentConfig(
                node_name=options.node_name,
                bind=join_host_port(host, port),
                advertise=advertised(host, port, self._others),
                profile=settings.profile,
                encrypt_key=options.encrypt_key if membership is None else first_key(replica),
                tags=_tags(self._sync_address.port, _shown_key(membership, options.keys)),
                snapshot_path=snapshot,
                join=tuple(_addresses_to_join(named, host, port)),
                peers_path=replica.directory / PEERS_FILE,
                account=account,
            ),
            rundir=rundir,
            fsid=replica.identity,
            on_event=lambda event: self._propagation.on_event(event),
            on_members=lambda peers: self._propagation.on_members(peers),
            on_overflow=lambda: self._propagation.announce(),
            met_at=self._met_at,
            view_hash=lambda state: replica.view_hash(state)[1],
        )
        shared = SessionContext(room=replica.room)
        self._keys: GossipKeys | None = None
        if membership is not None:
            self._keys = GossipKeys(
                replica, self.gossip, membership, lambda address: self._propagation.compare(address)
            )
            shared = replace(shared, credentials=membership.credentials, is_member=membership.lets_in)
        self.sync = SyncService(
            replica,
            self._sync_address,
            peers=self._alive_peers,
            degree=settings.push_sessions,
            max_sessions=settings.sync_sessions,
            shared=shared,
        )
        self.sync.remember(self.gossip.remembered)
        self._propagation = Propagation(
            replica,
            self.gossip,
            self.sync,
            self._own_address,
            asyncio.get_running_loop(),
            PropagationSettings(
                settings.max_block_messages,
                settings.pull_jitter,
                settings.full_sync_interval,
                config.SYNC_PROBABILITY,
                settings.gossip,
            ),
        )

    @contextlib.asynccontextmanager
    async def running(self, departure: contextlib.AsyncExitStack) -> AsyncIterator[None]:
        """Start everything, and stop it in the reverse order, but for Serf, which leaves with `departure`.

        Raises `AgentError`.
        """
        async with contextlib.AsyncExitStack() as stack:
            try:
                await self.sync.start(self._propagation)
            except OSError as error:
                raise AgentError(_why_not(error, *self._sync_address, self._gossip_address.port)) from None
            stack.push_async_callback(self.sync.stop)
            if self._keys is not None:
                watch = asyncio.create_task(self._keys.watch_members(self.sync))
                stack.push_async_callback(cancel, [watch])
            await self._wait_for_port()
            # Before there is an agent: it replays what this node has missed at once.
            self._propagation.start()
            try:
                await self.gossip.start()
            except BaseException:
                await self._propagation.stop()
                raise
            departure.push_async_callback(self.gossip.stop)
            lasting = [
                repeat("look for contents that stopped", self._propagation.look_again, config.WATCH_SECONDS),
                self._watch_address(),
                repeat("look at Serf's keys", self.gossip.restore_keys, config.KEYRING_SECONDS),
            ]
            if self._keys is not None:
                lasting.append(self._keys.watch())
            if self._membership is not None:
                lasting.append(keep_forgetting(self.gossip, self._membership))
            stack.push_async_callback(cancel, [asyncio.create_task(each) for each in lasting])
            stack.push_async_callback(self._propagation.stop)
            stack.push_async_callback(self._hand_over, HandOver.take(self._replica.directory))
            yield

    async def _hand_over(self, before: HandOver | None) -> None:
        """Give others what they lack, and record what they have then.  `before`: what was recorded the last time."""
        await self.sync.hand_over(self._alive_peers)
        peers = {peer.sync_address: peer for peer in self.gossip.expected}
        names = display_names(self.gossip.ours())
        root = self._replica.root_hash().hex()
        holder = self.sync.holder(list(peers))
        name = HandOver.holder_before(before, root) if holder is None else names[peers[Address(*holder)].name]
        lacking = []
        for address, peer in peers.items():
            contact = self.sync.contact(address)
            answers = peer.status == "alive" and not contact.away
            left = peer.status == "left"
            lag = self.sync.lag(address)
            lacking.append(lack_of(names[peer.name], lag, answers=answers, refuses=contact.refuses, left=left))
        HandOver(root, name, () if name else tuple(lacking)).save(self._replica.directory)

    async def _wait_for_port(self) -> None:
        """Serf would say no more than that it has ended.  Raises `AgentError`."""
        # An agent whose daemon was killed may still have the port.
        until = asyncio.get_running_loop().time() + 3.0
        while (error := await asyncio.to_thread(try_gossip, *self._gossip_address)) is not None:
            if error.errno != errno.EADDRINUSE or asyncio.get_running_loop().time() > until:
                raise AgentError(_why_not(error, *self._gossip_address, self._gossip_address.port))
            await asyncio.sleep(0.1)

    def alive(self) -> int:
        """How many members of the cluster are alive, this node included."""
        return sum(member.status == "alive" for member in self.gossip.members())

    def _alive_peers(self) -> list[Address]:
        return [peer.sync_address for peer in self.gossip.peers if peer.status == "alive"]

    def _met_at(self, peer: Peer) -> float | None:
        """When a session has shown last that a machine is where gossip says that it is, `None` if none has."""
        key = self.sync.key_at(peer.sync_address)
        return None if key and key_tag(key) != peer.machine else self.sync.met_at(peer.sync_address)

    def _own_address(self) -> Address | None:
        """Where the others find this node's sync protocol, once Serf knows it."""
        for member in self.gossip.members():
            if member.name == self.gossip.config.agent_name:
                return Address(member.addr, self._sync_address.port)
        return None

    async def _watch_address(self) -> None:
        """Advertise this node as soon as it has a network, and again when its address has changed."""
        advertised = self.gossip.config.advertise
        if advertised is None:
            return
        whereabouts = Whereabouts(advertised, parse_address(self.gossip.config.bind).host, self._others)

        async def look() -> None:
            now = whereabouts.look()
            if now is not None:
                log.info("advertised address changed from %s to %s", self.gossip.config.advertise, now)
                await self.gossip.advertise(now)

        # Half a millisecond each.
        await repeat("advertise the address of this machine", look, 1.0)


def _shown_key(membership: Membership | None, keys: Sequence[SigningKey]) -> bytes:
    """The raw public key that this node proves in sessions, or would if there were members; empty without any."""
    if membership is not None:
        return membership.credentials.public
    return keys[0].public if keys else b""


def _tags(port: int, public: bytes) -> dict[str, str]:
    """What this node tells of itself: others see by its key that a machine is a copy of another one.

    `public`: that key, empty for none.
    """
    tags = {TAG_SYNC: str(port)}
    if public:
        tags[TAG_KEY] = key_tag(public)
    return tags


def _cluster_file(replica: Replica) -> list[tuple[str, int]]:
    """The nodes that `/.cluster` names."""
    found: list[tuple[str, int]] = []
    with contextlib.suppress(BaseFSError):
        for line in replica.read((CLUSTER_FILE,)).decode("utf-8", "replace").split():
            try:
                found.append(parse_address(line))
            except UsageError as error:
                log.warning("ignoring a line of /.cluster: %s", error)
    return found


def _addresses_to_join(named: Sequence[tuple[str, int]], host: str, port: int) -> list[str]:
    """What is named, without this node itself."""
    mine = {host, *own_addresses()}
    return list(dict.fromkeys(join_host_port(*name) for name in named if not (name[1] == port and name[0] in mine)))


def _why_not(error: OSError, host: str, port: int, gossip_port: int) -> str:
    """Why a port cannot be listened on, and what to do."""
    where = f"cannot listen on {join_host_port(host, port)}"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{where}: no interface of this machine has this address; 'ip address' lists the addresses"
    other = join_host_port(host, free_pair(host, gossip_port))
    return f"{where}: {os.strerror(error.errno or 0)}; use two free ports, with -b {other}"


def key_tag(public: bytes) -> str:
    """What gossip carries of a raw public key."""
    return fingerprint_of(public).hex()[:16]


async def keep_forgetting(gossip: Gossip, membership: Membership) -> None:
    """Forget the machines that were expelled, once Serf has lost them, for ever."""

    async def forget() -> None:
        members = set(map(key_tag, membership.in_gossip))
        lost = [peer for peer in gossip.expected if peer.status == "failed" and peer.machine not in members]
        expelled = set(map(key_tag, await asyncio.to_thread(membership.expelled))) if lost else set()
        for peer in lost:
            if peer.machine not in expelled:
                continue
            try:
                await gossip.forget(peer.name)
            except (AgentError, OSError) as error:
                log.warning("cannot have the others forget %s: %s", peer.name, error)
            else:
                log.info("machine forgotten, its key is no member's any more: %s", peer.name)

    await repeat("forget expelled machines", forget, config.WATCH_SECONDS)
