"""Tables of measurements in the documents, written from the rows in `eval/results`: `python -m eval.figures`.

A table stands behind a mark `<!-- figures: NAME -->`, up to `<!-- end -->`.  No figure in it is typed by hand, and a
test holds that a document shows the rows of today.
"""

from __future__ import annotations

import csv
import math
import re
import statistics
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "eval" / "results"
_MARK = re.compile(r"^<!-- figures: (?P<name>\S+) -->\n.*?^<!-- end -->\n", re.MULTILINE | re.DOTALL)
_EMPTY = "-"

Row = Mapping[str, str]
#: The rows of one measurement, one of each run.
Runs = Sequence[Row]
#: A cell of a measurement: a column with a format such as `seconds:.2f`, or what makes the text.
Cell = str | Callable[[Runs], str]
#: Characters in a line of prose.
_COLUMNS = 120
#: Columns that say how often one run measured: a figure of it is a median then.
_ROUNDS = ("rounds", "runs", "changes")
#: The column of a measurement that failed, which says why.
_FAILED = "failed"


class NoFigures(Exception):
    """A document asks for a table that there is not."""


@dataclass(frozen=True)
class Table:
    """Measurements of one file.

    Attributes:
        file: name of the CSV file in `eval/results`.
        columns: titles with what stands below them.
        where: values that the rows have in some columns.
        keys: columns that tell measurements apart; the rows of one measurement are its runs.
    """

    file: str
    columns: Mapping[str, Cell]
    where: Mapping[str, str] = field(default_factory=dict)
    keys: Sequence[str] = ()

    def lines(self) -> list[str]:
        """The table in Markdown, and where its rows come from."""
        measured, failed = select(self.file, self.where, self.keys), _failures(self.file, self.where, self.keys)
        if not measured:
            return ["Not measured yet: no rows are kept.", *failed]
        cells = [[_cell(runs, cell) for cell in self.columns.values()] for runs in measured]
        single = [count(runs) == "1" for runs in measured]
        notes = [_SINGLE[all(single)]] if any(single) else []
        return [*_markdown(list(self.columns), cells), "", _source(self.file, measured), *notes, *failed]


@dataclass(frozen=True)
class Target:
    """What is wanted of one figure: at most so much, or at least.

    Attributes:
        text: what is measured, and how much is wanted.
        file: name of the CSV file, where the row is the one with these values.
        where: values of the row in some columns.
        column: of the figure.
        limit: the largest value that meets the target, or the smallest one with `at_least`.
        shown: how the figure is written.
        report: link to the document that has the rows, where that is another one; named with the figure, as n is.
    """

    text: str
    file: str
    where: Mapping[str, str]
    column: str
    limit: float
    shown: str = "{:.3g}"
    keys: Sequence[str] = ()
    at_least: bool = False
    report: str = ""

    def cells(self) -> list[str]:
        """Target, figure, and whether it is met."""
        measured = select(self.file, self.where, self.keys)
        found = [(statistics.median(numbers), runs) for runs in measured if (numbers := _numbers(runs, self.column))]
        if not found:
            return [self.text, "not measured", "unknown"]
        worst, runs = (min if self.at_least else max)(found, key=lambda one: one[0])
        met = worst >= self.limit if self.at_least else worst <= self.limit
        shown = self.shown.format(worst)
        if self.report:
            age = "" if runs[-1].get("commit") else "older code, "
            shown += f" (n={len(runs)}, {age}{self.report})"
        return [self.text, shown, "yes" if met else "no"]


@dataclass(frozen=True)
class Targets:
    """The targets of a document, in one table."""

    targets: Sequence[Target]

    def lines(self) -> list[str]:
        """The table in Markdown."""
        return _markdown(["target", "measured", "met"], [target.cells() for target in self.targets])


@dataclass(frozen=True)
class Growth:
    """How figures of one file grow with the number of nodes.

    Attributes:
        file: name of the CSV file in `eval/results`.
        columns: titles with the columns of the figures and their formats, such as `seconds:.2f`.
        where: values that the rows have in some columns.
        keys: columns that tell measurements apart.
    """

    file: str
    columns: Mapping[str, str]
    where: Mapping[str, str] = field(default_factory=dict)
    keys: Sequence[str] = ("nodes",)

    def lines(self) -> list[str]:
        """The table in Markdown: the ends, and the power law and the logarithm nearest to all in between."""
        measured = select(self.file, self.where, self.keys)
        if len(measured) < 3:
            return ["Not measured yet: no rows are kept."]
        cells = []
        for title, column in self.columns.items():
            name, form = column.rsplit(":", 1)
            found = ((float(runs[-1]["nodes"]), statistics.median(_numbers(runs, name))) for runs in measured)
            # What is less than an idle cluster spends is noise.
            points = sorted((nodes, value) for nodes, value in found if value > 0)
            sizes, values = [math.log10(nodes) for nodes, _ in points], [value for _, value in points]
            power = statistics.linear_regression(sizes, [math.log10(value) for value in values]).slope
            doubling = statistics.linear_regression(sizes, values).slope * math.log10(2)
            ends = [f"{format(value, form)} ({nodes:.0f})" for nodes, value in (points[0], points[-1])]
            cells.append([title, *ends, f"x {10**power:.2f}", f"{doubling:+{form}}"])
        titles = ["figure", "fewest (nodes)", "most (nodes)", "ten times as many", "each doubling adds"]
        return [*_markdown(titles, cells), "", _source(self.file, measured)]


