"""How the log grows: bytes for each edit of the usual kinds, and for a copy of /etc, as sent and as kept on disk.

Nothing is ever removed from a log, so this is what an edit costs for good, on every node.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import random
import subprocess
import tempfile
from collections.abc import Callable, Iterator

from basefs.log.entries import ROOT_NAME, Action
from basefs.log.keys import SigningKey
from basefs.path import Path
from basefs.replica.replica import LOG_FILE, Applied, Replica
from basefs.view.author import Author
from basefs.view.draft import Draft
from eval.benchmark import Benchmark
from eval.rows import Row
from tests.support.node import Node

KEY = SigningKey.from_seed(bytes(32))
#: Files that exist before anything is counted; each edit is of the next one.
_FILES = 50
_LINES = 100

Edit = Callable[[Author, Path, int], Draft]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--edits", type=int, default=1000, help="of each kind (%(default)s)")
    parser.add_argument("--tree", type=pathlib.Path, default=pathlib.Path("/etc"), help="what is copied (%(default)s)")
    with Benchmark(parser) as benchmark:
        options = benchmark.options
        rows = benchmark.rows("bench_growth", ("edit",))
        for name, edit in EDITS.items():
            rows.measure(lambda edit=edit: _measure(edit, options.edits), edit=name)  # type: ignore[misc]
        copies = benchmark.rows("bench_growth_copy", ("tree",))
        copies.measure(lambda: _copy(options.tree), tree=str(options.tree))


def text(number: int, version: int) -> bytes:
    """A configuration file of 5 kB in which one line follows the version."""
    chance = random.Random(number)
    lines = [f"option_{line} = {chance.randbytes(6).hex()}  # what it is there for\n" for line in range(_LINES)]
    lines[version % _LINES] = f"option_{version % _LINES} = version {version}\n"
    return "".join(lines).encode()


def _number(names: Path) -> int:
    return int(names[-1][1:])


EDITS: dict[str, Edit] = {
    "change a line of 5 kB": lambda author, names, turn: author.write(names, text(_number(names), turn)),
    "chmod": lambda author, names, turn: author.set_attributes(names, mode=0o600 + turn // _FILES % 2),
    "a new file of 1 kB": lambda author, names, turn: author.write((b"n%d" % turn,), text(turn, turn)[:1000]),
    "a new directory": lambda author, names, turn: author.make_directory((b"d%d" % turn,)),
    "a file of 1 kB of noise, rewritten": lambda author, names, turn: author.write(
        names, random.Random(turn).randbytes(1000)
    ),
    "delete and make again, 1 kB": lambda author, names, turn: (
        author.write(names, text(_number(names), 0)[:1000])
        if turn // _FILES % 2
        else author.remove(names, directory=False)
    ),
}


def _measure(edit: Edit, count: int) -> Row:
    with tempfile.TemporaryDirectory(prefix="bench-growth-") as place:
        directory = pathlib.Path(place)
        replica = _replica(directory)
        for number in range(_FILES):
            replica.commit(lambda author, n=number: author.write((b"f%d" % n,), text(n, 0)))  # type: ignore[misc]
        replica.close()
        before = _size(directory)
        replica = Replica(directory, [KEY])
        sent = sum(_sent(applied) for applied in _edits(replica, edit, count))
        replica.close()
        kept = _size(directory) - before
    return {"edits": count, "sent": round(sent / count), "kept": round(kept / count)}


def _edits(replica: Replica, edit: Edit, count: int) -> Iterator[Applied]:
    for turn in range(count):
        names = (b"f%d" % (turn % _FILES),)
        yield replica.commit(lambda author, n=names, t=turn: edit(author, n, t))  # type: ignore[misc]


def _sent(applied: Applied) -> int:
    return sum(len(entry.encode()) for entry in applied.entries) + sum(len(b.encode()) for b in applied.blocks)


def _size(directory: pathlib.Path) -> int:
    """Bytes of a log that is closed: its write-ahead log is gone then."""
    return (directory / LOG_FILE).stat().st_size


def _replica(directory: pathlib.Path) -> Replica:
    root = KEY.sign(bytes(28), 0, Action.MKDIR, ROOT_NAME)
    replica = Replica.create(directory, root.hash, [KEY])
    replica.apply([root, KEY.sign(root.hash, 0, Action.GRANT, b"root", KEY.public)], [])
    return replica


def _copy(tree: pathlib.Path) -> Row:
    """A tree copied into a mount once, and again with nothing changed."""
    with tempfile.TemporaryDirectory(prefix="bench-growth-") as place, Node.temporary(pathlib.Path(place)) as node:
        node.basefs("bootstrap", "conf")
        point = node.mount("conf", "--owners")
        row: Row = {"its bytes": _bytes_of(tree)}
        for what in ("first", "again"):
            subprocess.run(["cp", "-aT", tree, point / "copy"], check=True)
            row[f"entries after {what}"] = node.entries("conf")
        node.basefs("unmount", "conf")
        row["log"] = _size(node.home / "fs" / "conf")
    return row


def _bytes_of(tree: pathlib.Path) -> int:
    return sum(
        os.lstat(os.path.join(at, name)).st_size
        for at, _, names in os.walk(tree)
        for name in names
        if not os.path.islink(os.path.join(at, name))
    )


if __name__ == "__main__":
    main()
