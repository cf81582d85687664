"""What answers the requests of commands, whether a daemon runs or not.

`LogServices` needs the log alone, so a command can use it directly on a filesystem that is not running.  `NodeServices`
adds what only a running node knows.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import Executor
from typing import Any, TypeVar

from basefs.daemon.api.history import HistoryServices
from basefs.daemon.api.keys import KeyServices
from basefs.daemon.api.messages import (
    AddToLog,
    BusiestKey,
    CheckView,
    ClusterMember,
    ComparedView,
    CompareViews,
    ContentState,
    ForgetMember,
    GetClocks,
    GetContentState,
    GetNetwork,
    GetResources,
    GetStatus,
    GetSummary,
    HandlerCounts,
    Handlers,
    LatestEntry,
    ListLivePaths,
    ListMembers,
    ListNames,
    LivePath,
    LostContent,
    NameEntry,
    NetworkState,
    NodeClock,
    PartialContent,
    PeerLag,
    PendingWork,
    Ping,
    Publish,
    Request,
    ResourceTotals,
    RunningNode,
    Status,
    Stop,
    Summary,
    TrafficTotals,
    Watch,
    WatchedChange,
    WatchItem,
    decode_request,
    encode,
)
from basefs.daemon.api.versions import VersionServices
from basefs.daemon.busiest import WriteWatch
from basefs.errors import BaseFSError, NotFound, NotPermitted, Unsupported, UsageError
from basefs.fs.events.feed import Feed
from basefs.fs.events.runner import Runner as HandlerRunner
from basefs.fs.filesystem import Filesystem
from basefs.fs.worktree.scratch import ScratchNames
from basefs.gossip.members import Member, clones, display_names, join_host_port
from basefs.gossip.service import Gossip
from basefs.log.hashes import ZERO_HASH, Fingerprint
from basefs.log.interface import AddResult
from basefs.path import parse, to_text
from basefs.replica.replica import Replica
from basefs.sync.net.peers import FRESH_SECONDS, Lag
from basefs.sync.net.service import SyncService
from basefs.view.states import Kind

Answer = TypeVar("Answer")


class LogServices:
    """What the log and the view answer.  May be used in any thread; the replica's lock is held for a path at a time."""

    def __init__(self, replica: Replica, scratch: ScratchNames | None = None) -> None:
        """`scratch`: the names that never leave this node."""
        self._replica = replica
        self._scratch = scratch or ScratchNames()
        self._history = HistoryServices(replica)
        #: How many conflicts there were when the log had this Merkle hash.
        self._counted: tuple[bytes, int] | None = None
        self._handlers: Handlers = {
            **KeyServices(replica).handlers(),
            **self._history.handlers(),
            **VersionServices(replica).handlers(),
            ListLivePaths: self._live_paths,
            ListNames: self._names,
            GetContentState: self._content_state,
            AddToLog: self._add,
            CheckView: self._check_view,
            GetSummary: lambda request: self.summary(),
            GetStatus: lambda request: self.status(),
        }

    def answer(self, request: Request[Answer]) -> Answer:
        """Answer a request.  Raises `UsageError` for one that needs a running daemon, and what it raises."""
        handler = self._handlers.get(type(request))
        if handler is None:
            raise UsageError(f"only a running daemon answers {request.command!r}")
        try:
            found: Answer = handler(request)
        except NotFound:
            path = getattr(request, "path", None)
            if path is not None and self._scratch.is_scratch(parse(path)):
                raise NotFound(
                    f"{path} never leaves this node, and has no history: it has a name that is never published"
                ) from None
            raise
        return found

    def summary(self, pending: PendingWork | None = None) -> Summary:
        """See `GetSummary`."""
        replica = self._replica
        totals = replica.totals()
        return Summary(
            identity=replica.identity.hex(),
            root_hash=replica.root_hash().hex(),
            open=replica.is_open,
            member=not replica.members().isdisjoint(key.public for key in replica.keys),
            damaged=replica.damaged,
            incomplete=replica.lacking(),
            **totals,
            pending=pending,
        )

    def status(self, pending: PendingWork | None = None) -> Status:
        """See `GetStatus`."""
        mine = {key.fingerprint for key in self._replica.keys}
        granted = self._replica.plan(lambda author: author.past.grants())
        latest = self._latest()
        conflicts = self._conflicts()
        return Status(
            # After the others, since it also tells of the damage that was met on the way.
            summary=self.summary(pending),
            latest=latest,
            limit_reached=self._replica.limit_reached(),
            conflicts=conflicts,
            fingerprints=sorted(fingerprint.hex() for fingerprint in mine),
            may_write=sorted(
                {
                    to_text(one.path)
                    for one in granted
                    if one.standing == "valid" and one.depth is not None and one.fingerprint in mine
                }
            ),
        )

    def awaited(self) -> list[LostContent]:
        """The contents that are needed and not here."""
        return [LostContent(to_text(path), entry.hash.hex(), newest) for path, entry, newest in self._replica.awaited()]

    def _conflicts(self) -> int:
        """The number of conflicts, counted anew only when the log has changed."""
        root = self._replica.root_hash()
        if self._counted is None or self._counted[0] != root:
            self._counted = root, self._history.count_conflicts()
        return self._counted[1]

    def _latest(self) -> LatestEntry | None:
        """The entry that came last."""
        found = self._replica.plan(lambda author: author.past.latest())
        if found is None:
            return None
        path, entry, arrived = found
        return LatestEntry(
            path=to_text(path),
            entry=entry.hash.hex(),
            action=self._history.word(path, entry),
            key=self._replica.key_names().get(entry.fingerprint),
            fingerprint=entry.fingerprint.hex(),
            time=entry.made / 10**9,
            arrived=arrived,
        )

    def _live_paths(self, request: ListLivePaths) -> list[LivePath]:
        start = parse(request.path)
        listed = []
        for path, kind in self._replica.live_paths():
            if path[: len(start)] == start:
                found = self._replica.attributes(path)
                mode, entry = f"{found.mode:04o}", found.entry.hex()
                mtime = found.mtime / 10**9
                listed.append(LivePath(to_text(path), kind.value, mode, found.size, mtime, entry, found.writable))
        if not listed:
            self._replica.attributes(start)
        return sorted(listed, key=lambda row: row.path)

    def _names(self, request: ListNames) -> list[NameEntry]:
        found = self._replica.names_in(parse(request.path))
        entries = (NameEntry(to_text((name,))[1:], kind is Kind.DIRECTORY) for name, kind in found.items())
        return sorted(entries, key=lambda entry: entry.name)

    def _content_state(self, request: GetContentState) -> ContentState:
        now = time.time()
        incomplete = [
            PartialContent(
                path=to_text(path),
                entry=entry.hash.hex(),
                progress=content.progress.value,
                blocks=content.blocks,
                bytes=content.held,
                size=entry.size,
                quiet=max(now - content.changed, 0.0),
            )
            for path, entry, content in self._replica.incomplete()
        ]
        return ContentState(self._replica.totals()["blocks"], incomplete)

    def _add(self, request: AddToLog) -> AddResult:
        return self._replica.add(list(request.entries), list(request.blocks), everything=True)

    def _check_view(self, request: CheckView) -> list[str]:
        return [to_text(path) for path in self._replica.check_view()]


