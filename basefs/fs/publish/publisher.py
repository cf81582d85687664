"""The publisher: publishes the working set when it is time, and takes over what became of it (docs/fs.md)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial

from basefs.errors import NoSpace, StoreError
from basefs.fs.publish.drafts import drafts
from basefs.fs.publish.outcome import separate_scratch, take_over
from basefs.fs.publish.plan import MAX_STEPS, make_plan, portions, rebase, taken
from basefs.fs.publish.timing import Timing
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
        self._machine = working.machine
        self._publishing = threading.Lock()
        #: Guards the timing, which those who make changes, the thread and everybody who calls `publish` ask.
        self._reckoning = threading.Lock()
        self._timing = Timing(quiet)
        #: Nothing is attempted before, after an attempt has failed; on the monotonic clock.
        self._again_at = 0.0
        #: Whether the disk had no room the last time, whoever asked to publish.
        self._ran_out = False
        #: Names that stayed pending the last time: scratch names, and what the log refuses.
        self._left = 0
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._woken = threading.Event()
        self._wake: Callable[[], object] = self._woken.set
        working.on_change(self._note)

    # -- when ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Publish from now on without being asked."""
        thread = threading.Thread(target=self._main, name="publisher", daemon=True)
        thread.start()
        self._thread = thread  # only one that runs is waited for
        self.attend(self._woken.set)

    def attend(self, wake: Callable[[], object]) -> None:
        """Have `wake` called whenever `attempt` may be due earlier than it has returned."""
        self._wake = wake
        self._working.replica.subscribe(self._on_applied)
        if self._working.unpublished():
            self._ask()

    def stop(self) -> None:
        """Publish what can be published, and end."""
        self._stopped = True
        self._woken.set()
        if self._thread is not None:
            self._thread.join()
        self.publish()

    def _note(self, urgent: bool, closed: bool) -> None:
        # Called for each change, so the thread is woken only when it has nothing to wait for, or less.
        with self._reckoning:
            is_sooner = self._timing.change(self._machine.steady(), urgent=urgent, closed=closed)
        if is_sooner:
            self._hurry()

    def _ask(self) -> None:
        with self._reckoning:
            is_sooner = self._timing.ask(self._machine.steady())
        if is_sooner:
            self._hurry()

    def _hurry(self) -> None:
        self._again_at = 0.0
        self._wake()

    def _on_applied(self, applied: Applied) -> None:
        """A grant may have come that lets this node publish what was refused."""
        if not applied.local and self._working.overlay:
            self._ask()

    def _pending(self) -> int:
        return len(self._working.overlay) - self._left

    def _main(self) -> None:
        while True:
            self._woken.clear()
            if self._stopped:
                return
            due = self.attempt()
            left = None if due is None else due - self._machine.steady()
            if left is None or left > 0:
                self._woken.wait(left)

    def attempt(self, most: int = MAX_STEPS) -> float | None:
        """Publish if it is time; returns when it is time again, on the monotonic clock.

        `None`: not before something changes.  `most`: see `publish`.
        """
        now = self._machine.steady()
        with self._reckoning:
            due = self._timing.due(self._pending(), busy=self._machine.is_busy())
        if due is None or max(due, self._again_at) > now:
            return None if due is None else max(due, self._again_at)
        try:
            self.publish(patient=True, most=most)
        except StoreError as error:
            log.error("cannot publish, retrying: %s", error)
            self._again_at = now + RETRY_SECONDS
        except Exception:
            log.exception("publishing failed unexpectedly")
            self._again_at = now + RETRY_SECONDS
        return max(now, self._again_at)

    def _gives_way(self) -> bool:
        with self._reckoning:
            return self._timing.gives_way(self._machine.steady(), self._pending())

    # -- what ---------------------------------------------------------------------------------------------------------

    def publish(self, *, patient: bool = False, most: int = MAX_STEPS) -> None:
        """Publish everything that was closed, with so many steps in a transaction at the most.

        If `patient`, without what is probably renamed in a moment, and not all at once while very much changes.
        Call it without the working set's lock.  Raises `StoreError`; then everything stays pending.
        """
        try:
            while True:
                try:
                    self._publish(patient=patient, most=most)
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

    def _publish(self, *, patient: bool, most: int) -> None:
        working = self._working
        with self._publishing:
            with working.lock:
                with self._reckoning:
                    self._timing.begin(self._machine.steady())
                working.journal.renew()
                plan = make_plan(working, patient=patient)
                steps = plan.steps
                with self._reckoning:
                    self._timing.hold(plan.due)
                working.in_flight = {path for step in steps for path in step.names}
                self._left = len(working.overlay) - len(working.in_flight)
            try:
                if working.journal.is_first:
                    working.sync()
                for portion in portions(steps, most):
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
