"""The lock of a replica, which also says what SQLite's errors mean: all use of the log happens under it."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from types import TracebackType


class Guard:
    """A lock that its holder may take again.  What SQLite raises inside leaves it as an error of ours."""

    def __init__(self, translate: Callable[[sqlite3.Error], Exception]) -> None:
        self._lock = threading.RLock()
        self._translate = translate

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lock.release()
        if isinstance(error, sqlite3.Error):
            raise self._translate(error) from None
