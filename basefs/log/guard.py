"""The lock of a replica, which also says what SQLite's errors mean: all use of the log happens under it."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from types import TracebackType


class Guard:
    """A lock that its holder may take again.  What SQLite raises inside leaves it as an error of ours.

    Like any lock of Python it is unfair: a thread that releases it and takes it again at once starves those that wait.
    Such a thread asks in between whether it `is_wanted`, or calls `let_others`.
    """

    def __init__(self, translate: Callable[[sqlite3.Error], Exception]) -> None:
        self._lock = threading.RLock()
        #: Held by the thread that gets the lock next; all others wait for this one.
        self._turnstile = threading.Lock()
        self._translate = translate

    @property
    def is_wanted(self) -> bool:
        """Whether a thread waits for it."""
        return self._turnstile.locked()

    def let_others(self) -> None:
        """Wait until a thread that waits now has got it, if there is one; the caller does not hold it."""
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