def select(file: str, where: Mapping[str, str], keys: Sequence[str]) -> list[Runs]:
    """The measurements with these values, in the order of the file, each with its runs.

    Of each measurement, those of the commit and the machine that measured last; of rows that name none, the last one.
    """
    found: dict[tuple[str, ...], list[Row]] = {}
    for number, row in enumerate(_read(file)):
        if not all(row.get(name) == value for name, value in where.items()) or row.get(_FAILED):
            continue
        runs = found.setdefault(tuple(row[name] for name in keys) if keys else (str(number),), [])
        if not row.get("commit") or any(runs[-1].get(name) != row[name] for name in ("commit", "machine") if runs):
            runs.clear()
        runs.append(row)
    return list(found.values())


def _failures(file: str, where: Mapping[str, str], keys: Sequence[str]) -> list[str]:
    """A line for each measurement that failed when it was last made."""
    last: dict[tuple[str, ...], Row] = {}
    for row in _read(file):
        if all(row.get(name) == value for name, value in where.items()):
            last[tuple(row.get(name, "") for name in keys)] = row
    return [
        _filled(f"Failed: {', '.join(key)}, commit `{row.get('commit')}`: {row[_FAILED]}.")
        for key, row in last.items()
        if row.get(_FAILED)
    ]


def _filled(text: str) -> str:
    return textwrap.fill(text, _COLUMNS, break_on_hyphens=False)


def _read(file: str) -> list[Row]:
    if not (RESULTS / file).exists():
        return []
    with (RESULTS / file).open(newline="") as text:
        return list(csv.DictReader(text))


def _numbers(runs: Runs, name: str) -> list[float]:
    return [float(row[name]) for row in runs if row.get(name)]


def _cell(runs: Runs, cell: Cell) -> str:
    if callable(cell):
        return cell(runs)
    # A column may have a colon in its name, too.
    name, form = (cell, "") if cell in runs[-1] else cell.rsplit(":", 1) if ":" in cell else (cell, "")
    if not runs[-1].get(name):
        return _EMPTY
    return format(statistics.median(_numbers(runs, name)), form) if form else runs[-1][name]


def count(runs: Runs) -> str:
    """How often it was measured: the rounds of all runs, `-` where rows do not say it and name no run."""
    rounds = [row[name] for row in runs for name in _ROUNDS if row.get(name)]
    return str(sum(map(int, rounds))) if rounds else str(len(runs)) if runs[-1].get("run") else _EMPTY


def spread(name: str, form: str = ".2f", least: str = "", most: str = "", scale: float = 1.0) -> Cell:
    """A median with the least and the most of all runs and their rounds, as `0.14 (0.12 to 0.30)`; alone if n is 1.

    Args:
        name: column of the figure.
        form: how a number is written.
        least, most: columns of the extremes of one run's rounds; by default the name and "least" or "most".
        scale: what the numbers are divided by.
    """
    least, most = least or f"{name} least", most or f"{name} most"

    def text(runs: Runs) -> str:
        middle = _numbers(runs, name)
        if not middle:
            return _EMPTY
        low, high = _numbers(runs, least) or middle, _numbers(runs, most) or middle
        shown = [format(number / scale, form) for number in (statistics.median(middle), min(low), max(high))]
        is_known = count(runs) not in ("1", _EMPTY) and (len(middle) > 1 or bool(_numbers(runs, least)))
        return f"{shown[0]} ({shown[1]} to {shown[2]})" if is_known else shown[0]

    return text


def _of_one_run(name: str, form: str = ".2f") -> Cell:
    """As `spread`, where the least and the most of one run are those of its nodes."""

    def text(runs: Runs) -> str:
        shown = [format(float(runs[-1][column]), form) for column in (name, f"{name} least", f"{name} most")]
        return f"{shown[0]} ({shown[1]} to {shown[2]})"

    return text


def _markdown(titles: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(line)} |" for line in (titles, ["---"] * len(titles), *cells)]


def _source(file: str, measured: Sequence[Runs]) -> str:
    rows = [row for runs in measured for row in runs]
    commits = list(dict.fromkeys(f"`{row['commit']}`" for row in rows if row.get("commit")))
    machines = list(dict.fromkeys(row["machine"] for row in rows if row.get("machine")))
    if len(commits) == 0:
        return _filled(
            f"*Rows:* `eval/results/{file}`, commit unknown, an earlier one, {'; '.join(machines) or _NOWHERE}."
        )
    text = _filled(f"*Rows:* `eval/results/{file}`, commit {', '.join(commits)}, {'; '.join(machines)}.")
    if all(row.get("commit") for row in rows):
        return text
    return f"{text}\nSome rows of this table name no commit: they are of earlier ones."


