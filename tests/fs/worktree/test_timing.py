"""When what was changed is published: soon, and in a burst after who makes it."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from basefs.fs.worktree.machine import BUSY_LOAD, THIS_MACHINE, Machine
from basefs.fs.worktree.publisher import MAX_STEPS
from basefs.fs.worktree.timing import (
    BURST_NAMES,
    BURST_SECONDS,
    CLOSED_SECONDS,
    MAX_NAMES,
    MAX_SECONDS,
    PATIENT_SECONDS,
    URGENT_SECONDS,
    Timing,
)
from basefs.replica.replica import Applied
from tests.fs.local import Local
from tests.support.mounts import wait_until

QUIET = 0.05
MANY = BURST_NAMES + 1
#: Long enough that no pause of this machine ends a burst.
NEVER_QUIET = 1000.0


@pytest.fixture
def timing() -> Timing:
    return Timing(QUIET)


class TestDue:
    def test_nothing_before_anything_has_changed(self, timing: Timing) -> None:
        assert timing.due(0) is None

    def test_after_a_moment_of_quiet_and_in_a_second_at_the_latest(self, timing: Timing) -> None:
        assert timing.change(10.0)
        assert timing.due(1) == 10.0 + QUIET
        assert not timing.change(10.9)
        assert timing.due(1) == pytest.approx(10.9 + QUIET)
        timing.change(10.99)
        assert timing.due(1) == 10.0 + MAX_SECONDS

    def test_earlier_after_a_rewrite_in_place(self, timing: Timing) -> None:
        timing.change(10.0)
        assert timing.change(10.01, urgent=True)
        assert timing.due(1) == 10.01 + URGENT_SECONDS

    def test_after_a_burst_even_if_files_were_rewritten_in_it(self, timing: Timing) -> None:
        timing.change(10.0, urgent=True)
        timing.change(13.0, urgent=True)
        assert timing.due(MANY) == 13.0 + QUIET

    def test_in_a_burst_that_does_not_end(self, timing: Timing) -> None:
        timing.change(10.0)
        timing.change(10.0 + BURST_SECONDS)
        assert timing.due(MANY) == 10.0 + BURST_SECONDS

    def test_soon_where_a_burst_fills_the_memory(self, timing: Timing) -> None:
        timing.change(10.0)
        timing.change(15.0)
        assert timing.due(MAX_NAMES + 1) == 10.0 + MAX_SECONDS

    def test_when_what_is_held_back_is_over_but_not_in_a_burst(self, timing: Timing) -> None:
        timing.hold(10.5)
        assert timing.due(0) == 10.5
        timing.change(10.49)
        assert timing.due(1) == 10.5
        assert timing.due(MANY) == pytest.approx(10.49 + QUIET)

    def test_to_try_again_does_not_prolong_a_burst(self, timing: Timing) -> None:
        timing.change(10.0)
        timing.ask(10.04)
        assert timing.due(MANY) == 10.0 + QUIET


class TestASingleNewFile:
    @pytest.fixture(autouse=True)
    def closed(self, timing: Timing) -> None:
        """It was made and closed."""
        timing.change(10.0)
        assert timing.due(1) == 10.0 + QUIET
        assert timing.change(10.001, closed=True), "it is due earlier than that"
        assert not timing.change(10.002, closed=True), "who waits knows"

    def test_is_due_sooner(self, timing: Timing) -> None:
        assert timing.due(1) == 10.002 + CLOSED_SECONDS

    def test_is_not_where_others_have_changed(self, timing: Timing) -> None:
        assert timing.due(2) == 10.002 + QUIET

    def test_is_not_on_a_busy_machine(self, timing: Timing) -> None:
        assert timing.due(1, busy=True) == 10.002 + QUIET

    def test_is_not_after_its_mode_was_set(self, timing: Timing) -> None:
        timing.change(10.003)
        assert timing.due(1) == 10.003 + QUIET

    def test_is_not_for_a_while_after_that_was_too_soon(self, timing: Timing) -> None:
        timing.begin(10.03)
        timing.change(10.04)
        timing.change(10.05, closed=True)
        assert timing.due(1) == 10.05 + QUIET
        timing.begin(10.1)
        later = 10.05 + PATIENT_SECONDS
        timing.change(later, closed=True)
        assert timing.due(1) == later + CLOSED_SECONDS

    def test_is_still_where_the_next_change_comes_later(self, timing: Timing) -> None:
        timing.begin(10.03)
        timing.change(10.002 + QUIET, closed=True)
        assert timing.due(1) == 10.002 + QUIET + CLOSED_SECONDS


class TestGivingWay:
    def test_to_a_burst_that_goes_on_until_it_has_lasted_for_long(self, timing: Timing) -> None:
        timing.change(10.0)
        timing.begin(10.06)
        assert not timing.gives_way(10.06, MANY), "nothing has changed since"
        timing.change(10.07)
        assert not timing.gives_way(10.08, BURST_NAMES), "few are pending"
        assert timing.gives_way(10.08, MANY)
        # What was put off is as old as it was.
        timing.change(10.0 + BURST_SECONDS)
        assert timing.due(MANY) == 10.0 + BURST_SECONDS
        timing.begin(10.0 + BURST_SECONDS)
        timing.change(10.01 + BURST_SECONDS)
        assert not timing.gives_way(10.02 + BURST_SECONDS, MANY)

    def test_not_where_the_burst_is_over(self, timing: Timing) -> None:
        timing.change(10.0)
        timing.begin(10.06)
        timing.change(10.07)
        assert not timing.gives_way(10.08 + QUIET, MANY)


class TestAFilesystem:
    @pytest.fixture
    def hasty(self, scratch: Path) -> Iterator[Local]:
        """Whoever changes anything is never quiet."""
        made = Local.bootstrap(scratch / "log")
        made.kill()
        made._quiet = NEVER_QUIET
        local = made.again()
        yield local
        local.close()

    @pytest.mark.parametrize("load", [0.0, math.inf])
    def test_a_machine_is_busy_by_its_load(self, monkeypatch: pytest.MonkeyPatch, load: float) -> None:
        monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
        assert THIS_MACHINE.is_busy() == (load > BUSY_LOAD)

    def test_publishes_without_being_asked(self, local: Local) -> None:
        local.fs.start()
        local.save("/f", b"x")
        wait_until(lambda: local.fs.unpublished() == 0, "the end of the quiet window")
        assert local.view() == local.disk()

    def test_stops_between_two_transactions_for_who_goes_on_with_a_burst(self, hasty: Local) -> None:
        for number in range(2 * BURST_NAMES):
            hasty.save(f"/{number}", b"x")
        transactions: list[Applied] = []

        def go_on(applied: Applied) -> None:
            transactions.append(applied)
            if len(transactions) == 1:
                hasty.save("/more", b"y")

        hasty.replica.subscribe(go_on)
        hasty.fs.publish(patient=True)
        assert len(transactions) == 1
        assert hasty.fs.unpublished() == 2 * BURST_NAMES + 1 - MAX_STEPS
        hasty.fs.publish(patient=True)
        assert hasty.fs.unpublished() == 0
        assert hasty.view() == hasty.disk()

    def test_does_not_take_what_never_leaves_this_node_for_a_burst(self, hasty: Local) -> None:
        for number in range(2 * BURST_NAMES):
            hasty.save(f"/{number}~", b"x")
        hasty.publish()
        for number in range(MAX_STEPS + 1):
            hasty.save(f"/{number}", b"x")
        hasty.fs.publish(patient=True)
        assert hasty.fs.unpublished() == 0

    @pytest.mark.logs("cannot publish, retrying")
    def test_tries_again_what_has_failed(self, scratch: Path) -> None:
        made = Local.bootstrap(scratch / "log")
        made.kill()
        now = 1000.0
        made._machine = Machine(steady=lambda: now)
        local = made.again()
        local.fs.start()
        database = local.replica._store.database
        database.main.execute("PRAGMA query_only = 1")
        local.save("/f", b"x")
        local.publish()
        assert local.fs.unpublished() == 1
        database.main.execute("PRAGMA query_only = 0")
        now += NEVER_QUIET
        local.tell("/f")
        wait_until(lambda: local.fs.unpublished() == 0, "another try")
        local.close()
