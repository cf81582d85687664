"""What two readings say about the time between them.  No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from basefs.management.resources.usage import Usage

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
