"""What contents cost: `make bench-contents`.

A large file is written and read back in a process of its own: peak memory, and the longest wait for the replica's
lock.  Then the bytes that a change of one line takes in the log.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from basefs.log.content import PIECE, as_content
from basefs.log.entries import ROOT_NAME, Action
from basefs.log.keys import SigningKey
from basefs.replica.replica import Replica
from eval.rows import Tables, tables_option
from eval.tables import print_table

KEY = SigningKey.from_seed(bytes(32))
#: As in the daemon, see `basefs/daemon/main.py`.
_SWITCH_INTERVAL = 0.0002
_LINES = (100, 800, 3500)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[20, 60, 200], help="sizes (%(default)s)")
    tables_option(parser)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        _report(int(options.child[0]), options.child[1])
        return
    tables = Tables(options.results, run=options.run)
    rows = []
    for kind in ("noise", "text"):
        for size in options.megabytes:
            command = [sys.executable, "-m", "eval.bench_contents", "--child", str(size), kind]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(done.stderr)
            titles, values = (line.split("\t") for line in done.stdout.splitlines())
            rows.append(dict(zip(titles, values, strict=True)))
    print_table(rows)
    print()
    edits = [_edit(lines) for lines in _LINES]
    print_table(edits)
    tables.keep("bench_contents", rows)
    tables.keep("bench_contents_edits", edits)


def _replica(directory: Path) -> Replica:
    root = KEY.sign(bytes(28), 0, Action.MKDIR, ROOT_NAME)
    replica = Replica.create(directory, root.hash, [KEY])
    replica.apply([root, KEY.sign(root.hash, 0, Action.GRANT, b"root", KEY.public)], [])
    return replica


class _Waiter(threading.Thread):
    """Wants the replica's lock every millisecond.

    Attributes:
        longest: milliseconds that it had to wait since it was last set to zero.
    """

    def __init__(self, replica: Replica) -> None:
        super().__init__(daemon=True)
        self._replica = replica
        self.longest = 0.0

    def run(self) -> None:
        while True:
            start = time.perf_counter()
            self._replica.root_hash()
            self.longest = max(self.longest, (time.perf_counter() - start) * 1000)
            time.sleep(0.001)

    def take(self) -> float:
        """The longest wait since the last call."""
        longest, self.longest = self.longest, 0.0
        return longest


def _report(megabytes: int, kind: str) -> None:
    sys.setswitchinterval(_SWITCH_INTERVAL)
    chance = random.Random(0)
    with tempfile.TemporaryDirectory(prefix="bench-contents-") as name:
        directory = Path(name)
        source = directory / "source"
        with source.open("wb") as file:
            for number in range(megabytes):
                line = b"%d: the same words again and again\n" % number
                file.write(chance.randbytes(PIECE) if kind == "noise" else (line * PIECE)[:PIECE])
        replica = _replica(directory)
        waiter = _Waiter(replica)
        waiter.start()
        before = _peak()
        row: dict[str, Any] = {"MB": megabytes, "kind": kind}
        for what in ("write", "change"):
            with source.open("rb+") as file:
                start = time.perf_counter()
                content = as_content(file)
                replica.commit(lambda author, content=content: author.write((b"f",), content))  # type: ignore[misc]
                row[f"{what} s"] = f"{time.perf_counter() - start:.1f}"
                row[f"{what}: waited ms"] = f"{waiter.take():.1f}"
                file.seek(megabytes * PIECE // 2)
                file.write(b"changed")
        for leftover in directory.glob("cache.db.d/*"):
            leftover.unlink()
        start = time.perf_counter()
        read = replica.open((b"f",))
        assert sum(len(piece) for piece in read.pieces()) == megabytes * PIECE
        row["cold read s"] = f"{time.perf_counter() - start:.1f}"
        row["read: waited ms"] = f"{waiter.take():.1f}"
        row["peak MiB"] = f"{_peak():.0f}"
        row["more than before MiB"] = f"{_peak() - before:.0f}"
        sys.stdout.write("\t".join(row) + "\n" + "\t".join(map(str, row.values())) + "\n")


def _peak() -> float:
    with Path("/proc/self/status").open() as status:
        return int(next(line for line in status if line.startswith("VmHWM")).split()[1]) / 1024


def _edit(lines: int) -> dict[str, Any]:
    """What a change of one line, a new line and a line less cost in a configuration file."""
    chance = random.Random(lines)
    text = [f"option_{number} = {chance.randbytes(6).hex()}  # what it does\n" for number in range(lines)]
    row: dict[str, Any] = {"lines": lines, "bytes": len("".join(text))}
    with tempfile.TemporaryDirectory(prefix="bench-contents-") as name:
        replica = _replica(Path(name))
        middle = lines // 2
        changed = [*text[:middle], "option = changed\n", *text[middle + 1 :]]
        longer = [*changed[:middle], "# one more\n", *changed[middle:]]
        for what, version in {"all": text, "changed": changed, "more": longer, "less": longer[1:]}.items():
            data = "".join(version).encode()
            applied = replica.commit(lambda author, data=data: author.write((b"f",), data))  # type: ignore[misc]
            row[f"{what}: bytes"] = sum(len(block.data) for block in applied.blocks)
            row[f"{what}: blocks"] = len(applied.blocks)
        replica.close()
    return row


if __name__ == "__main__":
    main()
