"""Tables of measurements in the documents, written from the rows in `eval/results`: `python -m eval.figures`.

A table stands behind a mark `<!-- figures: NAME -->`, up to `<!-- end -->`.  No figure in it is typed by hand, and a
test holds that a document shows the rows of today.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "eval" / "results"
_MARK = re.compile(r"^<!-- figures: (?P<name>\S+) -->\n.*?^<!-- end -->\n", re.MULTILINE | re.DOTALL)
_EMPTY = "-"

Row = Mapping[str, str]
#: A cell of a row: a column with a format such as `seconds:.2f`, or what makes the text.
Cell = str | Callable[[Row], str]


class NoFigures(Exception):
    """A document asks for a table that there is not."""


@dataclass(frozen=True)
class Table:
    """Rows of one file.

    Attributes:
        file: name of the CSV file in `eval/results`.
        columns: titles with what stands below them.
        where: values that the rows have in some columns.
        keys: columns that tell measurements apart; of several rows of one measurement the last one counts.
    """

    file: str
    columns: Mapping[str, Cell]
    where: Mapping[str, str] = field(default_factory=dict)
    keys: Sequence[str] = ()

    def lines(self) -> list[str]:
        """The table in Markdown, and where its rows come from."""
        rows = select(self.file, self.where, self.keys)
        if not rows:
            return ["Not measured yet: no rows are kept."]
        cells = [[_cell(row, cell) for cell in self.columns.values()] for row in rows]
        return [*_markdown(list(self.columns), cells), "", _source(self.file, rows)]


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
    """

    text: str
    file: str
    where: Mapping[str, str]
    column: str
    limit: float
    shown: str = "{:.3g}"
    keys: Sequence[str] = ()
    at_least: bool = False

    def cells(self) -> list[str]:
        """Target, figure, and whether it is met."""
        values = [float(row[self.column]) for row in select(self.file, self.where, self.keys) if row.get(self.column)]
        if not values:
            return [self.text, "not measured", "unknown"]
        worst = min(values) if self.at_least else max(values)
        met = worst >= self.limit if self.at_least else worst <= self.limit
        return [self.text, self.shown.format(worst), "yes" if met else "no"]


@dataclass(frozen=True)
class Targets:
    """The targets of a document, in one table."""

    targets: Sequence[Target]

    def lines(self) -> list[str]:
        """The table in Markdown."""
        return _markdown(["target", "measured", "met"], [target.cells() for target in self.targets])


def select(file: str, where: Mapping[str, str], keys: Sequence[str]) -> list[Row]:
    """The rows with these values, in the order of the file; the last one of each measurement."""
    found: dict[tuple[str, ...], Row] = {}
    for number, row in enumerate(_read(file)):
        if all(row.get(name) == value for name, value in where.items()) and not row.get("failed"):
            found[tuple(row[name] for name in keys) if keys else (str(number),)] = row
    return list(found.values())


def _read(file: str) -> list[Row]:
    if not (RESULTS / file).exists():
        return []
    with (RESULTS / file).open(newline="") as text:
        return list(csv.DictReader(text))


def _cell(row: Row, cell: Cell) -> str:
    if callable(cell):
        return cell(row)
    # A column may have a colon in its name, too.
    name, form = (cell, "") if cell in row else cell.rsplit(":", 1) if ":" in cell else (cell, "")
    value = row.get(name, "")
    if not value:
        return _EMPTY
    return format(float(value), form) if form else value


def spread(name: str, form: str = ".2f", least: str = "", most: str = "") -> Cell:
    """A median with the least and the most of its rounds, as `0.14 (0.12 to 0.30)`."""

    def text(row: Row) -> str:
        middle, low, high = (_cell(row, f"{column}:{form}") for column in (name, least, most))
        return middle if _EMPTY in (low, high) or low == high else f"{middle} ({low} to {high})"

    least, most = least or f"{name} least", most or f"{name} most"
    return text


def _markdown(titles: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(line)} |" for line in (titles, ["---"] * len(titles), *cells)]


def _source(file: str, rows: Sequence[Row]) -> str:
    commits = list(dict.fromkeys(f"`{row['commit']}`" for row in rows if row.get("commit")))
    machines = list(dict.fromkeys(row["machine"] for row in rows if row.get("machine")))
    if len(commits) == 0:
        return f"*Rows:* `eval/results/{file}`, which do not name the commit that they measure: an earlier one."
    return f"*Rows:* `eval/results/{file}`, commit {', '.join(commits)}, {'; '.join(machines)}."


