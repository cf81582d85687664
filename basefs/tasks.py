"""Tasks of asyncio that end when they are cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any


async def cancel(tasks: Sequence[asyncio.Future[Any]]) -> None:
    """Cancel tasks, and wait for their end; their exceptions are ignored."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def first_of(*coroutines: Coroutine[Any, Any, Any]) -> Any:
    """The result or the exception of the one that ends first; the others are cancelled and waited for."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return done.pop().result()
    finally:
        await cancel(tasks)


async def is_set_within(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait until an event is set, for so many seconds at the most, `None` for ever; returns whether it is set.

    Until Python 3.12 `asyncio.wait_for` loses a cancellation in the moment in which the event is set, and a task that
    waits in a loop would go on for ever.
    """
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait([waiting], timeout=seconds)
    finally:
        waiting.cancel()
    return event.is_set()
