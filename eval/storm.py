"""`make storm`: processes read everything on one node while another one delivers thousands of changes.

Every file begins with a checksum of the rest, so a reader that sees two revisions mixed knows it.  A third party asks
the reading node's daemon over its control socket all the time: how long an answer takes is how long the event loop, or
the replica's lock, was taken by something else (or the machine's cores were: it runs with the storm, not beside it).
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path

from basefs.daemon.api.control import call
from eval.benchmark import Benchmark
from eval.places import PLACES
from eval.rows import Row
from tests.support.namespaces import NamespaceNetwork
from tests.support.node import Node
from tests.support.wait import wait_until

NAME = "storm"
READERS = 8
CHANGES = 5000
FILES = 500
#: Bytes of each file: as large as configuration is.
FILE_BYTES = 2048
#: Seconds between two questions to the daemon.
PING_SECONDS = 0.01
#: Seconds for which the readers read where nothing changes.
QUIET_SECONDS = 5.0
#: Seconds for everything to arrive.
PATIENCE = 600.0
_STORM = "BaseFS, changes arriving"


def make_content(name: str, revision: int) -> bytes:
    """A revision of a file: checksum, name, revision, and bytes that differ from one revision to the next."""
    body = f"{name} {revision}\n".encode()
    body += random.Random(f"{name}{revision}").randbytes(FILE_BYTES // 2).hex().encode()
    return hashlib.sha224(body).hexdigest().encode() + b"\n" + body


def is_whole(content: bytes) -> bool:
    """Whether a content is one revision and nothing else."""
    checksum, _, body = content.partition(b"\n")
    return hashlib.sha224(body).hexdigest().encode() == checksum


@dataclass
class Seen:
    """What one reader has met.

    Attributes:
        seconds: of each open, read and close.
        torn: paths whose content was no revision.
        errors: what reading raised.
    """

    seconds: list[float]
    torn: list[str]
    errors: list[str]


def read_all(root: Path, names: list[str], stop: Event, seed: int, answer: Connection) -> None:
    """Read all files in random order, once at least, until told to stop; every other time in two pieces."""
    chance = random.Random(seed)
    seen = Seen([], [], [])
    done = False
    while not done:
        done = stop.is_set()
        for name in chance.sample(names, len(names)):
            start = time.perf_counter()
            try:
                content = _read(root / name, chance.random() < 0.5)
            except OSError as error:
                seen.errors.append(f"{name}: {error}")
                continue
            seen.seconds.append(time.perf_counter() - start)
            if not is_whole(content):
                seen.torn.append(name)
    answer.send(seen)


def _read(path: Path, in_pieces: bool) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        first = os.read(descriptor, FILE_BYTES // 3 if in_pieces else 1 << 20)
        parts = [first]
        while first:
            first = os.read(descriptor, 1 << 20)
            parts.append(first)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def ask_all_the_time(socket: Path, stop: Event, answer: Connection) -> None:
    """Ask a daemon again and again; sends the seconds that each answer took, and those spent waiting for the lock."""
    loop, lock = [], []
    while not stop.is_set():
        start = time.perf_counter()
        waited = float(call(socket, "ping", {}))
        loop.append(time.perf_counter() - start - waited)
        lock.append(waited)
        time.sleep(PING_SECONDS)
    answer.send((loop, lock))


def storm(
    directory: Path, *, readers: int, changes: int, files: int, places: Sequence[str], quiet: float
) -> tuple[list[Row], list[Row]]:
    """Two nodes, readers on one, changes made on the other; returns two tables: of the readers, and of the daemon.

    The same readers first read where nothing changes, for `quiet` seconds each: in `places` (of `eval.places`), and on
    BaseFS at rest.  What they take then is the machine's share: they keep its cores busy, and wait for each other.
    """
    names = [f"directory{number % 10}/file{number}" for number in range(files)]
    read: list[Row] = []
    for place in places:
        with PLACES[place](directory / place) as root:
            _fill(root, names)
            with Readers(root, names, readers) as reading:
                time.sleep(quiet)
            read.append({"place": place, **_row(reading.seen)})
    with NamespaceNetwork(directory, 2) as network:
        writer, reader = network.nodes
        _start(writer, reader)
        _fill(writer.mountpoint, names)
        _wait_for(reader, dict.fromkeys(names, 0))
        socket = reader.home / "run" / f"{NAME}.sock"
        with Readers(reader.mountpoint, names, readers) as reading, _Asking(socket) as at_rest:
            time.sleep(quiet)
        read.append({"place": "BaseFS at rest", **_row(reading.seen)})
        with Readers(reader.mountpoint, names, readers) as reading, _Asking(socket) as asking:
            written, arrived = _deliver(writer, reader, names, changes)
        damaged = [name for name in names if not is_whole((reader.mountpoint / name).read_bytes())]
    for one in reading.seen:
        for line in [*one.errors[:3], *(f"torn: {name}" for name in one.torn[:3])]:
            print(line, file=sys.stderr)
    storming = {"place": _STORM, **_row(reading.seen, damaged)}
    read.append({**storming, "p99 x at rest": round(storming["p99 ms"] / read[-1]["p99 ms"], 2)})
    figures: dict[str, object] = {
        "readers": readers,
        "changes": changes,
        "seconds until all were written": round(written, 2),
        "seconds until all had arrived": round(arrived, 2),
        "p99 of the event loop at rest, ms": _milliseconds(sorted(at_rest.loop), 0.99),
        "longest block of the event loop at rest, ms": _milliseconds(sorted(at_rest.loop), 1.0),
        "p99 of the event loop, ms": _milliseconds(sorted(asking.loop), 0.99),
        "longest block of the event loop, ms": _milliseconds(sorted(asking.loop), 1.0),
        "p99 wait for the lock, ms": _milliseconds(sorted(asking.lock), 0.99),
        "longest wait for the lock, ms": _milliseconds(sorted(asking.lock), 1.0),
    }
    return read, [{"what": what, "value": value} for what, value in figures.items()]


def _row(seen: list[Seen], damaged: Sequence[str] = ()) -> Row:
    seconds = sorted(second for one in seen for second in one.seconds)
    return {
        "reads": len(seconds),
        "errors": sum(len(one.errors) for one in seen),
        "torn": sum(len(one.torn) for one in seen) + len(damaged),
        "median ms": _milliseconds(seconds, 0.5),
        "p90 ms": _milliseconds(seconds, 0.9),
        "p99 ms": _milliseconds(seconds, 0.99),
        "longest ms": _milliseconds(seconds, 1.0),
    }


def _fill(root: Path, names: list[str]) -> None:
    for name in names:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(make_content(name, 0))


def _deliver(writer: Node, reader: Node, names: list[str], changes: int) -> tuple[float, float]:
    """Make the changes; seconds until all were written, and until all had arrived."""
    start = time.monotonic()
    revisions = dict.fromkeys(names, 0)
    for number in range(changes):
        name = names[number % len(names)]
        revisions[name] += 1
        (writer.mountpoint / name).write_bytes(make_content(name, revisions[name]))
    written = time.monotonic() - start
    _wait_for(reader, revisions)
    return written, time.monotonic() - start


class Readers:
    """Processes that read while the block runs; `seen` is what they met, afterwards."""

    def __init__(self, root: Path, names: list[str], count: int) -> None:
        self._stop = multiprocessing.Event()
        self._reading = [spawn(read_all, root, names, self._stop, seed) for seed in range(count)]
        self.seen: list[Seen] = []

    def __enter__(self) -> Readers:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self.seen = [connection.recv() for connection in self._reading]


class _Asking:
    """A process that asks a daemon while the block runs; afterwards seconds of its loop, and for its lock."""

    def __init__(self, socket: Path) -> None:
        self._stop = multiprocessing.Event()
        self._answer = spawn(ask_all_the_time, socket, self._stop)
        self.loop: list[float] = []
        self.lock: list[float] = []

    def __enter__(self) -> _Asking:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self.loop, self.lock = self._answer.recv()


def _start(writer: Node, reader: Node) -> None:
    writer.basefs("genkey")
    writer.basefs("bootstrap", NAME, "-i", writer.endpoint, "--open")
    writer.mount(NAME, "--profile", "lan")
    reader.basefs("genkey")
    reader.basefs("get", NAME, writer.endpoint)
    reader.mount(NAME, "--profile", "lan")
    for node in (writer, reader):
        wait_until(lambda node=node: node.alive(NAME) == 2, 60, "both nodes see each other")  # type: ignore[misc]


def _wait_for(reader: Node, revisions: dict[str, int]) -> None:
    """Until the reader's node shows these revisions."""
    for name, revision in revisions.items():
        path = reader.mountpoint / name
        expected = make_content(name, revision)
        wait_until(lambda path=path, expected=expected: path.read_bytes() == expected, PATIENCE, f"{path} arrives")  # type: ignore[misc]


