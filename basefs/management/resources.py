"""`basefs resources`: what a running filesystem uses, second by second (paper, sections 4.2 and 5)."""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import psutil

from basefs.daemon.api.messages import GetResources, encode
from basefs.daemon.api.runfile import RunFile
from basefs.daemon.config import Home
from basefs.management.errors import ExitCode
from basefs.management.output import examples, size
from basefs.management.session import ask_daemon
from basefs.management.target import parse_name


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
        time.sleep(max(before.time + 1.0 - time.time(), 0.0))
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


#: Processes, by the names that they have in rows.
PROCESSES = ("daemon", "serf")
#: What is counted since the start, by source: bytes by protocol.
TRAFFIC = (
    "serf_udp_sent",
    "serf_udp_received",
    "serf_tcp_sent",
    "sync_sent",
    "sync_received",
)
#: What is so at the moment.
LEVELS = ("entries", "blocks", "queued", "serf_queued", "unpublished", "handlers_queued")

_OF_A_PROCESS = ("cpu_percent", "memory", "switches", "threads", "files")
#: Names of everything in a row, in order.
COLUMNS = (
    "time",
    *(f"{process}_{what}" for process in PROCESSES for what in _OF_A_PROCESS),
    *TRAFFIC,
    *LEVELS,
)

#: A row: a value for each of COLUMNS, `None` if unknown.
Row = dict[str, float | int | None]


@dataclass(frozen=True, slots=True)
class Reading:
    """Everything at one moment.

    Attributes:
        time: UNIX seconds.
        usage: by the names of PROCESSES.
        values: totals of TRAFFIC and numbers of LEVELS, as far as they are known.
    """

    time: float
    usage: Mapping[str, Usage | None]
    values: Mapping[str, int | None]


def row_between(before: Reading, after: Reading) -> Row:
    """Levels as they are after; processor time in percent of one core, and counts per second, of the time between.

    What belongs to a process that was started in between is unknown.
    """
    seconds = max(after.time - before.time, 1e-9)
    row: Row = {"time": round(after.time, 3)}
    for name in PROCESSES:
        old, new = before.usage.get(name), after.usage.get(name)
        row.update(dict.fromkeys((f"{name}_{what}" for what in _OF_A_PROCESS), None))
        if new is None:
            continue
        now = asdict(new)
        row.update({f"{name}_{what}": now[what] for what in ("memory", "threads", "files")})
        if old is not None and old.pid == new.pid:
            row[f"{name}_cpu_percent"] = round(100 * (new.cpu - old.cpu) / seconds, 1)
            row[f"{name}_switches"] = max(round((new.switches - old.switches) / seconds), 0)
    for name in TRAFFIC:
        first, last = before.values.get(name), after.values.get(name)
        row[name] = None if first is None or last is None else round((last - first) / seconds)
    for name in LEVELS:
        row[name] = after.values.get(name)
    return {name: row[name] for name in COLUMNS}


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process uses.

    Attributes:
        pid: its number.
        cpu: seconds of processor time, user and system, since it began.
        memory: bytes that are resident.
        switches: context switches since it began, voluntary or not, of all threads that live.
        threads: how many.
        files: open descriptors.
    """

    pid: int
    cpu: float
    memory: int
    switches: int
    threads: int
    files: int


def usage_of(pid: int | None) -> Usage | None:
    """What a process uses now; `None` if there is none, or this user may not look."""
    if pid is None:
        return None
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            times = process.cpu_times()
            return Usage(
                pid=pid,
                cpu=times.user + times.system,
                memory=process.memory_info().rss,
                switches=_switches(pid),
                threads=process.num_threads(),
                files=process.num_fds(),
            )
    except (psutil.Error, OSError):
        return None


def _switches(pid: int) -> int:
    """psutil tells those of the main thread only."""
    total = 0
    for thread in psutil.Process(pid).threads():
        try:
            counts = psutil.Process(thread.id).num_ctx_switches()
        except psutil.NoSuchProcess:
            continue
        total += counts.voluntary + counts.involuntary
    return total
