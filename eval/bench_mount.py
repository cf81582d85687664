"""`make bench-mount`: what a node that is mounted does: renames, starts, memory, a killed daemon, copies to others.

Memory and descriptors are those of the daemon and the mount server.  What another node has is looked for in its
worktree, so that looking costs neither of them.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path

import psutil

from eval.bench_fs import make_files
from eval.benchmark import Benchmark, scenario_parser
from eval.net.scenario import cpu_seconds, peak_mib, reset_peak, say, serf_pid
from eval.places import NAME as PLACE
from eval.places import PLACES, by_turns, mounted, settle
from eval.rows import Row
from eval.storm import Readers, make_content, spawn
from tests.support.cluster import NAME, Cluster
from tests.support.namespaces import NamespaceNetwork
from tests.support.node import Node
from tests.support.wait import wait_until

#: Files of the directory that is moved.
MOVED = 2000
#: Names of the large tree: files, and one directory for each hundred of them.
NAMES = 40_000
#: Files that are copied to three nodes.
COPIED = 5000
#: Files that wait to be published, each larger than what an entry carries by itself.
WAITING, WAITING_BYTES = 1100, 16 << 10
#: Changes of one block whose processor time is taken, and bytes of each.
CHANGES, CHANGE_BYTES = 50, 400
_FILES_A_DIRECTORY = 100
#: Processes that read, and that write, while a daemon is killed, and their files.
_READERS, _WRITERS, _SHARED_FILES = 2, 2, 50
#: Seconds between two saves of a writer.
_SAVE_PAUSE = 0.01
#: Seconds for which a reader goes on where nothing is published, and for which programs have no daemon.
_WATCHED, _WITHOUT_DAEMON = 1.0, 2.0
#: Seconds of an idle node, whose processor time is subtracted.
_IDLE = 5.0
#: Seconds between two looks at a disk, and at descriptors.
_LOOK, _DESCRIPTOR_LOOK = 0.01, 0.005
#: Seconds for what should happen.
_PATIENCE = 300.0
_OPTIONS = ("--owners", "--profile", "lan")
#: Bytes.
_MB = 1e6


class _Samples:
    """Values of each figure, by place."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def add(self, what: str, value: float, place: str = "BaseFS") -> None:
        """Take in a value of one round."""
        self._values[what][place].append(value)

    def rows(self) -> Iterator[Row]:
        """A row for each figure: medians, and the least and the most on BaseFS."""
        for what, places in self._values.items():
            ours = places["BaseFS"]
            row: Row = {"what": what, "rounds": len(ours), "BaseFS least": min(ours), "BaseFS most": max(ours)}
            row.update({place: statistics.median(places[place]) if place in places else "" for place in PLACES})
            yield {name: round(value, 5) if isinstance(value, float) else value for name, value in row.items()}


@dataclass(frozen=True)
class _Part:
    """Figures that are measured together.

    Attributes:
        about: what is measured, for the command line.
        last: the figure that is measured last.
        run: measures in a directory that is there, so many rounds.
        rounds: unless the command line says otherwise.
    """

    about: str
    last: str
    run: Callable[[Path, int, _Samples], None]
    rounds: int


def main() -> None:
    """Measure, write a table as CSV and print it."""
    parser = scenario_parser(__doc__, {name: part.about for name, part in PARTS.items()})
    parser.add_argument("--repeat", type=int, default=0, help="rounds of each part (default: its own)")
    with Benchmark(parser) as benchmark:
        options = benchmark.options
        rows = benchmark.rows("bench_mount", ("part", "what"))
        for name in options.scenario or PARTS:
            part, samples = PARTS[name], _Samples()
            key = {"part": name, "what": part.last}
            if rows.has(**key):
                continue
            say(f"{name}: {part.about}")
            # What ends a part early is a row of its last figure.
            with (
                benchmark.going_on(name),
                tempfile.TemporaryDirectory(prefix="bench-mount-") as text,
                rows.recording(**key),
            ):
                part.run(Path(text), options.repeat or part.rounds, samples)
                rows.add_all({"part": name, **row} for row in samples.rows())


