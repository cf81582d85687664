"""What entries cost: `make bench-log`.

Entries are applied as a session of sync applies them: decoded, placed, verified, stored and shown, a batch in a
transaction.  Beside that, in the same run: verifying their signatures and nothing else, in one thread, as BaseFS does
and as OpenSSL does, and inserting rows of the same bytes into SQLite and nothing else.  Rates are per second of
processor time, so that what else the machine does counts for none of them; the seconds on the clock, which count for an
idle machine alone, stand beside them.  Then a daemon mounts the log, beside its Serf agent: time from the command to
the first read, and memory.  Several rounds; a figure is their median, with the least and the most.
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from basefs.daemon.config import Home
from basefs.log.ed25519 import LIBRARIES
from basefs.log.entries import DOMAIN, Entry
from basefs.log.keys import verify
from basefs.replica.replica import Replica
from basefs.sync.wire.limits import DEFAULT_LIMITS
from eval.benchmark import Benchmark
from eval.histories import KEY, history, keeper
from eval.net.scenario import serf_pid
from eval.rows import Row
from tests.support.cluster import NAME
from tests.support.node import Node

COUNTS = (1_000, 10_000, 130_000)
_BATCH = DEFAULT_LIMITS.batch


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--counts", type=int, nargs="+", default=COUNTS, help="how many entries (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured (%(default)s)")
    with Benchmark(parser) as benchmark:
        rows, rounds = benchmark.rows("bench_log", ("entries",)), benchmark.options.rounds
        for count in (0, *benchmark.options.counts):
            rows.measure(lambda count=count: _summary([measure(count) for _ in range(rounds)]), entries=count)  # type: ignore[misc]


def measure(count: int) -> Row:
    """The figures of one round: rates (1/s) of processor time, seconds on the clock, MiB."""
    raw = [(entry.encode(), [block.encode() for block in blocks]) for entry, blocks in history(count or 2)]
    with tempfile.TemporaryDirectory(prefix="bench-log-") as directory, keeper(Path(directory)) as node:
        verifying, verifying_wall = _verify([entry for entry, _ in raw])
        openssl, openssl_wall = _verify_with_openssl([entry for entry, _ in raw])
        inserting, _ = _seconds(lambda: _insert(Path(directory) / "plain.db", raw))
        log = Home(node.home).directory(NAME)
        log.mkdir(parents=True)
        applying, applying_wall = _seconds(lambda: _apply(log, raw))
        size = (log / "log.db").stat().st_size
        daemon = _daemon(node)
    rates: Row = (
        {
            "verify 1/s": count / verifying,
            "OpenSSL 1/s": count / openssl,
            "insert 1/s": count / inserting,
            "apply 1/s": count / applying,
            "apply/verify": verifying / applying,
            "apply/OpenSSL": openssl / applying,
            "us an entry": applying / count * 1e6,
            "apply/OpenSSL wall": openssl_wall / applying_wall,
            "verify wall s": verifying_wall,
            "OpenSSL wall s": openssl_wall,
            "apply wall s": applying_wall,
        }
        if count
        else dict.fromkeys(_RATES, "")
    )
    return {"verified by": [*LIBRARIES][-1], **rates, "log MiB": size / 2**20, **daemon}


#: What an empty log does not have.
_RATES = (
    *("verify 1/s", "OpenSSL 1/s", "insert 1/s", "apply 1/s"),
    *("apply/verify", "apply/OpenSSL", "us an entry"),
    *("apply/OpenSSL wall", "verify wall s", "OpenSSL wall s", "apply wall s"),
)


def _summary(rounds: Sequence[Row]) -> Row:
    """One row: the median of each figure, with how many there are, and the least and the most of some."""
    row: Row = {}
    for name in rounds[0]:
        values = [each[name] for each in rounds]
        row[name] = values[0] if isinstance(values[0], str | int) else statistics.median(values)
        if name in _SPREAD and not isinstance(values[0], str):
            row[f"{name} least"], row[f"{name} most"] = min(values), max(values)
        elif name in _SPREAD:
            row[f"{name} least"] = row[f"{name} most"] = ""
    return {"rounds": len(rounds), **row}


#: What is told with its spread.
_SPREAD = (
    *("apply/verify", "apply/OpenSSL", "apply/OpenSSL wall"),
    *("first read s", "daemon MiB", "daemon MiB with the tree"),
)


def _daemon(node: Node) -> Row:
    """A daemon that mounts a log: seconds from the command to the first read of a file, and its memory."""
    start = time.perf_counter()
    root = node.mount(NAME)
    mounted = time.perf_counter() - start
    for directory in sorted(root.iterdir())[:1]:
        next(file for file in sorted(directory.iterdir())).read_bytes()
    read = time.perf_counter() - start
    row = {"mount s": mounted, "first read s": read, "daemon MiB": _mib(node.daemon(NAME))}
    files = [file for file in sorted(root.rglob("*")) if file.is_file()]
    for file in files:
        file.read_bytes()
    return {
        **row,
        "daemon MiB with the tree": _mib(node.daemon(NAME)),
        "serf MiB": _mib(serf_pid(node)),
        "live files": len(files),
    }


def _mib(pid: int) -> float:
    return float(psutil.Process(pid).memory_info().rss) / (1 << 20)


def _seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds of processor time, and on the clock."""
    start, wall = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - start, time.perf_counter() - wall


def _verify(raw: list[bytes]) -> tuple[float, float]:
    entries = [Entry.decode(entry) for entry in raw]

    def work() -> None:
        for entry in entries:
            verify(entry, KEY.public)

    return _seconds(work)


def _verify_with_openssl(raw: list[bytes]) -> tuple[float, float]:
    """Seconds of the signatures alone, as OpenSSL verifies them."""
    entries, is_signed = [Entry.decode(entry) for entry in raw], LIBRARIES["OpenSSL"]

    def work() -> None:
        for entry in entries:
            assert is_signed(DOMAIN + entry.body, entry.signature, KEY.public)

    return _seconds(work)


def _apply(log: Path, raw: list[tuple[bytes, list[bytes]]]) -> None:
    replica = Replica.create(log, Entry.decode(raw[0][0]).hash)
    for start in range(0, len(raw), _BATCH):
        batch = raw[start : start + _BATCH]
        result = replica.add([entry for entry, _ in batch], [block for _, blocks in batch for block in blocks])
        assert not result.rejected and not result.missing_parents
        # A daemon does so every 100 ms.
        if start % (_BATCH * 4) == 0:
            replica.sync_to_disk()
    assert replica.missing_blocks(1) == []
    replica.close()


def _insert(path: Path, raw: list[tuple[bytes, list[bytes]]]) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("CREATE TABLE entries (seq INTEGER PRIMARY KEY, data BLOB)")
    db.execute("CREATE TABLE blocks (seq INTEGER PRIMARY KEY, data BLOB)")
    for start in range(0, len(raw), _BATCH):
        batch = raw[start : start + _BATCH]
        db.execute("BEGIN")
        db.executemany("INSERT INTO entries (data) VALUES (?)", [(entry,) for entry, _ in batch])
        db.executemany("INSERT INTO blocks (data) VALUES (?)", [(b,) for _, blocks in batch for b in blocks])
        db.execute("COMMIT")
    db.close()


if __name__ == "__main__":
    main()
