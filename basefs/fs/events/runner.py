"""Running handlers: one process each, in the event loop, with a time limit.

Nobody waits for a handler but handlers: changes are put into a bounded queue, and a process that hangs takes one of a
few places until its time is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from basefs.fs.events.process import run
from basefs.fs.events.queue import CONFLICT, Event, HandlerQueue, Job, merge
from basefs.fs.events.rules import Rule, matching
from basefs.log.hashes import Fingerprint
from basefs.path import to_text
from basefs.view.changes import Change
from basefs.view.events import EventType, events_between, shape_of

log = logging.getLogger(__name__)

#: Delays after which a handler runs, though its paths go on changing.
MOST_DELAYS = 10
#: Jobs that wait at most: some megabytes.
CAPACITY = 10_000


@dataclass(frozen=True, slots=True)
class HandlerSettings:
    """What the command line decides about handlers.

    Attributes:
        rules: in the order in which they were given.
        at_most: how many run at a time.
        timeout: seconds after which one is ended, with all processes that it started.
        delay: seconds without another change of its paths before one runs, once for all of them; 0: for each change.
        umask: of the handlers; -1: the daemon's own.
    """

    rules: Sequence[Rule] = ()
    at_most: int = 4
    timeout: float = 60.0
    delay: float = 0.0
    umask: int = -1


class Runner:
    """Runs handlers for changes of the view.  Used in one event loop, but for `changed`."""

    def __init__(
        self,
        settings: HandlerSettings,
        environment: Mapping[str, str],
        key_names: Callable[[], Mapping[Fingerprint, str]],
        *,
        capacity: int = CAPACITY,
    ) -> None:
        """Needs a running event loop.

        `environment` is that of all handlers, besides what tells them of the event; `key_names`: the names of keys.
        """
        self._key_names = key_names
        self._settings = settings
        self._environment = environment
        self._queue = HandlerQueue(settings.rules, at_most=settings.at_most, capacity=capacity)
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._full = False
        #: Rule -> the changes that wait to be one event, and when the first of them came.
        self._gathered: dict[Rule, tuple[Event, float]] = {}
        self._timers: dict[Rule, asyncio.TimerHandle] = {}

    def changed(self, changes: Sequence[Change]) -> None:
        """Changes are in the view.  Returns at once; may be called by any thread, in their order."""
        self.report(_events(changes, self._key_names) if changes else ())

    def report(self, events: Iterable[Event]) -> None:
        """Run the handlers for events.  Returns at once; may be called by any thread, in their order."""
        events = list(events)
        if events:
            # The loop is closed when the daemon ends.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._put, events)

    def _put(self, events: Iterable[Event]) -> None:
        for event in events:
            if self._settings.delay and event.type != CONFLICT:
                self._gather(event)
            else:
                self._queued(self._queue.put(event))
        self._start()

    def _gather(self, event: Event) -> None:
        """Wait until the paths of a rule do not change any more, but not for ever."""
        now = self._loop.time()
        for rule in matching(self._settings.rules, event.path):
            earlier = self._gathered.get(rule)
            since = now if earlier is None else earlier[1]
            self._gathered[rule] = (event if earlier is None else merge(earlier[0], event)), since
            if rule in self._timers:
                self._timers[rule].cancel()
            due = min(now + self._settings.delay, since + MOST_DELAYS * self._settings.delay)
            self._timers[rule] = self._loop.call_at(due, self._flush, rule)

    def _flush(self, rule: Rule) -> None:
        del self._timers[rule]
        event, _ = self._gathered.pop(rule)
        self._queued(self._queue.put_job(Job(rule, event)))
        self._start()

    def _queued(self, fits: bool) -> None:
        if not fits and not self._full:
            self._full = True
            log.warning(
                "handler queue full: merging the changes of a path, and running handlers once with "
                "BASEFS_EVENT_TYPE=overflow for the others"
            )

    def _start(self) -> None:
        while (job := self._queue.take()) is not None:
            task = self._loop.create_task(self._run(job))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if self._queue.queued == 0 and self._full:
            self._full = False
            log.info("handler queue empty again")

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
            "BASEFS_EVENT_ENTRY": job.event.entry,
            "BASEFS_EVENT_KEY": job.event.key,
            "BASEFS_EVENT_FINGERPRINT": job.event.fingerprint,
            "BASEFS_EVENT_CHANGES": str(job.event.changes),
        }
        settings = self._settings
        code, output = await run(job.rule.command, {**self._environment, **event}, settings.timeout, settings.umask)
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

    @property
    def rules(self) -> list[str]:
        """What runs for which paths, as `Rule.parse` takes it."""
        return [str(rule) for rule in self._settings.rules]

    def status(self) -> dict[str, int]:
        """How many handlers wait and run, and what became of the others."""
        return {"queued": self._queue.queued, "running": self._queue.running, **asdict(self._queue.counts)}

    async def stop(self) -> None:
        """End the handlers that run, and start no more."""
        for timer in self._timers.values():
            timer.cancel()
        self._queue = HandlerQueue((), at_most=0, capacity=0)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _events(changes: Iterable[Change], key_names: Callable[[], Mapping[Fingerprint, str]]) -> Iterable[Event]:
    names = key_names()
    for change in changes:
        who = ("", "", "")
        if change.entry is not None:
            key = change.entry.fingerprint
            who = change.entry.hash.hex(), names.get(key, ""), key.hex()
        before, after = shape_of(change.before), shape_of(change.after)
        for type in events_between(before, after):
            shape = before if type is EventType.DELETE else after
            assert shape is not None
            yield Event(type.value, change.path, shape.kind.value, *who)
