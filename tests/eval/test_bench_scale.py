"""Simulated clusters of `make bench-scale`, small ones: a seed decides what happens, and all that is promised does."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from eval.scale import measure
from eval.scale.cluster import Cluster, Setup
from eval.scale.members import grow
from tests.support.project import ROOT

NODES = 12


def test_a_seed_decides_everything_but_processor_time() -> None:
    def rows(seed: int) -> list[object]:
        row, shares = measure.changes(Setup(NODES, seed), 2)
        return [[(name, value) for name, value in row.items() if not name.startswith(("cpu", "idle cpu"))], shares]

    once = rows(7)
    assert rows(7) == once
    assert rows(8) != once


def test_a_change_reaches_all_nodes_over_their_push_sessions() -> None:
    row, shares = measure.changes(Setup(NODES, 1), 2)
    assert 0 < row["seconds least"] <= row["seconds"] <= row["seconds most"] < 2
    assert 3 <= row["push sessions"] <= 12
    # A change of 100 bytes costs each node less than a comparison does, and crosses to each at least once.
    assert 300 < row["bytes a node"] < 3000
    assert [each["share"] for each in shares] == sorted(each["share"] for each in shares)
    assert shares[0]["share"] < 0.2 and shares[-1]["share"] == 1


def test_halves_that_were_apart_are_equal_again() -> None:
    row = measure.heal(Setup(NODES, 1), 5, 60.0)
    assert row["entries a node lacked"] == 5 and row["halves equal in the cut"] == 2
    assert 0 < row["equal after s"] < 20


def test_newcomers_fetch_the_whole_log() -> None:
    row = measure.crowd(Setup(NODES, 1), 50)
    assert row["newcomers"] == 1 and 0 < row["seconds most"] < 20
    assert row["bytes a newcomer"] > row["log bytes"]


def test_machines_come_and_go_and_catch_up() -> None:
    row = measure.churn(Setup(NODES, 1), 0.5, 0.5, 40.0, 5.0)
    assert row["comings"] > 3 and row["written"] == 8
    assert 0 < row["back until current s"] < 20
    assert row["lacks what is older than 10 s, %"] < 5


def test_changes_conflict_only_if_another_author_was_quicker_than_the_network() -> None:
    alone = measure.conflicts(Setup(NODES, 1), 1, 10.0, 1, 30)
    assert alone["conflicts"] == 0 and alone["expected %"] == 0
    crowded = measure.conflicts(Setup(NODES, 1), 10, 10.0, 1, 60)
    assert crowded["conflicts %"] == pytest.approx(crowded["expected %"], abs=25) and crowded["conflicts"] > 10
    spread = measure.conflicts(Setup(NODES, 1), 10, 10.0, 100, 60)
    assert spread["conflicts"] < crowded["conflicts"] / 2


def test_a_machine_that_is_off_gets_nothing_until_it_is_on() -> None:
    with Cluster(Setup(NODES, 1)) as cluster:
        cluster.advance(3.0)
        node = cluster.nodes[0]
        cluster.fall(node)
        entry, change = cluster.write(cluster.nodes[1])
        cluster.wait(lambda: len(change.arrivals) == NODES - 2, 60.0, "a change")
        assert node.log.entry(entry.hash) is None
        cluster.rise(node)
        cluster.wait(lambda: node.log.entry(entry.hash) is not None, 60.0, "catching up")
        with pytest.raises(TimeoutError, match="takes longer than 5 s"):
            cluster.wait(lambda: False, 5.0, "nothing")


def test_more_members_cost_more() -> None:
    few, many = grow(10, 3), grow(100, 3)
    assert many["table KiB"] > 3 * few["table KiB"]
    assert many["look ms"] > 2 * few["look ms"]


@pytest.mark.process
def test_rows_name_their_origin(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "eval.bench_scale", "--results", str(tmp_path), "--nodes", "8"]
    for scenario in ("changes", "near"):
        command += ["--scenario", scenario]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "changes: a small change" in said.stdout
    for name, keys in (("changes", ["8"]), ("near", ["8"]), ("staleness", ["8"] * len(measure.MOMENTS))):
        with (tmp_path / f"bench_scale_{name}.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert [row["nodes"] for row in rows] == keys
        assert all(row["seed"] == "1" and row["machine"] for row in rows)
