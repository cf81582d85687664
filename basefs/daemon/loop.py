"""What lives in the event loop of a daemon: control socket, timers, handlers, change feed, metrics, network."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from basefs import __version__
from basefs.daemon import config
from basefs.daemon.adoption import keep_adopting
from basefs.daemon.api.messages import LostRevision, Request
from basefs.daemon.api.server import ControlServer
from basefs.daemon.api.services import NodeServices
from basefs.daemon.config import Home
from basefs.daemon.conflicts import ConflictWatch
from basefs.daemon.handover import HandOver
from basefs.daemon.lasting import repeat
from basefs.daemon.network import Network
from basefs.daemon.options import DaemonOptions
from basefs.errors import BaseFSError, NoSpace
from basefs.fs.events.feed import Feed
from basefs.fs.events.journal import Live
from basefs.fs.events.queue import CONFLICT, Event
from basefs.fs.events.runner import Runner as HandlerRunner
from basefs.fs.filesystem import Filesystem
from basefs.notify import ServiceManager
from basefs.path import parse
from basefs.replica.replica import Replica
from basefs.tasks import cancel
from basefs.view.events import shape_of

if TYPE_CHECKING:
    from basefs.daemon.metrics.server import MetricsServer

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")


class EventLoopServices:
    """The services of one daemon that live in its event loop."""

    def __init__(
        self,
        home: Home,
        options: DaemonOptions,
        replica: Replica,
        filesystem: Filesystem,
        stop: Callable[[], None],
        manager: ServiceManager,
    ) -> None:
        """`stop` ends a daemon without a mount; `manager` gets its status."""
        self._home = home
        self._options = options
        self._replica = replica
        self._filesystem = filesystem
        self._stop = stop
        self._manager = manager

    @contextlib.asynccontextmanager
    async def running(self, departure: contextlib.AsyncExitStack) -> AsyncIterator[None]:
        """Start everything, and stop it in the reverse order; what needs the log no longer ends with `departure`."""
        async with contextlib.AsyncExitStack() as stack:
            timers = [asyncio.create_task(keep_durable(self._replica))]
            timers.append(asyncio.create_task(self._watch_room()))
            stack.push_async_callback(cancel, timers)
            # Before there is anything that changes the log, so that they miss no change.
            metrics = self._make_metrics()
            handlers = self._start_handlers(stack)
            conflicts = ConflictWatch(self._replica, lambda conflict: _report(conflict, handlers))
            stack.push_async_callback(asyncio.to_thread, conflicts.stop)
            feed = self._start_feed(stack)
            timers.append(asyncio.create_task(keep_adopting(self._replica)))
            network = await self._start_network(stack, departure)
            # For commands that wait for the log or the disk.  Their own, since the event loop's serve sync and fsync.
            workers = ThreadPoolExecutor(4, thread_name_prefix="control")
            stack.push_async_callback(asyncio.to_thread, workers.shutdown)
            cluster = None if network is None else (network.gossip, network.sync)
            services = NodeServices(self._replica, self._filesystem, feed, handlers, cluster, self._stop, workers)
            control = ControlServer(self._home.socket_path(self._options.name), services.handle)
            await control.start()
            stack.push_async_callback(control.stop)
            if metrics is not None and self._options.metrics is not None:
                self._serve_metrics(stack, metrics, self._options.metrics, services)
            if self._manager.listens:
                timers.append(asyncio.create_task(self._report_status(network)))
            yield

    def _make_metrics(self) -> MetricsServer | None:
        if self._options.metrics is None:
            return None
        # Imported here: few nodes serve metrics, and all would wait for it.
        from basefs.daemon.metrics.server import MetricsServer

        metrics = MetricsServer()
        self._replica.subscribe(lambda applied: metrics.applied(applied, time.time()))
        return metrics

    def _serve_metrics(
        self, stack: contextlib.AsyncExitStack, metrics: MetricsServer, where: tuple[str, int], services: NodeServices
    ) -> None:
        from basefs.daemon.metrics.collector import DaemonCollector

        loop = asyncio.get_running_loop()

        def ask(request: Request[Answer]) -> Answer:
            """Called in a thread of the HTTP server."""
            return asyncio.run_coroutine_threadsafe(services.answer(request), loop).result(60.0)

        metrics.start(*where, DaemonCollector(self._options.name, __version__, ask))
        # It waits for requests that wait for the event loop.
        stack.push_async_callback(asyncio.to_thread, metrics.stop)

    def _start_handlers(self, stack: contextlib.AsyncExitStack) -> HandlerRunner | None:
        options = self._options
        if not options.handlers.rules:
            return None
        environment = {"BASEFS_NAME": options.name, "BASEFS_MOUNTPOINT": os.fspath(options.mountpoint or "")}
        runner = HandlerRunner(options.handlers, environment, self._replica.key_names)
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

    async def _start_network(
        self, stack: contextlib.AsyncExitStack, departure: contextlib.AsyncExitStack
    ) -> Network | None:
        if self._options.single:
            stack.callback(self._keep_hand_over, HandOver.take(self._replica.directory))
            return None
        rundir = self._home.run_directory() / self._options.name
        rundir.mkdir(exist_ok=True, mode=0o700)
        network = Network(self._options, self._replica, rundir)
        await stack.enter_async_context(network.running(departure))
        return network

    def _keep_hand_over(self, before: HandOver | None) -> None:
        """Nobody was met: who had everything has it if nothing was added."""
        root = self._replica.root_hash().hex()
        HandOver(root, HandOver.holder_before(before, root)).save(self._replica.directory)

    async def _watch_room(self) -> None:
        """Notice that a full disk has room again, also where nothing happens."""

        async def look() -> None:
            self._replica.room.look()

        await repeat("look for room on the disk", look, 1.0)

    async def _report_status(self, network: Network | None) -> None:
        where = self._options.mountpoint or "not mounted"

        async def report() -> None:
            with contextlib.suppress(BaseFSError):
                cluster = "single node" if network is None else f"{network.alive()} members alive"
                self._manager.status(f"{where}, {cluster}, {self._replica.totals()['entries']} entries")

        await repeat("report to the service manager", report, 5.0)


def _report(conflict: LostRevision, handlers: HandlerRunner | None) -> None:
    if handlers is not None:
        lost = conflict.lost
        path, kind = parse(conflict.path), lost.kind or ""
        handlers.report([Event(CONFLICT, path, kind, lost.entry, lost.key or "", lost.fingerprint)])


async def keep_durable(replica: Replica, seconds: float = config.DURABLE_SECONDS) -> None:
    """Make what was published and what has come survive a power cut, every so many seconds, for ever."""

    async def keep() -> None:
        if replica.is_durable:
            # To wake a thread ten times a second was half of the processor time of a node on which nothing happens.
            return
        try:
            # In a worker thread: an fsync may take long, and it releases the interpreter lock.
            await asyncio.to_thread(replica.sync_to_disk)
        except NoSpace:
            replica.room.ran_out()
            raise

    await repeat("sync to disk", keep, seconds)