class NodeServices:
    """What a running node answers."""

    def __init__(
        self,
        replica: Replica,
        filesystem: Filesystem,
        feed: Feed,
        handlers: HandlerRunner | None,
        network: tuple[Gossip, SyncService] | None,
        stop: Callable[[], None],
        workers: Executor,
    ) -> None:
        """`network`: `None` for a single node.  `stop` ends a daemon without a mount.

        `workers`: threads for what waits for the log or the disk; of its own, since many commands may wait at once.
        """
        self._replica = replica
        self._filesystem = filesystem
        self._feed = feed
        self._runner = handlers
        self._network = network
        self._workers = workers
        self._started = time.time()
        self._writes = WriteWatch(replica)
        self._log = LogServices(replica, filesystem.scratch)
        self._handlers: Handlers = {
            Ping: lambda request: replica.wait(),
            Stop: lambda request: stop(),
            GetSummary: lambda request: self._log.summary(self._pending()),
            GetNetwork: lambda request: _network_state(*self._cluster()),
            GetResources: self._resources,
        }

    async def handle(self, command: str, arguments: dict[str, Any]) -> Any:
        """Answer a command that came through the control socket: JSON, or a stream of it.  Raises `BaseFSError`."""
        request = decode_request(command, arguments)
        if isinstance(request, Watch):
            return self._watch(request)
        return encode(await self.answer(request))

    async def answer(self, request: Request[Answer]) -> Answer:
        """Answer a request.  Raises `BaseFSError`."""
        found: Any
        handler = self._handlers.get(type(request))
        if handler is not None:
            # At once, whatever the disk and the log are doing.
            found = handler(request)
        elif isinstance(request, GetClocks):
            found = await self._clocks(request)
        elif isinstance(request, CompareViews):
            found = await self._compare_views(request)
        elif isinstance(request, ListMembers):
            found = list((await self._members(*self._cluster())).values())
        elif isinstance(request, ForgetMember):
            found = None
            await self._forget(request.name)
        elif isinstance(request, GetStatus):
            found = await self._in_thread(self._status)
            busiest = await self._in_thread(self._busiest)
            lost = await self._in_thread(self._log.awaited) if found.summary.incomplete else []
            # The last, since who is in step is so for a moment.
            members = None if self._network is None else list((await self._members(*self._network)).values())
            if not _all_lack_the_same(found, members or ()):
                lost = []
            node = RunningNode(self._started, self._replica.room.is_short(), members, busiest)
            found = dataclasses.replace(found, node=node, lost_contents=lost)
        else:
            found = await self._in_thread(lambda: self._answer_from_log(request))
        answer: Answer = found
        return answer

    def _answer_from_log(self, request: Request[Any]) -> Any:
        if isinstance(request, AddToLog):
            return self._log.answer(request)
        # Commands see what was saved before them.
        self._filesystem.publish()
        return self._filesystem.unpublished() if isinstance(request, Publish) else self._log.answer(request)

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._workers, work)

    async def _watch(self, request: Watch) -> AsyncIterator[Any]:
        names: dict[Fingerprint, str] = {}
        async for token, record in self._feed.follow(request.since, parse(request.path)):
            change = None
            if record is not None:
                key = Fingerprint(record.key)
                if key and key not in names:
                    names = await self._in_thread(self._replica.key_names)
                change = WatchedChange(
                    type=record.type.value,
                    path=to_text(record.path),
                    kind=record.kind.value,
                    seen=record.time,
                    entry=record.entry.hex() or None,
                    key=names.get(key),
                    fingerprint=key.hex() or None,
                )
            yield encode(WatchItem(token, change))

    def _pending(self) -> PendingWork:
        handlers = None if self._runner is None else HandlerCounts(self._runner.rules, **self._runner.status())
        return PendingWork(self._filesystem.unpublished(), handlers)

    def _status(self) -> Status:
        # A publish that fails, on a full disk for example, must not hide the status.  It is patient, so that a status
        # every second does not publish what a program has not finished.
        with contextlib.suppress(BaseFSError):
            self._filesystem.publish(patient=True)
        return self._log.status(self._pending())

    def _busiest(self) -> BusiestKey | None:
        most = self._writes.busiest()
        if most is None:
            return None
        name = self._replica.key_names().get(most.fingerprint)
        return BusiestKey(name, most.fingerprint.hex(), most.entries, most.bytes, most.is_alarming)

    async def _members(self, gossip: Gossip, sync: SyncService) -> dict[str, ClusterMember]:
        """The members, by the names of their agents."""
        # Serf may be wrong about those that it has lost, but a person should not wait for each of them.
        standing = set(sync.standing)
        # Serf knows nobody for a moment when its agent starts again, as with another gossip key.
        present = [peer for peer in gossip.expected if peer.status != "left" or peer.sync_address in standing]
        asked = [peer for peer in present if peer.status == "alive" or not sync.contact(peer.sync_address).away]
        await sync.confirm([peer.sync_address for peer in asked])
        standing = set(sync.standing)
        found = gossip.members()
        ours = gossip.ours()
        names, by_key = display_names(ours), clones(ours)
        members = {}
        for member in found:
            name = names.get(member.name, member.node_name)
            one = self._member(member, name, gossip, sync, standing)
            if member.name in names:
                one = dataclasses.replace(one, clones=_but(member, by_key.get(member.machine, [])))
            members[member.name] = one
        return members

    async def _forget(self, name: str) -> None:
        gossip, sync = self._cluster()
        members = await self._members(gossip, sync)
        ours = ((agent, each) for agent, each in members.items() if each.same_filesystem)
        agent, member = next((pair for pair in ours if name in (pair[1].name, pair[1].address)), ("", None))
        if member is None:
            raise NotFound(f"there is no member {name}: 'basefs members {self._replica.name}' lists them")
        if member.own or member.status == "alive":
            raise NotPermitted(f"{member.name} is alive: stop it there first, with 'basefs unmount'")
        await gossip.forget(agent)

    def _member(
        self,
        member: Member,
        name: str,
        gossip: Gossip,
        sync: SyncService,
        standing: set[tuple[str, int]],
    ) -> ClusterMember:
        now = asyncio.get_running_loop().time()
        port = member.tags.get("sync")
        is_ours = gossip.is_ours(member)
        own = member.name == gossip.config.agent_name
        # Of a stranger nothing is known, though a node of ours may have been at its address.
        address = (member.addr, int(port)) if is_ours and port and port.isdecimal() else ("", 0)
        contact = sync.contact(address)
        lag = sync.lag(address)
        heard = None if contact.heard_at is None else now - contact.heard_at
        status = member.status
        if is_ours and not own:
            status = _status(status, heard, address in standing)
        return ClusterMember(
            name=name,
            address=member.gossip_address,
            clones=[],
            status=status,
            own=own,
            same_filesystem=is_ours,
            sync_port=int(port) if port and port.isdecimal() else None,
            push=status == "alive" and address in standing,
            lag=None if lag is None else _peer_lag(lag),
            disk_full=self._replica.room.is_short() if own else contact.full_at is not None,
            heard=heard,
            sent=contact.sent,
            received=contact.received,
            banned=sync.banned_for(address),
            trouble=contact.trouble,
            refuses=contact.refuses,
        )

    def _resources(self, request: GetResources) -> ResourceTotals:
        totals = self._replica.totals()
        pending = self._pending()
        return ResourceTotals(
            entries=totals["entries"],
            blocks=totals["blocks"],
            unpublished=pending.unpublished,
            handlers_queued=None if pending.handlers is None else pending.handlers.queued,
            traffic=None if self._network is None else _traffic(*self._network),
        )

    async def _clocks(self, request: GetClocks) -> list[NodeClock]:
        readings = await self._cluster()[0].clocks(request.timeout)
        return [NodeClock(one.name, one.offset, one.doubt) for one in readings]

    async def _compare_views(self, request: CompareViews) -> list[ComparedView]:
        gossip, _ = self._cluster()
        state, ours = await self._in_thread(self._replica.view_hash)
        found = await gossip.view_hashes(state, request.timeout) if ours != ZERO_HASH else {}
        names = display_names(gossip.ours())
        compared = []
        for peer in gossip.peers:
            theirs = found.get(peer.name, ZERO_HASH)
            view = "unknown" if theirs == ZERO_HASH else "same" if theirs == ours else "differs"
            compared.append(ComparedView(names.get(peer.name, peer.name), view))
        return compared

    def _cluster(self) -> tuple[Gossip, SyncService]:
        if self._network is None:
            raise Unsupported("this node runs with --single-node: it has no cluster")
        return self._network


