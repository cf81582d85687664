"""Running handlers: one process each, in the event loop, with a time limit.

Nobody waits for a handler but handlers: changes are put into a bounded queue, and a process that hangs takes one of a
few places until its time is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from basefs.fs.events.process import run
from basefs.fs.events.queue import Event, HandlerQueue, Job
from basefs.fs.events.rules import Rule
from basefs.path import to_text
from basefs.view.changes import Change
from basefs.view.events import EventType, events_between, shape_of

log = logging.getLogger(__name__)

#: Jobs that wait at most: some megabytes.
CAPACITY = 10_000


@dataclass(frozen=True, slots=True)
class HandlerSettings:
    """What the command line decides about handlers.

    Attributes:
        rules: in the order in which they were given.
        at_most: how many run at a time.
        timeout: seconds after which one is ended, with all processes that it started.
    """

    rules: Sequence[Rule] = ()
    at_most: int = 4
    timeout: float = 60.0


class Runner:
    """Runs handlers for changes of the view.  Used in one event loop, but for `changed`."""

    def __init__(self, settings: HandlerSettings, environment: Mapping[str, str], *, capacity: int = CAPACITY) -> None:
        """`environment` is that of all handlers, besides what tells them of the event.  Needs a running event loop."""
        self._settings = settings
        self._environment = environment
        self._queue = HandlerQueue(settings.rules, at_most=settings.at_most, capacity=capacity)
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._full = False

    def changed(self, changes: Sequence[Change]) -> None:
        """Changes are in the view.  Returns at once; may be called by any thread, in their order."""
        events = list(_events(changes))
        if events:
            # The loop is closed when the daemon ends.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._put, events)

    def _put(self, events: Iterable[Event]) -> None:
        for event in events:
            if not self._queue.put(event) and not self._full:
                self._full = True
                log.warning(
                    "the queue of handlers is full: of the changes of a path only the last is kept, and handlers that "
                    "miss a path are told with BASEFS_EVENT_TYPE=overflow"
                )
        self._start()

    def _start(self) -> None:
        while (job := self._queue.take()) is not None:
            task = self._loop.create_task(self._run(job))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if self._queue.queued == 0 and self._full:
            self._full = False
            log.info("the queue of handlers is empty again")

    async def _run(self, job: Job) -> None:
        failed = True
        try:
            failed = await self._run_process(job)
        except OSError as error:
            log.warning("handler %r: cannot be started: %s", job.rule.command, error)
        finally:
            self._queue.done(job, failed=failed)
        self._start()

    async def _run_process(self, job: Job) -> bool:
        """Run one handler to its end; returns whether it failed."""
        path = to_text(job.event.path)
        event = {
            "BASEFS_EVENT_TYPE": job.event.type,
            "BASEFS_EVENT_PATH": path,
            "BASEFS_EVENT_KIND": job.event.kind,
        }
        code, output = await run(job.rule.command, {**self._environment, **event}, self._settings.timeout)
        for line in output.splitlines():
            log.info("handler %r, %s %s: %s", job.rule.command, job.event.type, path, line)
        if code is None:
            log.warning(
                "handler %r, %s %s: ended after %g s, its time limit (--handler-timeout)",
                job.rule.command,
                job.event.type,
                path,
                self._settings.timeout,
            )
        elif code != 0:
            log.warning("handler %r, %s %s: failed with exit code %d", job.rule.command, job.event.type, path, code)
        return code != 0

    def status(self) -> dict[str, int]:
        """How many handlers wait and run, and what became of the others."""
        return {"queued": self._queue.queued, "running": self._queue.running, **asdict(self._queue.counts)}

    async def stop(self) -> None:
        """End the handlers that run, and start no more."""
        self._queue = HandlerQueue((), at_most=0, capacity=0)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _events(changes: Iterable[Change]) -> Iterable[Event]:
    for change in changes:
        before, after = shape_of(change.before), shape_of(change.after)
        for type in events_between(before, after):
            shape = before if type is EventType.DELETE else after
            assert shape is not None
            yield Event(type.value, change.path, shape.kind.value)
