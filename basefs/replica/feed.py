"""The feed: subscribers are called after each commit, without the writer's lock, in the order of the commits."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from basefs.replica.applied import Applied

log = logging.getLogger(__name__)


class CommitFeed:
    """A queue that is filled under the writer's lock and emptied without it.  Thread-safe.

    Invariant: all subscribers are called in the order of `put`, whichever thread calls them.
    """

    def __init__(self) -> None:
        self._subscribers: list[Callable[[Applied], None]] = []
        self._items: deque[Applied] = deque()
        self._lock = threading.RLock()
        self._busy = False

    def subscribe(self, callback: Callable[[Applied], None]) -> None:
        """Have `callback` called with each commit from now on."""
        self._subscribers.append(callback)

    def put(self, item: Applied) -> None:
        """Take a commit; call it under the writer's lock, and `deliver` when that is released."""
        self._items.append(item)

    def deliver(self) -> None:
        """Call the subscribers for all that was put, by other threads as well, before this was called."""
        with self._lock:
            if self._busy:
                # A subscriber has committed: that is delivered once all have heard of what they are called for now.
                return
            self._busy = True
            try:
                while self._items:
                    self._call(self._items.popleft())
            finally:
                self._busy = False

    def _call(self, item: Applied) -> None:
        for callback in self._subscribers:
            try:
                callback(item)
            except Exception:
                # It may be another thread's commit: neither this thread nor the other subscribers must suffer.
                log.exception("subscriber failed, which is a bug")
