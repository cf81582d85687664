"""When what was changed is published: soon, and in a burst after who makes it."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from basefs.fs.machine import BUSY_LOAD, THIS_MACHINE, Machine
from basefs.fs.publish import publisher
from basefs.fs.publish.plan import MAX_STEPS
from basefs.fs.publish.timing import (
    BURST_NAMES,
    BURST_SECONDS,
    CLOSED_SECONDS,
    MAX_NAMES,
    MAX_SECONDS,
    PATIENT_SECONDS,
    URGENT_SECONDS,
    Timing,
)
from basefs.fs.staging.overlay import Overlay

from basefs.errors import StoreError
from basefs.replica.bootstrap import bootstrap
from basefs.replica.replica import Applied
from tests.fs.local import Local, Surrounded
from tests.support.helpers import ROOT_KEY, path
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


class TestAPublisher:
    @pytest.fixture
    def hasty(self, scratch: Path) -> Iterator[Local]:
        """Whoever changes anything is never quiet."""
        directory = scratch / "hasty"
        directory.mkdir()
        bootstrap(directory, [(b"root", ROOT_KEY)], []).close()
        local = Local(Surrounded(directory, [ROOT_KEY]), quiet=NEVER_QUIET)
        yield local
        local.fs.close()
        local.replica.close()

    @pytest.mark.parametrize("load", [0.0, math.inf])
    def test_a_machine_is_busy_by_its_load(self, monkeypatch: pytest.MonkeyPatch, load: float) -> None:
        monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
        assert THIS_MACHINE.is_busy() == (load > BUSY_LOAD)

    @pytest.mark.parametrize("busy", [False, True])
    def test_waits_less_for_a_single_new_file_unless_the_machine_is_busy(self, scratch: Path, busy: bool) -> None:
        now = 1000.0
        replica = bootstrap(scratch, [(b"root", ROOT_KEY)], [])
        local = Local(replica, quiet=QUIET, machine=Machine(steady=lambda: now, is_busy=lambda: busy))
        local.save("/f", b"x")
        assert local.fs.publisher.attempt() == now + (QUIET if busy else CLOSED_SECONDS)
        now += CLOSED_SECONDS
        local.fs.publisher.attempt()
        assert local.fs.unpublished() == busy
        local.fs.close()
        local.replica.close()

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
        assert hasty.load("/more") == b"y"
        assert hasty.fs.working.replica.check_view() == []

    def test_tries_again_what_failed_for_somebody_else(self, hasty: Local) -> None:
        hasty.fs.start()

        def fail(commit: Callable[[], Applied]) -> Applied:
            raise StoreError("not now")

        hasty.surround(fail)
        hasty.save("/f", b"x")
        with pytest.raises(StoreError):
            hasty.publish()
        hasty.surround(None)
        wait_until(lambda: hasty.fs.unpublished() == 0, "another try")

    def test_lets_nobody_publish_while_it_reckons(self, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        overlaps = []

        class Slow(Timing):
            is_reckoning = False

            def due(self, names: int, *, busy: bool = False) -> float | None:
                self.is_reckoning = True
                time.sleep(0.02)
                found = super().due(names, busy=busy)
                self.is_reckoning = False
                return found

            def begin(self, now: float) -> None:
                overlaps.append(self.is_reckoning)
                super().begin(now)

        monkeypatch.setattr(publisher, "Timing", Slow)
        local = Local(bootstrap(scratch, [(b"root", ROOT_KEY)], []))
        local.fs.start()
        for number in range(20):
            local.save("/f", b"%d" % number)
            local.publish()
        local.fs.close()
        local.replica.close()
        assert not any(overlaps)

    def test_does_not_take_what_never_leaves_this_node_for_a_burst(self, hasty: Local) -> None:
        for number in range(2 * BURST_NAMES):
            hasty.save(f"/{number}~", b"x")
        hasty.publish()
        for number in range(MAX_STEPS + 1):
            hasty.save(f"/{number}", b"x")
        hasty.replica.subscribe(lambda _: None if hasty.fs.working.exists(path("/more")) else hasty.save("/more", b""))
        hasty.fs.publish(patient=True)
        assert hasty.fs.unpublished() == 1, "what came meanwhile"


class TestAnOverlay:
    def test_counts_the_names_that_it_tells_of(self) -> None:
        overlay = Overlay()
        overlay.put(path("/a/b"), None)
        overlay.put(path("/a/b"), None)
        overlay.put(path("/a"), None)
        assert len(overlay) == 2
        overlay.drop(path("/a"))
        overlay.drop(path("/a"))
        overlay.drop(path("/x"))
        assert len(overlay) == 1 == len(list(overlay.items()))
        overlay.drop(path("/a/b"))
        assert not overlay
