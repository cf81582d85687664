"""Looks at the keys of a log: soon after they have changed, and in a bounded share of the time."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable
from typing import TypeVar

from basefs.log.entries import KEY_ACTIONS
from basefs.replica.applied import Applied
from basefs.replica.replica import Replica
from basefs.tasks import is_set_within

T = TypeVar("T")

#: Share of the time that looks may take: a key holder can sign any number of grants, each of which asks for a look.
SHARE = 0.1


class Looks:
    """One task's looks at a log.  Made and used in the event loop."""

    def __init__(self, replica: Replica) -> None:
        """The first look is due at once."""
        loop, self._changed = asyncio.get_running_loop(), asyncio.Event()
        self._took = 0.0

        def note(applied: Applied) -> None:
            """In any thread."""
            if any(entry.action in KEY_ACTIONS for entry in applied.entries):
                with contextlib.suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(self._changed.set)

        replica.subscribe(note)

    async def look(self, look: Callable[[], T]) -> T:
        """What a function finds that reads the log, in a thread.  Raises what it raises."""
        started = asyncio.get_running_loop().time()
        try:
            return await asyncio.to_thread(look)
        finally:
            self._took += asyncio.get_running_loop().time() - started

    async def wait(self, seconds: float | None, delay: float = math.inf) -> None:
        """Wait for grants, revokes or admits, and so many seconds at the most; `None`: for ever.

        Both are longer where looks have taken long, but a change of keys waits for no longer than `delay` seconds.
        """
        rest, self._took = self._took / SHARE, 0.0
        first = min(rest, delay)
        await asyncio.sleep(first)
        await is_set_within(self._changed, None if seconds is None else max(seconds, rest) - first)
        self._changed.clear()
