"""Tasks that wait can be cancelled at any moment."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from basefs.tasks import cancel, first_of, is_set_within, within
from tests.support.asynchronous import run_uncollected


@pytest.mark.parametrize("seconds", [None, 60.0])
@pytest.mark.parametrize("turns", range(6))
def test_a_cancellation_in_the_moment_of_an_event_is_not_lost(turns: int, seconds: float | None) -> None:
    """`turns`: of the event loop between the event and the cancellation."""

    async def main() -> None:
        event = asyncio.Event()

        async def wait_for_ever() -> None:
            while True:
                event.clear()
                await is_set_within(event, seconds)

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


def test_tasks_that_have_ended_are_cancelled_at_once_in_each_python() -> None:
    async def fail() -> None:
        raise ValueError

    async def main() -> None:
        tasks = [asyncio.create_task(each) for each in (asyncio.sleep(0, "x"), fail(), asyncio.sleep(60))]
        for _ in range(3):
            await asyncio.sleep(0)
        found = await cancel(tasks)
        assert found[0] == "x" and isinstance(found[1], ValueError) and isinstance(found[2], asyncio.CancelledError)
        passed: list[None] = []
        asyncio.get_running_loop().call_soon(passed.append, None)
        await cancel(tasks)
        assert not passed, "a turn of the event loop"

    asyncio.run(main())


@pytest.mark.parametrize("turns", range(6))
def test_a_cancellation_in_the_moment_of_a_result_is_not_lost_and_the_result_is_given_back(turns: int) -> None:
    """`turns`: of the event loop between the result and the cancellation."""

    async def main() -> None:
        made: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        taken, returned = [], []

        async def make() -> str:
            return await made

        async def take() -> None:
            taken.append(await within(60.0, make(), returned.append))
            await asyncio.Event().wait()

        task = asyncio.create_task(take())
        for _ in range(3):
            await asyncio.sleep(0)
        made.set_result("connection")
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task], timeout=5)
        assert task.cancelled()
        await asyncio.sleep(0)
        assert taken + returned == ["connection"]

    asyncio.run(main())


def test_a_coroutine_has_so_much_time() -> None:
    async def main() -> None:
        ended = []

        async def wait_for_ever() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                ended.append("cleaned up")

        with pytest.raises(asyncio.TimeoutError):
            await within(0.01, wait_for_ever())
        assert ended == ["cleaned up"]

        async def fail() -> None:
            raise ConnectionError("refused")

        with pytest.raises(ConnectionError, match="refused"):
            await within(60.0, fail())
        assert await within(60.0, asyncio.sleep(0, "result")) == "result"
        assert await within(None, asyncio.sleep(0, "result")) == "result"

    asyncio.run(main())


def test_a_result_that_comes_as_time_runs_out_is_taken() -> None:
    async def main() -> None:
        async def insist() -> str:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            return "result"

        assert await within(0.01, insist()) == "result"

    asyncio.run(main())


@pytest.mark.parametrize(
    "wait", [lambda coroutine: within(60.0, coroutine), lambda coroutine: within(None, coroutine), first_of]
)
def test_what_has_failed_holds_nothing(wait: Callable[[Coroutine[Any, Any, None]], Awaitable[None]]) -> None:
    """Otherwise the connections of an attacker stay in memory until the next search for garbage."""

    class Buffer:
        pass

    held: list[weakref.ref[Buffer]] = []

    async def fail() -> None:
        buffer = Buffer()
        held.append(weakref.ref(buffer))
        await asyncio.sleep(0)
        raise ConnectionError("refused")

    async def main() -> None:
        with contextlib.suppress(ConnectionError):
            await wait(fail())
        # What ends with the task ends a turn of the loop later.
        await asyncio.sleep(0)
        assert held[0]() is None

    run_uncollected(main())
