"""`make storm`: processes read everything on one node while another one delivers thousands of changes.

Every file begins with a checksum of the rest, so a reader that sees two revisions mixed knows it.  A third party asks
the reading node's daemon over its control socket all the time: how long an answer takes is how long the event loop, or
the replica's lock, was taken by something else (or the machine's cores were: it runs with the storm, not beside it).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path

from basefs.management.control import call
from eval.namespaces import NamespaceNetwork
from eval.node import Node
from eval.tables import Row, print_table, write_csv
from eval.wait import wait_until

NAME = "storm"
READERS = 8
CHANGES = 5000
FILES = 500
#: Bytes of each file: as large as configuration is.
FILE_BYTES = 2048
#: Seconds between two questions to the daemon.
PING_SECONDS = 0.01
#: Seconds for everything to arrive.
PATIENCE = 600.0


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
    """Read the files in random order until told to stop; every other time in two pieces."""
    chance = random.Random(seed)
    seen = Seen([], [], [])
    while not stop.is_set():
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


def storm(directory: Path, *, readers: int, changes: int, files: int) -> list[Row]:
    """Two nodes, readers on one, changes made on the other; returns the table."""
    with NamespaceNetwork(directory, 2) as network:
        writer, reader = network.nodes
        _start(writer, reader)
        names = [f"directory{number % 10}/file{number}" for number in range(files)]
        for number in range(10):
            (writer.mountpoint / f"directory{number}").mkdir()
        for name in names:
            (writer.mountpoint / name).write_bytes(make_content(name, 0))
        _wait_for(reader, dict.fromkeys(names, 0))
        stop = multiprocessing.Event()
        socket = reader.home / "run" / f"{NAME}.sock"
        ask = _spawn(ask_all_the_time, socket, stop)
        reading = [_spawn(read_all, reader.mountpoint, names, stop, seed) for seed in range(readers)]
        start = time.monotonic()
        revisions = dict.fromkeys(names, 0)
        for number in range(changes):
            name = names[number % files]
            revisions[name] += 1
            (writer.mountpoint / name).write_bytes(make_content(name, revisions[name]))
        written = time.monotonic() - start
        _wait_for(reader, revisions)
        arrived = time.monotonic() - start
        stop.set()
        seen: list[Seen] = [connection.recv() for connection in reading]
        loop, lock = ask.recv()
        damaged = [name for name in names if not is_whole((reader.mountpoint / name).read_bytes())]
    seconds = sorted(second for one in seen for second in one.seconds)
    for one in seen:
        for line in [*one.errors[:3], *(f"torn: {name}" for name in one.torn[:3])]:
            print(line, file=sys.stderr)
    figures: dict[str, object] = {
        "readers": readers,
        "changes": changes,
        "seconds until all were written": round(written, 2),
        "seconds until all had arrived": round(arrived, 2),
        "reads": len(seconds),
        "errors": sum(len(one.errors) for one in seen),
        "torn reads": sum(len(one.torn) for one in seen) + len(damaged),
        "median read, ms": _milliseconds(seconds, 0.5),
        "p99 of a read, ms": _milliseconds(seconds, 0.99),
        "longest read, ms": _milliseconds(seconds, 1.0),
        "p99 of the event loop, ms": _milliseconds(sorted(loop), 0.99),
        "longest block of the event loop, ms": _milliseconds(sorted(loop), 1.0),
        "p99 wait for the lock, ms": _milliseconds(sorted(lock), 0.99),
        "longest wait for the lock, ms": _milliseconds(sorted(lock), 1.0),
    }
    return [{"what": what, "value": value} for what, value in figures.items()]


def _start(writer: Node, reader: Node) -> None:
    writer.basefs("genkey")
    writer.basefs("bootstrap", NAME, "-i", writer.endpoint)
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


def _spawn(target: Callable[..., None], *arguments: object) -> Connection:
    receiving, sending = multiprocessing.Pipe(duplex=False)
    multiprocessing.Process(target=target, args=(*arguments, sending), daemon=True).start()
    # So that a process which dies is an end of file, not a wait for ever.
    sending.close()
    return receiving


def _milliseconds(ordered: list[float], part: float) -> float:
    return round(1000 * ordered[min(int(part * len(ordered)), len(ordered) - 1)], 2)


def main() -> None:
    """Run a storm, print what came of it, write it as CSV; exit code 1 where a reader met an error or a torn file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readers", type=int, default=READERS, help=f"processes (default: {READERS})")
    parser.add_argument("--changes", type=int, default=CHANGES, help=f"changes (default: {CHANGES})")
    parser.add_argument("--files", type=int, default=FILES, help=f"files (default: {FILES})")
    parser.add_argument("--csv", type=Path, default=Path("eval/results"), help="directory of the CSV file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="basefs-storm-") as text:
        rows = storm(Path(text), readers=arguments.readers, changes=arguments.changes, files=arguments.files)
    print_table(rows)
    write_csv(arguments.csv / "storm.csv", rows)
    found = {str(row["what"]): row["value"] for row in rows}
    if found["errors"] or found["torn reads"]:
        sys.exit(f"readers met what they must not: {json.dumps({k: found[k] for k in ('errors', 'torn reads')})}")


if __name__ == "__main__":
    main()