def _move(directory: Path, rounds: int, samples: _Samples) -> None:
    for number in range(rounds):
        for place in by_turns(number):
            with PLACES[place](directory / f"{place}-{number}") as root:
                make_files(root / "many", 1, MOVED)
                beside = root / "beside"
                beside.write_bytes(make_content(beside.name, 0))
                settle(root)
                with _Waiting(beside) as quiet:
                    time.sleep(_WATCHED)
                with _Waiting(beside) as reader:
                    samples.add(_MOVE, 1000 * _seconds(lambda r=root: (r / "many").rename(r / "moved")), place)  # type: ignore[misc]
                    time.sleep(_WATCHED)
                    # Until it is published.
                    settle(root)
                samples.add("longest wait of a reader at rest, ms", 1000 * quiet.longest, place)
                samples.add(_MOVE_WAIT, 1000 * reader.longest, place)


class _Waiting:
    """A process that reads one file again and again while the block runs; `longest`: its longest wait, in seconds."""

    def __init__(self, path: Path) -> None:
        # A thread would wait for this process's other ones.
        self._reading = Readers(path.parent, [path.name], 1)
        self.longest = 0.0

    def __enter__(self) -> _Waiting:
        self._reading.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._reading.__exit__()
        self.longest = max(self._reading.seen[0].seconds)