#: Below a table: whether all of its measurements were made once only.
_SINGLE = {
    False: "Where n is 1, it was measured once, and its spread is not known.",
    True: "n is 1: each was measured once, and its spread is not known.",
}
_NOWHERE = "machine unknown"

_CHANGE_COLUMNS: dict[str, Cell] = {
    "change": "change",
    "n": count,
    "seconds to all (least to most)": spread("seconds", least="least", most="most"),
    "x raw Serf event": spread("x serf"),
    "bytes a node": "bytes a node:.0f",
    "paper, seconds": "paper:.3g",
}
_CHANGE_KEYS = ("nodes", "profile", "mode", "condition", "change")
_LARGE_KEYS = ("nodes", "mode", "condition", "megabytes")
_HEAL_KEYS = ("nodes", "mode", "changes a side", "cut s")
#: Peers that a large file comes from at once.
_SEVERAL = 3
_AWAY_KEYS = ("nodes", "away", "entries")


def _changes(nodes: int, profile: str, mode: str) -> Table:
    where = {"nodes": str(nodes), "profile": profile, "mode": mode, "condition": "none"}
    return Table("bench_net_changes.csv", _CHANGE_COLUMNS, where, _CHANGE_KEYS)


def _change_target(text: str, mode: str, change: str, column: str, most: float, nodes: int = 30) -> Target:
    where = {"nodes": str(nodes), "profile": "wan", "mode": mode, "condition": "none", "change": change}
    return Target(text, "bench_net_changes.csv", where, column, most, keys=_CHANGE_KEYS)


def _mean_of_three(row: Row) -> float:
    """Bytes of a change, as the mean of the three rounds of a real cluster counts them."""
    return (float(row["first, bytes a node"]) + 2 * float(row["bytes a node"])) / 3


def _log_target(text: str, entries: int, column: str, most: float, shown: str) -> Target:
    return Target(text, "bench_log.csv", {"entries": str(entries)}, column, most, shown)


def _rate_target(text: str, entries: int, column: str = "apply/verify", least: float = 0.5) -> Target:
    return Target(text, "bench_log.csv", {"entries": str(entries)}, column, least, "{:.2f}", at_least=True)


def _step_target(text: str, step: str, most: float = 1.3, tree: str = "5000 files") -> Target:
    where = {"tree": tree, "step": step}
    return Target(text, "bench_fs.csv", where, "BaseFS / bindfs", most, "{:.2f} x", ("tree", "step"))


def _mount_target(text: str, what: str, most: float, unit: str = " s", form: str = ".3g") -> Target:
    return Target(text, "bench_mount.csv", {"what": what}, "BaseFS", most, f"{{:{form}}}{unit}", ("part", "what"))


#: Steps of `make bench-fs` whose ratios to bindfs have a target, with their titles: on a tree, and of programs.
_STEPS: Sequence[tuple[str, str]] = (
    ("list", "find"),
    ("ls -lR", "`ls -lR`"),
    ("stat all", "stat"),
    ("du", "`du`"),
    ("grep -r", "`grep -r`"),
    ("open, read, close", "open, read, close"),
    ("warm read", "warm tar"),
    ("cold read", "cold tar"),
    ("rewrite", "rewrite"),
    ("remove", "`rm -r`"),
)
_PROGRAM_STEPS: Sequence[tuple[str, str]] = (
    ("create 2000 files", "create 2000 files"),
    ("SQLite, 300 inserts, delete", "SQLite, journal"),
    ("SQLite, 300 inserts, wal", "SQLite, WAL"),
    ("dbench, 2 clients, 100 MB", "dbench"),
    ("git clone", "`git clone`"),
    ("git status", "`git status`"),
    ("git checkout", "`git checkout`"),
    ("git commit", "`git commit`"),
)


_SHAPE_KEYS = ("shape", "entries")
_SHAPE_TARGETS = (
    ("10 000 hostile entries, x the time of 5000, in the worst shape, to take in: 2.3 x", "take"),
    ("... to look at what lies beside them: 2.3 x", "look"),
    ("... to write a file elsewhere: 2.3 x", "elsewhere"),
)


def _shape_target(text: str, what: str) -> Target:
    where = {"entries": "10000"}
    return Target(text, "bench_hostile.csv", where, f"{what} 2n/n", 2.3, "{:.2f} x", _SHAPE_KEYS)


def _closed_target(text: str, nodes: int, what: str, column: str, most: float, shown: str = "{:.2f} x") -> Target:
    where = {"nodes": str(nodes), "what": what}
    return Target(text, "bench_net_closed.csv", where, column, most, shown, ("nodes", "what"))


def _attack_target(text: str, filesystem: str) -> Target:
    where = {"filesystem": filesystem}
    return Target(text, "bench_net_hostile.csv", where, "x quiet", 1.5, "{:.1f} x", ("nodes", "filesystem", "attack"))


_NARROW = {"nodes": "10", "mode": "push", "condition": "bw-32"}


def _narrow_target(text: str, blocks: int) -> Target:
    where = {**_NARROW, "profile": "wan", "change": f"file of {blocks} blocks"}
    return Target(text, "bench_net_changes.csv", where, "seconds", 9.0, "{:.1f} s", _CHANGE_KEYS)


