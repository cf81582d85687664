"""What contents cost: `make bench-contents`.

A large file is written and read back in a process of its own: peak memory, and the longest wait for the replica's
lock.  Then the bytes that a change of one line takes in the log.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from basefs.log.content import PIECE
from basefs.log.entries import ROOT_NAME, Action
from basefs.log.keys import SigningKey
from basefs.replica.replica import Replica
from eval.benchmark import Benchmark
from eval.ending import uninterrupted
from eval.rows import Row
from tests.support.helpers import content_of
from tests.support.node import CommandFailed

KEY = SigningKey.from_seed(bytes(32))
#: As in the daemon, see `basefs/daemon/main.py`.
_SWITCH_INTERVAL = 0.0002
_LINES = (100, 800, 3500)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[20, 60, 200], help="sizes (%(default)s)")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    with Benchmark(parser) as benchmark:
        if benchmark.options.child:
            size, kind, directory = benchmark.options.child
            _report(int(size), kind, Path(directory))
            return
        large = benchmark.rows("bench_contents", ("MB", "kind"))
        for kind, size in itertools.product(("noise", "text"), benchmark.options.megabytes):
            large.measure(lambda size=size, kind=kind: _in_a_process(size, kind), MB=size, kind=kind)  # type: ignore[misc]
        edits = benchmark.rows("bench_contents_edits", ("lines",))
        for lines in _LINES:
            edits.measure(lambda lines=lines: _edit(lines), lines=lines)  # type: ignore[misc]


def _in_a_process(size: int, kind: str) -> Row:
    """What a process of its own measures.  Raises `CommandFailed`."""
    # The directory is this process's: the other one is killed where this one is ended.
    with tempfile.TemporaryDirectory(prefix="bench-contents-") as directory:
        command = [sys.executable, "-m", "eval.bench_contents", "--child", str(size), kind, directory]
        child = None
        try:
            # Otherwise a signal could come when it runs and nobody knows it yet.
            with uninterrupted():
                child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            printed, _ = child.communicate()
        finally:
            if child is not None:
                child.kill()
                child.wait()
    if child.returncode:
        raise CommandFailed(f"a process of its own for {size} MB of {kind}: exit {child.returncode}")
    row: Row = json.loads(printed)
    return row


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


def _report(megabytes: int, kind: str, directory: Path) -> None:
    sys.setswitchinterval(_SWITCH_INTERVAL)
    chance = random.Random(0)
    source = directory / "source"
    with source.open("wb") as file:
        for number in range(megabytes):
            line = b"%d: the same words again and again\n" % number
            file.write(chance.randbytes(PIECE) if kind == "noise" else (line * PIECE)[:PIECE])
    replica = _replica(directory)
    waiter = _Waiter(replica)
    waiter.start()
    before = _peak()
    row: Row = {}
    for what in ("write", "change"):
        with source.open("rb+") as file:
            start = time.perf_counter()
            content = content_of(file)
            replica.commit(lambda author, content=content: author.write((b"f",), content))  # type: ignore[misc]
            row[f"{what} s"] = time.perf_counter() - start
            row[f"{what}: waited ms"] = waiter.take()
            file.seek(megabytes * PIECE // 2)
            file.write(b"changed")
    for leftover in directory.glob("cache.db.d/*"):
        leftover.unlink()
    start = time.perf_counter()
    read = replica.open((b"f",))
    assert sum(len(piece) for piece in read.pieces()) == megabytes * PIECE
    row["cold read s"] = time.perf_counter() - start
    row["read: waited ms"] = waiter.take()
    row["peak MiB"] = _peak()
    row["more than before MiB"] = _peak() - before
    print(json.dumps(row))


def _peak() -> float:
    with Path("/proc/self/status").open() as status:
        return int(next(line for line in status if line.startswith("VmHWM")).split()[1]) / 1024


def _edit(lines: int) -> Row:
    """What a change of one line, a new line and a line less cost in a configuration file."""
    chance = random.Random(lines)
    text = [f"option_{number} = {chance.randbytes(6).hex()}  # what it does\n" for number in range(lines)]
    row: Row = {"bytes": len("".join(text))}
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
