"""The publisher: publishes the working set when it is time, and takes over what became of it (docs/fs.md)."""

from __future__ import annotations

import logging
import os
import threading
import time
from functools import partial

from basefs.errors import NoSpace, StoreError
from basefs.fs.publish.drafts import drafts
from basefs.fs.publish.outcome import separate_scratch, take_over
from basefs.fs.publish.plan import make_plan, portions, rebase, taken
from basefs.fs.publish.timing import BUSY_LOAD, Timing
from basefs.fs.staging.workingset import WorkingSet
from basefs.replica.replica import Applied

log = logging.getLogger(__name__)

#: Seconds until a failed attempt is repeated.
RETRY_SECONDS = 5.0


class Publisher:
    """Publishes a working set, in a thread of its own once it is started, or whenever `publish` is called."""

    def __init__(self, working: WorkingSet, quiet: float) -> None:
        """`quiet`: seconds without a change after which what is pending is published."""
        self._working = working
        self._publishing = threading.Lock()
        #: Guards the timing, which those who make changes, the thread and everybody who calls `publish` ask.
        self._wake = threading.Condition(threading.Lock())
        self._timing = Timing(quiet)
        #: Whether the disk had no room the last time, whoever asked to publish.
        self._ran_out = False
        #: Names that stayed pending the last time: scratch names, and what the log refuses.
        self._left = 0
        self._stopped = False
        self._thread: threading.Thread | None = None
        working.on_change(self._note)

    # -- when ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Publish from now on without being asked."""
        self._thread = threading.Thread(target=self._main, name="publisher", daemon=True)
        self._thread.start()
        self._working.replica.subscribe(self._on_applied)
        if self._working.unpublished():
            self._ask()

    def stop(self) -> None:
        """Publish what can be published, and end."""
        with self._wake:
            self._stopped = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()
        self.publish()

    def _note(self, urgent: bool, closed: bool) -> None:
        # Called for each change, so the thread is woken only when it has nothing to wait for, or less.
        with self._wake:
            if self._timing.change(time.monotonic(), urgent=urgent, closed=closed):
                self._wake.notify()

    def _ask(self) -> None:
        with self._wake:
            if self._timing.ask(time.monotonic()):
                self._wake.notify()

    def _on_applied(self, applied: Applied) -> None:
        """A grant may have come that lets this node publish what was refused."""
        if not applied.local and self._working.overlay:
            self._ask()

    def _pending(self) -> int:
        return len(self._working.overlay) - self._left

    def _main(self) -> None:
        while self._wait():
            try:
                self.publish(patient=True)
            except StoreError as error:
                log.error("cannot publish, retrying: %s", error)
                self._retry()
            except Exception:
                log.exception("publishing failed unexpectedly")
                self._retry()

    def _retry(self) -> None:
        with self._wake:
            if not self._stopped:
                self._wake.wait(RETRY_SECONDS)
        self._ask()

    def _wait(self) -> bool:
        """Wait until something should be published; false when this ends."""
        with self._wake:
            while not self._stopped:
                due = self._timing.due(self._pending(), busy=_is_busy())
                if due is None:
                    self._wake.wait()
                    continue
                left = due - time.monotonic()
                if left <= 0:
                    return True
                self._wake.wait(left)
            return False

    def _gives_way(self) -> bool:
        with self._wake:
            return self._timing.gives_way(time.monotonic(), self._pending())

    # -- what ---------------------------------------------------------------------------------------------------------

    def publish(self, *, patient: bool = False) -> None:
        """Publish everything that was closed.

        If `patient`, without what is probably renamed in a moment, and not all at once while very much changes.
        Call it without the working set's lock.  Raises `StoreError`; then everything stays pending.
        """
        try:
            while True:
                try:
                    self._publish(patient=patient)
                    self._working.replica.room.took(same=self._ran_out)
                    self._ran_out = False
                    return
                except NoSpace:
                    # A large content that is published takes its room twice until both copies are synced.
                    if not self._working.reclaim():
                        raise
        except BaseException as error:
            self._ran_out = isinstance(error, NoSpace)
            if self._ran_out:
                self._working.replica.room.ran_out()
            # Whoever asked: what is pending must not wait for the next change.
            self._ask()
            raise

    def _publish(self, *, patient: bool) -> None:
        working = self._working
        with self._publishing:
            with working.lock:
                with self._wake:
                    self._timing.begin(time.monotonic())
                working.journal.renew()
                plan = make_plan(working, patient=patient)
                steps = plan.steps
                with self._wake:
                    self._timing.hold(plan.due)
                working.in_flight = {path for step in steps for path in step.names}
                self._left = len(working.overlay) - len(working.in_flight)
            try:
                if working.journal.is_first:
                    working.sync()
                for portion in portions(steps):
                    with working.lock:
                        rebase(working, portion)
                    contents = [
                        (step.names[0], step.content, step.seen.get(step.names[0]))
                        for step in portion
                        if step.content is not None
                    ]
                    make = partial(drafts, steps=portion, load=working.open_content)
                    commit = partial(working.replica.commit, make, contents=contents)
                    applied = working.journal.publish(commit, partial(taken, plan.position, portion))
                    with working.lock:
                        working.follow([entry.hash for entry in applied.entries])
                        for step in portion:
                            take_over(working, step)
                    if patient and self._gives_way():
                        break
            finally:
                for step in steps:
                    if step.content is not None:
                        step.content.close()
                with working.lock:
                    working.in_flight = set()
            with working.lock:
                separate_scratch(working)
                self._left += sum(len(step.names) for step in steps if step.error is not None)
            working.tidy()


def _is_busy() -> bool:
    """Whether this machine has had much more to do than it has cores, for a minute or so."""
    try:
        return os.getloadavg()[0] > BUSY_LOAD * (os.cpu_count() or 1)
    except OSError:
        return True