def _narrow_lab_target(text: str, blocks: int) -> Target:
    where = {**_NARROW, "backend": "namespaces", "blocks": str(blocks)}
    report = "[REPORT](../eval/REPORT.md#all-conditions)"
    return Target(text, "lab/convergence.csv", where, "all s", 9.0, "{:.1f} s", tuple(where), report=report)


def _large_target(text: str, megabytes: int, condition: str, most: float) -> Target:
    where = {"nodes": "5", "megabytes": str(megabytes), "condition": condition}
    return Target(text, "bench_net_large.csv", where, "first node sent x the file", most, "{:.2f} x", _LARGE_KEYS)


#: All tables, by the name in their mark.
TABLES: Mapping[str, Table | Targets | Growth] = {
    "performance": Targets(
        (
            _rate_target(
                "entries applied per second, of those that are only verified: 0.5, with 130 000 entries", 130_000
            ),
            _rate_target(
                "... of those whose signatures OpenSSL alone verifies: 0.75, with 130 000 entries",
                130_000,
                "apply/OpenSSL",
                0.75,
            ),
            _rate_target("... 0.5 of those that are only verified, with 300 000 entries", 300_000),
            _log_target(
                "a daemon with 130 000 entries, from the command to the first read: 3 s",
                130_000,
                "first read s",
                3.0,
                "{:.2f} s",
            ),
            _log_target(
                "memory of a daemon with an empty log, without Serf: 60 MiB", 0, "daemon MiB", 60, "{:.0f} MiB"
            ),
            _log_target(
                "... with 130 000 entries and 4300 live files, all read: 100 MiB",
                130_000,
                "daemon MiB with the tree",
                100,
                "{:.0f} MiB",
            ),
            Target(
                "... after 40 000 files have come and gone: 100 MB",
                "bench_churn.csv",
                {"entries": "130000", "files": "40000"},
                "daemon MiB",
                100e6 / (1 << 20),
                "{:.0f} MiB",
                ("entries", "files"),
            ),
            *(_shape_target(*target) for target in _SHAPE_TARGETS),
            _step_target("a copy of `/etc`: 1.15 x bindfs", "copy", 1.15, "etc"),
            _step_target("... of 5000 small files: 1.15 x", "copy", 1.15),
            *(_step_target(f"5000 files, {title}: 1.3 x bindfs", step) for step, title in _STEPS),
            *(_step_target(f"{title}: 1.3 x bindfs", step, tree="programs") for step, title in _PROGRAM_STEPS),
            _mount_target(
                "`mv` of a directory of 2000 names: 5 ms", "`mv` of a directory of 2000 names, ms", 5.0, " ms", ".1f"
            ),
            _mount_target(
                "... the longest wait of a reader meanwhile: 10 ms",
                "longest wait of a reader meanwhile, ms",
                10.0,
                " ms",
                ".1f",
            ),
            _mount_target(
                "processor time of a change of one block, writer: 5 ms",
                "processor time of a change, writer, ms",
                5.0,
                " ms",
                ".1f",
            ),
            _mount_target("... reader: 3.5 ms", "processor time of a change, reader, ms", 3.5, " ms", ".1f"),
            _mount_target(
                "5000 small files copied, the last one on the third node: 8 s",
                "5000 files copied, the last one on the third node, s",
                8.0,
            ),
            _mount_target("... `rm -rf` of them: 3 s", "`rm -rf`, s", 3.0),
            _mount_target("... that undone: 5 s", "undone on the first node, s", 5.0),
            _mount_target(
                "first mount of 40 000 names: all of them after 6 s",
                "first mount, until all files are there, s",
                6.0,
            ),
            _mount_target("... `ls` of the top after 1 s", "first mount, until `ls` of the top, s", 1.0),
            _mount_target(
                "daemon killed under readers and writers: 0 errors", "errors of readers and writers", 0.0, "", ".0f"
            ),
            _mount_target("... in step after its start: 2 s", "daemon started, until in step, s", 2.0),
            _mount_target(
                "memory of daemon and mount server, empty: 65 MB", "memory of both, empty, MB", 65.0, " MB", ".0f"
            ),
            _mount_target("... 40 000 names: 130 MB", "memory of both, 40000 names, MB", 130.0, " MB", ".0f"),
            _mount_target(
                "1100 files that wait: at most 64 descriptors more than at rest",
                "descriptors more than at rest, 1100 files wait",
                64.0,
                "",
                ".0f",
            ),
            Target(
                "p99 of a warm read while 5000 changes arrive: 3 x that at rest",
                "storm.csv",
                {"place": "BaseFS, changes arriving"},
                "p99 x at rest",
                3.0,
                "{:.1f} x",
                ("place",),
            ),
            Target(
                "the event loop is never blocked for more than 100 ms in that time",
                "storm_daemon.csv",
                {"what": "longest block of the event loop, ms"},
                "value",
                100.0,
                "{:.0f} ms",
            ),
        )
    ),
    "log": Table(
        "bench_log.csv",
        {
            "entries": "entries",
            "n": count,
            "verified by": "verified by",
            "verify 1/s": "verify 1/s:.0f",
            "OpenSSL 1/s": "OpenSSL 1/s:.0f",
            "apply 1/s": "apply 1/s:.0f",
            "apply / verify (least to most)": spread("apply/verify"),
            "apply / OpenSSL (least to most)": spread("apply/OpenSSL"),
            "the same on the clock": spread("apply/OpenSSL wall"),
            "us an entry": "us an entry:.0f",
            "verify, s on the clock": "verify wall s:.3g",
            "apply, s on the clock": "apply wall s:.3g",
            "log MiB": "log MiB:.3g",
        },
        keys=("entries",),
    ),
    "daemon": Table(
        "bench_log.csv",
        {
            "entries": "entries",
            "live files": "live files",
            "n": count,
            "`basefs mount`, s": "mount s:.2f",
            "until the first read, s (least to most)": spread("first read s"),
            "daemon, MiB (least to most)": spread("daemon MiB", ".0f"),
            "all files read, MiB (least to most)": spread("daemon MiB with the tree", ".0f"),
            "Serf, MiB": "serf MiB:.0f",
        },
        keys=("entries",),
    ),
    "churn": Table(
        "bench_churn.csv",
        {
            "entries": "entries",
            "files that come and go": "files",
            "n": count,
            "live files": "live files:.0f",
            "entries after": "entries after:.0f",
            "daemon before, MiB": "daemon MiB before:.0f",
            "after, MiB (least to most)": spread("daemon MiB", ".0f"),
            "at most, MiB (least to most)": spread("peak MiB", ".0f"),
            "Serf, MiB": "serf MiB:.0f",
            "seconds": "seconds:.0f",
        },
        keys=("entries", "files"),
    ),
    "shapes": Table(
        "bench_hostile.csv",
        {
            "shape": "shape",
            "entries": "entries",
            "n": count,
            "take in, ms": "take ms:.0f",
            "x half as many (least to most)": spread("take 2n/n"),
            "look, ms": "look ms:.0f",
            "x half as many (least to most) ": spread("look 2n/n"),
            "write elsewhere, ms": "elsewhere ms:.2f",
            "x half as many (least to most)  ": spread("elsewhere 2n/n"),
        },
        keys=_SHAPE_KEYS,
    ),
    "contents": Table(
        "bench_contents.csv",
        {
            "MB": "MB",
            "kind": "kind",
            "n": count,
            "write s": spread("write s", ".1f"),
            "longest wait ms": spread("write: waited ms", ".1f"),
            "change s": spread("change s", ".1f"),
            "longest wait ms ": spread("change: waited ms", ".1f"),
            "cold read s": spread("cold read s", ".1f"),
            "longest wait ms  ": spread("read: waited ms", ".1f"),
            "peak MiB": spread("peak MiB", ".0f"),
        },
        keys=("MB", "kind"),
    ),
    "edits": Table(
        "bench_contents_edits.csv",
        {
            "lines": "lines",
            "n": count,
            "bytes": "bytes",
            "one line changed": "changed: bytes",
            "one line added": "more: bytes",
            "one line removed": "less: bytes",
        },
        keys=("lines",),
    ),
    "growth": Table(
        "bench_growth.csv",
        {
            "edit": "edit",
            "n": count,
            "edits of one run": "edits",
            "sent, bytes, mean": spread("sent", ".0f"),
            "kept, bytes, mean": spread("kept", ".0f"),
        },
        keys=("edit",),
    ),
    "growth-copy": Table(
        "bench_growth_copy.csv",
        {
            "tree": "tree",
            "n": count,
            "its bytes": "its bytes",
            "entries after the first copy": "entries after first",
            "after copying it again": "entries after again",
            "bytes of the log": "log",
        },
        keys=("tree",),
    ),
    "files": Table(
        "bench_fs.csv",
        {
            "tree": "tree",
            "step": "step",
            "n": count,
            "disk s": "disk s:.3g",
            "bindfs s": "bindfs s:.3g",
            "BaseFS s": "BaseFS s:.3g",
            "BaseFS / bindfs (least to most)": spread("BaseFS / bindfs"),
            "BaseFS / disk (least to most)": spread("BaseFS / disk"),
        },
        keys=("tree", "step"),
    ),
    "mount": Table(
        "bench_mount.csv",
        {
            "what": "what",
            "n": count,
            "BaseFS (least to most)": spread("BaseFS", ".3g"),
            "bindfs": "bindfs:.3g",
            "disk": "disk:.3g",
        },
        keys=("part", "what"),
    ),
    "readers": Table(
        "storm.csv",
        {
            "place": "place",
            "n": count,
            "reads": "reads:.0f",
            "errors": "errors",
            "torn": "torn",
            "median ms": spread("median ms"),
            "p90 ms": spread("p90 ms"),
            "p99 ms": spread("p99 ms"),
            "p99 x at rest": spread("p99 x at rest", ".1f"),
            "longest ms": spread("longest ms", ".0f"),
        },
        keys=("place",),
    ),
    "storm": Table(
        "storm_daemon.csv",
        {"what": "what", "n": count, "value (least to most)": spread("value", ".4g")},
        keys=("what",),
    ),
    "posix": Table(
        "posix.csv",
        {
            "program": "program",
            "n": count,
            "passed, disk": "disk passed",
            "failed, disk": "disk failed",
            "passed, mount": "BaseFS passed",
            "failed, mount": "BaseFS failed",
            "skipped, mount": "BaseFS skipped",
            "deviations": "deviations",
            "not listed": "not listed",
            "disk, s": spread("disk s", ".0f"),
            "mount, s": spread("BaseFS s", ".0f"),
        },
        keys=("program",),
    ),
    "network": Targets(
        (
            _change_target("a small change on 30 nodes: 0.1 s", "push", "small change", "seconds", 0.1),
            _change_target("... x a raw Serf event: 1", "push", "small change", "x serf", 1.0),
            _change_target(
                "`--no-push`, a small change, x a raw Serf event: 1.2", "gossip", "small change", "x serf", 1.2
            ),
            Target(
                "`/etc` copied on one of 30 nodes, on all: 30 s",
                "bench_net_etc.csv",
                {"nodes": "30", "mode": "push"},
                "on all s",
                30.0,
                "{:.1f} s",
                ("nodes", "profile", "mode"),
            ),
            _change_target("254 blocks on 10 nodes: 0.3 s", "push", "file of 254 blocks", "seconds", 0.3, 10),
            _narrow_lab_target("32 kbit/s, 15 blocks on 10 nodes: 9 s", 15),
            _narrow_target("... 16 blocks: 9 s", 16),
            Target(
                "halves of 10 nodes with 1000 changes each are equal after 3 s",
                "bench_net_heal.csv",
                {"nodes": "20"},
                "equal after s",
                3.0,
                "{:.1f} s",
                _HEAL_KEYS,
            ),
            Target(
                "a node that was away for 10 000 entries: equal after 3 s",
                "bench_net_away.csv",
                {"entries": "10000", "away": "cut off"},
                "seconds",
                3.0,
                "{:.1f} s",
                _AWAY_KEYS,
            ),
            Target(
                "a new node with 130 000 entries: 1.5 x the processor time of verifying",
                "bench_net_newcomer.csv",
                {"entries": "130000"},
                "cpu x verify",
                1.5,
                "{:.2f} x",
                ("entries",),
            ),
            Target(
                "... 1.5 x the time of verifying on the clock",
                "bench_net_newcomer.csv",
                {"entries": "130000"},
                "x verify",
                1.5,
                "{:.2f} x",
                ("entries",),
            ),
            _attack_target(
                "under attack a change takes 1.5 x as long, in the worst attack on an open filesystem", "open"
            ),
            _attack_target("... on a closed one", "closed"),
            _large_target("a file of 200 MB to 5 nodes: the first node sends it less than 5 times", 200, "none", 5.0),
            _large_target("... 10 MB, 8 Mbit/s each: 1.39 times", 10, "bw-8000", 1.39),
            _closed_target(
                "closed: a handshake, both ends: 2.5 ms of processor time",
                2,
                "handshake, processor ms of both ends",
                "closed",
                2.5,
                "{:.2f} ms",
            ),
            Target(
                "closed: a new gossip key on 30 nodes, 3 away: one that stays counts as lost for 0 s",
                "bench_net_rotating.csv",
                {"nodes": "30", "away": "3"},
                "stayed, but lost s",
                0.0,
                "{:.1f} s",
                ("nodes", "away", "away s"),
            ),
            _closed_target(
                "closed / open: a small change on 10 nodes: 1.05 x", 10, "small change, s", "closed / open", 1.05
            ),
            _closed_target("... `/etc` on 10 nodes: 1.1 x", 10, "/etc, s", "closed / open", 1.1),
            _closed_target(
                "closed: a machine has joined and mounted, after the paste: 5 s",
                10,
                "join and mount, s",
                "closed",
                5.0,
                "{:.1f} s",
            ),
        )
    ),
    "changes-push": _changes(30, "wan", "push"),
    "changes-gossip": _changes(30, "wan", "gossip"),
    "changes-lan": _changes(30, "lan", "push"),
    "changes-8-push": _changes(8, "lan", "push"),
    "changes-8-gossip": _changes(8, "lan", "gossip"),
    "etc": Table(
        "bench_net_etc.csv",
        {
            "nodes": "nodes",
            "mode": "mode",
            "n": count,
            "paths": "paths",
            "`cp`, s": spread("copied s", ".1f"),
            "in the first node's log, s": spread("published s", ".1f"),
            "on all, s": spread("on all s", ".1f"),
            "MB a node": spread("bytes a node", ".2f", scale=1e6),
            "MB, least node": spread("least", ".2f", scale=1e6),
            "MB, most": spread("most", ".2f", scale=1e6),
        },
        {},
        ("nodes", "profile", "mode"),
    ),
    "narrow": Table(
        "bench_net_changes.csv",
        {
            "nodes": "nodes",
            "network": "condition",
            "change": "change",
            "n": count,
            "seconds to all (least to most)": spread("seconds", ".1f", "least", "most"),
            "bytes a node": "bytes a node:.0f",
            "paper, seconds": "paper:.3g",
        },
        {"condition": "bw-32"},
        _CHANGE_KEYS,
    ),
    "heal": Table(
        "bench_net_heal.csv",
        {
            "nodes": "nodes",
            "changes a side": "changes a side",
            "n": count,
            "equal after, s": spread("equal after s", ".1f"),
            "processor s, all nodes, a core": spread("cpu s / cores", ".1f"),
            "processor ms an entry lacked": "cpu ms a differing entry:.2f",
            "bytes of sync an entry lacked": "bytes of sync a differing entry:.0f",
            "MB a node": spread("bytes a node", ".2f", scale=1e6),
        },
        {},
        _HEAL_KEYS,
    ),
    "away": Table(
        "bench_net_away.csv",
        {
            "entries": "entries",
            "away": "away",
            "n": count,
            "equal after, s": spread("seconds", ".1f"),
            "processor s": spread("cpu s", ".1f"),
            "x verifying": spread("cpu x verify", ".1f"),
            "bytes of sync an entry, all nodes": "bytes of sync a differing entry:.0f",
            "MiB": "peak MiB:.0f",
        },
        {},
        _AWAY_KEYS,
    ),
    "newcomer": Table(
        "bench_net_newcomer.csv",
        {
            "entries": "entries",
            "n": count,
            "s": spread("seconds", ".1f"),
            "x verifying": spread("x verify"),
            "processor s": spread("cpu s of get", ".1f"),
            "x verifying, processor": spread("cpu x verify"),
            "processor s, server": "cpu s of the server:.1f",
            "MiB, get": "peak MiB of get:.0f",
            "MiB, server": "peak MiB of the server:.0f",
            "bytes an entry": "bytes of sync a differing entry:.0f",
        },
        {},
        ("entries",),
    ),
    "large": Table(
        "bench_net_large.csv",
        {
            "nodes": "nodes",
            "network": "condition",
            "MB": "megabytes",
            "n": count,
            "in the first node's log, s": spread("published s", ".1f"),
            "on all, s": spread("on all s", ".1f"),
            "first node sent, x the file": spread("first node sent x the file"),
            "the others together": "others sent x the file:.2f",
            "MiB, first": "peak MiB of the first:.0f",
            "MiB, others": "peak MiB of others:.0f",
        },
        {},
        _LARGE_KEYS,
    ),
    "several": Table(
        "bench_net_several.csv",
        {
            "peers": "peers",
            "network": "condition",
            "MB": "megabytes",
            "n": count,
            "complete after, s": spread("complete s", ".1f"),
            "one link would take, s": "over one link s:.1f",
            "all links, s": "over all links s:.1f",
            "sent, x the file": spread("sent x the file"),
            "most by one peer, x": spread("peer 1 x"),
            "least, x": spread(f"peer {_SEVERAL} x"),
        },
        {},
        ("peers", "condition", "megabytes"),
    ),
    "idle": Table(
        "bench_net_idle.csv",
        {
            "nodes": "nodes",
            "n": count,
            "bytes": spread("bytes a minute", ".0f"),
            "Serf UDP": "serf udp:.0f",
            "Serf TCP": "serf tcp:.0f",
            "sync": "sync:.0f",
            "daemon, s of CPU": spread("daemon cpu s"),
            "Serf, s of CPU": spread("serf cpu s"),
        },
        {},
        ("nodes", "mode"),
    ),
    "hostile": Table(
        "bench_net_hostile.csv",
        {
            "filesystem": "filesystem",
            "attack": "attack",
            "n": count,
            "a second": "attempts a second:.0f",
            "its cores": "attacker cores:.2f",
            "x": spread("x quiet", ".1f"),
            "longest, s": "longest s:.2f",
            "MiB more": "MiB more:.1f",
            "cores of a daemon": "daemon cores:.2f",
        },
        {},
        ("nodes", "filesystem", "attack"),
    ),
    "closed": Table(
        "bench_net_closed.csv",
        {
            "nodes": "nodes",
            "what": "what",
            "n": count,
            "open": "open:.3g",
            "closed (least to most)": spread("closed", ".3g"),
            "closed / open (least to most)": spread("closed / open"),
        },
        keys=("nodes", "what"),
    ),
    "scale-changes": Table(
        "bench_scale_changes.csv",
        {
            "nodes": "nodes",
            "n": count,
            "seconds to all (least to most)": spread("seconds"),
            "median node, s": "median node s:.2f",
            "bytes a node": "bytes a node:.0f",
            "packets": "packets a node:.1f",
            "processor us a node": "cpu us a node:.0f",
            "idle: bytes a s": "idle bytes a node a s:.0f",
            "push sessions": "push sessions:.1f",
            "most": "most push sessions",
        },
        {},
        ("nodes",),
    ),
    "scale-growth": Growth(
        "bench_scale_changes.csv",
        {
            "seconds to all": "seconds:.2f",
            "seconds to the median node": "median node s:.2f",
            "bytes a node": "bytes a node:.0f",
            "packets a node": "packets a node:.1f",
            "processor us a node": "cpu us a node:.0f",
            "idle bytes a node a second": "idle bytes a node a s:.0f",
        },
        {},
        ("nodes",),
    ),
    "scale-near": Table(
        "bench_scale_near.csv",
        {
            "nodes": "nodes",
            "n": count,
            "seconds to all (least to most)": spread("seconds"),
            "bytes a node, first change": "first, bytes a node:.0f",
            "later changes": "bytes a node:.0f",
            "mean of one first and two later": lambda runs: f"{_mean_of_three(runs[-1]):.0f}",
            "idle, bytes a minute": lambda runs: f"{60 * float(runs[-1]['idle bytes a node a s']):.0f}",
        },
        {},
        ("nodes",),
    ),
    "scale-real": Table(
        "bench_net_changes.csv",
        {
            "nodes": "nodes",
            "n": count,
            "seconds to all (least to most)": spread("seconds", least="least", most="most"),
            "bytes of sync a node": "of them sync:.0f",
        },
        {"change": "small change", "profile": "wan", "mode": "push", "condition": "none"},
        _CHANGE_KEYS,
    ),
    "scale-heal": Table(
        "bench_scale_heal.csv",
        {
            "nodes": "nodes",
            "changes a side": "changes a side",
            "n": count,
            "equal after, s": spread("equal after s"),
            "processor ms an entry lacked": "cpu ms a differing entry:.2f",
            "bytes of sync an entry lacked": "bytes of sync a differing entry:.0f",
            "MB a node": spread("bytes a node", ".2f", scale=1e6),
        },
        {},
        ("nodes", "changes a side", "cut s"),
    ),
    "scale-crowd": Table(
        "bench_scale_crowd.csv",
        {
            "nodes": "nodes",
            "newcomers": "newcomers",
            "n": count,
            "log, kB": lambda runs: f"{float(runs[-1]['log bytes']) / 1000:.0f}",
            "complete after, s (least to most)": _of_one_run("seconds"),
            "a change meanwhile, s": "a change meanwhile s:.2f",
            "kB a newcomer": spread("bytes a newcomer", ".0f", scale=1000),
            "kB, busiest node": spread("busiest node bytes", ".0f", scale=1000),
            "processor ms a newcomer": "cpu ms a newcomer:.0f",
        },
        {},
        ("nodes", "entries"),
    ),
    "scale-churn": Table(
        "bench_scale_churn.csv",
        {
            "machines": "machines",
            "minutes on": "on min",
            "off": "off min",
            "n": count,
            "comings": "comings",
            "lack what is older than 1 s, %": "lacks what is older than 1 s, %:.2f",
            "10 s, %": "lacks what is older than 10 s, %:.2f",
            "current after, s (least to most)": _of_one_run("back until current s"),
            "bytes of sync a s": "bytes a node a s:.0f",
            "of events": "gossip bytes a node a s:.0f",
        },
        {},
        ("machines", "on min", "off min"),
    ),
    "scale-conflicts": Table(
        "bench_scale_conflicts.csv",
        {
            "writers": "writers",
            "changes a second": "changes a s",
            "files": "files",
            "n": count,
            "conflicts, %": spread("conflicts %", ".1f"),
            "expected, %": "expected %:.1f",
        },
        {},
        ("nodes", "writers", "changes a s", "files"),
    ),
    "scale-members": Table(
        "bench_scale_members.csv",
        {
            "members": "nodes",
            "n": count,
            "look at all, ms": spread("look ms", ".1f"),
            "one has failed, ms": spread("told ms", ".1f"),
            "choice of a peer, ms": spread("choice ms", ".1f"),
            "tables, KiB": "table KiB:.0f",
            "trust all keys, ms": spread("trust ms", ".0f"),
        },
        {},
        ("nodes",),
    ),
    "rotating": Table(
        "bench_net_rotating.csv",
        {
            "nodes": "nodes",
            "away": "away",
            "n": count,
            "key with those there, s": spread("key with those there s", ".1f"),
            "gossip among those there, s": spread("gossip among those there s", ".1f"),
            "away, s": "away s:.0f",
            "key with those back, s": spread("key with those back s", ".1f"),
            "all alive, s": spread("all alive s", ".1f"),
            "stayed, but lost, s": spread("stayed, but lost s", ".1f"),
            "pairs that lost": spread("pairs that lost", ".0f"),
        },
        keys=("nodes", "away", "away s"),
    ),
}


def documents() -> list[Path]:
    """The documents that have such tables."""
    return [path for path in sorted((ROOT / "docs").glob("*.md")) if _MARK.search(path.read_text())]


def with_figures(text: str) -> str:
    """A document with the tables of today behind their marks.

    Raises:
        NoFigures: there is no such table.
    """

    def table(mark: re.Match[str]) -> str:
        name = mark["name"]
        if name not in TABLES:
            raise NoFigures(f"there is no table {name}: give it one in eval/figures.py")
        lines = [f"<!-- figures: {name} -->", "", *TABLES[name].lines(), "", "<!-- end -->", ""]
        return "\n".join(lines)

    return _MARK.sub(table, text)


def main() -> None:
    """Write the tables of all documents anew."""
    for path in documents():
        text = path.read_text()
        if (new := with_figures(text)) != text:
            path.write_text(new)
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
