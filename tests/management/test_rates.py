"""What two readings say."""

from __future__ import annotations

from basefs.management.resources import COLUMNS, Reading, Usage, row_between


def usage(cpu: float, *, pid: int = 1, switches: int = 0) -> Usage:
    return Usage(pid=pid, cpu=cpu, memory=1000, switches=switches, threads=3, files=9)


def test_counts_are_rates_and_levels_stay() -> None:
    before = Reading(100.0, {"daemon": usage(1.0), "serf": usage(5.0)}, {"sync_sent": 100, "entries": 3})
    after = Reading(102.0, {"daemon": usage(1.5, switches=50), "serf": usage(5.0)}, {"sync_sent": 700, "entries": 4})
    row = row_between(before, after)
    assert tuple(row) == COLUMNS
    assert (row["daemon_cpu_percent"], row["daemon_switches"], row["daemon_memory"]) == (25.0, 25, 1000)
    assert (row["serf_cpu_percent"], row["sync_sent"], row["entries"], row["time"]) == (0.0, 300, 4, 102.0)
    assert row["sync_received"] is None and row["queued"] is None


def test_a_process_that_is_another_one_has_no_rate_yet() -> None:
    before = Reading(100.0, {"daemon": usage(1.0), "serf": usage(50.0, pid=7)}, {})
    after = Reading(101.0, {"daemon": None, "serf": usage(0.1, pid=8)}, {})
    row = row_between(before, after)
    assert row["serf_cpu_percent"] is None and row["serf_memory"] == 1000
    assert row["daemon_memory"] is None


def test_threads_that_ended_took_their_switches_along() -> None:
    before = Reading(100.0, {"daemon": usage(1.0, switches=80)}, {})
    after = Reading(101.0, {"daemon": usage(1.0, switches=20)}, {})
    assert row_between(before, after)["daemon_switches"] == 0
