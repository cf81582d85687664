"""`make bench`: what a copy of /etc costs beside a FUSE passthrough and a plain directory, and how soon others have it.

All in one run, because machines differ and are shared: compare the ratios, not the seconds.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from eval.ending import end_cleanly
from eval.net.scenario import seconds_to_all
from eval.places import basefs, bindfs, plain
from tests.support.cluster import Cluster
from tests.support.namespaces import NamespaceNetwork
from tests.support.wait import wait_until

#: Small changes whose time to all nodes is taken.
CHANGES = 20
#: Seconds for a change, or the copy, to be everywhere.
PATIENCE = 120.0


def main() -> None:
    """Measure and print two tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tree", type=Path, default=Path("/etc"), help="what is copied (default: /etc)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of which the median counts (default: 5)")
    arguments = parser.parse_args()
    end_cleanly()
    with tempfile.TemporaryDirectory(prefix="basefs-bench-") as directory:
        # A copy, so that the source is on the same disk as the rest and does not change meanwhile.
        source = Path(directory) / "source"
        subprocess.run(["cp", "-a", arguments.tree, source], check=True)
        _bench_files(Path(directory), source, arguments.rounds)
        _bench_network(Path(directory), source)


def _bench_files(directory: Path, source: Path, rounds: int) -> None:
    files = sum(1 for path in source.rglob("*") if path.is_file() and not path.is_symlink())
    print(f"{files} files of {source}, median of {rounds} rounds, seconds\n")
    print(f"{'':16}{'copy':>10}{'warm read':>12}{'rm -r':>10}")
    seconds: dict[str, list[float]] = {}
    for name, place in (("plain directory", plain), ("bindfs", bindfs), ("BaseFS", basefs)):
        with place(directory / name.replace(" ", "-")) as target:
            seconds[name] = _measure_files(source, target / "copy", rounds)
        copy, read, removal = seconds[name]
        print(f"{name:16}{copy:>10.3f}{read:>12.3f}{removal:>10.3f}")
    for other in ("bindfs", "plain directory"):
        ratios = [ours / theirs for ours, theirs in zip(seconds["BaseFS"], seconds[other], strict=True)]
        print(f"BaseFS is {ratios[0]:.1f} / {ratios[1]:.1f} / {ratios[2]:.1f} times {other}")


def _measure_files(source: Path, target: Path, rounds: int) -> list[float]:
    copies, reads, removals = [], [], []
    for _ in range(rounds):
        copies.append(_time(lambda: subprocess.run(["cp", "-a", source, target], check=True)))
        read = ["tar", "-cf", "-", "-C", str(target), "."]
        subprocess.run(read, check=True, stdout=subprocess.DEVNULL)
        # To a pipe: tar does not read what goes to /dev/null.
        reads.append(_time(lambda read=read: subprocess.run([*read], check=True, capture_output=True)))  # type: ignore[misc]
        removals.append(_time(lambda: shutil.rmtree(target)))
    return [statistics.median(values) for values in (copies, reads, removals)]


def _time(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def _bench_network(directory: Path, source: Path) -> None:
    with NamespaceNetwork(directory, 3) as network:
        cluster = Cluster.start(network, writers=1)
        first, *others = cluster.nodes
        changes = [seconds_to_all(cluster.nodes, f"change{number}", b"small", PATIENCE) for number in range(CHANGES)]
        print("\n3 nodes, wan profile, seconds until all have it\n")
        print(f"{'one small change':28}{statistics.median(changes):.3f}")
        print(f"{'the slowest of ' + str(CHANGES):28}{max(changes):.3f}")
        start = time.monotonic()
        subprocess.run(["cp", "-a", source, first.mountpoint / "copy"], check=True)
        print(f"{'cp -a, on the first node':28}{time.monotonic() - start:.3f}")
        for node in others:
            command = ["diff", "-r", "--no-dereference", str(source), str(node.mountpoint / "copy")]
            wait_until(lambda command=command: _succeeds(command), PATIENCE, f"{node.address} has the copy")  # type: ignore[misc]
        print(f"{'  complete on all':28}{time.monotonic() - start:.3f}")


def _succeeds(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


if __name__ == "__main__":
    main()
