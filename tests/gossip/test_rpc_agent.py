"""The command table against a real agent: every command, with and without an error, on one connection.

If a body were missing from the table, or too much in it, the next reply on the connection could not be read.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path

import pytest

from basefs.errors import AgentError
from basefs.gossip.client import Client
from basefs.gossip.config import USER_EVENT_SIZE_LIMIT
from basefs.gossip.rpc import COMMANDS
from tests.gossip.helpers import agent, config_for, run, until
from tests.support.patience import DEADLINE

# An agent that ends in the moment in which its loop is closed may be reaped by the collector instead of asyncio.
pytestmark = [pytest.mark.serf, pytest.mark.logs("Unknown child process pid")]

#: A command, a body, and what its error contains ("" for none).
CALLS: list[tuple[str, dict[str, object] | None, str]] = [
    ("handshake", {"Version": 1}, "Handshake already performed"),
    ("auth", {"AuthKey": "wrong"}, "Invalid authentication token"),
    ("event", {"Name": "b", "Payload": b"x", "Coalesce": False}, ""),
    ("event", {"Name": "b", "Payload": bytes(2000), "Coalesce": False}, "exceeds configured limit"),
    ("force-leave", {"Node": "nobody"}, ""),
    ("join", {"Existing": ["127.0.0.1:1"], "Replay": False}, "Failed to join"),
    ("members", None, ""),
    ("members-filtered", {"Status": "alive", "Name": "nobody", "Tags": {}}, ""),
    ("tags", {"Tags": {"x": "1"}, "DeleteTags": ["y"]}, ""),
    ("tags", {"Tags": {"x": "1" * 600}, "DeleteTags": []}, "exceeds limit"),
    ("stop", {"Stop": 999}, ""),
    ("respond", {"ID": 9, "Payload": b"x"}, "No pending queries"),
    ("install-key", {"Key": "zz"}, "illegal base64"),
    ("use-key", {"Key": "zz"}, "illegal base64"),
    ("remove-key", {"Key": "zz"}, "illegal base64"),
    ("list-keys", None, "reported failure"),
    ("stats", None, ""),
    ("get-coordinate", {"Node": "nobody"}, ""),
    ("leave", None, ""),
]


def test_every_command(tmp_path: Path) -> None:
    async def main() -> None:
        async with agent(tmp_path) as serf, await serf.connect() as client:
            for command, body, error in CALLS:
                if error:
                    with pytest.raises(AgentError, match=error):
                        await client.call(command, body, timeout=DEADLINE)
                else:
                    await client.call(command, body, timeout=DEADLINE)
                if command != "leave":
                    assert [member.node_name for member in await client.members()] == ["a"], command
            assert (await serf.wait()).startswith("the Serf agent ended with status 0")

    called = {command for command, _, _ in CALLS} | {name for name, row in COMMANDS.items() if row.streams}
    assert called == COMMANDS.keys()
    run(main())


def test_key_commands_succeed_with_encryption(tmp_path: Path) -> None:
    key, other = "cg8StVXbQJ0gPvMd9o7yrg==", "HvY8ubRZMgafUOWvrOadwX1S2vkDJlKGcH+1Q8Kh6xM="

    async def main() -> None:
        async with agent(tmp_path, encrypt_key=key) as serf, await serf.connect() as client:
            await client.call("install-key", {"Key": other}, timeout=DEADLINE)
            await client.call("use-key", {"Key": other}, timeout=DEADLINE)
            await client.call("remove-key", {"Key": key}, timeout=DEADLINE)
            assert (await client.call("list-keys", timeout=DEADLINE))["Keys"] == {other: 1}

    run(main())


def test_streams_end_and_binary_survives(tmp_path: Path) -> None:
    async def main() -> None:
        async with agent(tmp_path) as serf, await serf.connect() as client:
            for command, body in (("stream", {"Type": "bogus"}), ("monitor", {"LogLevel": "bogus"})):
                with pytest.raises(AgentError):
                    await client.open_stream(command, body)
            with pytest.raises(AgentError, match="exceeds limit"):
                await client.query("q", bytes(2000))
            events = await client.subscribe("user:b,query:q")
            every = bytes(range(256)) * 2
            await client.user_event("other", b"filtered out")
            await client.user_event("b", every)
            record = await anext(events)
            assert (record["Event"], record["Name"], record["Payload"]) == ("user", "b", every)
            # A busy machine may be late with an answer.
            for seconds in (2.0, 10.0, DEADLINE):
                replies = await client.query("q", b"\xff\x00", ack=True, timeout=seconds)
                record = await anext(events)
                assert (record["Event"], record["Payload"]) == ("query", b"\xff\x00")
                with suppress(AgentError):
                    await client.respond(record["ID"], b"\x00\xfe")
                answers = [(reply["Type"], reply["From"], reply["Payload"]) async for reply in replies]
                if len(answers) == 3:
                    break
            (me,) = await client.members()
            assert answers == [("ack", me.name, None), ("response", me.name, b"\x00\xfe"), ("done", "", None)]
            monitor = await client.open_stream("monitor", {"LogLevel": "DEBUG"})
            assert "Log" in await anext(monitor)
            await asyncio.gather(*(client.user_event("b", os.urandom(100)) for _ in range(50)))
            await events.aclose()
            await monitor.aclose()
            assert (await client.stats())["agent"] == {"name": me.name}

    run(main())


def test_own_coordinate_and_members(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            agent(tmp_path, "a") as first,
            agent(tmp_path, "b") as second,
            await first.connect() as client,
            await second.connect() as other,
        ):
            (me,) = await other.members()
            assert await client.join([me.gossip_address]) == 1
            names = {member.node_name: member.name for member in await client.members()}
            assert sorted(names) == ["a", "b"]
            assert me.tags == {"sync": "4711"}
            assert me.status == "alive"
            coordinate = await client.call("get-coordinate", {"Node": names["a"]})
            assert coordinate["Ok"] and len(coordinate["Coord"]["Vec"]) == 8
            assert not (await client.call("get-coordinate", {"Node": "nobody"}))["Ok"]
            await client.call("tags", {"Tags": {"new": "1"}, "DeleteTags": ["sync"]})
            mine = [member.tags for member in await client.members() if member.node_name == "a"]
            assert mine == [{"new": "1"}]
            await second.kill()
            await client.call("force-leave", {"Node": names["b"]})

    run(main())


def test_the_key_is_needed(tmp_path: Path) -> None:
    async def main() -> None:
        async with agent(tmp_path) as serf, await serf.connect() as client:
            with pytest.raises(AgentError, match="Invalid authentication token"):
                await Client.connect("127.0.0.1", serf.rpc_port, "wrong", 30.0)
            assert len(await client.members()) == 1

    run(main())


def test_a_client_that_skips_auth_is_refused_without_a_body(tmp_path: Path) -> None:
    async def main() -> None:
        async with agent(tmp_path) as serf, await serf.connect():
            reader, writer = await asyncio.open_connection("127.0.0.1", serf.rpc_port)
            client = Client(reader, writer, 30.0)
            await client.call("handshake", {"Version": 1})
            for command, body in (("members", None), ("list-keys", None)):
                with pytest.raises(AgentError, match="Authentication required"):
                    await client.call(command, body)
            # This one leaves its body in the agent's input (rule 2), which costs the connection.
            with pytest.raises(AgentError, match=r"Authentication required|not open"):
                await client.call("join", {"Existing": [], "Replay": False})
            assert "not open" in str(await client.wait_closed())
            await client.close()

    run(main())


def test_events_up_to_the_limit(tmp_path: Path) -> None:
    """Serf adds 30 B and the name's length to a payload of 256 B or more, while its clock is small."""

    async def main() -> None:
        async with agent(tmp_path) as serf, await serf.connect() as client:
            most = 0
            for size in range(USER_EVENT_SIZE_LIMIT - 60, USER_EVENT_SIZE_LIMIT):
                try:
                    await client.user_event("b01234567", bytes(size))
                    most = size
                except AgentError:
                    break
            assert USER_EVENT_SIZE_LIMIT - most == 30 + 9

    run(main())


def test_log_lines_reach_the_logger(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        with caplog.at_level("DEBUG", logger="basefs.serf"):
            async with agent(tmp_path, log_level="debug") as serf, await serf.connect():
                await until(lambda: any("Accepted client" in record.message for record in caplog.records))
                assert serf.auth_key not in caplog.text

    run(main())
    assert {record.levelname for record in caplog.records if "agent: Serf agent starting" in record.message} == {"INFO"}
    assert config_for(tmp_path, "x").log_level == "warn"
