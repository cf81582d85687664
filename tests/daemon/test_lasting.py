"""Tasks that last: one exception ends none of them."""

from __future__ import annotations

import asyncio

import pytest

from basefs.daemon.lasting import repeat
from basefs.errors import StoreError
from basefs.tasks import cancel
from tests.support.asynchronous import run, until


@pytest.mark.logs("cannot count")
@pytest.mark.parametrize("error", [StoreError("the disk is full"), OSError("no such file"), ZeroDivisionError()])
def test_an_exception_costs_one_step(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        steps = rests = 0

        async def step() -> None:
            nonlocal steps
            steps += 1
            if steps == 2:
                raise error

        async def rest() -> None:
            nonlocal rests
            rests += 1
            await asyncio.sleep(0)

        task = asyncio.ensure_future(repeat("count", step, rest))
        await until(lambda: steps > 3)
        assert rests >= 3
        await cancel([task])
        assert task.cancelled()

    run(main())
    (said,) = caplog.records
    assert said.getMessage().startswith("cannot count")
    assert (said.exc_info is not None) == isinstance(error, ZeroDivisionError)
