"""`make bench-fs`: what file operations cost on BaseFS, through a FUSE passthrough in C, and on the plain disk.

All in one run and in turn, because machines differ and are shared: compare the ratios, not the seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import re
import shutil
import sqlite3
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from eval.benchmark import Benchmark
from eval.places import NAME, PLACES, by_turns, mounted, settle
from eval.profile import Profile, profiled
from eval.rows import Rows
from eval.tables import print_table

#: Directories and files of the second tree, and bytes of each file.
DIRECTORIES, FILES, FILE_BYTES = 50, 100, 1024
#: How it is called.
SMALL = f"{DIRECTORIES * FILES} files"
#: Files that one loop makes.
_NEW_FILES = 2000
#: Rows that SQLite inserts, each in a transaction of its own.
_INSERTS = 300
#: Directories and files of the repository, and files of one commit.
_REPOSITORY, _COMMITTED = (20, 25), 100
#: Clients of dbench, and seconds that they run, beside a fifth of that to warm up.
_CLIENTS, _DBENCH_SECONDS = 2, 5
#: Megabytes that the time of dbench is told of.
_DBENCH_MB = 100
#: Looks at what is only read: the shortest counts.
_LOOKS = 3

#: Seconds by step.
Steps = dict[str, float]
#: Seconds by step and place.
Samples = dict[tuple[str, str], list[float]]


@dataclass(frozen=True)
class _Kind:
    """Steps that are measured together.

    Attributes:
        measure: seconds of each step on a fresh place.
        last: the step that is measured last.
    """

    measure: Callable[[Path], Steps]
    last: str


def main() -> None:
    """Measure, write a table as CSV and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", type=Path, default=Path("/etc"), help="the first tree (default: /etc)")
    parser.add_argument("--repeat", type=int, default=3, help="runs of which the median counts (default: 3)")
    parser.add_argument("--only", choices=("etc", SMALL, "programs"), action="append", help="default: all of them")
    parser.add_argument("--profile", action="store_true", help="only print where the daemon's time goes")
    with Benchmark(parser) as benchmark, tempfile.TemporaryDirectory(prefix="basefs-bench-") as text:
        directory, options = Path(text), benchmark.options
        trees = make_trees(directory, options.tree)
        kinds = {name: _Kind(functools.partial(measure, tree), "remove") for name, tree in trees.items()}
        repository = make_repository(directory / "repository")
        kinds["programs"] = _Kind(functools.partial(measure_programs, repository), "git commit")
        rows = benchmark.rows("bench_fs", ("tree", "step"))
        for name in options.only or kinds:
            if options.profile:
                profile = _profile(directory / f"profile-{_word(name)}", kinds[name])
                print(f"\n{name}: the functions that the daemon is in, and those that it waits for\n")
                print_table(profile.by_self())
                print()
                print_table(profile.by_total())
                continue
            with benchmark.going_on(name):
                _steps(name, kinds[name], directory, options.repeat, rows)


def _steps(name: str, kind: _Kind, directory: Path, repeat: int, rows: Rows) -> None:
    """Measure all steps of one kind in all places, and add their rows."""
    if rows.has(tree=name, step=kind.last):
        return
    samples: Samples = defaultdict(list)
    # What ends the rounds early is a row of the last step.
    with rows.recording(tree=name, step=kind.last):
        for number in range(repeat):
            for place in by_turns(number):
                with PLACES[place](directory / f"{place}-{number}-{_word(name)}") as root:
                    for step, seconds in kind.measure(root).items():
                        samples[step, place].append(seconds)
        rows.add_all({"tree": name, **row} for row in _rows(samples))


def _word(name: str) -> str:
    return name.replace(" ", "")


def make_trees(directory: Path, etc: Path) -> dict[str, Path]:
    """A copy of a directory, and many small files; on the disk on which the places are."""
    trees = {"etc": directory / "etc", SMALL: directory / "small"}
    subprocess.run(["cp", "-a", etc, trees["etc"]], check=True)
    make_files(trees[SMALL], DIRECTORIES, FILES)
    return trees


