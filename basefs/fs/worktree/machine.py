"""Machine: the time, the timers and the load that the filesystem works by, for whoever runs it on others."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

#: Processes that want to run for each core, from which on a machine counts as busy: programs pause for longer there.
BUSY_LOAD = 2.0


def _later(seconds: float, call: Callable[[], object]) -> None:
    timer = threading.Timer(seconds, call)
    timer.daemon = True
    timer.start()


def _boot() -> bytes:
    return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()


def _is_busy() -> bool:
    try:
        return os.getloadavg()[0] > BUSY_LOAD * (os.cpu_count() or 1)
    except OSError:
        return True


@dataclass(frozen=True, slots=True)
class Machine:
    """What a machine has besides its disk.

    Attributes:
        steady: seconds of any clock that never jumps.
        later: calls something after so many seconds, in a thread that holds no lock.
        is_busy: whether it has had much more to do than it has cores, for a minute or so.
        passes: called between two steps of which a kill may leave the first alone.
        boot: which of its starts this is: what was written before may be lost since then.
    """

    steady: Callable[[], float] = time.monotonic
    later: Callable[[float, Callable[[], object]], object] = _later
    is_busy: Callable[[], bool] = _is_busy
    passes: Callable[[], None] = lambda: None
    boot: Callable[[], bytes] = _boot


#: The one that this process runs on.
THIS_MACHINE = Machine()
