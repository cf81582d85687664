"""The lock of a replica, which also says what SQLite's errors mean: all use of the log happens under it."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from types import TracebackType


class Guard:
    """A lock that its holder may take again.  What SQLite raises inside leaves it as an error of ours.

    Who releases it and takes it again at once has it before anybody who waits was woken.  So whoever does so many times
    asks in between whether it `is_wanted`, or calls `let_others`.
    """

    def __init__(self, translate: Callable[[sqlite3.Error], Exception]) -> None:
        self._lock = threading.RLock()
        #: Held by who is the next to get the lock; the others who wait, wait for this one.
        self._turnstile = threading.Lock()
        self._translate = translate

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits for it."""
        return self._turnstile.locked()

    def let_others(self) -> None:
        """Until somebody who waits now has got it, if there is anybody; by a thread that does not hold it."""
        if self._turnstile.locked():
            with self._turnstile:
                pass

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            with self._turnstile:
                self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lock.release()
        if isinstance(error, sqlite3.Error):
            raise self._translate(error) from None
