"""Tests of what runs in an event loop."""

from __future__ import annotations

import asyncio
import gc

from tests.support.patience import DEADLINE

HOST = "127.0.0.1"


async def until(condition):
    """Wait for a condition, with a generous deadline."""

    async def poll():
        while not condition():
            await asyncio.sleep(0.005)

    await asyncio.wait_for(poll(), DEADLINE)


def run(coroutine):
    """Run, and require that no task is left."""

    async def main():
        await asyncio.wait_for(coroutine, DEADLINE)
        await until(lambda: len(asyncio.all_tasks()) <= 3)

    asyncio.run(main(), debug=False)


def run_uncollected(coroutine):
    """Run without the search for garbage: what is freed is in no cycle."""
    gc.disable()
    try:
        asyncio.run(coroutine)
    finally:
        gc.enable()