def make_files(top: Path, directories: int, files: int) -> None:
    """Some directories below a new one, and in each of them some files of 1 KiB."""
    for number in range(directories):
        below = top / f"directory{number}"
        below.mkdir(parents=True)
        for file in range(files):
            line = f"{number}.{file} = value\n"
            (below / f"file{file}").write_text((line * (FILE_BYTES // len(line) + 1))[:FILE_BYTES])


def make_repository(top: Path) -> Path:
    """A repository with two branches, between which every file differs."""
    make_files(top, *_REPOSITORY)
    _git(top, "init", "-q", "-b", "main")
    for branch in ("main", "other"):
        if branch != "main":
            _git(top, "checkout", "-q", "-b", branch)
            for number in range(_REPOSITORY[0]):
                _rewrite(top / f"directory{number}", b"other")
        _git(top, "add", "-A")
        _git(top, "commit", "-q", "-m", branch)
    _git(top, "checkout", "-q", "main")
    return top


def measure(tree: Path, root: Path) -> Steps:
    """Seconds of each step with a tree on a fresh place."""
    target = root / "copy"
    start = time.perf_counter()
    found = {"copy": _time(lambda: _run("cp", "-a", tree, target))}
    # BaseFS publishes behind the copy's back.
    settle(root)
    found["copy, in the log"] = time.perf_counter() - start
    os.sync()
    _drop_caches()
    found["cold read"] = _time(lambda: _read(target))
    looks: dict[str, Callable[[], object]] = {
        "warm read": lambda: _read(target),
        "stat all": lambda: _run("find", target, "-newermt", "2100-01-01"),
        "list": lambda: _run("find", target),
        "ls -lR": lambda: _run("ls", "-lR", target),
        "du": lambda: _run("du", "-s", target),
        # It finds nothing, and says so by its exit code.
        "grep -r": lambda: _run("grep", "-r", "no file has this line", target, succeeds=(1, 2)),
        "open, read, close": lambda: _read_each(target),
    }
    for step, look in looks.items():
        found[step] = min(_time(look) for _ in range(_LOOKS))
    found["rewrite"] = _time(lambda: _rewrite(target, b"changed"))
    settle(root)
    found["remove"] = _time(lambda: _run("rm", "-r", target))
    return found


def measure_programs(repository: Path, root: Path) -> Steps:
    """Seconds of programs that work on files of their own, on a fresh place."""
    found = {f"create {_NEW_FILES} files": _time(lambda: _create(root / "new", _NEW_FILES))}
    settle(root)
    for journal in ("delete", "wal"):
        database = root / f"{journal}.db"
        found[f"SQLite, {_INSERTS} inserts, {journal}"] = _time(lambda d=database, j=journal: _insert(d, j))  # type: ignore[misc]
        settle(root)
    if shutil.which("dbench"):
        found[f"dbench, {_CLIENTS} clients, {_DBENCH_MB} MB"] = _DBENCH_MB / _dbench(root)
        settle(root)
    clone = root / "clone"
    found["git clone"] = _time(lambda: _git(root, "clone", "-q", "--no-hardlinks", repository, clone))
    settle(root)
    found["git status"] = min(_time(lambda: _git(clone, "status", "-s")) for _ in range(_LOOKS))
    found["git checkout"] = _time(lambda: _git(clone, "checkout", "-q", "other"))
    settle(root)
    for path in sorted(_files(clone / "directory1"))[:_COMMITTED]:
        Path(os.fsdecode(path)).write_bytes(b"changed")
    _git(clone, "add", "-A")
    found["git commit"] = _time(lambda: _git(clone, "commit", "-q", "-m", "changed"))
    return found


def _git(where: Path, *arguments: str | Path) -> None:
    settings = {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        **{f"GIT_{who}_{what}": "bench@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }
    # Its housekeeping in the background would run into the next step.
    command = ["git", "-c", "gc.auto=0", "-c", "maintenance.auto=false", *arguments]
    subprocess.run(command, cwd=where, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **settings})


def _insert(database: Path, journal: str) -> None:
    """Insert rows, each synced to the disk."""
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as db:
        mode = db.execute(f"PRAGMA journal_mode = {journal}").fetchone()[0]
        if mode != journal:
            raise OSError(f"SQLite has no journal {journal!r} here, but {mode!r}")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("CREATE TABLE lines (number INTEGER PRIMARY KEY, text TEXT)")
        for number in range(_INSERTS):
            db.execute("INSERT INTO lines VALUES (?, ?)", (number, f"line {number} " * 10))


def _dbench(root: Path) -> float:
    """Megabytes a second of dbench.  Raises `OSError`."""
    program = Path(str(shutil.which("dbench")))
    load = program.parent.parent / "share" / "dbench" / "client.txt"
    command: list[str | Path] = [program, "-D", root, "-c", load, "-t", str(_DBENCH_SECONDS), str(_CLIENTS)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    rate = re.search(r"^Throughput ([\d.]+) MB/sec", done.stdout, re.MULTILINE)
    if rate is None or not float(rate[1]):
        raise OSError(f"dbench says no throughput: {done.stdout[-200:]!r}")
    return float(rate[1])


def _create(top: Path, files: int) -> None:
    top.mkdir()
    for number in range(files):
        (top / f"file{number}").write_bytes(b"%d = value\n" % number)


def _run(*command: str | Path, succeeds: tuple[int, ...] = (0,)) -> None:
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    if done.returncode not in succeeds:
        raise subprocess.CalledProcessError(done.returncode, command, stderr=done.stderr)


def _read(target: Path) -> None:
    # To a pipe: tar does not read what goes to /dev/null.
    subprocess.run(["tar", "-cf", "-", "-C", target, "."], check=True, capture_output=True)


def _read_each(target: Path) -> None:
    for path in _files(target):
        descriptor = os.open(path, os.O_RDONLY)
        os.read(descriptor, 1 << 20)
        os.close(descriptor)


def _rewrite(target: Path, text: bytes) -> None:
    """Write every file again, with an additional line."""
    for path in _files(target):
        with Path(os.fsdecode(path)).open("r+b") as file:
            content = file.read() + text
            file.seek(0)
            file.write(content)


def _files(target: Path) -> Iterator[bytes]:
    for base, _, names in os.walk(os.fsencode(target)):
        for name in names:
            path = os.path.join(base, name)
            if os.path.isfile(path) and not os.path.islink(path):
                yield path


def _drop_caches() -> None:
    """Page, entry and attribute caches of the kernel; the daemon keeps what it has in memory."""
    Path("/proc/sys/vm/drop_caches").write_text("3")


def _time(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def _rows(samples: Samples) -> list[dict[str, object]]:
    rows = []
    for step in dict.fromkeys(step for step, _ in samples):
        row: dict[str, object] = {"step": step}
        row["runs"] = len(samples[step, "BaseFS"])
        row.update({f"{place} s": round(statistics.median(samples[step, place]), 4) for place in PLACES})
        for other in ("bindfs", "disk"):
            # Those of one run were measured by turns.
            pairs = zip(samples[step, "BaseFS"], samples[step, other], strict=True)
            ratios = [ours / theirs for ours, theirs in pairs]
            name = f"BaseFS / {other}"
            row[name] = round(statistics.median(ratios), 2)
            row[f"{name} least"], row[f"{name} most"] = round(min(ratios), 2), round(max(ratios), 2)
        rows.append(row)
    return rows


def _profile(directory: Path, kind: _Kind) -> Profile:
    """Where the daemon's time goes during all steps of one kind."""
    with mounted(directory) as node, profiled(node.daemon(NAME)) as profile:
        kind.measure(node.mountpoint)
    return profile


if __name__ == "__main__":
    main()
