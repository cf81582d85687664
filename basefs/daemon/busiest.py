"""The key that writes most, so that whoever fills the logs of all nodes has a name."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from basefs.log.hashes import Fingerprint
from basefs.replica.applied import Applied
from basefs.replica.replica import Replica

log = logging.getLogger(__name__)

#: Seconds for which what comes is counted together.
SPAN = 3600.0
#: What one key writes in that time before it is an alarm: a full minute of one core, or a large part of a disk.  The
#: first fetch of a filesystem that one key has filled is one as well.
ALARM_ENTRIES = 100_000
ALARM_BYTES = 10 * 10**9


class Written(NamedTuple):
    """The entries of a key that have come, and the bytes of the files that these say they hold."""

    fingerprint: Fingerprint
    entries: int
    bytes: int

    @property
    def is_alarming(self) -> bool:
        """Whether somebody should look at this key."""
        return self.entries >= ALARM_ENTRIES or self.bytes >= ALARM_BYTES


class WriteWatch:
    """Counts what each key has written since the start, or in the last hour or two.  For any thread."""

    def __init__(self, replica: Replica, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: any steady seconds."""
        self._replica = replica
        self._clock = clock
        self._lock = threading.Lock()
        self._began = clock()
        self._before: Written | None = None
        self._written: dict[Fingerprint, Written] = {}
        replica.subscribe(self._applied)

    def busiest(self) -> Written | None:
        """The key that has written most; `None` if none has written anything."""
        with self._lock:
            self._begin_again()
            found = [*self._written.values(), *([self._before] if self._before is not None else [])]
        return max(found, key=lambda one: (one.entries, one.bytes), default=None)

    def _begin_again(self) -> None:
        spans = (self._clock() - self._began) // SPAN
        if spans >= 1:
            most = max(self._written.values(), key=lambda one: (one.entries, one.bytes), default=None)
            self._before = most if spans < 2 else None
            self._written = {}
            self._began += spans * SPAN

    def _applied(self, applied: Applied) -> None:
        with self._lock:
            self._begin_again()
            for entry in applied.entries:
                key = entry.fingerprint
                known = self._written.get(key) or Written(key, 0, 0)
                now = self._written[key] = Written(key, known.entries + 1, known.bytes + entry.size)
                if now.is_alarming > known.is_alarming:
                    log.warning(
                        "the key %s writes much: %d entries, %d bytes within an hour; 'basefs keys %s' names it",
                        *(key.hex()[:12], now.entries, now.bytes, self._replica.name),
                    )
