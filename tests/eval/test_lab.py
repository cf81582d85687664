"""A quick run of the experiments, on real nodes: rows, the shaping in force, a report; and it goes on where it was."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from eval.lab.plan import Plan
from eval.lab.workload import WRITES, links, sequence
from eval.report.data import Point, Results, papers
from eval.report.tables import worse
from eval.tables import write_csv
from tests.support.project import ROOT

#: What of BaseFS a profile may name: `fs/kernel`, `replica`.
MODULES = {str(path.relative_to(ROOT / "basefs").with_suffix("")) for path in (ROOT / "basefs").rglob("*.py")}


def run(results: Path, *arguments: str) -> str:
    """What `python -m eval --quick` prints."""
    command = [sys.executable, "-m", "eval", "--quick", "--results", results, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.cluster
@pytest.mark.fuse
@pytest.mark.serf
@pytest.mark.timeout(1800)
def test_a_quick_run_on_a_network_like_community_lab(tmp_path: Path) -> None:
    out = run(tmp_path, "community", "--nodes", "3", "--patience", "60", "--profile")
    assert "push community-lab: 13 files, on all nodes after" in out
    found = rows(tmp_path / "workload.csv")
    assert len(found) == 2 * 13 and {row["mode"] for row in found} == {"push", "paper"}
    assert all(row["shaped by"] == "emulator" and float(row["delay_ms"]) > 0 for row in found)
    assert all(row["nodes reached"] == "2" and row["root hashes"] == "1" for row in found if row["mode"] == "push")
    assert len(rows(tmp_path / "workload-traffic.csv")) == 2 * 3
    assert "starting" not in run(tmp_path, "community", "--nodes", "3"), "what was measured is not measured again"
    # A node on which little happens may have been seen at work by nobody.
    profiles = [rows(path) for path in (tmp_path / "profiles").glob("*/node*-total.csv")]
    assert profiles
    for profile in profiles:
        assert int(profile[0]["samples"]) > 0 and profile[0]["function"].partition(":")[0] in MODULES
    report = (tmp_path / "REPORT.md").read_text()
    assert "| Community-Lab | namespaces | 3 | push | 13 |" in report
    for name in ("workload.png", "balance.png", "links.png"):
        assert f"figures/{name}" in report and (tmp_path / "figures" / name).read_bytes().startswith(b"\x89PNG")


@pytest.mark.process
def test_what_configuration_takes_by_codec(tmp_path: Path) -> None:
    run(tmp_path, "etc")
    found = rows(tmp_path / "etc.csv")
    changed = {row["method"]: 0 for row in found if row["change"] == "line changed"}
    for row in found:
        if row["change"] == "line changed":
            changed[row["method"]] += int(row["bytes"])
    assert changed["bsdiff4"] < changed["zlib"] and changed["BaseFS"] <= changed["zlib"]
    assert (tmp_path / "figures" / "etc.png").exists()


@pytest.mark.process
def test_what_is_unknown_is_told(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "eval", "gosip"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "there is no experiment gosip; there are gossip" in done.stderr


def test_one_size_scales_everything() -> None:
    assert Plan(1.0).count == 30 and Plan(0.11).count == 10 and Plan(0.001).count == 3
    assert sorted(sequence(Plan(1.0))) == sorted(blocks for blocks, count in WRITES.items() for _ in range(count))
    assert sequence(Plan(0.1)) == sequence(Plan(0.1)) != sequence(Plan(0.1, seed=2))
    assert set(sequence(Plan(0.001))) == set(WRITES), "each kind of write is there at any size"


def test_links_are_those_of_community_lab() -> None:
    ways = links(30, 1)
    assert len(ways) == 30 * 29 and all(ways[one, other] == ways[other, one] for one, other in ways)
    delays = sorted(2 * way.delay for way in ways.values())
    assert delays[len(delays) // 2] == pytest.approx(5.4, abs=2.5), "the median of the paper's links is 5.4 ms"


def test_what_has_not_arrived_is_no_time() -> None:
    late = {"all s": "", "waited at most s": "60"}
    there = {"all s": "2.5", "waited at most s": "60"}
    assert str(Point.of([late])) == "> 60 (n=1)" and str(Point.of([there])) == "2.5 (n=1)"
    assert str(Point.of([there, {**there, "all s": "3.5"}])) == "3 (n=2, 2.5 to 3.5)"
    assert str(Point.of([late, there, there])) == "2.5 (n=3, 1 late)"
    assert str(Point.of([late, there])) == "> 60 (n=2, 1 late)", "the median is of all files, not of those that came"
    assert papers("gossip-only", "none", 1) == 0.993 and papers("gossip-only", "none", 2) is None


def test_each_mode_that_is_slower_than_the_paper_or_a_simpler_one_is_listed(tmp_path: Path) -> None:
    def file(mode: str, seconds: str, condition: str = "none") -> dict[str, str]:
        where = {"backend": "namespaces", "nodes": "4", "mode": mode, "condition": condition}
        return {**where, "blocks": "1", "number": "0", "all s": seconds, "waited at most s": "60", "lost": ""}

    kept = [file("push", "0.5"), file("paper", "0.3"), file("gossip", "20"), file("push", "", "loss-70")]
    write_csv(tmp_path / "convergence.csv", kept)
    assert worse(Results(tmp_path)) == [
        "BaseFS as it is, unknown, because our runs waited for a shorter time than the paper's: "
        "loss-70, 1 block: > 60 (n=1) s, the paper 1020 s.",
        "BaseFS with gossip and pulls only, slower than the paper: none, 1 block: 20 (n=1) s, the paper 0.856 s.",
        "BaseFS as it is, more than 1.2 x the time of BaseFS without push sessions: "
        "none, 1 block: 0.5 (n=1) and 0.3 (n=1) s.",
    ]
