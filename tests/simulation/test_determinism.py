"""A seed is a run: again, in another process, with another order of sets, and in another Python."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.simulation.faults import KINDS, MOUNT_KINDS, RARE_KINDS, Plan
from tests.simulation.run import play
from tests.simulation.scenes import Scene
from tests.support.project import ROOT

#: A seed of a few hundred milliseconds with partitions and kills.
SEED = next(
    seed
    for seed in range(1000)
    if {"partition", "kill", "stranger"} <= set(Plan.draw(seed).faults)
    and (Plan.draw(seed).nodes, Plan.draw(seed).seconds) == (3, 20.0)
)
#: A seed in which much happens in the same moment.
TIMERS = 0
#: A closed filesystem with a newcomer, whose traces depend on the lengths of OpenSSL's records.
CLOSED = next(seed for seed in range(1000) if Scene.draw(Plan.draw(seed)).newcomers)
#: A short seed in which processes end in the middle of what they do to their disks.
CRASHES = next(
    seed
    for seed in range(1000)
    if {"crash", "power"} <= set(Plan.draw(seed).faults)
    and (Plan.draw(seed).nodes, Plan.draw(seed).seconds) == (2, 20.0)
    and len(Plan.draw(seed).mounted) == 2
    and not Scene.draw(Plan.draw(seed)).is_closed
)
#: A seed in which users are told that a disk is full, with the name of the log.
FULL = 8
SEEDS = (SEED, TIMERS, CRASHES)
#: Other Pythons with the packages of the tests.
OTHERS = [str(python) for python in (ROOT / ".venv" / "pythons").glob("*/bin/python")]


@pytest.mark.parametrize("seed", [SEED, CLOSED], ids=["open", "closed"])
def test_a_seed_is_played_again_line_by_line(seed: int) -> None:
    first = play(seed)
    # Objects are elsewhere in memory the second time.
    second = play(seed)
    assert len(first.trace) > 100
    assert first.trace == second.trace


@pytest.mark.logs("disk full", "cannot publish", "stays on this node: no key of this node may write")
def test_a_trace_does_not_tell_where_its_run_had_its_files() -> None:
    first, second = play(FULL), play(FULL)
    assert any("user: " in line and " is full: " in line for line in first.trace)
    assert first.trace == second.trace


@pytest.mark.process
@pytest.mark.logs("cannot publish", "after a power cut", "a power cut has taken")
def test_neither_python_nor_the_order_of_its_sets_makes_a_difference() -> None:
    """In this Python, and in those of `make pythons`."""
    program = f"from tests.simulation.run import play; print(*(play(seed).digest for seed in {SEEDS}))"
    digests = {
        (number, python): subprocess.run(
            [python, "-c", program],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": str(number)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for number, python in enumerate([sys.executable, sys.executable, *sorted(OTHERS)], 1)
    }
    assert set(digests.values()) == {" ".join(play(seed).digest for seed in SEEDS) + "\n"}, digests


def test_each_kind_of_fault_is_drawn() -> None:
    plans = [Plan.draw(seed) for seed in range(100)]
    assert {kind for plan in plans for kind in plan.faults} == {*KINDS, *RARE_KINDS, *MOUNT_KINDS}
    assert any(plan.twins for plan in plans)
    assert {len(plan.mounted) for plan in plans} >= {0, 1, 2, 3}
    assert len({plan.tuning for plan in plans}) > 10
    assert any(not plan.faults for plan in plans)


def test_each_kind_of_scene_is_drawn() -> None:
    scenes = [Scene.draw(Plan.draw(seed)) for seed in range(100)]
    assert {scene.is_closed for scene in scenes} == {True, False}
    assert {scene.invites for scene in scenes if scene.newcomers} == {True, False}
    assert any(scene.asks for scene in scenes) and any(scene.deaf for scene in scenes)
    assert {kind for scene in scenes for kind in scene.weights} == {"symlink", "expel", "readmit"}
