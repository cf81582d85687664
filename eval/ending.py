"""A measurement that is stopped, in any way, ends the processes that it has started."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


def end_cleanly() -> None:
    """From now on SIGTERM and SIGHUP leave all `with` blocks, as Ctrl-C does."""
    for number in _SIGNALS:
        signal.signal(number, _end)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Signals that end the program wait until the block is left."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (*_SIGNALS, signal.SIGINT))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end(number: int, _: FrameType | None) -> None:
    for other in (*_SIGNALS, signal.SIGINT):
        # What is cleaned up now is not left half done.
        signal.signal(other, signal.SIG_IGN)
    sys.exit(128 + number)
