"""Progress in the last line of a terminal, on stderr; nothing where that is none."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator

from basefs.management.output import printable, size, terminal_columns


@contextlib.contextmanager
def progress_line() -> Iterator[Callable[[str], None]]:
    """Gives what to call with the text of the line, which is erased in the end."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    last = -math.inf

    def show(text: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now >= last + 0.1:
            last = now
            sys.stderr.write(f"\r{printable(text)[: terminal_columns(err=True) - 1]}\x1b[K")
            sys.stderr.flush()

    try:
        yield show
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


@contextlib.contextmanager
def count_bar(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A line that counts things; gives what to call with how many were done since the last call."""
    begin, done = time.monotonic(), 0
    with progress_line() as show:

        def advance(more: int) -> None:
            nonlocal done
            done += more
            show(f"{title}: {done}{f' of {total}' if total else ''}, {done / _since(begin):.0f} /s")

        yield advance


@contextlib.contextmanager
def waiting(title: str) -> Iterator[None]:
    """A line during work of unknown length."""
    with progress_line() as show:
        show(f"{title} ...")
        yield


@contextlib.contextmanager
def transfer_bar(title: str, total: int | None) -> Iterator[Callable[..., None]]:
    """A line that counts bytes; gives what to call with how many bytes were done so far.

    `total`: how many there will be, about; `None` if unknown.  A call may pass it later.
    """
    begin = time.monotonic()
    with progress_line() as show:

        def update(done: int, whole: int | None = None) -> None:
            of = f" of {size(whole or total or 0)}" if whole or total else ""
            show(f"{title}: {size(done)}{of}, {size(done / _since(begin))}/s")

        yield update


def _since(begin: float) -> float:
    return max(time.monotonic() - begin, 0.1)
