"""What entries cost: `make bench-log`.

Entries are applied as sync applies them: decoded, placed, verified, stored and shown, `ENTRIES_PER_SLICE` in a
transaction.  Beside that, in the same run: verifying their signatures and nothing else, and inserting rows of the same
bytes into SQLite and nothing else.  All three in seconds of processor time, so that what else the machine does counts
for none of them.  Then a fresh process opens the log: memory, and time to the first read.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from basefs.log.entries import Entry
from basefs.log.keys import SigningKey, verify
from basefs.replica.replica import Replica
from basefs.sync.wire.limits import ENTRIES_PER_SLICE
from eval.histories import history
from eval.rows import keep
from eval.tables import print_table

COUNTS = (1_000, 10_000, 130_000)
KEY = SigningKey.from_seed(bytes(32))

#: Run in a process of its own: what it prints is not blurred by what the benchmark holds.
_FRESH = """
import json, sys, time
start = time.perf_counter()
from pathlib import Path
from basefs.replica.replica import Replica
def resident():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmRSS")).split()[1]) / 1024
imported = time.perf_counter()
replica = Replica(Path(sys.argv[1]))
if replica.totals()["entries"]:
    top = min(replica.names_in(()))
    replica.read((top, min(replica.names_in((top,)))))
read = time.perf_counter()
opened = resident()
paths = len(replica.live_paths()) if replica.totals()["entries"] else 0
print(json.dumps({"restart": read - imported, "opened": opened, "loaded": resident(), "paths": paths}))
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--counts", type=int, nargs="+", default=COUNTS, help="how many entries (%(default)s)")
    parser.add_argument("--csv", type=Path, help="write the rows to this file too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-log-") as directory:
        Replica.create(Path(directory), None).close()
        print(f"an empty log, in a process of its own: {_fresh(Path(directory))['opened']:.0f} MiB")
    rows = [measure(count) for count in options.counts]
    print_table(rows)
    if options.csv is not None:
        keep(options.csv, rows)


def measure(count: int) -> dict[str, Any]:
    """One row of the table."""
    raw = [(entry.encode(), [block.encode() for block in blocks]) for entry, blocks in history(KEY, count)]
    verifying = _verify([entry for entry, _ in raw])
    with tempfile.TemporaryDirectory(prefix="bench-log-") as directory:
        inserting = _seconds(lambda: _insert(Path(directory) / "plain.db", raw))
        log = Path(directory) / "log"
        log.mkdir()
        applying = _seconds(lambda: _apply(log, raw))
        size = (log / "log.db").stat().st_size
        fresh = _fresh(log)
    return {
        "entries": count,
        "verify 1/s": count / verifying,
        "insert 1/s": count / inserting,
        "apply 1/s": count / applying,
        "apply/verify": verifying / applying,
        "us an entry": applying / count * 1e6,
        "log MiB": size / 2**20,
        "restart s": fresh["restart"],
        "opened MiB": fresh["opened"],
        "loaded MiB": fresh["loaded"],
        "live paths": fresh["paths"],
    }


def _seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _verify(raw: list[bytes]) -> float:
    entries = [Entry.decode(entry) for entry in raw]
    start = time.process_time()
    for entry in entries:
        verify(entry, KEY.public)
    return time.process_time() - start


def _apply(log: Path, raw: list[tuple[bytes, list[bytes]]]) -> None:
    replica = Replica.create(log, Entry.decode(raw[0][0]).hash)
    for start in range(0, len(raw), ENTRIES_PER_SLICE):
        batch = raw[start : start + ENTRIES_PER_SLICE]
        result = replica.add([entry for entry, _ in batch], [block for _, blocks in batch for block in blocks])
        assert not result.rejected and not result.missing_parents
        # A daemon does so every 100 ms.
        if start % (ENTRIES_PER_SLICE * 16) == 0:
            replica.sync_to_disk()
    assert replica.missing_blocks(1) == ()
    replica.close()


def _insert(path: Path, raw: list[tuple[bytes, list[bytes]]]) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("CREATE TABLE entries (seq INTEGER PRIMARY KEY, data BLOB)")
    db.execute("CREATE TABLE blocks (seq INTEGER PRIMARY KEY, data BLOB)")
    for start in range(0, len(raw), ENTRIES_PER_SLICE):
        batch = raw[start : start + ENTRIES_PER_SLICE]
        db.execute("BEGIN")
        db.executemany("INSERT INTO entries (data) VALUES (?)", [(entry,) for entry, _ in batch])
        db.executemany("INSERT INTO blocks (data) VALUES (?)", [(b,) for _, blocks in batch for b in blocks])
        db.execute("COMMIT")
    db.close()


def _fresh(log: Path) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", _FRESH, str(log)], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    main()
