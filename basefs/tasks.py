"""Tasks of asyncio that end when they are cancelled, with the same turns of the event loop in every Python.

`asyncio.wait_for` has neither property: until Python 3.12 it loses a cancellation in the moment in which what it waits
for is done, and from then on it takes fewer turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


async def cancel(tasks: Sequence[asyncio.Future[Any]]) -> list[Any]:
    """Cancel tasks, and wait for their end; returns what became of each: its result, or its exception."""
    for task in tasks:
        task.cancel()
    # Where some have ended before, `gather` takes fewer turns from Python 3.12 on.
    await asyncio.gather(*(task for task in tasks if not task.done()), return_exceptions=True)
    return [asyncio.CancelledError() if task.cancelled() else task.exception() or task.result() for task in tasks]


async def first_of(*coroutines: Coroutine[Any, Any, Any]) -> Any:
    """The result or the exception of the one that ends first; the others are cancelled and waited for."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return done.pop().result()
    finally:
        await cancel(tasks)
        # Otherwise its exception and this frame hold each other: see `within`.
        del tasks


async def is_set_within(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait until an event is set, for so many seconds at the most, `None` for ever; returns whether it is set."""
    if seconds is None:
        return await event.wait()
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait([waiting], timeout=seconds)
    finally:
        waiting.cancel()
    return event.is_set()


async def within(
    seconds: float | None, coroutine: Coroutine[Any, Any, T], unwanted: Callable[[T], None] | None = None
) -> T:
    """The result of a coroutine, which is cancelled after so many seconds, `None` for never.

    `unwanted` gets a result that comes in the moment in which the caller is cancelled.  Raises what the coroutine
    raises, and asyncio's TimeoutError.
    """
    if seconds is None:
        return await coroutine
    task = asyncio.ensure_future(coroutine)
    try:
        await asyncio.wait([task], timeout=seconds)
        if not task.done():
            # It may still end by itself.
            await cancel([task])
    except BaseException:
        task.cancel()
        task.add_done_callback(lambda ended: _give_up(ended, unwanted))
        raise
    if task.cancelled():
        raise asyncio.TimeoutError
    try:
        return task.result()
    finally:
        # The task stores its exception, whose traceback holds this frame.  With the task in the frame that is a cycle,
        # and all that the task has held would stay until the next search for garbage.
        del task


def _give_up(ended: asyncio.Future[T], unwanted: Callable[[T], None] | None) -> None:
    if not ended.cancelled() and ended.exception() is None and unwanted is not None:
        unwanted(ended.result())
