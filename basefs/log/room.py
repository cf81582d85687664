"""Whether the disk takes more, once something did not fit."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from basefs.log import reserve

log = logging.getLogger(__name__)

#: Bytes that must be free beyond those that did not suffice.  Less would fetch again and again what does not fit.
MORE_BYTES = 256 * 1024
#: Seconds after which it is tried in any case: a quota does not show.
TRY_AGAIN = 300.0


class Room:
    """Short from the moment at which something did not fit until more is free than then, or the same thing fits.

    The log has a line for each of these moments.  Thread-safe.

    Attributes:
        free: bytes that are free in a directory.
    """

    def __init__(
        self,
        directory: Path,
        free: Callable[[Path], int] = reserve.free_bytes,
        clock: Callable[[], float] = time.monotonic,
        *,
        min_free: int = 0,
    ) -> None:
        """`directory`: of the log; `free`: bytes that are free in one; `clock`: any steady seconds.

        `min_free`: bytes that have to be free in any case.
        """
        self._least = min_free + reserve.MORE_BYTES if min_free else 0
        self._directory = directory
        self.free = free
        self._clock = clock
        self._lock = threading.Lock()
        self._is_short = self._refuses_own = False
        self._needed = 0
        #: When what fits shows that there is room, and when others may send something again.
        self._try_at = self._receive_at = 0.0

    def ran_out(self, *, received: bool = False) -> None:
        """Something did not fit; `received`: it came from another node."""
        with self._lock:
            was, self._is_short = self._is_short, True
            free = self.free(self._directory)
            self._needed = max(free + MORE_BYTES, self._least)
            self._try_at = self._clock() + TRY_AGAIN
            if received:
                self._receive_at = self._try_at
            else:
                self._refuses_own = True
        if not was:
            log.warning("disk full: something did not fit in %s, where %d bytes are free", self._directory, free)

    def took(self, *, same: bool = False) -> None:
        """Something fitted; `same`: it is what did not fit before."""
        if self._is_short and (same or self._clock() >= self._try_at):
            self._is_over()

    def look(self) -> None:
        """Look whether there is room again."""
        if self._is_short and self.free(self._directory) >= self._needed:
            self._is_over()

    def is_short(self) -> bool:
        """Whether something did not fit, and nothing shows that it would now."""
        self.look()
        return self._is_short

    def is_full(self) -> bool:
        """Whether others should send nothing, because what came from one did not fit.

        A large file of an application that did not fit says nothing of what they send.
        """
        return self.is_short() and self._clock() < self._receive_at

    def takes_own(self) -> bool:
        """Whether applications may write: what came from others may not fit while that does, such as by `min_free`."""
        return not (self.is_short() and self._refuses_own)

    def _is_over(self) -> None:
        with self._lock:
            was, self._is_short, self._receive_at = self._is_short, False, 0.0
            self._refuses_own = False
        if was:
            log.info("room again: %d bytes are free in %s", self.free(self._directory), self._directory)
