"""Progress on stderr, on a terminal only."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text


class _RateColumn(ProgressColumn):
    """How many a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f}/s", style="progress.data.speed")


@contextlib.contextmanager
def count_bar(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar of things with their rate; gives what to call with how many were done since the last call."""
    columns = (BarColumn(), MofNCompleteColumn(), _RateColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True) as progress:
        task = progress.add_task(title, total=total)
        yield lambda done: progress.advance(task, done)


@contextlib.contextmanager
def waiting(title: str) -> Iterator[None]:
    """A spinner with the elapsed time, for work of unknown length."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True) as progress:
        progress.add_task(title, total=None)
        yield


@contextlib.contextmanager
def transfer_bar(title: str, total: int | None) -> Iterator[Callable[..., None]]:
    """A bar of bytes with their rate; gives what to call with how many bytes were done so far.

    `total`: how many there will be, about; `None` if unknown.  A call may pass it later.
    """
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True) as progress:
        task = progress.add_task(title, total=total)
        yield lambda done, whole=None: progress.update(task, completed=done, total=total if whole is None else whole)
