"""What something costs, as a number that is the same on a busy machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

from basefs.log.guard import Guard


def calls(run: Callable[[], object]) -> int:
    """Calls of functions, of Python and of C, in this thread."""
    count = 0

    def note(_: object, event: str, __: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


def calls_held(run: Callable[[], object]) -> int:
    """The most calls for which this thread holds a lock of a replica without a break."""
    enter, leave = Guard.__enter__.__code__, Guard.__exit__.__code__
    depth = count = most = 0

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal depth, count, most
        if event == "return" and frame.f_code is enter:
            depth += 1
        elif event == "call" and frame.f_code is leave:
            depth -= 1
            if not depth:
                count, most = 0, max(most, count)
        elif depth:
            count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return most
