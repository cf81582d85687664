"""The parts of a daemon that live in its event loop: control socket, timers, handlers, gossip and sync."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from basefs import __version__
from basefs.daemon import config
from basefs.daemon.addresses import Whereabouts, advertised, own_addresses, resolve_bind
from basefs.daemon.api.control import ControlServer
from basefs.daemon.api.services import Services
from basefs.daemon.config import Home, is_ip, parse_address
from basefs.daemon.notify import ServiceManager
from basefs.daemon.options import DaemonOptions
from basefs.errors import AgentError, BaseFSError, StoreError, UsageError
from basefs.fs.events.feed import Feed
from basefs.fs.events.journal import Live
from basefs.fs.events.runner import Runner as HandlerRunner
from basefs.fs.filesystem import Filesystem
from basefs.gossip.config import AgentConfig
from basefs.gossip.events import Address
from basefs.gossip.members import join_host_port
from basefs.gossip.peers import PEERS_FILE
from basefs.gossip.service import Gossip
from basefs.replica.bootstrap import CLUSTER_FILE
from basefs.replica.replica import Replica
from basefs.replication.propagation import Propagation
from basefs.sync.net.service import SyncService
from basefs.view.events import shape_of

if TYPE_CHECKING:
    from basefs.daemon.metrics.server import MetricsServer

log = logging.getLogger(__name__)

#: Seconds that a request for metrics waits for the event loop.
_ASK_SECONDS = 60.0

#: Seconds between looks at what the service manager shows of this daemon.
_STATUS_SECONDS = 5.0

#: Seconds between looks whether this machine still has the address that others were told: half a millisecond each.
_NETWORK_SECONDS = 1.0


class Parts:
    """The parts that live in the event loop: control socket, timers, gossip, sync."""

    def __init__(
        self,
        home: Home,
        options: DaemonOptions,
        replica: Replica,
        filesystem: Filesystem,
        stop: Callable[[], None],
        manager: ServiceManager,
    ) -> None:
        """`stop` ends a daemon without a mount; `manager` is told how it is."""
        self._home = home
        self._options = options
        self._replica = replica
        self._filesystem = filesystem
        self._stop = stop
        self._manager = manager
        self._gossip: Gossip | None = None
        self._sync: SyncService | None = None
        self._services: Services | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start everything, and stop it in the reverse order."""
        async with contextlib.AsyncExitStack() as stack:
            timers = [asyncio.create_task(keep_durable(self._filesystem))]
            stack.push_async_callback(_cancel, timers)
            metrics = self._make_metrics()
            handlers = self._start_handlers(stack)
            feed = self._start_feed(stack)
            if not self._options.single:
                propagation = await self._start_network(stack)
                timers.append(asyncio.create_task(self._watch(propagation)))
            parts = (self._filesystem, self._gossip, self._sync, handlers, feed)
            services = Services(self._replica, *parts, self._stop)
            control = ControlServer(self._home.socket_path(self._options.name), services.handle)
            await control.start()
            stack.push_async_callback(control.stop)
            self._services = services
            if metrics is not None and self._options.metrics is not None:
                metrics.start(*self._options.metrics)
                # It waits for requests that wait for the event loop.
                stack.push_async_callback(asyncio.to_thread, metrics.stop)
            if self._manager.listens:
                timers.append(asyncio.create_task(self._tell_status()))
            yield

    def _make_metrics(self) -> MetricsServer | None:
        """Before there is anything that changes the log, so that no change is missed."""
        if self._options.metrics is None:
            return None
        # Few need it, and all would wait for it.
        from basefs.daemon.metrics.server import MetricsServer

        loop = asyncio.get_running_loop()

        def ask(command: str) -> Any:
            """Called in a thread of the HTTP server."""
            assert self._services is not None, "metrics are served when all else runs"
            return asyncio.run_coroutine_threadsafe(self._services.handle(command, {}), loop).result(_ASK_SECONDS)

        metrics = MetricsServer(self._options.name, __version__, ask)
        self._replica.subscribe(lambda applied: metrics.applied(applied, time.time()))
        return metrics

    def _start_handlers(self, stack: contextlib.AsyncExitStack) -> HandlerRunner | None:
        """Before there is anything that changes the view, so that no change is missed."""
        options = self._options
        if not options.handlers.rules:
            return None
        environment = {"BASEFS_NAME": options.name, "BASEFS_MOUNTPOINT": os.fspath(options.mountpoint or "")}
        runner = HandlerRunner(options.handlers, environment)
        stack.push_async_callback(runner.stop)
        self._replica.subscribe(lambda applied: runner.changed(applied.changes))
        self._replica.observe()
        return runner

    def _start_feed(self, stack: contextlib.AsyncExitStack) -> Feed:
        """What `basefs watch` reads."""

        def tree() -> Iterator[Live]:
            for portion in self._replica.observed():
                yield from (Live(path, shape_of(state), entry) for path, state, entry in portion)

        feed = Feed(self._replica.directory, tree, time.time)
        stack.callback(feed.stop)
        self._replica.subscribe(lambda applied: feed.changed(applied.changes))
        feed.start()
        return feed

    async def _start_network(self, stack: contextlib.AsyncExitStack) -> Propagation:
        loop = asyncio.get_running_loop()
        host, port = resolve_bind(self._options.bind, self._options.interface)
        sync_port = port + config.SYNC_PORT_OFFSET
        settings = self._options.settings
        propagation = Propagation(
            self._replica,
            loop,
            settings.max_block_messages,
            settings.pull_jitter,
            interval=settings.full_sync_interval,
            probability=config.SYNC_PROBABILITY,
            gossips=settings.gossip,
        )
        sync = SyncService(
            self._replica,
            host,
            sync_port,
            peers=lambda: [peer.sync_address for peer in gossip.peers if peer.status == "alive"],
            on_result=propagation.on_result,
            degree=settings.push_sessions,
            max_sessions=settings.sync_sessions,
            on_gap=propagation.on_gap,
            on_progress=propagation.on_progress,
        )
        rundir = self._home.run_directory() / self._options.name
        rundir.mkdir(exist_ok=True, mode=0o700)
        named = self._named()
        # This one is among them if it is named.
        others = [other for other, _ in named if is_ip(other)]
        gossip = Gossip(
            AgentConfig(
                node_name=self._options.node_name,
                bind=join_host_port(host, port),
                advertise=advertised(host, port, others),
                profile=settings.profile,
                encrypt_key=self._options.encrypt_key,
                tags={"sync": str(sync_port)},
                snapshot_path=self._replica.directory / "serf.snapshot",
                join=tuple(_addresses_to_join(named, host, port)),
            ),
            rundir=rundir,
            fsid=self._replica.identity,
            on_event=propagation.on_event,
            on_members=propagation.on_members,
            on_overflow=propagation.announce,
            peers_path=self._replica.directory / PEERS_FILE,
        )
        try:
            await sync.start()
        except OSError as error:
            raise AgentError(f"cannot listen on {join_host_port(host, sync_port)}: {_why_not(error)}") from None
        stack.push_async_callback(sync.stop)
        # Before there is an agent: it replays what this node has missed at once.
        self._gossip, self._sync = gossip, sync
        propagation.start(gossip, sync, lambda: self._own_address(sync_port))
        await gossip.start()
        stack.push_async_callback(gossip.stop)
        stack.push_async_callback(_cancel, [asyncio.create_task(_notice_network(gossip, others))])
        stack.push_async_callback(propagation.stop)
        return propagation

    def _own_address(self, sync_port: int) -> Address | None:
        assert self._gossip is not None
        for member in self._gossip.members():
            if member.name == self._options.node_name:
                return Address(member.addr, sync_port)
        return None

    def _named(self) -> list[tuple[str, int]]:
        """The nodes that the command line and `/.cluster` name."""
        named = list(self._options.join)
        with contextlib.suppress(BaseFSError):
            for line in self._replica.read((CLUSTER_FILE,)).decode("utf-8", "replace").split():
                try:
                    named.append(parse_address(line))
                except UsageError as error:
                    log.warning("/.cluster: %s", error)
        return named

    async def _watch(self, propagation: Propagation) -> None:
        while True:
            await asyncio.sleep(config.WATCH_SECONDS)
            try:
                await propagation.check_stalled()
            except StoreError as error:
                log.error("%s", error)

    async def _tell_status(self) -> None:
        where = self._options.mountpoint
        while True:
            with contextlib.suppress(BaseFSError):
                entries = self._replica.totals()["entries"]
                self._manager.status(f"{where or 'not mounted'}, {self._cluster()}, {entries} entries")
            await asyncio.sleep(_STATUS_SECONDS)

    def _cluster(self) -> str:
        if self._gossip is None:
            return "single node"
        return f"{sum(member.status == 'alive' for member in self._gossip.members())} members alive"