_CHANGE_COLUMNS: dict[str, Cell] = {
    "change": "change",
    "n": "rounds",
    "seconds to all (least to most)": spread("seconds", least="least", most="most"),
    "x raw Serf event": "x serf:.2f",
    "bytes a node": "bytes a node:.0f",
    "paper, seconds": "paper:.3g",
}
_CHANGE_KEYS = ("nodes", "profile", "mode", "condition", "change")
_HEAL_KEYS = ("nodes", "mode", "changes a side", "cut s")
_AWAY_KEYS = ("nodes", "away", "entries")


def _changes(nodes: int, profile: str, mode: str) -> Table:
    where = {"nodes": str(nodes), "profile": profile, "mode": mode, "condition": "none"}
    return Table("bench_net_changes.csv", _CHANGE_COLUMNS, where, _CHANGE_KEYS)


def _change_target(text: str, mode: str, change: str, column: str, most: float) -> Target:
    where = {"nodes": "30", "profile": "wan", "mode": mode, "condition": "none", "change": change}
    return Target(text, "bench_net_changes.csv", where, column, most, keys=_CHANGE_KEYS)


def _log_target(text: str, entries: int, column: str, most: float, shown: str) -> Target:
    return Target(text, "bench_log.csv", {"entries": str(entries)}, column, most, shown)


def _rate_target(text: str, entries: int) -> Target:
    return Target(text, "bench_log.csv", {"entries": str(entries)}, "apply/verify", 0.5, "{:.2f}", at_least=True)


def _step_target(text: str, step: str, other: str, most: float) -> Target:
    return Target(text, "bench_fs.csv", {"tree": "etc", "step": step}, f"BaseFS / {other}", most, "{:.2f} x")


