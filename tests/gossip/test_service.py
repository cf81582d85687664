"""The service with real agents on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from pathlib import Path

import pytest

from basefs.errors import AgentError
from basefs.gossip.agent import Agent
from basefs.gossip.client import Client
from basefs.gossip.events import MAX_BLOCK, MAX_EVENT, Address, encode_announcement, encode_events
from basefs.gossip.members import Member, display_names
from basefs.gossip.outgoing import QUEUE_HIGH, RATE_MAX, RATE_MIN, Pacer
from basefs.gossip.queries import encode_time
from tests.gossip.helpers import FSID, OTHER_FSID, Node, alive, config_for, nodes, random_entry, run, until
from tests.support.patience import DEADLINE
from tests.support.ports import free_port

# An agent that ends in the moment in which its loop is closed may be reaped by the collector instead of asyncio.
pytestmark = [pytest.mark.serf, pytest.mark.logs("Unknown child process pid")]


def test_three_nodes_see_each_other_and_pass_full_events(tmp_path: Path) -> None:
    async def main() -> None:
        a = Node(tmp_path, "a")
        b = Node(tmp_path, "b", join=(a.address,))
        c = Node(tmp_path, "c", join=("127.0.0.1:1", b.address))
        async with nodes(a, b, c):
            await until(lambda: a.sees("b", "c") and b.sees("a", "c") and c.sees("a", "b"), "three peers")
            assert a.peers[0].sync_address == Address("127.0.0.1", 4711)
            assert {member.node_name for member in a.gossip.members()} == {"a", "b", "c"}
            assert all(isinstance(member, Member) for member in a.gossip.members())
            block = os.urandom(MAX_BLOCK)
            entry = random_entry(MAX_EVENT)
            payloads = encode_events([entry], [block], Address("127.0.0.1", 4711))
            assert [len(payload) for payload in payloads] == [MAX_EVENT, MAX_EVENT]
            b.gossip.send(payloads)
            for node in (a, b, c):  # b's own events come back to it
                await until(lambda node=node: node.has_entry(entry))
                await until(lambda node=node: any(block in event.blocks for event in node.events))
            assert b.gossip.counters.sent == 2
            assert b.gossip.queue_depth == 0

    run(main())


def test_a_killed_agent_is_restarted_and_events_flow_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        a = Node(tmp_path, "a")
        b = Node(tmp_path, "b", join=(a.address,))
        async with nodes(a, b):
            await until(lambda: a.sees("b") and b.sees("a"))
            for victim, other in ((a, b), (b, a)):
                pid = victim.gossip.agent_pid
                assert pid is not None
                os.kill(pid, signal.SIGKILL)
                await until(lambda victim=victim: not victim.gossip.connected)
                lost = random_entry(200)
                victim.gossip.send([lost])  # it waits for the next agent
                await until(lambda victim=victim: victim.gossip.connected)
                assert victim.gossip.agent_pid not in (None, pid)
                await until(lambda: a.sees("b") and b.sees("a"), "peers after the restart")
                await until(lambda victim=victim, lost=lost: victim.has_entry(lost))
                for sender, receiver in ((victim, other), (other, victim)):
                    entry = random_entry(200)
                    sender.gossip.send([entry])
                    await until(lambda receiver=receiver, entry=entry: receiver.has_entry(entry))
            assert (a.gossip.restarts, b.gossip.restarts) == (1, 1)

    run(main())
    warnings = [record.message for record in caplog.records if record.name == "basefs.gossip.supervisor"]
    assert len(warnings) == 2
    assert all("restarting in 0.2 s: the Serf agent was killed by signal 9" in message for message in warnings)


@pytest.mark.logs("did not answer")
def test_an_agent_that_hangs_is_replaced(tmp_path: Path) -> None:
    """Also where nothing is sent."""

    async def main() -> None:
        a = Node(tmp_path, "a", poll_interval=0.05, probe_interval=0.1, connect_timeout=2.0)
        async with nodes(a):
            pid = a.gossip.agent_pid
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
            await until(lambda: a.gossip.agent_pid not in (None, pid) and a.gossip.connected, "another agent")
            assert not alive(pid)
            entry = random_entry(200)
            a.gossip.send([entry])
            await until(lambda: a.has_entry(entry))

    run(main())


@pytest.mark.logs("connection to the Serf agent broke")
def test_a_broken_connection_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        a = Node(tmp_path, "a")
        async with nodes(a):
            pid = a.gossip.agent_pid
            # More bytes than a codec accepts from an agent: the connection is given up, the agent is not.
            monkeypatch.setattr("basefs.gossip.rpc.MAX_MESSAGE", 10)
            a.gossip.send([random_entry(200)])
            await until(lambda: not a.gossip.connected)
            monkeypatch.undo()
            await until(lambda: a.gossip.connected)
            entry = random_entry(200)
            a.gossip.send([entry])
            await until(lambda: a.has_entry(entry))
            assert a.gossip.agent_pid == pid
            assert a.gossip.restarts == 0

    run(main())


def test_another_filesystem_in_the_same_cluster_is_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        a = Node(tmp_path, "a")
        b = Node(tmp_path, "b", join=(a.address,))
        stranger = Node(tmp_path, "s", fsid=OTHER_FSID, join=(a.address,))
        async with nodes(a, b, stranger):
            await until(lambda: all(len(node.gossip.members()) == 3 for node in (a, b, stranger)))
            await until(lambda: a.sees("b") and b.sees("a"))
            foreign, ours = random_entry(200), random_entry(200)
            stranger.gossip.send([foreign])
            await until(lambda: stranger.has_entry(foreign))
            b.gossip.send([ours])
            await until(lambda: a.has_entry(ours))
            assert not a.has_entry(foreign) and not b.has_entry(foreign) and not stranger.has_entry(ours)
            assert stranger.peers == [] and a.sees("b")
            assert a.gossip.counters.foreign == 1
            assert stranger.gossip.counters.foreign == 2

    with caplog.at_level(logging.INFO, logger="basefs.gossip.members"):
        run(main())
    messages = [record.message for record in caplog.records if record.name == "basefs.gossip.members"]
    assert len(messages) == 4  # a and b about s, s about a and b
    assert all("another filesystem" in message for message in messages)


def test_without_the_cluster_key_nobody_gets_in(tmp_path: Path) -> None:
    async def main() -> None:
        a = Node(tmp_path, "a", encrypt_key="cg8StVXbQJ0gPvMd9o7yrg==", log_level="err")
        b = Node(tmp_path, "b", encrypt_key="cg8StVXbQJ0gPvMd9o7yrg==", join=(a.address,), log_level="err")
        c = Node(tmp_path, "c", join=(a.address,), log_level="err")
        async with nodes(a, b, c):
            await until(lambda: a.sees("b") and b.sees("a"))
            with pytest.raises(AgentError, match="join"):
                await c.gossip.call("join", {"Existing": [a.address], "Replay": False})
            assert a.sees("b") and c.peers == []

    run(main())


def test_a_node_that_stops_has_left_and_finds_back_by_its_files(tmp_path: Path) -> None:
    async def main() -> None:
        a = Node(tmp_path, "a")
        b = Node(tmp_path, "b", join=(a.address,))
        async with nodes(a, b):
            await until(lambda: a.sees("b") and b.sees("a"))
            last = [random_entry(MAX_EVENT) for _ in range(10)]
            b.gossip.send(last)
            await b.gossip.stop()
            assert b.gossip.agent_pid is None
            await until(lambda: a.sees("b", status="left"), "b has left")
            await until(lambda: all(a.has_entry(entry) for entry in last), "what was still queued")
            again = Node(tmp_path, "b", bind=b.address)  # no join list
            async with nodes(again):
                await until(lambda: a.sees("b") and again.sees("a"), "b is back by its snapshot")
            (tmp_path / "b" / "snapshot").unlink()
            again = Node(tmp_path, "b", bind=b.address)
            async with nodes(again):
                await until(lambda: a.sees("b") and again.sees("a"), "b is back by peers.json")

    run(main())


def test_a_burst_becomes_one_announcement(tmp_path: Path) -> None:
    async def main() -> None:
        a = Node(tmp_path, "a")
        async with nodes(a):
            announcement = encode_announcement(FSID, None, [])
            for _ in range(100):
                a.gossip.send([random_entry(200) for _ in range(7)])
                if a.overflows:
                    a.gossip.send([announcement])
            assert a.overflows > 1
            assert a.gossip.queue_depth <= 33
            dropped = a.gossip.counters.dropped
            assert dropped == 700 + 1 - a.gossip.queue_depth
            await until(lambda: any(event.announcements for event in a.events))
            assert sum(bool(event.announcements) for event in a.events) == 1

    run(main())


def test_a_full_queue_of_serf_slows_this_node_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    depth = QUEUE_HIGH

    async def stats(client: Client) -> dict[str, dict[str, str]]:
        return {"serf": {"event_queue": str(depth)}}

    async def main() -> None:
        nonlocal depth
        monkeypatch.setattr(Client, "stats", stats)
        a = Node(tmp_path, "a", poll_interval=0.01)
        async with nodes(a):
            full = a.gossip.rate
            a.gossip.send([random_entry(200)])
            await until(lambda: a.gossip.rate == full * RATE_MIN, "a fourth of the rate")
            assert a.gossip.serf_queue_depth == QUEUE_HIGH
            depth = 0
            await until(lambda: a.gossip.rate == full * RATE_MAX, "twice the rate")

    run(main())


def test_events_leave_at_the_pace_and_the_rest_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    def take(pacer: Pacer, now: float) -> float:
        nonlocal asked
        asked += 1
        return 0.0 if asked <= 3 else 10 * DEADLINE

    async def main() -> None:
        a = Node(tmp_path, "a")
        async with nodes(a):
            monkeypatch.setattr(Pacer, "take", take)
            a.gossip.send([random_entry(200) for _ in range(10)])
            await until(lambda: asked == 4 or a.gossip.counters.sent == 10)
            assert (a.gossip.counters.sent, a.gossip.queue_depth) == (3, 7)
        assert (a.gossip.counters.sent, a.gossip.queue_depth) == (10, 0), "nobody can fetch from a node that is gone"

    run(main())


@pytest.mark.logs("ended with status 1")
def test_a_port_in_use_is_told_and_nothing_stays(tmp_path: Path) -> None:
    async def main() -> None:
        a = Node(tmp_path, "a")
        b = Node(tmp_path, "b", bind=a.address)
        async with nodes(a):
            # A busy machine takes longer to say so.
            for seconds in (2.0, 10.0, DEADLINE):
                with pytest.raises(AgentError) as refused:
                    await b.gossip.start(timeout=seconds)
                if "does not answer" not in str(refused.value):
                    break
            assert "address already in use" in str(refused.value)
            assert b.gossip.agent_pid is None
            with pytest.raises(AgentError, match="not running"):
                await b.gossip.call("members")
        async with nodes(b):  # the port is free now, and a service can be started again
            assert b.gossip.connected

    run(main())


def test_raw_calls(tmp_path: Path) -> None:
    async def main() -> None:
        a = Node(tmp_path, "a")
        async with nodes(a):
            name = a.gossip.config.agent_name
            assert [member["Name"] for member in (await a.gossip.call("members"))["Members"]] == [name]
            with pytest.raises(AgentError, match="unmount"):
                await a.gossip.call("leave")
            body = {"Name": "q", "Payload": b"", "RequestAck": True, "Timeout": 2_000_000_000}
            # Until the agent was in time.
            while (answer := await a.gossip.call("query", body)) != {"Acks": [name], "Responses": {}}:
                assert answer == {"Acks": [], "Responses": {}}
            # When the time is over Serf may go on with nobody's answers.
            body["Timeout"] = 100_000_000
            answers = await asyncio.gather(*(a.gossip.call("query", body) for _ in range(60)))
            assert all(answer["Acks"] in ([], [name]) and not answer["Responses"] for answer in answers)
            event = {"Name": a.gossip.event_name, "Payload": b"\x07rubbish", "Coalesce": False}
            await a.gossip.call("event", event)
            await until(lambda: a.gossip.counters.malformed == 1)
            assert a.events == []

    run(main())


def test_a_callback_that_fails_costs_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        seen: list[object] = []

        def fail(event: object) -> None:
            seen.append(event)
            raise RuntimeError("callback")

        a = Node(tmp_path, "a", on_event=fail)
        async with nodes(a):
            a.gossip.send([random_entry(200), random_entry(200)])
            await until(lambda: len(seen) == 2)
            assert a.gossip.connected

    run(main())
    assert "callback" in caplog.text


def test_stopping_while_starting_leaves_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        for _ in range(5):
            a = Node(tmp_path, "a")
            starting = asyncio.ensure_future(a.gossip.start(timeout=DEADLINE))
            await until(lambda a=a, starting=starting: a.gossip.agent_pid or starting.done())
            pid = a.gossip.agent_pid
            starting.cancel()
            await asyncio.wait([starting])
            assert pid is not None
            assert not alive(pid)
            await a.gossip.stop()

    run(main())


def test_the_clocks_of_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        a = Node(tmp_path, "a")
        b = Node(tmp_path, "b", join=(a.address,))
        stranger = Node(tmp_path, "s", OTHER_FSID, join=(a.address,))
        async with nodes(a, b, stranger):
            await until(lambda: a.sees("b") and b.sees("a") and len(a.gossip.members()) == 3)
            (reading,) = await a.gossip.clocks(DEADLINE)
            assert reading.name == "b"
            assert abs(reading.offset) <= reading.doubt < DEADLINE
            # Whoever is asked is an hour ahead.
            monkeypatch.setattr("basefs.gossip.service.encode_time", lambda now: encode_time(now + 3600))
            (reading,) = await a.gossip.clocks(DEADLINE)
            assert abs(reading.offset - 3600) <= reading.doubt

    run(main())


def test_the_hashes_of_what_the_others_show(tmp_path: Path) -> None:
    async def main() -> None:
        a = Node(tmp_path, "a")
        b = Node(tmp_path, "b", join=(a.address,), view_hash=lambda state: b"b shows " + state)
        stranger = Node(tmp_path, "s", OTHER_FSID, join=(a.address,), view_hash=lambda state: b"else")
        async with nodes(a, b, stranger):
            await until(lambda: a.sees("b") and b.sees("a") and len(a.gossip.members()) == 3)
            name = b.gossip.config.agent_name
            for state in (b"x" * 28, b"y" * 28):
                assert await a.gossip.view_hashes(state, DEADLINE) == {name: b"b shows " + state}

    run(main())


def test_nobody_else_to_ask_for_the_time(tmp_path: Path) -> None:
    async def main() -> None:
        a = Node(tmp_path, "a")
        async with nodes(a):
            assert await a.gossip.clocks(DEADLINE) == []

    run(main())


def test_a_node_whose_address_changes_is_found_at_the_new_one(tmp_path: Path) -> None:
    """Although the others believed it alive at the old one."""

    async def main() -> None:
        a = Node(tmp_path, "a")
        port = free_port()
        addresses = {"bind": f"0.0.0.0:{port}", "advertise": f"127.0.0.2:{port}"}
        b = Node(tmp_path, "b", **addresses, join=(a.address,), tags={"sync": "4711", "key": "2f"})
        async with nodes(a, b):
            await until(lambda: a.sees("b") and b.sees("a"))
            assert [peer.host for peer in a.peers] == ["127.0.0.2"]
            await b.gossip.advertise(f"127.0.0.3:{port}")
            hosts = ["127.0.0.1", "127.0.0.3"]
            await until(lambda: sorted(member.addr for member in a.gossip.members()) == hosts, "the new address alone")
            assert a.sees("b")
            await until(lambda: b.sees("a"))
            entry = random_entry(200)
            a.gossip.send([entry])
            await until(lambda: b.has_entry(entry))
            assert b.gossip.restarts == 0

    run(main())


def test_a_machine_is_its_key_whatever_its_name_and_address(tmp_path: Path) -> None:
    """It crashes, and is back at another address under another name; nobody misses it at the old one."""

    async def main() -> None:
        a = Node(tmp_path, "a")
        tags = {"sync": "4711", "key": "2f"}
        old = config_for(tmp_path, "old", tags={**tags, "fs": FSID.hex()})
        async with nodes(a):
            agent = await Agent.start(old, tmp_path / "old")
            try:
                async with await agent.connect() as client:
                    await client.join([a.address], True)
                await until(lambda: a.sees("old"), "it is seen")
            finally:
                await agent.kill()
            new = Node(tmp_path, "new", join=(a.address,), tags=tags)
            async with nodes(new):
                names = {"a", "new"}
                await until(lambda: {each.node_name for each in a.gossip.members()} == names, "it is one machine")
                assert new.address in a.gossip.candidates and old.bind not in a.gossip.candidates
            # Whether its word that it leaves has come or not.
            await until(lambda: not a.sees("new"), "it has gone")
            assert [each.node_name for each in a.gossip.expected] == ["new"]

    run(main())


@pytest.mark.parametrize("is_met", [False, True])
def test_only_machines_that_were_met_are_missed_until_they_are_forgotten(tmp_path: Path, is_met: bool) -> None:
    async def main() -> None:
        a = Node(tmp_path, "a", met_at=lambda peer: time.time() if is_met else None)
        lost = config_for(tmp_path, "lost", tags={"sync": "4711", "fs": FSID.hex()})
        async with nodes(a):
            agent = await Agent.start(lost, tmp_path / "lost")
            try:
                async with await agent.connect() as client:
                    await client.join([a.address], True)
                await until(lambda: a.sees("lost"))
            finally:
                await agent.kill()
            await until(lambda: a.sees("lost", status="failed"))
            assert ("lost" in {each.node_name for each in a.gossip.members()}) == is_met
            await a.gossip.forget(lost.agent_name)
            assert lost.bind not in a.gossip.candidates
            await until(lambda: {each.node_name for each in a.gossip.members()} == {"a"}, "it is forgotten")

    run(main())


@pytest.mark.parametrize("is_lost", [True, False], ids=["after it was lost", "after it has left"])
def test_who_was_at_the_address_of_another_is_gone(tmp_path: Path, is_lost: bool) -> None:
    """A machine that is installed anew is there under another name, and nobody would ever miss the old one."""

    async def main() -> None:
        a = Node(tmp_path, "a")
        off = Node(tmp_path, "off", join=(a.address,))
        old = config_for(tmp_path, "old", tags={"sync": "4711", "fs": FSID.hex()})
        async with nodes(a):
            agent = await Agent.start(old, tmp_path / "old")
            try:
                async with nodes(off):
                    async with await agent.connect() as client:
                        await client.join([a.address], True)
                    await until(lambda: a.sees("off", "old") and off.sees("a", "old"), "the old one")
                if not is_lost:
                    async with await agent.connect() as client:
                        await client.leave()
            finally:
                await agent.kill()
            await until(lambda: old.agent_name in {each.name for each in a.peers if each.status != "alive"}, "its end")
            # This one was off, and may hear of the old one from its file alone.
            late = Node(tmp_path, "off", bind=off.address)
            new = Node(tmp_path, "new", bind=old.bind, join=(a.address,))
            async with nodes(late):
                await until(
                    lambda: "off" in {peer.node_name for peer in a.peers if peer.status == "alive"}, "it is back"
                )
                async with nodes(new):
                    for node in (a, new, late):
                        await until(
                            lambda node=node: {each.node_name for each in node.gossip.members()} == {"a", "new", "off"},
                            f"the new one alone, on {node.gossip.config.node_name}",
                        )

    run(main())


@pytest.mark.parametrize("sync", ["4711", "4712"])
def test_only_a_node_that_has_answered_makes_the_one_gone_that_was_at_its_address(tmp_path: Path, sync: str) -> None:
    """Any member of the Serf cluster may name any address as its own."""

    async def main() -> None:
        met = {("127.0.0.1", 4711): time.time()}
        a = Node(tmp_path, "a", met_at=lambda peer: met.get(peer.sync_address))
        old = Node(tmp_path, "old", join=(a.address,))
        async with nodes(a):
            async with nodes(old):
                await until(lambda: a.sees("old"), "the old one")
            await until(lambda: not a.sees("old"), "its end")
            # At another port for sync, or at the very one at which the old node has answered.
            new = Node(tmp_path, "new", bind=old.address, join=(a.address,), tags={"sync": sync})
            async with nodes(new):
                await until(lambda: a.sees("new"), "the new one")
                for _ in range(3):
                    a.gossip.met(("127.0.0.1", 4711))
                    await asyncio.sleep(0)
                assert {each.node_name for each in a.gossip.members()} == {"a", "old", "new"}
                met["127.0.0.1", int(sync)] = time.time()
                a.gossip.met(("127.0.0.1", int(sync)))
                await until(lambda: {each.node_name for each in a.gossip.members()} == {"a", "new"}, "it counts")

    run(main())


def test_members_of_one_name_show_their_addresses(tmp_path: Path) -> None:
    async def main() -> None:
        a = Node(tmp_path, "a")
        b = Node(tmp_path / "b", "same", join=(a.address,))
        c = Node(tmp_path / "c", "same", join=(a.address,))
        async with nodes(a, b, c):
            await until(lambda: len(a.gossip.members()) == 3)
            names = display_names(a.gossip.members())
            assert sorted(names.values()) == sorted(["a", f"same@{b.address}", f"same@{c.address}"])

    run(main())


def test_a_member_that_leaves_and_is_back_at_once_is_alive(tmp_path: Path) -> None:
    """Serf's agent tells neither, and the list is read in between for another reason."""

    async def main() -> None:
        a = Node(tmp_path, "a")
        config = config_for(tmp_path, "b", join=(a.address,), tags={"fs": FSID.hex(), "sync": "4711"})
        async with nodes(a):
            b = await Agent.start(config, tmp_path / "b")
            try:
                async with await b.connect() as client:
                    await client.join([a.address])
                    await until(lambda: a.sees("b"), "b is seen")
                    leaving = asyncio.create_task(client.leave())
                    while a.sees("b"):
                        await a.gossip.forget("nobody")
                await b.kill()
                with contextlib.suppress(AgentError):
                    await leaving
                b = await Agent.start(config, tmp_path / "b")
                async with await b.connect() as client:
                    await client.join([a.address])
                await until(lambda: a.sees("b"), "b is back")
            finally:
                await b.kill()

    run(main())
