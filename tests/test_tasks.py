"""Tasks that wait can be cancelled at any moment."""

from __future__ import annotations

import asyncio

import pytest

from basefs.tasks import is_set_within


@pytest.mark.parametrize("turns", range(6))
def test_a_cancellation_in_the_moment_of_an_event_is_not_lost(turns: int) -> None:
    """`turns`: of the event loop between the event and the cancellation."""

    async def main() -> None:
        event = asyncio.Event()

        async def wait_for_ever() -> None:
            while True:
                event.clear()
                await is_set_within(event, None)

        task = asyncio.create_task(wait_for_ever())
        for _ in range(3):
            await asyncio.sleep(0)
        event.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task], timeout=5)
        assert task.cancelled()

    asyncio.run(main())


def test_it_says_whether_the_event_came_in_time() -> None:
    async def main() -> None:
        event = asyncio.Event()
        assert not await is_set_within(event, 0.01)
        asyncio.get_running_loop().call_soon(event.set)
        assert await is_set_within(event, None)

    asyncio.run(main())
