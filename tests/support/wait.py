"""Waiting for a condition: with a deadline, never for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Seconds between two looks: short against what is measured, long enough to leave the machine to what is watched.
INTERVAL = 0.01


def wait_until(condition: Callable[[], bool], deadline: float, what: str) -> float:
    """Look again and again until `condition` holds; returns the seconds that it took.

    An OSError counts as "not yet": the path is not there, the socket does not answer.  Raises `TimeoutError`, naming
    `what`, after `deadline` seconds.
    """
    start = time.monotonic()
    while True:
        try:
            if condition():
                return time.monotonic() - start
        except OSError:
            pass
        if time.monotonic() - start > deadline:
            raise TimeoutError(f"{what}: not within {deadline:g} s")
        time.sleep(INTERVAL)