async def keep_durable(filesystem: Filesystem) -> None:
    """Make what was saved and what has come survive a power cut, every `DURABLE_SECONDS`, for ever."""
    while True:
        await asyncio.sleep(config.DURABLE_SECONDS)
        if filesystem.is_durable:
            # To wake a thread ten times a second was half of the processor time of a node on which nothing happens.
            continue
        try:
            # In a worker thread: an fsync may take long, and it releases the interpreter lock.
            await asyncio.to_thread(filesystem.keep_durable)
        except StoreError as error:
            log.error("%s", error)


def _why_not(error: OSError) -> str:
    """Why there is nobody to listen, and what to do."""
    if error.errno == errno.EADDRNOTAVAIL:
        return "no interface of this machine has this address; 'ip address' lists those that they have"
    return f"{os.strerror(error.errno or 0)}; choose another port with -b"


def _addresses_to_join(named: Sequence[tuple[str, int]], host: str, port: int) -> list[str]:
    """What is named, without this node itself."""
    mine = {host, *own_addresses()}
    return list(dict.fromkeys(join_host_port(*name) for name in named if not (name[1] == port and name[0] in mine)))


async def _notice_network(gossip: Gossip, others: Sequence[str]) -> None:
    """A node tells where it is as soon as it has a network, and when its address has become another one."""
    told = gossip.config.advertise
    if told is None:
        return
    whereabouts = Whereabouts(told, parse_address(gossip.config.bind)[0], others)
    while True:
        await asyncio.sleep(_NETWORK_SECONDS)
        try:
            now = whereabouts.look()
        except OSError as error:
            log.warning("cannot see which addresses this machine has: %s", error)
            continue
        if now is not None:
            log.info("others find this node at %s now, no longer at %s", now, told)
            told = now
            await gossip.advertise(now)


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