def spawn(target: Callable[..., None], *arguments: object) -> Connection:
    receiving, sending = multiprocessing.Pipe(duplex=False)
    multiprocessing.Process(target=target, args=(*arguments, sending), daemon=True).start()
    # So that a process which dies is an end of file, not a wait for ever.
    sending.close()
    return receiving


def _milliseconds(ordered: list[float], part: float) -> float:
    return round(1000 * ordered[min(int(part * len(ordered)), len(ordered) - 1)], 2)


def main() -> None:
    """Run a storm, write rows and print them; exit code 1 where a reader met an error or a torn file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readers", type=int, default=READERS, help=f"processes (default: {READERS})")
    parser.add_argument("--changes", type=int, default=CHANGES, help=f"changes (default: {CHANGES})")
    parser.add_argument("--files", type=int, default=FILES, help=f"files (default: {FILES})")
    with Benchmark(parser) as benchmark, tempfile.TemporaryDirectory(prefix="basefs-storm-") as text:
        options = benchmark.options
        rows, daemon = benchmark.rows("storm", ("place",)), benchmark.rows("storm_daemon", ("what",))
        if rows.has(place=_STORM):
            return
        sizes = {"readers": options.readers, "changes": options.changes, "files": options.files}
        # What ends the storm early is a row of it.
        with benchmark.going_on("the storm"), rows.recording(place=_STORM):
            read, figures = storm(Path(text), **sizes, places=("disk", "bindfs"), quiet=QUIET_SECONDS)
            rows.add_all(read)
            daemon.add_all(figures)
            if any(row["errors"] or row["torn"] for row in read):
                raise OSError("readers met errors, or files that were no revision")


if __name__ == "__main__":
    main()
