"""Memory of a daemon with a long log after a day of files that come and go: `make bench-churn`.

A daemon mounts a log, and all files are read once.  Then files are made in one directory and removed, some hundred at
a time, each step published before the next one, so that each file is entries of the log.  Each has a name of its own.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from basefs.daemon.config import Home
from eval.benchmark import Benchmark
from eval.histories import keeper, make_log
from eval.net.scenario import cpu_seconds, peak_mib, say, serf_pid
from eval.rows import Row
from tests.support.cluster import NAME
from tests.support.node import Node

#: Entries of the log, and files that come and go in a day.
ENTRIES, FILES = 130_000, 40_000
#: Files that are there at once.
_AT_ONCE = 500
#: What is told with its spread.
_SPREAD = ("daemon MiB", "peak MiB")
#: Files between two lines of progress.
_SAY = 5_000


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--entries", type=int, default=ENTRIES, help="of the log (%(default)s)")
    parser.add_argument("--files", type=int, default=FILES, help="made and removed (%(default)s)")
    parser.add_argument("--rounds", type=int, default=1, help="how often it is measured (%(default)s)")
    with Benchmark(parser) as benchmark:
        options = benchmark.options
        rows = benchmark.rows("bench_churn", ("entries", "files"))
        rows.measure(
            lambda: _summary([_measure(options.entries, options.files) for _ in range(options.rounds)]),
            entries=options.entries,
            files=options.files,
        )


def _summary(rounds: Sequence[Row]) -> Row:
    """Medians, with the least and the most of some."""
    row: Row = {"rounds": len(rounds)}
    for name in rounds[0]:
        values = [each[name] for each in rounds]
        row[name] = statistics.median(values)
        if name in _SPREAD:
            row[f"{name} least"], row[f"{name} most"] = min(values), max(values)
    return row


def _measure(entries: int, files: int) -> Row:
    with tempfile.TemporaryDirectory(prefix="bench-churn-") as directory, keeper(Path(directory)) as node:
        say(f"making a log of {entries} entries")
        make_log(Home(node.home).directory(NAME), entries)
        root = node.mount(NAME)
        live = [path.read_bytes() for path in root.rglob("*") if path.is_file()]
        before, used, start = _mib(node), cpu_seconds(node.daemon(NAME)), time.monotonic()
        say(f"{len(live)} files are read; {files} come and go")
        (root / "spool").mkdir()
        for first in range(0, files, _AT_ONCE):
            paths = [root / "spool" / f"job{number}" for number in range(first, min(first + _AT_ONCE, files))]
            for path in paths:
                path.write_text(f"{path.name}\n")
            node.settle(NAME)
            for path in paths:
                path.unlink()
            node.settle(NAME)
            if first % _SAY == 0:
                say(f"{first + len(paths)} files: {_mib(node):.0f} MiB")
        return {
            "live files": len(live),
            "entries after": node.entries(NAME),
            "daemon MiB before": before,
            "daemon MiB": _mib(node),
            "peak MiB": peak_mib(node.daemon(NAME)),
            "serf MiB": psutil.Process(serf_pid(node)).memory_info().rss / (1 << 20),
            "seconds": time.monotonic() - start,
            "cpu s": cpu_seconds(node.daemon(NAME)) - used,
        }


def _mib(node: Node) -> float:
    return float(psutil.Process(node.daemon(NAME)).memory_info().rss) / (1 << 20)


if __name__ == "__main__":
    main()
