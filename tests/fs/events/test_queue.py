"""The queue of handlers, against what it promises."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from basefs.fs.events.queue import OVERFLOW, Event, HandlerQueue, Job
from basefs.fs.events.rules import Rule
from tests.support.examples import part
from tests.support.helpers import path

TYPES = ("create", "modify", "attributes", "delete")
RULES = (Rule("all"), Rule("some", "/[ab]"))
CAPACITY = 8
AT_MOST = 2

#: Without the root, whose events an overflow job that waits stands for as well.
paths = st.sampled_from(["/a", "/b", "/c", "/d/e"]).map(path)
events = st.builds(Event, st.sampled_from(TYPES), paths, st.sampled_from(["file", "directory"]))


class QueueMachine(RuleBasedStateMachine):
    """Random events come, jobs are taken and end in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = HandlerQueue(RULES, at_most=AT_MOST, capacity=CAPACITY)
        self.running: list[Job] = []
        #: (rule, path) -> events that are to run and have not begun
        self.expected: dict[tuple[Rule, object], list[Event]] = defaultdict(list)
        self.owed: set[Rule] = set()
        self.ended = 0

    @rule(event=events)
    def put(self, event: Event) -> None:
        wanted = [one for one in RULES if one.matches(event.path)]
        dropped, coalesced = self.queue.counts.dropped, self.queue.counts.coalesced
        fits = self.queue.put(event)
        for one in wanted:
            waiting = self.expected[one, event.path]
            if not fits and self._is_full_for(one, event, dropped, coalesced):
                continue
            waiting.append(event)
        dropped = self.queue.counts.dropped - dropped
        assert fits == (dropped == 0 and self.queue.counts.coalesced == coalesced)

    def _is_full_for(self, one: Rule, event: Event, dropped: int, coalesced: int) -> bool:
        """Follow what the queue says that it did with an event that did not fit."""
        total = sum(len(waiting) for waiting in self.expected.values()) + len(self.owed)
        if total < CAPACITY:
            return False
        waiting = self.expected[one, event.path]
        if waiting:
            # Whatever it is called now, one job still stands for both.
            assert self.queue.counts.coalesced > coalesced
        else:
            assert self.queue.counts.dropped > dropped
            self.owed.add(one)
        return True

    @rule()
    def take(self) -> None:
        busy = {job.event.path for job in self.running}
        job = self.queue.take()
        if job is None:
            free = {names for (_, names), waiting in self.expected.items() if waiting} - busy
            if self.owed and () not in busy:
                free.add(())
            assert len(self.running) == AT_MOST or not free
            return
        assert len(self.running) < AT_MOST
        assert job.event.path not in busy
        self.running.append(job)
        if job.event.type == OVERFLOW:
            self.owed.remove(job.rule)
            return
        # In order: the oldest event of that rule and path, unless later ones were merged into it.
        waiting = self.expected[job.rule, job.event.path]
        first = waiting.pop(0)
        assert job.event == first or self.queue.counts.coalesced or self.queue.counts.dropped

    @precondition(lambda self: self.running)
    @rule(data=st.data(), failed=st.booleans())
    def end(self, data: st.DataObject, failed: bool) -> None:
        job = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        self.queue.done(job, failed=failed)
        self.ended += 1
        assert self.queue.counts.done + self.queue.counts.failed == self.ended

    @invariant()
    def bounded(self) -> None:
        assert self.queue.queued <= CAPACITY + len(RULES)
        assert self.queue.running == len(self.running) <= AT_MOST
        waiting = sum(len(events) for events in self.expected.values())
        assert self.queue.queued == waiting + len(self.owed)


TestQueue = QueueMachine.TestCase
TestQueue.settings = part(4, stateful_step_count=40)


def _drain(queue: HandlerQueue) -> list[Event]:
    found = []
    while (job := queue.take()) is not None:
        found.append(job.event)
        queue.done(job, failed=False)
    return found


@given(st.lists(events, max_size=30))
def test_with_room_for_all_every_event_runs_once_and_in_order_of_its_path(given: list[Event]) -> None:
    queue = HandlerQueue([Rule("all")], at_most=1, capacity=100)
    fits = [queue.put(event) for event in given]
    assert all(fits)
    found = _drain(queue)
    for names in {event.path for event in given}:
        assert [event for event in found if event.path == names] == [event for event in given if event.path == names]


def _merged(*types: str) -> str:
    queue = HandlerQueue([Rule("all")], at_most=1, capacity=1)
    for type in types:
        queue.put(Event(type, path("/a"), "file"))
    (event,) = _drain(queue)
    return event.type


def test_what_is_left_of_several_events_when_the_queue_is_full() -> None:
    assert _merged("create", "modify", "attributes") == "create"
    assert _merged("modify", "attributes") == "modify"
    assert _merged("attributes", "modify") == "modify"
    assert _merged("modify", "delete") == "delete"
    assert _merged("create", "delete") == "delete"
    assert _merged("delete", "create") == "modify"
    assert _merged("delete", "create", "delete") == "delete"


def test_a_path_that_does_not_fit_is_told_as_an_overflow_and_once() -> None:
    queue = HandlerQueue([Rule("all")], at_most=1, capacity=2)
    for name in "abcde":
        queue.put(Event("create", path(f"/{name}"), "file"))
    assert [event.type for event in _drain(queue)] == ["create", "create", OVERFLOW]
    assert queue.counts.dropped == 3
    # What overflows after that is told again.
    for name in "abc":
        queue.put(Event("create", path(f"/{name}"), "file"))
    assert [event.type for event in _drain(queue)] == ["create", "create", OVERFLOW]
