"""One process at one moment."""

from __future__ import annotations

from dataclasses import dataclass

import psutil


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
