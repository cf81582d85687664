"""The client's own rules (waiters, queues, time), against a scripted server; `test_rpc_agent` uses a real agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgpack
import pytest

from basefs.errors import AgentError, LocalProtocolError
from basefs.gossip.client import Client
from tests.gossip.helpers import run, until
from tests.support.patience import DEADLINE
from tests.support.ports import free_port

Answer = Callable[[str, int], list[Any]]


def head(seq: int, error: str = "") -> dict[str, Any]:
    return {"Seq": seq, "Error": error}


@asynccontextmanager
async def connected(answer: Answer) -> AsyncIterator[Client]:
    """A client of a server that sends what `answer` returns for each command; bytes as they are, None to hang up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        unpacker = msgpack.Unpacker()
        while data := await reader.read(65536):
            unpacker.feed(data)
            for request in unpacker:
                if "Command" not in request:
                    continue
                command, seq = request["Command"], request["Seq"]
                for value in [head(seq)] if command in ("handshake", "auth") else answer(command, seq):
                    if value is None:
                        writer.close()
                        return
                    writer.write(value if isinstance(value, bytes) else msgpack.packb(value, use_bin_type=False))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        async with await Client.connect("127.0.0.1", server.sockets[0].getsockname()[1], "key", DEADLINE) as client:
            yield client
    finally:
        server.close()
        await server.wait_closed()


def test_a_lost_connection_fails_everyone_who_waits() -> None:
    async def main() -> None:
        async with connected(lambda command, seq: {"stats": [None], "stream": [head(seq)]}.get(command, [])) as client:  # type: ignore[return-value]
            stream = await client.subscribe("*")
            waiting = [asyncio.ensure_future(client.members()) for _ in range(3)]
            reading = asyncio.ensure_future(anext(stream))
            with pytest.raises(AgentError):
                await client.stats()
            for waiter in [*waiting, reading]:
                with pytest.raises(AgentError):
                    await waiter
            assert client.closed
            assert isinstance(await client.wait_closed(), AgentError)
            for call in (client.members(), client.subscribe("*")):
                with pytest.raises(AgentError):
                    await call

    run(main())


def test_rubbish_from_the_agent_is_an_agent_error() -> None:
    async def main() -> None:
        async with connected(lambda command, seq: [b"\xc1"]) as client:
            with pytest.raises(AgentError, match="broke"):
                await client.stats()

    run(main())


def test_a_silent_agent_is_given_up() -> None:
    async def main() -> None:
        async with connected(lambda command, seq: []) as client:
            with pytest.raises(AgentError, match=r"members within 0.05 s"):
                await client.call("members", timeout=0.05)
            assert client.closed

    run(main())


def test_close_fails_waiters() -> None:
    async def main() -> None:
        async with connected(lambda command, seq: []) as client:
            waiting = asyncio.ensure_future(client.members())
            await asyncio.sleep(0)
            await client.close()
            with pytest.raises(AgentError):
                await waiting

    run(main())


def test_a_cancelled_call_does_not_disturb_the_next() -> None:
    async def main() -> None:
        replies = {"stats": [head(3), {"serf": {}}], "members": []}

        async with connected(lambda command, seq: replies[command]) as client:
            waiting = asyncio.ensure_future(client.members())
            await asyncio.sleep(0)
            waiting.cancel()
            assert await client.stats() == {"serf": {}}
            assert not client.closed

    run(main())


def test_a_slow_consumer_loses_the_oldest_and_is_told_how_many() -> None:
    async def main() -> None:
        def answer(command: str, seq: int) -> list[Any]:
            if command != "stream":
                return [head(seq)]
            return [head(seq), *(value for n in range(10) for value in (head(seq), {"LTime": n}))]

        async with connected(answer) as client:
            stream = await client.subscribe("*", limit=3)
            await until(lambda: stream.dropped == 7)
            assert [(await anext(stream))["LTime"] for _ in range(3)] == [7, 8, 9]
            await stream.aclose()
            await stream.aclose()
            with pytest.raises(StopAsyncIteration):
                await anext(stream)

    run(main())


def test_streams_are_not_called() -> None:
    async def main() -> None:
        async with connected(lambda command, seq: []) as client:
            for command in ("stream", "monitor", "query", "nonsense"):
                with pytest.raises(LocalProtocolError):
                    await client.call(command, {})

    run(main())


def test_nobody_listens() -> None:
    with pytest.raises(AgentError, match="no Serf agent"):
        run(Client.connect("127.0.0.1", free_port(), "key", 30.0))