#: All tables, by the name in their mark.
TABLES: Mapping[str, Table | Targets] = {
    "performance": Targets(
        (
            _rate_target(
                "entries applied per second, of those that are only verified: 0.5, with 130 000 entries", 130_000
            ),
            _rate_target("... with 300 000 entries", 300_000),
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
            _step_target("a copy of `/etc` into the mount: 2 x bindfs", "copy", "bindfs", 2.0),
            _step_target("a warm read of `/etc`: 3 x the disk", "warm read", "disk", 3.0),
            Target(
                "a cold read after 30 rounds of copies: 1.3 x that after one",
                "bench_fs_rounds.csv",
                {"place": "BaseFS"},
                "cold 30 / 1",
                1.3,
                "{:.2f} x",
            ),
            Target(
                "the 30th copy over the same tree: 1.2 x the first",
                "bench_fs_rounds.csv",
                {"place": "BaseFS"},
                "30th / 1st",
                1.2,
                "{:.2f} x",
            ),
            Target(
                "p99 of a warm read while 5000 changes arrive: 5 ms",
                "storm.csv",
                {"place": "BaseFS, changes arriving"},
                "p99 ms",
                5.0,
                "{:.1f} ms",
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
            "n": "rounds",
            "verify 1/s": "verify 1/s:.0f",
            "apply 1/s": "apply 1/s:.0f",
            "apply / verify (least to most)": spread("apply/verify"),
            "us an entry": "us an entry:.0f",
            "verify, s on the clock": "verify wall s:.3g",
            "apply, s on the clock": "apply wall s:.3g",
            "log MiB": "log MiB:.3g",
        },
    ),
    "daemon": Table(
        "bench_log.csv",
        {
            "entries": "entries",
            "live files": "live files",
            "n": "rounds",
            "`basefs mount`, s": "mount s:.2f",
            "until the first read, s (least to most)": spread("first read s"),
            "daemon, MiB (least to most)": spread("daemon MiB", ".0f"),
            "all files read, MiB (least to most)": spread("daemon MiB with the tree", ".0f"),
            "Serf, MiB": "serf MiB:.0f",
        },
    ),
    "contents": Table(
        "bench_contents.csv",
        {
            "MB": "MB",
            "kind": "kind",
            "write s": "write s",
            "longest wait ms": "write: waited ms",
            "change s": "change s",
            "longest wait ms ": "change: waited ms",
            "cold read s": "cold read s",
            "longest wait ms  ": "read: waited ms",
            "peak MiB": "peak MiB",
        },
    ),
    "edits": Table(
        "bench_contents_edits.csv",
        {
            "lines": "lines",
            "bytes": "bytes",
            "one line changed": "changed: bytes",
            "one line added": "more: bytes",
            "one line removed": "less: bytes",
        },
    ),
    "files": Table(
        "bench_fs.csv",
        {
            "tree": "tree",
            "step": "step",
            "n": "runs",
            "disk s": "disk s:.3g",
            "bindfs s": "bindfs s:.3g",
            "BaseFS s": "BaseFS s:.3g",
            "BaseFS / bindfs (least to most)": spread("BaseFS / bindfs"),
            "BaseFS / disk (least to most)": spread("BaseFS / disk"),
        },
    ),
    "rounds": Table(
        "bench_fs_rounds.csv",
        {name: name for name in ("place", "1st copy s", "2nd copy s", "30th copy s", "30th / 1st", "30th / 2nd")}
        | {name: name for name in ("cold read after 1 s", "cold read after 30 s", "cold 30 / 1")},
    ),
    "readers": Table(
        "storm.csv",
        {name: name for name in ("place", "reads", "errors", "torn", "median ms", "p90 ms", "p99 ms", "longest ms")},
    ),
    "storm": Table("storm_daemon.csv", {"what": "what", "value": "value"}),
    "network": Targets(
        (
            _change_target("a small change on 30 nodes: 0.2 s", "push", "small change", "seconds", 0.2),
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
            Target(
                "32 kbit/s, 16 blocks on 10 nodes: 9 s",
                "bench_net_changes.csv",
                {"nodes": "10", "condition": "bw-32", "change": "file of 16 blocks"},
                "seconds",
                9.0,
                "{:.1f} s",
                _CHANGE_KEYS,
            ),
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
            Target(
                "under attack a change takes at most twice as long, in the worst of 14 attacks",
                "bench_net_hostile.csv",
                {},
                "x quiet",
                2.0,
                "{:.1f} x",
                ("nodes", "attack"),
            ),
            Target(
                "a file of 200 MB to 5 nodes: the first node sends it less than 5 times",
                "bench_net_large.csv",
                {},
                "first node sent x the file",
                5.0,
                "{:.2f} x",
                ("nodes", "mode", "megabytes"),
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
            "paths": "paths",
            "`cp`, s": "copied s:.1f",
            "in the first node's log, s": "published s:.1f",
            "on all, s": "on all s:.1f",
            "MB a node": lambda row: f"{float(row['bytes a node']) / 1e6:.2f}",
            "MB, least to most": lambda row: f"{float(row['least']) / 1e6:.2f} to {float(row['most']) / 1e6:.2f}",
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
            "n": "rounds",
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
            "equal after, s": "equal after s:.1f",
            "processor s, all nodes, a core": "cpu s / cores:.1f",
            "processor ms an entry lacked": "cpu ms a differing entry:.2f",
            "bytes of sync an entry lacked": "bytes of sync a differing entry:.0f",
            "MB a node": lambda row: f"{float(row['bytes a node']) / 1e6:.2f}",
        },
        {},
        _HEAL_KEYS,
    ),
    "away": Table(
        "bench_net_away.csv",
        {
            "entries": "entries",
            "away": "away",
            "equal after, s": "seconds:.1f",
            "processor s": "cpu s:.1f",
            "x verifying": "cpu x verify:.1f",
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
            "s": "seconds:.1f",
            "x verifying": "x verify:.2f",
            "processor s": "cpu s of get:.1f",
            "x verifying, processor": "cpu x verify:.2f",
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
            "MB": "megabytes",
            "in the first node's log, s": "published s:.1f",
            "on all, s": "on all s:.1f",
            "first node sent, x the file": "first node sent x the file:.2f",
            "the others together": "others sent x the file:.2f",
            "MiB, first": "peak MiB of the first:.0f",
            "MiB, others": "peak MiB of others:.0f",
        },
        {},
        ("nodes", "mode", "megabytes"),
    ),
    "idle": Table(
        "bench_net_idle.csv",
        {
            "nodes": "nodes",
            "bytes": "bytes a minute:.0f",
            "Serf UDP": "serf udp:.0f",
            "Serf TCP": "serf tcp:.0f",
            "sync": "sync:.0f",
            "daemon, s of CPU": "daemon cpu s:.2f",
            "Serf, s of CPU": "serf cpu s:.2f",
        },
        {},
        ("nodes", "mode"),
    ),
    "hostile": Table(
        "bench_net_hostile.csv",
        {
            "attack": "attack",
            "n": "changes",
            "a second": "attempts a second:.0f",
            "its cores": "attacker cores:.2f",
            "x": "x quiet:.1f",
            "longest, s": "longest s:.2f",
            "MiB more": "MiB more:.1f",
            "cores of a daemon": "daemon cores:.2f",
        },
        {},
        ("nodes", "attack"),
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
