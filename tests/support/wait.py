"""Waiting for a condition: with a deadline, never for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Seconds between two looks, at least and at most: short against what is measured, long enough to leave the machine to
#: what is watched.
_LEAST, _MOST = 0.01, 0.2
#: What is waited for long is looked at more rarely: a look comes late by this part of the time that it has taken.
_LATE = 0.02
#: How many times as long as a look took nobody looks: some looks are whole commands.
_REST = 2.0


def wait_until(condition: Callable[[], bool], deadline: float, what: str) -> float:
    """Look again and again until `condition` holds; returns the seconds that it took.

    An OSError counts as "not yet": the path is not there, the socket does not answer.  Raises `TimeoutError`, naming
    `what`, after `deadline` seconds.
    """
    start = time.monotonic()
    while True:
        look = time.monotonic()
        try:
            if condition():
                return time.monotonic() - start
        except OSError:
            pass
        now = time.monotonic()
        if now - start > deadline:
            raise TimeoutError(f"{what}: not within {deadline:g} s")
        time.sleep(min(_MOST, max(_LEAST, _LATE * (now - start), _REST * (now - look))))
