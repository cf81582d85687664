"""Strangers at the door of a closed filesystem: they cost little, and keep nobody out."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

from basefs.log.keys import SigningKey
from basefs.sync.net.server import SyncServer
from basefs.sync.net.strangers import Strangers
from basefs.sync.net.tls import Credentials
from basefs.sync.net.transport import SessionContext, sync_with
from basefs.sync.session.result import Reason
from tests.support.asynchronous import until
from tests.support.flood import flood
from tests.support.patience import DEADLINE
from tests.sync.helpers import Writer

HOST = "127.0.0.1"
A, B = SigningKey.generate(), SigningKey.generate()
#: A member at a new address is let in at one of so many tries, so many seconds apart: within half a minute.
TRIES, AGAIN = 12, 2.5
#: How many there may be, of an address, of its network, and of all.
PER_ADDRESS, PER_NETWORK, MOST = MOSTS = 4, 16, 64


class Cut:
    """A connection."""

    def __init__(self) -> None:
        self.is_cut = False

    def abort(self) -> None:
        self.is_cut = True


def entered(strangers: Strangers, hosts: list[str]) -> list[Cut]:
    found = [Cut() for _ in hosts]
    for one, host in zip(found, hosts, strict=True):
        strangers.enter(one, host)
    return found


@pytest.mark.parametrize(
    ("host", "most"),
    [
        (lambda number: "10.0.0.1", PER_ADDRESS),
        (lambda number: f"2001:db8::{number:x}", PER_ADDRESS),
        (lambda number: f"10.0.0.{number % 250}", PER_NETWORK),
        (lambda number: f"2001:db8:0:{number:x}::1", PER_NETWORK),
        (lambda number: f"10.{number % 250}.{number // 250}.1", MOST),
    ],
    ids=["address", "/64", "/24", "/48", "all"],
)
def test_there_are_only_so_many(host: Callable[[int], str], most: int) -> None:
    strangers = Strangers(most=MOSTS)
    found = entered(strangers, [host(number) for number in range(2000)])
    assert len(strangers) == most
    assert sum(not one.is_cut for one in found) == most


def test_those_of_one_network_cut_off_each_other_alone() -> None:
    strangers = Strangers(most=MOSTS)
    alone = entered(strangers, [f"10.1.{number}.1" for number in range(MOST - PER_NETWORK)])
    entered(strangers, [f"10.0.0.{number % 250}" for number in range(2000)])
    assert not any(one.is_cut for one in alone)


def test_any_of_them_may_be_cut_off() -> None:
    survivors: Counter[int] = Counter()
    for _ in range(40):
        found = entered(Strangers(most=MOSTS), [f"10.{number % 250}.{number // 250}.1" for number in range(2 * MOST)])
        survivors.update(number * 4 // len(found) for number, one in enumerate(found) if not one.is_cut)
    # Neither those that were there first nor those that have just come are all there are.
    assert min(survivors[quarter] for quarter in range(4)) > 0.03 * survivors.total()


def test_turns_come_evenly_to_anybody_who_waits() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        strangers = Strangers(turns=200.0, at_once=5)
        found = entered(strangers, [f"10.0.{number}.1" for number in range(200)])
        order: list[int] = []

        async def wait(number: int) -> None:
            await strangers.turn(found[number])
            order.append(number)

        started = loop.time()
        waiting = [asyncio.create_task(wait(number)) for number in range(200)]
        strangers.leave(found[199])
        done, _ = await asyncio.wait(waiting)
        assert loop.time() - started >= (199 - 5) / 200
        failed = [task for task in done if task.exception() is not None]
        assert len(failed) == 1 and isinstance(failed[0].exception(), ConnectionAbortedError)
        assert order != sorted(order)
        with pytest.raises(ConnectionAbortedError):
            await strangers.turn(found[199])

    asyncio.run(main())


def test_a_stranger_that_gives_up_waiting_takes_no_turn() -> None:
    async def main() -> None:
        strangers = Strangers(turns=2.0, at_once=1)
        first, impatient, last = entered(strangers, ["10.0.0.1"] * 3)
        await strangers.turn(first)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(strangers.turn(impatient), 0.01)
        strangers.leave(impatient)
        await asyncio.wait_for(strangers.turn(last), DEADLINE)

    asyncio.run(main())


def trusting(key: SigningKey, other: SigningKey) -> SessionContext:
    return SessionContext(credentials=Credentials(key, [other.public]))


@pytest.mark.parametrize("says", ["nothing", "hello"])
def test_strangers_of_any_number_of_addresses_keep_no_member_out_that_comes_from_a_new_one(says: str) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = SyncServer(Writer().log(), HOST, 0, max_sessions=4, shared=trusting(B, A))
        await server.start()
        try:
            with flood(server.port, says) as is_there:
                assert await asyncio.to_thread(is_there) == "full\n"
                for _ in range(TRIES):
                    started = loop.time()
                    result = await sync_with(Writer().log(), HOST, server.port, shared=trusting(A, B))
                    if result.reason is Reason.COMPLETE:
                        break
                    await asyncio.sleep(started + AGAIN - loop.time())
                assert result.reason is Reason.COMPLETE, result
            await until(lambda: len(asyncio.all_tasks()) <= 2)
        finally:
            await server.stop()

    asyncio.run(main())
