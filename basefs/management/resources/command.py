"""`basefs resources`: what a running filesystem uses, second by second (paper, sections 4.2 and 5)."""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from basefs.daemon.api.messages import GetResources, encode
from basefs.daemon.api.runfile import RunFile
from basefs.daemon.config import Home
from basefs.management.errors import ExitCode
from basefs.management.output import examples, size
from basefs.management.resources.rates import COLUMNS, LEVELS, TRAFFIC, Reading, Row, row_between
from basefs.management.resources.usage import usage_of
from basefs.management.session import ask_daemon
from basefs.management.target import parse_name

#: Seconds between two readings.
_INTERVAL = 1.0


@click.command(
    epilog=examples(
        "basefs resources etc",
        "basefs resources etc --once",
        "basefs resources etc --log usage.csv",
        "basefs resources etc --json --count 60",
    )
)
@click.argument("target", metavar="NAME")
@click.option("--once", is_flag=True, help="Print one reading, of one second, and stop.")
@click.option("-n", "--count", metavar="N", type=click.IntRange(min=1), help="Stop after N readings.")
@click.option(
    "--log",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Append a line of CSV per second to this file.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document per line.")
def resources(target: str, once: bool, count: int | None, path: Path | None, as_json: bool) -> None:
    """Show what the daemon of NAME and its Serf agent use, once a second, until interrupted.

    Processor time is in percent of one core, memory is resident memory, context switches and bytes are per second.
    Bytes are those of messages, without the headers of IP, TCP and UDP (28 bytes a packet or more), as Serf and the
    daemon count them. Serf does not count what it receives by TCP. Handlers are not included.

    In a pipe and in the file of --log the first line names the columns. An unknown value is '-', in the file empty.
    """
    home = Home.from_environment()
    name = parse_name(home, target)
    rows = _rows(home, name, _read(home, name), 1 if once else count)
    try:
        if path is not None:
            _log(rows, path)
        elif as_json:
            for row in rows:
                click.echo(json.dumps(row))
        elif sys.stdout.isatty():
            _show(rows, name)
        else:
            click.echo("\t".join(COLUMNS))
            for row in rows:
                click.echo("\t".join("-" if row[column] is None else str(row[column]) for column in COLUMNS))
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)


def _rows(home: Home, name: str, before: Reading, count: int | None) -> Iterator[Row]:
    done = 0
    while done != count:
        # By the clock of the first reading, so that the time of a reading does not add up.
        time.sleep(max(before.time + _INTERVAL - time.time(), 0.0))
        after = _read(home, name)
        yield row_between(before, after)
        before, done = after, done + 1


def _read(home: Home, name: str) -> Reading:
    """One reading.  Raises `NotFound`, `NotRunning`."""
    totals = ask_daemon(home, name, GetResources())
    serf_pid = None if totals.traffic is None else totals.traffic.serf_pid
    facts = RunFile(home, name).read()
    usage = {"daemon": usage_of(None if facts is None else facts[0]), "serf": usage_of(serf_pid)}
    return Reading(time.time(), usage, encode(totals))


def _log(rows: Iterator[Row], path: Path) -> None:
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if file.tell() == 0:
            writer.writeheader()
        for row in rows:
            writer.writerow(row)
            # A line a second must not wait for the next thousand.
            file.flush()


def _show(rows: Iterator[Row], name: str) -> None:
    """Each reading in the place of the one before."""
    height = 0
    for row in rows:
        lines = [f"basefs resources {name}", *_lines(row)]
        back = f"\x1b[{height}A" if height else ""
        click.echo(back + "\n".join(f"{line}\x1b[K" for line in lines))
        height = len(lines)


def _lines(row: Row) -> Iterator[str]:
    yield _line("", "daemon", "serf")
    formats: dict[str, tuple[str, Callable[[float], str]]] = {
        "cpu_percent": ("CPU", lambda value: f"{value} %"),
        "memory": ("memory", size),
        "switches": ("context switches", lambda value: f"{value} /s"),
        "threads": ("threads", str),
        "files": ("open files", str),
    }
    for what, (title, shown) in formats.items():
        yield _line(title, *(_cell(row[f"{process}_{what}"], shown) for process in ("daemon", "serf")))
    yield ""
    yield _line("", "sent", "received")
    for protocol, title in (("serf_udp", "Serf UDP"), ("serf_tcp", "Serf TCP"), ("sync", "sync")):
        sides = (f"{protocol}_{side}" for side in ("sent", "received"))
        cells = (_cell(row[side], lambda value: f"{size(value)}/s") if side in TRAFFIC else "unknown" for side in sides)
        yield _line(title, *cells)
    yield ""
    titles = ("entries", "blocks", "gossip events queued", "queued in Serf", "names not published", "handlers waiting")
    for level, title in zip(LEVELS, titles, strict=True):
        yield _line(title, _cell(row[level], str))


def _line(title: str, *cells: str) -> str:
    return f"{title:<22}" + "".join(f"{cell:>14}" for cell in cells)


def _cell(value: float | None, shown: Callable[[float], str]) -> str:
    return "-" if value is None else shown(value)
