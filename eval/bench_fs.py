"""`make bench-fs`: what file operations cost on BaseFS, through a FUSE passthrough in C, and on the plain disk.

All in one run and in turn, because machines differ and are shared: compare the ratios, not the seconds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from eval.benchmark import Benchmark
from eval.places import NAME, PLACES, mounted, settle
from eval.profile import Profile, profiled
from eval.rows import Rows
from eval.tables import print_table

#: Directories and files of the second tree, and bytes of each file.
DIRECTORIES, FILES, FILE_BYTES = 100, 100, 1024
#: Copies of the same tree, contents changed between them.
ROUNDS = 30
#: Bytes that each file loses or gains from one round to the next.
_CHANGE = b"\n# round "

_LAST_STEP = "remove"

#: Seconds by step and place.
Samples = dict[tuple[str, str], list[float]]


def main() -> None:
    """Measure, write two tables as CSV and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", type=Path, default=Path("/etc"), help="the first tree (default: /etc)")
    parser.add_argument("--repeat", type=int, default=3, help="runs of which the median counts (default: 3)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"changed copies (default: {ROUNDS}; 0 for none)")
    parser.add_argument("--profile", action="store_true", help="only print where the daemon's time goes")
    with Benchmark(parser) as benchmark, tempfile.TemporaryDirectory(prefix="basefs-bench-") as text:
        directory, options = Path(text), benchmark.options
        trees = make_trees(directory, options.tree)
        if options.profile:
            for name, tree in trees.items():
                profile = _profile(directory / f"profile-{name.replace(' ', '')}", tree)
                print(f"\n{name}: the functions that the daemon is in, and those that it waits for\n")
                print_table(profile.by_self())
                print()
                print_table(profile.by_total())
            return
        steps = benchmark.rows("bench_fs", ("tree", "step"))
        for name, tree in trees.items():
            with benchmark.going_on(name):
                _steps(name, tree, directory, options.repeat, steps)
        if options.rounds:
            rounds = benchmark.rows("bench_fs_rounds", ("place",))
            for place in PLACES:
                rounds.measure(
                    lambda place=place: _rounds_row(place, directory, trees["etc"], options.rounds),  # type: ignore[misc]
                    place=place,
                )


def _steps(name: str, tree: Path, directory: Path, repeat: int, rows: Rows) -> None:
    """Measure all steps on a tree in all places, and add their rows."""
    if rows.has(tree=name, step=_LAST_STEP):
        return
    samples: Samples = defaultdict(list)
    # What ends the rounds early is a row of the last step.
    with rows.recording(tree=name, step=_LAST_STEP):
        for number in range(repeat):
            # In turn, and each time another one first: what is slow for a while is slow for all.
            for place in [*list(PLACES)[number % len(PLACES) :], *list(PLACES)[: number % len(PLACES)]]:
                with PLACES[place](directory / f"{place}-{number}-{name.replace(' ', '')}") as root:
                    for step, seconds in measure(tree, root).items():
                        samples[step, place].append(seconds)
        rows.add_all({"tree": name, **row} for row in _rows(samples))


def make_trees(directory: Path, etc: Path) -> dict[str, Path]:
    """A copy of a directory, and many small files; on the disk on which the places are."""
    trees = {"etc": directory / "etc", "10 000 files": directory / "small"}
    subprocess.run(["cp", "-a", etc, trees["etc"]], check=True)
    for number in range(DIRECTORIES):
        below = trees["10 000 files"] / f"directory{number}"
        below.mkdir(parents=True)
        for file in range(FILES):
            line = f"{number}.{file} = value\n"
            (below / f"file{file}").write_text((line * (FILE_BYTES // len(line) + 1))[:FILE_BYTES])
    return trees


def measure(tree: Path, root: Path) -> dict[str, float]:
    """Seconds of each step on a fresh place."""
    target = root / "copy"
    start = time.perf_counter()
    found = {"copy": _time(lambda: _run("cp", "-a", tree, target))}
    # BaseFS publishes behind the copy's back.
    settle(root)
    found["copy, in the log"] = time.perf_counter() - start
    os.sync()
    _drop_caches()
    found["cold read"] = _time(lambda: _read(target))
    found["warm read"] = min(_time(lambda: _read(target)) for _ in range(3))
    found["stat all"] = _time(lambda: _run("find", target, "-newermt", "2100-01-01"))
    found["list"] = _time(lambda: _run("find", target))
    found["rewrite"] = _time(lambda: _rewrite(target, b"changed"))
    settle(root)
    found[_LAST_STEP] = _time(lambda: _run("rm", "-r", target))
    return found


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _read(target: Path) -> None:
    # To a pipe: tar does not read what goes to /dev/null.
    subprocess.run(["tar", "-cf", "-", "-C", target, "."], check=True, capture_output=True)


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


def _rounds_row(place: str, directory: Path, tree: Path, rounds: int) -> dict[str, object]:
    """A tree copied again and again over itself, contents changed: does history cost the later ones?"""
    source = directory / "changing"
    shutil.rmtree(source, ignore_errors=True)
    _run("cp", "-a", tree, source)
    copies, colds = [], {}
    with PLACES[place](directory / f"rounds-{place}") as root:
        target = root / "copy"
        for number in range(1, rounds + 1):
            # With -T the copy goes over the one that is there.
            copies.append(_time(lambda: _run("cp", "-aT", source, target)))
            settle(root)
            if number in (1, rounds):
                _drop_caches()
                colds[number] = _time(lambda: _read(target))
            _rewrite(source, _CHANGE + str(number).encode())
    # The first copy creates the files and the others overwrite them: the table has both.
    late = statistics.median(copies[-3:])
    return {
        "1st copy s": round(copies[0], 3),
        "2nd copy s": round(copies[1], 3),
        f"{rounds}th copy s": round(late, 3),
        f"{rounds}th / 1st": round(late / copies[0], 2),
        f"{rounds}th / 2nd": round(late / copies[1], 2),
        "cold read after 1 s": round(colds[1], 3),
        f"cold read after {rounds} s": round(colds[rounds], 3),
        f"cold {rounds} / 1": round(colds[rounds] / colds[1], 2),
    }


def _profile(directory: Path, tree: Path) -> Profile:
    """Where the daemon's time goes during all steps on one tree."""
    with mounted(directory) as node, profiled(node.daemon(NAME)) as profile:
        measure(tree, node.mountpoint)
    return profile


if __name__ == "__main__":
    main()
