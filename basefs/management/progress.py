"""Progress on stderr, on a terminal only."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn


@contextlib.contextmanager
def transfer_bar(title: str, total: int | None) -> Iterator[Callable[..., None]]:
    """A bar of bytes with their rate; gives what to call with how many bytes were done so far.

    `total`: how many there will be, about; `None` where nobody knows. Who learns it later tells it with a call.
    """
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True) as progress:
        task = progress.add_task(title, total=total)
        yield lambda done, whole=None: progress.update(task, completed=done, total=total if whole is None else whole)
