"""Looks at the keys of a log: soon after they have changed, and in a bounded share of the time."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable
from typing import TypeVar

from basefs.log.entries import KEY_ACTIONS, Action
from basefs.replica.applied import Applied
from basefs.replica.replica import Replica
from basefs.tasks import is_set_within

T = TypeVar("T")

#: Share of the time that looks may take: a key holder can sign any number of grants, each of which asks for a look.
SHARE = 0.1


class Looks:
    """One task's looks at a log.  Made and used in the event loop.

    Attributes:
        is_hurried: whether a revoke has ended the last wait before the share allowed another look.  Such a look does
            not put off the next one, or revokes without end would.
    """

    def __init__(self, replica: Replica) -> None:
        """The first look is due at once."""
        loop = asyncio.get_running_loop()
        self._changed, self._revoked = asyncio.Event(), asyncio.Event()
        #: When the share allows the next look.
        self._due = loop.time()
        self.is_hurried = False

        def note(applied: Applied) -> None:
            """In any thread."""
            actions = {entry.action for entry in applied.entries}
            for happened in (Action.REVOKE in actions and self._revoked, actions & KEY_ACTIONS and self._changed):
                if happened:
                    with contextlib.suppress(RuntimeError):  # the loop has ended
                        loop.call_soon_threadsafe(happened.set)

        replica.subscribe(note)

    async def look(self, look: Callable[[], T]) -> T:
        """What a function finds that reads the log, in a thread.  Raises what it raises."""
        return await self.spend(asyncio.to_thread(look))

    async def spend(self, work: Awaitable[T]) -> T:
        """What work results in that is a part of the look.  Raises what it raises."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            return await work
        finally:
            now = loop.time()
            if not self.is_hurried:
                self._due = max(self._due, now) + (now - started) / SHARE

    async def wait(self, seconds: float | None, for_revokes: float = math.inf) -> None:
        """Wait for grants, revokes or admits, and so many seconds at the most; `None`: for ever.

        Both are longer where looks have taken long, but a revoke waits for no longer than `for_revokes` seconds.
        """
        loop = asyncio.get_running_loop()
        began, rest = loop.time(), max(self._due - loop.time(), 0.0)
        await asyncio.sleep(min(rest, for_revokes))
        left = began + rest - loop.time()
        self.is_hurried = left > 0 and await is_set_within(self._revoked, left)
        if not self.is_hurried:
            await is_set_within(self._changed, None if seconds is None else began + max(seconds, rest) - loop.time())
            self._changed.clear()
        self._revoked.clear()
