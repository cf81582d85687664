"""The daemon of one filesystem: the composition root.

The FUSE loop runs in the main thread, everything else in one event-loop thread (paper, section 5.2; design, section 1).
Parts are started in order on an exit stack, so whatever fails, what was started is stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from basefs import config
from basefs.bootstrap import CLUSTER_FILE
from basefs.config import Home, format_address, parse_address
from basefs.errors import AgentError, BaseFSError, DaemonError, StoreError, UsageError
from basefs.fs.filesystem import Filesystem
from basefs.fs.kernel import Kernel
from basefs.fs.mirror import Mirror
from basefs.fs.mount import caller, check_mountpoint, serve
from basefs.fs.operations import Operations
from basefs.fs.owners import Owners
from basefs.gossip.config import AgentConfig
from basefs.gossip.events import Address
from basefs.gossip.service import Gossip
from basefs.handlers.runner import Runner as HandlerRunner
from basefs.handlers.runner import Settings as HandlerSettings
from basefs.journal.feed import Feed
from basefs.journal.journal import Live
from basefs.lock import exclusive
from basefs.log.keys import SigningKey
from basefs.management.control import ControlServer
from basefs.management.runfile import RunFile
from basefs.management.services import Services
from basefs.propagation import Propagation
from basefs.replica import Replica
from basefs.settings import Settings
from basefs.sync.service import SyncService
from basefs.view.events import shape_of

log = logging.getLogger(__name__)

#: Seconds for which a thread may keep the interpreter lock while another one wants it.  At the default of 5 ms a FUSE
#: operation takes 5 to 20 ms while the event loop is busy, with this 0.3 to 1 ms (measured; design, section 1).
SWITCH_INTERVAL = 0.0002
#: Seconds for the event loop's parts to start, and to stop: Serf takes 3 s to leave politely.
START_TIMEOUT = 30.0
STOP_TIMEOUT = 15.0


@dataclass(frozen=True, slots=True)
class DaemonOptions:
    """What the command line decides.

    Attributes:
        name: of the filesystem.
        mountpoint: where to mount it, `None` to run without a mount.
        keys: private keys of this node.
        bind: IP address and port of gossip; sync listens on the next port.
        interface: network interface whose address is used instead of `bind`'s.
        join: nodes to join, besides those that `/.cluster` and earlier runs name.
        node_name: unique in the cluster.
        fuse_options: options for libfuse.
        uid, gid: owner of what has none.
        keep_owners: whether chown is kept.
        single: neither gossip nor sync.
        encrypt_key: Serf's encryption key, base64, or `None`.
        settings: of the network.
        inotify: whether those who watch the mount hear of other nodes' changes; without it the kernel caches nothing.
        handlers: commands that run for changes.
    """

    name: str
    mountpoint: Path | None
    keys: Sequence[SigningKey]
    bind: tuple[str, int]
    interface: str | None
    join: Sequence[tuple[str, int]]
    node_name: str
    fuse_options: dict[str, str | bool]
    uid: int
    gid: int
    keep_owners: bool
    single: bool
    encrypt_key: str | None
    settings: Settings
    inotify: bool
    handlers: HandlerSettings


def run(home: Home, options: DaemonOptions, on_ready: Callable[[], None]) -> None:
    """Serve a filesystem until it is unmounted or stopped.

    Call it in the main thread; `on_ready` is called as soon as it answers.  Raises `BaseFSError` where it cannot start.
    """
    sys.setswitchinterval(SWITCH_INTERVAL)
    directory = home.existing(options.name)
    if options.mountpoint is not None:
        check_mountpoint(options.mountpoint)
    with contextlib.ExitStack() as stack:
        stack.enter_context(exclusive(directory, options.name))
        replica = Replica(directory, options.keys)
        stack.callback(replica.close)
        filesystem = Filesystem(replica, Owners(options.uid, options.gid, keep=options.keep_owners), time.time)
        stop = threading.Event()
        stack.enter_context(_EventLoopThread(home, options, replica, filesystem, stop))
        # Closed before the network, so that what is still pending reaches others.
        stack.callback(filesystem.close)
        filesystem.start()
        run_file = RunFile(home, options.name)
        run_file.write(options.mountpoint)
        stack.callback(run_file.remove)
        if options.mountpoint is None:
            # With a mount, libfuse catches these.
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, lambda *_: stop.set())
            on_ready()
            stop.wait()
            return
        kernel = Kernel()
        filesystem.mirror = Mirror(filesystem.working, kernel, options.mountpoint) if options.inotify else None
        operations = Operations(
            filesystem,
            on_ready,
            caller=caller,
            keeps_owners=options.keep_owners,
            kernel=kernel,
            mirror=filesystem.mirror,
        )
        serve(operations, kernel, options.mountpoint, options.name, options.fuse_options)


class _EventLoopThread:
    """The thread in which everything but FUSE runs."""

    def __init__(
        self, home: Home, options: DaemonOptions, replica: Replica, filesystem: Filesystem, stop_main: threading.Event
    ) -> None:
        self._network = _Network(home, options, replica, filesystem, stop_main)
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._main, name="event-loop", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()
        if not self._started.wait(START_TIMEOUT):
            raise DaemonError(f"the daemon did not start within {START_TIMEOUT:.0f} s: see its log")
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(STOP_TIMEOUT)

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:
            self._failure = error
            if self._started.is_set():
                log.exception("the event loop ended")
        finally:
            self._started.set()
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    async def _serve(self) -> None:
        async with self._network.running():
            self._started.set()
            await self._stop.wait()


class _Network:
    """The parts that live in the event loop: control socket, timers, gossip, sync."""

    def __init__(
        self, home: Home, options: DaemonOptions, replica: Replica, filesystem: Filesystem, stop_main: threading.Event
    ) -> None:
        self._home = home
        self._options = options
        self._replica = replica
        self._filesystem = filesystem
        self._stop_main = stop_main
        self._gossip: Gossip | None = None
        self._sync: SyncService | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start everything, and stop it in the reverse order."""
        async with contextlib.AsyncExitStack() as stack:
            timers = [asyncio.create_task(self._keep_durable())]
            stack.push_async_callback(_cancel, timers)
            handlers = self._start_handlers(stack)
            feed = self._start_feed(stack)
            if not self._options.single:
                propagation = await self._start_network(stack)
                timers.append(asyncio.create_task(self._watch(propagation)))
            parts = (self._filesystem, self._gossip, self._sync, handlers, feed)
            services = Services(self._replica, *parts, self._stop_main.set)
            control = ControlServer(self._home.run_directory() / f"{self._options.name}.sock", services.handle)
            await control.start()
            stack.push_async_callback(control.stop)
            yield

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

        def tree() -> list[Live]:
            self._replica.observe()
            return [Live(names, shape_of(state), entry) for names, state, entry in self._replica.live_states()]

        feed = Feed(self._replica.directory, tree, time.time)
        stack.callback(feed.stop)
        self._replica.subscribe(lambda applied: feed.changed(applied.changes))
        feed.start()
        return feed

    async def _start_network(self, stack: contextlib.AsyncExitStack) -> Propagation:
        loop = asyncio.get_running_loop()
        host, port = _resolve_bind(self._options)
        sync_port = port + config.SYNC_PORT_OFFSET
        settings = self._options.settings
        propagation = Propagation(self._replica, loop, settings.max_block_messages)
        sync = SyncService(
            self._replica,
            host,
            sync_port,
            peers=lambda: [peer.sync_address for peer in gossip.peers if peer.status == "alive"],
            on_result=propagation.on_result,
            interval=settings.full_sync_interval,
            probability=config.SYNC_PROBABILITY,
            degree=settings.push_sessions,
            max_sessions=settings.sync_sessions,
            on_gap=propagation.on_gap,
            on_progress=propagation.on_progress,
        )
        rundir = self._home.run_directory() / self._options.name
        rundir.mkdir(exist_ok=True, mode=0o700)
        gossip = Gossip(
            AgentConfig(
                node_name=self._options.node_name,
                bind=format_address(host, port),
                advertise=_advertise(host, port),
                profile=settings.profile,
                encrypt_key=self._options.encrypt_key,
                tags={"sync": str(sync_port)},
                snapshot_path=self._replica.directory / "serf.snapshot",
                join=tuple(self._addresses_to_join(host, port)),
            ),
            rundir=rundir,
            fsid=self._replica.identity,
            on_event=propagation.on_event,
            on_members=propagation.on_members,
            on_overflow=propagation.announce,
            peers_path=self._replica.directory / "peers.json",
        )
        try:
            await sync.start()
        except OSError as error:
            where = format_address(host, sync_port)
            raise AgentError(f"cannot listen on {where}: {error.strerror}; choose another port with -b") from None
        stack.push_async_callback(sync.stop)
        await gossip.start()
        stack.push_async_callback(gossip.stop)
        propagation.start(gossip, sync, lambda: self._own_address(sync_port))
        stack.callback(propagation.stop)
        propagation.on_members(gossip.peers)
        self._gossip, self._sync = gossip, sync
        return propagation

    def _own_address(self, sync_port: int) -> Address | None:
        assert self._gossip is not None
        for member in self._gossip.members():
            if member.name == self._options.node_name:
                return Address(member.addr, sync_port)
        return None

    def _addresses_to_join(self, host: str, port: int) -> list[str]:
        """What the command line and `/.cluster` name, without this node itself."""
        named = list(self._options.join)
        with contextlib.suppress(BaseFSError):
            for line in self._replica.read((CLUSTER_FILE,)).decode("utf-8", "replace").split():
                try:
                    named.append(parse_address(line))
                except UsageError as error:
                    log.warning("/.cluster: %s", error)
        mine = {host, *_own_addresses()}
        return list(dict.fromkeys(format_address(*name) for name in named if not (name[1] == port and name[0] in mine)))

    async def _keep_durable(self) -> None:
        while True:
            await asyncio.sleep(config.DURABLE_SECONDS)
            try:
                # In a worker thread: an fsync may take long, and it releases the interpreter lock.
                await asyncio.to_thread(self._filesystem.keep_durable)
            except StoreError as error:
                log.error("%s", error)

    async def _watch(self, propagation: Propagation) -> None:
        while True:
            await asyncio.sleep(config.WATCH_SECONDS)
            propagation.try_lost()
            try:
                propagation.check_stalled()
            except StoreError as error:
                log.error("%s", error)


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _own_addresses() -> list[str]:
    """The IP addresses of this machine."""
    families = (socket.AF_INET, socket.AF_INET6)
    return [
        address.address.partition("%")[0]
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
        if address.family in families
    ]


def _resolve_bind(options: DaemonOptions) -> tuple[str, int]:
    """The address to listen on.  Raises `UsageError` for an interface that is not there or has no address."""
    host, port = options.bind
    if options.interface is None:
        return host, port
    found = [a.address for a in psutil.net_if_addrs().get(options.interface, ()) if a.family == socket.AF_INET]
    if not found:
        raise UsageError(f"the interface {options.interface} is not there or has no IPv4 address: see 'ip address'")
    return found[0], port


def _advertise(host: str, port: int) -> str | None:
    """What others are told, where Serf could not find out: it looks for a private address and fails without one."""
    if not ipaddress.ip_address(host).is_unspecified:
        return None
    candidates = [ipaddress.ip_address(address) for address in _own_addresses()]
    usable = [a for a in candidates if a.version == 4 and not a.is_loopback and not a.is_link_local]
    return format_address(str(min(usable, default=ipaddress.ip_address("127.0.0.1"))), port)
