"""Which addresses are tried, and which of them answer; `test_service` joins real nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from basefs.errors import AgentError
from basefs.gossip.client import Client
from basefs.gossip.joiner import INTERVAL, PER_ROUND, Joiner, probe_address
from tests.gossip.helpers import run, until
from tests.support.ports import free_port


async def nobody() -> Iterable[str]:
    return []


async def no_agent() -> Client:
    raise AgentError("no agent")


def test_every_address_has_its_turn() -> None:
    some = [f"192.0.2.{n}:1" for n in range(1, 2 * PER_ROUND + 2)]
    joiner = Joiner(lambda: some, nobody, no_agent, lambda: None)
    rounds = [joiner.choose(some) for _ in range(4)]
    assert rounds[0] == some[:PER_ROUND]
    assert {address for chosen in rounds[:3] for address in chosen} == set(some)
    assert all(len(set(chosen)) == PER_ROUND for chosen in rounds)
    assert set(joiner.choose(some[:2])) == set(some[:2])
    # Addresses that were no candidates meanwhile are forgotten, so that they come before those that were tried.
    assert joiner.choose(some) == some[2 : 2 + PER_ROUND]


def test_probe() -> None:
    async def main() -> None:
        server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        assert await probe_address(f"127.0.0.1:{port}") == f"127.0.0.1:{port}"
        server.close()
        await server.wait_closed()
        for address in (f"127.0.0.1:{free_port()}", "nonsense", "::1:1", "a" * 70 + ".invalid:1"):
            assert await probe_address(address) is None

    run(main())


def test_a_round_with_nobody_to_join_needs_no_agent() -> None:
    async def us() -> Iterable[str]:
        return ["127.0.0.1:1"]

    run(Joiner(lambda: ["127.0.0.1:1"], us, no_agent, lambda: None).round())


def test_an_agent_that_has_found_one_soon_looks_for_the_others() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        looks: list[float] = []

        async def one_other() -> Iterable[str]:
            looks.append(loop.time())
            return ["127.0.0.1:1", "127.0.0.1:2"]

        rounds = asyncio.ensure_future(Joiner(lambda: ["127.0.0.1:1"], one_other, no_agent, lambda: None).run())
        await until(lambda: len(looks) == 4, "four rounds")
        rounds.cancel()
        assert looks[3] - looks[0] < INTERVAL

    run(main())
