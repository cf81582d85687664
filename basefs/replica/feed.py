"""Telling subscribers what happened behind a lock, without holding it, and still in the order of what happened."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")


class Publisher(Generic[T]):
    """A queue that is filled under somebody's lock and emptied without it.  Thread-safe.

    Invariant: all subscribers hear all items in the order of `put`, whichever thread tells them.
    """

    def __init__(self) -> None:
        self._subscribers: list[Callable[[T], None]] = []
        self._prepared: tuple[T, ...] = ()
        self._items: deque[T] = deque()
        self._telling: tuple[T, ...] = ()
        self._lock = threading.RLock()
        self._busy = False

    def subscribe(self, callback: Callable[[T], None]) -> None:
        """Have `callback` called with each item from now on."""
        self._subscribers.append(callback)

    def prepare(self, item: T) -> None:
        """An item is about to be put, under the same lock: `untold` has it from now on, and nobody is told yet."""
        self._prepared = (item,)

    def put(self, item: T) -> None:
        """Take an item; call it where the order is decided, and `deliver` when the lock is released."""
        self._items.append(item)
        # Afterwards, so that `untold` misses nothing.
        self._prepared = ()

    def deliver(self) -> None:
        """Tell the subscribers what other threads have put as well; afterwards they have heard of all put before."""
        with self._lock:
            if self._busy:
                # A subscriber of ours put something: its turn comes when all have heard what they are hearing now.
                return
            self._busy = True
            try:
                while self._items:
                    # Never in neither place, so that `untold` misses nothing.
                    self._telling = (self._items[0],)
                    self._tell(self._items.popleft())
            finally:
                self._busy = False
                self._telling = ()

    def untold(self) -> list[T]:
        """What not all subscribers have heard yet; what is put meanwhile may be missing."""
        return [*self._prepared, *self._items.copy(), *self._telling]

    def _tell(self, item: T) -> None:
        for callback in self._subscribers:
            try:
                callback(item)
            except Exception:
                # It may be another thread's item: neither this thread nor the other subscribers must suffer.
                log.exception("a bug in a subscriber")