def _names(directory: Path, rounds: int, samples: _Samples) -> None:
    source = directory / "source"
    make_files(source, NAMES // _FILES_A_DIRECTORY, _FILES_A_DIRECTORY)
    expected = _sizes(source)
    for number in range(rounds):
        (directory / f"round{number}").mkdir()
        with NamespaceNetwork(directory / f"round{number}", 2) as network:
            _names_round(network, source, expected, samples)


def _names_round(
    network: NamespaceNetwork, source: Path, expected: Mapping[str, Mapping[str, int]], samples: _Samples
) -> None:
    first, newcomer = network.nodes
    Cluster.start(network, [first], profile="lan")
    samples.add(_MEMORY_EMPTY, _megabytes(first))
    for pid in _processes(first):
        reset_peak(pid)
    say(f"{NAMES} names are copied to a node")
    start = time.perf_counter()
    # The directories of the tree are those of the top.
    subprocess.run(["cp", "-aT", source, first.mountpoint], check=True)
    samples.add(f"copy of {NAMES} names, s", time.perf_counter() - start)
    first.settle(NAME)
    samples.add(f"copy of {NAMES} names, in the log, s", time.perf_counter() - start)
    samples.add(_MEMORY_PEAK, sum(peak_mib(pid) for pid in _processes(first)) * (1 << 20) / _MB)
    samples.add("memory after publishing them, MB", _megabytes(first))
    say("another node fetches and mounts them")
    samples.add("`basefs get`, s", _seconds(lambda: newcomer.basefs("get", NAME, first.endpoint)))
    answers, listed, complete = _mount(newcomer, expected)
    samples.add("first mount, until `basefs mount` returns, s", answers)
    samples.add(_FIRST_LIST, listed)
    samples.add(_FIRST_MOUNT, complete)
    samples.add("memory after the first mount, MB", _megabytes(newcomer))
    newcomer.basefs("unmount", NAME)
    answers, listed, _ = _mount(newcomer, expected)
    samples.add("mounted again, until `basefs mount` returns, s", answers)
    samples.add("mounted again, until `ls` of the top, s", listed)
    newcomer.settle(NAME)
    samples.add(_MEMORY_NAMES, _megabytes(newcomer))


def _mount(node: Node, expected: Mapping[str, Mapping[str, int]]) -> tuple[float, float, float]:
    """Mount; seconds until the command returns, until the top shows all its names, and until all files are there."""
    top = {name.split("/")[0] for name in expected if name != "."}
    start = time.monotonic()

    def mount() -> float:
        node.mount(NAME, *_OPTIONS)
        return time.monotonic() - start

    # Names may be there before the command returns.
    with ThreadPoolExecutor(1) as pool:
        mounting = pool.submit(mount)
        wait_until(
            lambda: node.mountpoint.is_dir() and top <= set(os.listdir(node.mountpoint)), _PATIENCE, "ls of the top"
        )
        listed = time.monotonic() - start
        _wait_for_files(node, "", expected)
        complete = time.monotonic() - start
        return mounting.result(), listed, complete


def _killed(directory: Path, rounds: int, samples: _Samples) -> None:
    with NamespaceNetwork(directory, 2) as network:
        first, second = Cluster.start(network, profile="lan").nodes
        names = [f"file{number}" for number in range(_SHARED_FILES)]
        for name in names:
            (first.mountpoint / name).write_bytes(make_content(name, 0))
        first.settle(NAME)
        for number in range(rounds):
            with Readers(first.mountpoint, names, _READERS) as reading, _Writers(first.mountpoint, names) as writing:
                first.kill(NAME)
                time.sleep(_WITHOUT_DAEMON)
                (first.mountpoint / f"meanwhile{number}").write_bytes(b"here")
                (second.mountpoint / f"elsewhere{number}").write_bytes(b"there")
                second.settle(NAME)
                start = time.perf_counter()
                first.mount(NAME, *_OPTIONS)
                samples.add("until `basefs mount` returns, s", time.perf_counter() - start)
                for node, name, size in ((second, f"meanwhile{number}", 4), (first, f"elsewhere{number}", 5)):
                    _wait_for_files(node, "", {".": {name: size}})
                samples.add(_IN_STEP, time.perf_counter() - start)
            errors = sum(len(one.errors) + len(one.torn) for one in reading.seen) + writing.errors
            samples.add("reads and saves meanwhile", sum(len(one.seconds) for one in reading.seen) + writing.saves)
            samples.add(_ERRORS, errors)


class _Writers:
    """Processes that save files, each by a rename, while the block runs."""

    def __init__(self, root: Path, names: Sequence[str]) -> None:
        self._stop = multiprocessing.Event()
        self._writing = [
            spawn(_save_all, root, names[number::_WRITERS], self._stop, number) for number in range(_WRITERS)
        ]
        self.saves = self.errors = 0

    def __enter__(self) -> _Writers:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for connection in self._writing:
            saves, errors = connection.recv()
            self.saves, self.errors = self.saves + saves, self.errors + errors


def _save_all(root: Path, names: Sequence[str], stop: Event, number: int, answer: Connection) -> None:
    saves = errors = revision = 0
    while not stop.is_set():
        revision += 1
        for name in names:
            try:
                new = root / f".{name}.{number}.tmp"
                new.write_bytes(make_content(name, revision))
                new.rename(root / name)
                saves += 1
            except OSError:
                errors += 1
            time.sleep(_SAVE_PAUSE)
    answer.send((saves, errors))


def _descriptors(directory: Path, rounds: int, samples: _Samples) -> None:
    for number in range(rounds):
        with mounted(directory / f"node{number}") as node:
            pids = {"daemon": node.daemon(PLACE), "mount server": node.server(PLACE)}
            before = {who: _open_files(pid) for who, pid in pids.items()}
            most = dict(before)
            done = threading.Event()

            def look(most: dict[str, int] = most, pids: Mapping[str, int] = pids, done: threading.Event = done) -> None:
                while not done.wait(_DESCRIPTOR_LOOK):
                    for who, pid in pids.items():
                        most[who] = max(most[who], _open_files(pid))

            looking = threading.Thread(target=look)
            looking.start()
            try:
                for file in range(WAITING):
                    (node.mountpoint / f"file{file}").write_bytes(bytes([file % 256]) * WAITING_BYTES)
                node.settle(PLACE)
            finally:
                done.set()
                looking.join()
            samples.add("descriptors of both at rest", sum(before.values()))
            samples.add("most descriptors of the daemon", most["daemon"])
            samples.add(_DESCRIPTORS, max(most[who] - before[who] for who in most))


def _cpu(directory: Path, rounds: int, samples: _Samples) -> None:
    with NamespaceNetwork(directory, 2) as network:
        cluster = Cluster.start(network, profile="lan")
        cluster.wait_for_sessions()
        path = "changing"
        _change(cluster, path, 0)
        for number in range(rounds):
            before, start = _cpu_of_nodes(cluster), time.monotonic()
            time.sleep(_IDLE)
            passed = time.monotonic() - start
            idle = [(later - early) / passed for early, later in zip(before, _cpu_of_nodes(cluster), strict=True)]
            before, start = _cpu_of_nodes(cluster), time.monotonic()
            took = [_change(cluster, path, 1 + number * CHANGES + change) for change in range(CHANGES)]
            passed = time.monotonic() - start
            used = [later - early for early, later in zip(before, _cpu_of_nodes(cluster), strict=True)]
            samples.add("a change of one block, until it is on the other node, s", statistics.median(took))
            for what, one, rest in zip((_CPU_WRITER, _CPU_READER), used, idle, strict=True):
                samples.add(what, 1000 * max(one - rest * passed, 0.0) / CHANGES)


def _change(cluster: Cluster, path: str, number: int) -> float:
    """Save a file on the first node; seconds until the second one has it."""
    content = f"{number:08}".encode() * (CHANGE_BYTES // 8)
    there = _worktree(cluster.nodes[1]) / path
    start = time.perf_counter()
    (cluster.nodes[0].mountpoint / path).write_bytes(content)
    while True:
        with contextlib.suppress(FileNotFoundError):
            if there.read_bytes() == content:
                return time.perf_counter() - start
        if time.perf_counter() - start > _PATIENCE:
            raise TimeoutError(f"change {number} has not arrived in {_PATIENCE:g} s")
        time.sleep(_LOOK / 2)


def _copies(directory: Path, rounds: int, samples: _Samples) -> None:
    source = directory / "source"
    make_files(source, COPIED // _FILES_A_DIRECTORY, _FILES_A_DIRECTORY)
    expected = _sizes(source)
    with NamespaceNetwork(directory, 3) as network:
        cluster = Cluster.start(network, writers=1, profile="lan")
        cluster.wait_for_sessions()
        first, third = cluster.nodes[0], cluster.nodes[2]
        for number in range(rounds):
            name = f"copy{number}"
            target, there = first.mountpoint / name, _worktree(third) / name
            start = time.perf_counter()
            subprocess.run(["cp", "-a", source, target], check=True)
            samples.add(f"`cp -a` of {COPIED} files, s", time.perf_counter() - start)
            _wait_for_files(third, name, expected)
            samples.add(_COPIED, time.perf_counter() - start)
            cluster.wait_until_equal(_PATIENCE)
            # A second has passed, of which a time is a name; none of the tree was changed in it.
            time.sleep(1.0)
            then = time.strftime("%Y-%m-%d %H:%M:%S")
            time.sleep(1.0)
            start = time.perf_counter()
            subprocess.run(["rm", "-rf", target], check=True)
            samples.add(_REMOVED, time.perf_counter() - start)
            wait_until(lambda there=there: not there.exists(), _PATIENCE, "the copy is gone on the third node")  # type: ignore[misc]
            samples.add("... gone on the third node, s", time.perf_counter() - start)
            cluster.wait_until_equal(_PATIENCE)
            start = time.perf_counter()
            first.basefs("revert", f"{NAME}:/{name}", "--at", then, "-y")
            samples.add("`basefs revert` of the removal, s", time.perf_counter() - start)
            _wait_for_files(first, name, expected)
            samples.add(_UNDONE, time.perf_counter() - start)
            _wait_for_files(third, name, expected)
            samples.add("... there again on the third node, s", time.perf_counter() - start)
            # The next round begins with as few names.
            shutil.rmtree(target)
            cluster.wait_until_equal(_PATIENCE)


def _sizes(top: Path) -> dict[str, dict[str, int]]:
    """The files of a tree: sizes by name, by directory."""
    return {
        os.path.relpath(base, top): {name: os.lstat(os.path.join(base, name)).st_size for name in names}
        for base, _, names in os.walk(top)
    }


def _wait_for_files(node: Node, below: str, expected: Mapping[str, Mapping[str, int]]) -> None:
    """Until a node has files of these sizes on its disk; a directory that is complete is looked at once."""
    top, missing = _worktree(node) / below, list(expected)

    def is_complete() -> bool:
        while missing and _has(top / missing[-1], expected[missing[-1]]):
            missing.pop()
        return not missing

    wait_until(is_complete, _PATIENCE, f"{sum(map(len, expected.values()))} files on {node.address}")


def _has(directory: Path, expected: Mapping[str, int]) -> bool:
    try:
        return all(os.lstat(directory / name).st_size == size for name, size in expected.items())
    except (FileNotFoundError, NotADirectoryError):
        return False


def _worktree(node: Node) -> Path:
    return node.home / "fs" / NAME / "tree"


def _processes(node: Node) -> tuple[int, int]:
    """Daemon and mount server."""
    return node.daemon(NAME), node.server(NAME)


def _megabytes(node: Node) -> float:
    return sum(int(psutil.Process(pid).memory_info().rss) for pid in _processes(node)) / _MB


def _open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def _cpu_of_nodes(cluster: Cluster) -> list[float]:
    """Processor seconds of each node: daemon, mount server and Serf."""
    return [sum(map(cpu_seconds, (*_processes(node), serf_pid(node)))) for node in cluster.nodes]


def _seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


_MOVE = f"`mv` of a directory of {MOVED} names, ms"
_MOVE_WAIT = "longest wait of a reader meanwhile, ms"
_MEMORY_EMPTY, _MEMORY_NAMES = "memory of both, empty, MB", f"memory of both, {NAMES} names, MB"
_MEMORY_PEAK = f"most memory while {NAMES} names are published, MB"
_FIRST_LIST, _FIRST_MOUNT = "first mount, until `ls` of the top, s", "first mount, until all files are there, s"
_ERRORS, _IN_STEP = "errors of readers and writers", "daemon started, until in step, s"
_DESCRIPTORS = f"descriptors more than at rest, {WAITING} files wait"
_CPU_WRITER, _CPU_READER = "processor time of a change, writer, ms", "processor time of a change, reader, ms"
_COPIED = f"{COPIED} files copied, the last one on the third node, s"
_REMOVED, _UNDONE = "`rm -rf`, s", "undone on the first node, s"

#: What is measured, by the name of its scenario.
PARTS: Mapping[str, _Part] = {
    "move": _Part(f"a directory of {MOVED} names is renamed under a reader", _MOVE_WAIT, _move, 3),
    "names": _Part(f"{NAMES} names: publishing, first mount, memory", _MEMORY_NAMES, _names, 1),
    "killed": _Part("the daemon is killed under readers and writers", _ERRORS, _killed, 3),
    "descriptors": _Part(f"{WAITING} files wait to be published", _DESCRIPTORS, _descriptors, 3),
    "cpu": _Part("processor time of a change of one block", _CPU_READER, _cpu, 3),
    "copy": _Part(f"{COPIED} files on three nodes: copied, removed, undone", _UNDONE, _copies, 2),
}


if __name__ == "__main__":
    main()