def _all_lack_the_same(status: Status, members: Iterable[ClusterMember]) -> bool:
    """Whether contents are missing here, and in all members that answer."""
    others = [one for one in members if one.same_filesystem and not one.own and one.status == "alive"]
    in_step = all(one.lag is not None and one.lag.in_step for one in others)
    return bool(status.summary.incomplete and others and in_step and not status.limit_reached)


def _status(said: str, heard: float | None, is_connected: bool) -> str:
    """The status of another member: what Serf says of it, and the seconds since it was heard of by a session."""
    # One that is back is so before Serf has heard of it; one that leaves ends its sessions first.
    if said == "left" and not is_connected:
        return said
    if heard is not None and heard <= FRESH_SECONDS:
        return "alive"
    return "silent" if said == "alive" else said


def _but(member: Member, addresses: list[str]) -> list[str]:
    """The addresses of a group of members without that of one that may be in it."""
    here = member.gossip_address
    return [address for address in addresses if address != here] if here in addresses else []


def _peer_lag(lag: Lag) -> PeerLag:
    return PeerLag(lag.in_step, lag.behind, lag.ahead, lag.since, lag.incomplete, lag.waiting)


def _network_state(gossip: Gossip, sync: SyncService) -> NetworkState:
    return NetworkState(
        **dataclasses.asdict(gossip.counters),
        queued=gossip.queue_depth,
        sync_rejected=sync.traffic.total().rejected,
        encrypted=gossip.config.encrypt_key is not None,
        serf_pid=gossip.agent_pid,
        serf_connected=gossip.connected,
        serf_trouble=gossip.trouble,
        serf_restarts=gossip.restarts,
        standing=[join_host_port(*peer) for peer in sync.standing],
    )


def _traffic(gossip: Gossip, sync: SyncService) -> TrafficTotals:
    serf, total = gossip.traffic, sync.traffic.total()
    return TrafficTotals(
        serf_pid=gossip.agent_pid,
        queued=gossip.queue_depth,
        serf_queued=gossip.serf_queue_depth,
        serf_udp_sent=serf.udp_sent,
        serf_udp_received=serf.udp_received,
        serf_tcp_sent=serf.tcp_sent,
        sync_sent=total.bytes_sent,
        sync_received=total.bytes_received,
    )
