"""The part of a node that keeps its log in step: periodic, on request, and clean at its end."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from pathlib import Path

import pytest

from basefs.errors import NoSpace
from basefs.log.hashes import sha224
from basefs.log.interface import AddResult, Digest
from basefs.log.keys import SigningKey
from basefs.log.room import Room
from basefs.replication.scheduler import PullLimits
from basefs.sync.net.neighbours import MAX_STANDING, MAX_STANDING_PER_PARTY, OWN_STANDING, Acknowledged
from basefs.sync.net.parties import Parties
from basefs.sync.net.peers import PenaltyBox, Throttle
from basefs.sync.net.service import ANSWER_SECONDS
from basefs.sync.net.tls import Credentials
from basefs.sync.net.transport import DEFAULT_TIMING, SessionContext, SessionTiming
from basefs.sync.session.result import MAX_UNGRANTED, Reason
from basefs.sync.session.states import Role
from basefs.sync.wire.codec import encode
from basefs.sync.wire.limits import VERSION
from basefs.sync.wire.messages import Entries, Hash, Stay
from basefs.tasks import cancel
from tests.support.asynchronous import HOST, run, until
from tests.support.memory import MemoryLog
from tests.support.patience import DEADLINE
from tests.support.syncing import Syncing, running
from tests.sync.helpers import ROOT, STRANGER_ROOT, Writer, random_bytes

PULLS = PullLimits()


def some_log(name, count=20):
    writer = Writer()
    for number in range(count):
        writer.write((b"%s%d" % (name, number),), b"x%d" % number)
    return writer.log()


def test_a_cluster_converges_by_itself():
    async def main():
        logs = [some_log(b"n%d-" % number) for number in range(5)]
        peers = []
        services = [Syncing(log, peers, interval=0.02, probability=0.9) for log in logs]
        async with running(*services):
            peers += [(HOST, each.port) for each in services]
            await until(lambda: len({log.root_hash() for log in logs}) == 1)
        assert len(logs[0]) == 101

    run(main())


def test_a_request_is_served_at_once():
    async def main():
        logs = some_log(b"a"), some_log(b"b")
        one, two = Syncing(logs[0]), Syncing(logs[1])
        async with running(one, two):
            one.request((HOST, two.port), "announcement", jitter=0.01)
            await until(lambda: one.ends and two.ends)
            assert logs[0].root_hash() == logs[1].root_hash()
            assert one.ends[0][0] == (HOST, two.port)
            assert two.ends[0][0] == (HOST, one.port), "the other side learns where we listen"
            assert one.ends[0][1].equal and two.ends[0][1].equal

    run(main())


def test_requests_are_coalesced():
    async def main():
        logs = some_log(b"a"), some_log(b"b")
        one, two = Syncing(logs[0]), Syncing(logs[1])
        async with running(one, two):
            address = (HOST, two.port)
            for _ in range(50):
                one.request(address, "waiting already")
            # At each turn of the loop: a session is over soon.
            while address not in one.scheduler.running:
                await asyncio.sleep(0)
            for _ in range(50):
                one.request(address, "once more")
            await until(lambda: one.scheduler.idle)
            assert len(one.ends) == 2

    run(main())


def test_requests_are_bounded():
    async def main():
        one = Syncing(some_log(b"a"), pulls=PullLimits(sessions=1))
        async with running(one):
            queued = [one.request((HOST, port), "flood", jitter=1000) for port in range(1, PULLS.queued + 100)]
            assert PULLS.queued - 2 <= queued.count(True) <= PULLS.queued
            for _ in range(10):
                await asyncio.sleep(0)
            assert not one.scheduler.running, "each waits for its part of the jitter"
            assert not one.request((HOST, PULLS.queued + 100), "flood")
            assert one.request((HOST, 1), "it waits already")

    run(main())


def test_a_peer_that_is_not_there_does_no_harm():
    async def main():
        logs = some_log(b"a"), some_log(b"b")
        gone = Syncing(logs[1])
        async with running(gone):
            port = gone.port
        one = Syncing(logs[0])
        async with running(one):
            one.request((HOST, port), "test")
            await until(lambda: one.ends)
            assert one.ends[0][1].reason is Reason.UNREACHABLE

    run(main())


def test_peers_that_cannot_be_had_take_few_of_the_periodic_sessions():
    async def main():
        logs = some_log(b"a"), some_log(b"b")
        gone = Syncing(logs[1])
        async with running(gone):
            missing = HOST, gone.port
        two = Syncing(logs[1])
        async with running(two):
            banned = "127.0.0.2", 1
            penalties = PenaltyBox()
            penalties.punish("{}:{}".format(*banned), asyncio.get_running_loop().time() + DEADLINE)
            shared = SessionContext(penalties=penalties)
            one = Syncing(logs[0], [missing, banned, (HOST, two.port)], interval=0.005, shared=shared)
            async with running(one):
                await until(lambda: len(one.ends) >= 60)
            met = sum(result.reason is Reason.COMPLETE for _, result in one.ends)
            assert len(one.ends) / 4 < met < len(one.ends), "some with each"
            assert banned not in {address for address, _ in one.ends}

    run(main())


def test_who_was_turned_away_is_logged_but_not_each_time(caplog):
    caplog.set_level(logging.INFO, "basefs.sync")

    async def main():
        logs = MemoryLog(STRANGER_ROOT.hash), some_log(b"a")
        stranger, node = (Syncing(log, shared=SessionContext(throttle=Throttle(10 * DEADLINE))) for log in logs)
        async with running(stranger, node):
            # Otherwise it would call only now and then.
            stranger.sync.meet((HOST, node.port))
            for count in range(5):
                stranger.request((HOST, node.port), "test")
                await until(lambda count=count: len(node.ends) == len(stranger.ends) == count + 1)
            reader, writer = await asyncio.open_connection(HOST, node.port)
            writer.write(b"rubbish\n")
            assert (await reader.read()).startswith(b"CLOSE NO protocol")
            writer.close()
            await until(lambda: len(node.ends) == 6)

    run(main())
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 3, lines
    assert sum("wrong filesystem: this node serves" in line for line in lines) == 1
    assert sum("wrong filesystem: it says: this node serves" in line for line in lines) == 1
    assert any("rubbish" in line and "127.0.0.1" in line for line in lines)


def test_no_caller_has_a_port_remembered_that_it_says():
    """Unless gossip knows it: in an open filesystem anybody may call, also from the address of a member."""

    async def main():
        node = Syncing(some_log(b"a"))
        async with running(node):
            node.peers = lambda: [(HOST, 4713)]
            for port in (4711, 4712, 4713):
                reader, writer = await asyncio.open_connection(HOST, node.port)
                writer.write(encode(Hash(VERSION, ROOT.hash, Digest(sha224(b"another"), 2), port)))
                assert await reader.readline()
                writer.close()
            await until(lambda: len(node.ends) == 3)
            assert {address for address, _ in node.ends} == {(HOST, port) for port in (4711, 4712, 4713)}
            assert [node.has_met((HOST, port)) for port in (4711, 4712, 4713)] == [False, False, True]

    run(main())


def test_a_caller_with_a_key_is_remembered():
    began = time.time()

    async def main():
        keys = [SigningKey.generate() for _ in range(2)]
        contexts = (SessionContext(credentials=Credentials(key, [each.public for each in keys])) for key in keys)
        _, logs = some_logs(2)
        one, two = (Syncing(log, shared=shared) for log, shared in zip(logs, contexts, strict=True))
        async with running(one, two):
            one.request((HOST, two.port), "test")
            await until(lambda: one.ends and two.ends)
            assert one.has_met((HOST, two.port)) and two.has_met((HOST, one.port))
            # Others compare it with times of their own, also after the machine has slept, while other clocks stand.
            assert began <= one.sync.met_at((HOST, two.port)) <= time.time()

    run(main())


def test_who_was_met_longest_ago_is_forgotten_first():
    node = Syncing(some_log(b"a"))
    node.sync.remember([(HOST, port) for port in (*range(1, 4097), 1, 4097)])
    assert [node.has_met((HOST, port)) for port in (1, 2, 3, 4097)] == [True, False, True, True]


def pause(shared):
    """Seconds that the next session from this machine would wait."""
    return shared.pace.delay(Parties().of(HOST, b""), asyncio.get_running_loop().time())


def test_hanging_up_in_time_does_not_save_from_the_pause():
    async def main():
        shared = SessionContext()
        node = Syncing(some_log(b"a"), shared=shared)
        async with running(node):
            reader, writer = await asyncio.open_connection(HOST, node.port)
            writer.write(encode(Hash(VERSION, ROOT.hash, Digest(bytes(28), 0), 0)))
            while not (await reader.readline()).startswith(b"LS "):
                pass
            writer.write(encode(Entries((b"no entry at all",))))
            writer.close()
            await until(lambda: node.ends)
            assert node.ends[0][1].reason is Reason.LOST
            assert pause(shared) > DEFAULT_TIMING.offence_pause / 2
            writer.close()

    run(main())


@pytest.mark.parametrize(("count", "waits"), [(1, False), (MAX_UNGRANTED, False), (MAX_UNGRANTED + 1, True)])
def test_an_entry_that_has_overtaken_the_grant_of_its_key_is_no_offence(count, waits, caplog):
    caplog.set_level(logging.INFO, "basefs.sync")

    class Ungranted(MemoryLog):
        def add(self, entries, blocks, *, peer=""):
            return AddResult(0, (), (), ("granted nowhere",) * len(entries), ungranted=len(entries))

    log = Ungranted(ROOT.hash)

    async def main():
        shared = SessionContext()
        node = Syncing(log, shared=shared)
        async with running(node):
            reader, writer = await asyncio.open_connection(HOST, node.port)
            writer.write(encode(Hash(VERSION, ROOT.hash, Digest(sha224(b"another"), 2), 0)))
            while not (await reader.readline()).startswith(b"LS "):
                pass
            writer.write(encode(Entries(tuple(b"an entry %d" % number for number in range(count)))))
            writer.write_eof()
            await until(lambda: node.ends)
            assert node.ends[0][1].counters.rejected == count
            assert (pause(shared) > DEFAULT_TIMING.offence_pause / 2) == waits
            writer.close()

    run(main())
    assert "granted nowhere" in caplog.text


def test_few_of_one_host_are_told_at_once_that_there_is_no_place():
    async def main():
        shared = SessionContext(timing=SessionTiming(grace=DEADLINE))
        node = Syncing(some_log(b"a"), max_sessions=4, shared=shared)
        async with running(node):
            lines = [await asyncio.open_connection(HOST, node.port) for _ in range(14)]
            told = await asyncio.gather(*(reader.readline() for reader, _ in lines[4:]), return_exceptions=True)
            assert sum(line == b"CLOSE NO busy too%20many%20sessions\n" for line in told) == 4
            for _, writer in lines:
                writer.close()

    run(main())


def test_one_host_does_not_take_all_the_places_of_sessions_that_stay():
    async def main():
        node = Syncing(some_log(b"a"), degree=3)
        async with running(node):
            writers = []
            for port in range(1, 2 + MAX_STANDING_PER_PARTY):
                reader, writer = await asyncio.open_connection(HOST, node.port)
                writers.append(writer)
                writer.write(encode(Hash(VERSION, ROOT.hash, node.log.digest(), port)) + encode(Stay()))
                assert (await reader.readline()).startswith(b"SAME")
                answer = await reader.readline()
                assert answer.startswith(b"STAY" if port <= MAX_STANDING_PER_PARTY else b"CLOSE OK"), (port, answer)
            assert len(node.standing) == MAX_STANDING_PER_PARTY
            for writer in writers:
                writer.close()

    run(main())


async def stand(node, source, port):
    """Have a session stand from an address of this machine; returns its connection."""
    reader, writer = await asyncio.open_connection(HOST, node.port, local_addr=(source, 0))
    writer.write(encode(Hash(VERSION, ROOT.hash, node.log.digest(), port)) + encode(Stay()))
    assert (await reader.readline()).startswith(b"SAME")
    assert (await reader.readline()).startswith(b"STAY")
    return writer


def own(shared):
    """How many sessions stand that a node has opened itself."""
    return sum(session.role is Role.INITIATOR and session.push is not None for session in shared.sessions)


def test_strangers_do_not_take_the_places_of_sessions_that_stay():
    """Neither of those that a node opens itself nor of those that members open."""

    async def main():
        _, logs = some_logs(4)
        shared = SessionContext()
        node, *members = (
            Syncing(log, degree=3, shared=each) for log, each in zip(logs, [shared, None, None, None], strict=True)
        )
        async with running(node):
            strangers = [
                await stand(node, f"127.0.0.{2 + number % 2}", 1000 + number) for number in range(MAX_STANDING)
            ]
            assert len(node.standing) == MAX_STANDING and own(shared) == 0
            async with running(*members):
                there = [(HOST, member.port) for member in members]
                node.peers = lambda: there
                await until(lambda: own(shared) == OWN_STANDING)
                assert len(node.standing) == MAX_STANDING + OWN_STANDING
                # One that a member opens, for which a stranger has to go.
                strangers.append(await stand(node, HOST, 4711))
                await until(lambda: len(node.standing) == MAX_STANDING + OWN_STANDING)
                assert (HOST, 4711) in node.standing
            for writer in strangers:
                writer.close()

    run(main())


def test_a_banned_host_is_not_visited():
    async def main():
        penalties = PenaltyBox()
        one = Syncing(some_log(b"a"), shared=SessionContext(penalties=penalties))
        async with running(one):
            penalties.punish(f"{HOST}:1", asyncio.get_running_loop().time())
            one.request((HOST, 1), "test")
            await until(lambda: one.scheduler.idle)
            assert not one.ends

    run(main())


def test_peers_that_cannot_be_had_do_not_end_the_periodic_sessions(caplog):
    async def main():
        calls = []

        def peers():
            calls.append(1)
            if len(calls) == 1:
                raise RuntimeError("no list")
            return []

        one = Syncing(some_log(b"a"), interval=0.01)
        one.peers = peers
        async with running(one):
            await until(lambda: len(calls) > 2)

    run(main())
    assert "no list" in caplog.text


def test_stop_in_the_middle_of_everything():
    async def main():
        logs = some_log(b"a", 2000), some_log(b"b", 2000)
        one, two = Syncing(logs[0]), Syncing(logs[1])
        async with running(one, two):
            one.request((HOST, two.port), "test")
            two.request((HOST, one.port), "test")
            await until(lambda: len(logs[0]) > 2010)
        assert one.scheduler.idle and two.scheduler.idle

    run(main())


# Sessions that stay open


def some_logs(count):
    writer = Writer()
    writer.write((b"d", b"f"), b"x")
    return writer, [writer.log() for _ in range(count)]


def test_each_keeps_sessions_and_news_floods_them():
    async def main():
        writer, logs = some_logs(8)
        peers = []
        services = [Syncing(log, peers, degree=3, rng=random.Random(i)) for i, log in enumerate(logs)]
        async with running(*services):
            peers += [(HOST, each.port) for each in services]
            for each in services:
                own = (HOST, each.port)
                each.peers = lambda own=own: [peer for peer in peers if peer != own]
            await until(lambda: all(len(each.standing) >= 3 for each in services))
            before = len(writer.entries)
            writer.write((b"d", b"news"), b"y" * 3000)
            logs[0].add(writer.entries[before:], writer.blocks)
            told = set()
            services[0].neighbours.push(writer.entries[before:])
            while len(told) < len(services):
                # What propagation does: who has heard passes it on.
                for number, each in enumerate(services):
                    if number not in told and logs[number].root_hash() == logs[0].root_hash():
                        told.add(number)
                        each.neighbours.push(writer.entries[before:])
                await asyncio.sleep(0.01)

    run(main())


def test_what_a_push_cannot_bring_is_fetched():
    async def main():
        writer, logs = some_logs(2)
        one, two = Syncing(logs[0], degree=1), Syncing(logs[1], degree=1)
        async with running(one, two):
            one.peers = lambda: [(HOST, two.port)]
            await until(lambda: one.standing and two.standing)
            before = len(writer.entries)
            writer.write((b"e", b"news"), random_bytes(200_000))
            logs[0].add(writer.entries[before:], writer.blocks)
            one.neighbours.tell_root()
            await until(lambda: logs[1].root_hash() == logs[0].root_hash())

    run(main())


def test_how_far_a_peer_is_behind_shows_while_it_fetches():
    class Slow(MemoryLog):
        """Takes nothing in until it is let."""

        may = threading.Event()

        def add(self, entries, blocks, *, peer=""):
            assert self.may.wait(60)
            return super().add(entries, blocks, peer=peer)

    async def main():
        writer = Writer()
        behind = Slow(ROOT.hash)
        behind.may.set()
        behind.add(writer.entries, ())
        behind.may.clear()
        for number in range(20):
            writer.write((b"f%d" % number,), b"x")
        one_log = writer.log()
        one, two = Syncing(one_log), Syncing(behind)
        async with running(one, two):
            here, there = (HOST, one.port), (HOST, two.port)
            assert one.lag(there) is None
            two.request(here, "test")
            await until(lambda: one.lag(there) and (one.lag(there).behind, one.lag(there).ahead) == (20, 0))
            await until(lambda: two.lag(here) and (two.lag(here).behind, two.lag(here).ahead) == (0, 20))
            behind.may.set()
            await until(lambda: behind.root_hash() == one_log.root_hash())
            assert await confirmed(one, there) and await confirmed(two, here)
            assert len(behind) == 21

    run(main())


async def confirmed(service, peer):
    """Whether a peer is in step, having been asked."""
    await service.confirm([peer])
    return service.lag(peer).in_step


def test_a_peer_is_asked_and_no_session_is_left():
    async def main():
        writer, logs = some_logs(2)
        one, two = Syncing(logs[0]), Syncing(logs[1])
        async with running(one, two):
            here, there = (HOST, one.port), (HOST, two.port)
            assert await confirmed(one, there) and await confirmed(two, here)
            sent = one.traffic.total().bytes_sent
            assert await confirmed(one, there)
            assert one.traffic.total().bytes_sent == sent, "it has answered a moment ago"
            writer.write((b"d", b"news"))
            logs[0].add(writer.entries, ())
            one.changed(asyncio.get_running_loop().time())
            # On its way, for all that is known so soon.
            assert await confirmed(one, there)
            await until(lambda: not two.lag(here).in_step and one.lag(there).behind == 1)
            assert not await confirmed(one, there) and not await confirmed(two, here)
            assert one.lag(there).behind == two.lag(here).ahead == 1
            assert not one.contact(there).trouble and not two.contact(here).trouble

    run(main())


def test_a_peer_that_does_not_answer_is_not_in_step():
    async def main():
        _, logs = some_logs(2)
        one, two = Syncing(logs[0]), Syncing(logs[1])
        async with running(one):
            async with running(two):
                there = HOST, two.port
                assert await confirmed(one, there)
            # The port is closed: what it said last holds for a moment.
            await until(lambda: not one.lag(there).in_step)
            began = asyncio.get_running_loop().time()
            assert not await confirmed(one, there)
            assert asyncio.get_running_loop().time() - began < 2 * ANSWER_SECONDS
            assert one.contact(there).away

    run(main())


def test_a_question_that_is_cancelled_leaves_no_session():
    async def main():
        _, logs = some_logs(1)
        one = Syncing(logs[0])
        asked = []
        silent = await asyncio.start_server(lambda reader, writer: asked.append(writer), HOST, 0)
        async with silent, running(one):
            peer = HOST, silent.sockets[0].getsockname()[1]
            before = asyncio.all_tasks()
            question = asyncio.create_task(one.confirm([peer]))
            await until(lambda: asked)
            await cancel([question])
            assert asyncio.all_tasks() == before
            asked[0].close()

    run(main())


@pytest.mark.logs("disk full")
def test_a_full_disk_is_sent_nothing_until_it_has_room():
    """The peer learns of it, and gets what is there and nowhere else."""

    class Disk(MemoryLog):
        free = 0

        def add(self, entries, blocks, *, peer=""):
            if not self.free:
                raise NoSpace("the disk is full")
            return super().add(entries, blocks, peer=peer)

    async def main():
        writer = Writer()
        full = Disk(ROOT.hash)
        full.free = 1 << 20
        full.add(writer.entries, ())
        only = Writer()
        only.write((b"only",), random_bytes(100_000))
        full.add(only.entries, only.blocks)
        full.free = 0
        for number in range(20):
            writer.write((b"f%d" % number,), random_bytes(2000, number))
        log, everything = writer.log(), writer.log()
        everything.add(only.entries, only.blocks)
        one = Syncing(log, interval=0.05, degree=1)
        room = Room(Path(), lambda directory: full.free)
        two = Syncing(full, interval=0.05, degree=1, shared=SessionContext(room=room))
        async with running(one, two):
            here, there = (HOST, one.port), (HOST, two.port)
            looks = []
            one.peers, two.peers = (lambda: looks.append(1) or [there]), (lambda: [here])
            await until(lambda: two.takes_nothing and one.contact(there).full_at is not None)
            await until(lambda: log.root_hash() == everything.root_hash())
            await until(lambda: one.contact(there).emptied is not None)
            await until(lambda: one.scheduler.idle and two.scheduler.idle and not one.standing)
            sent = one.traffic.total().bytes_sent
            ends = len(one.ends)
            looks.clear()
            await until(lambda: len(looks) > 20)
            assert (one.traffic.total().bytes_sent, len(one.ends)) == (sent, ends)
            # Both know how far they are apart.
            await one.confirm([there])
            await two.confirm([here])
            assert (one.lag(there).behind, two.lag(here).ahead) == (20, 20)
            assert not one.contact(there).trouble and not two.contact(here).trouble
            full.free = 1 << 20
            await until(lambda: full.root_hash() == log.root_hash())
            await until(lambda: one.contact(there).full_at is None and not two.takes_nothing)

    run(main())


def test_no_two_sessions_with_one_peer_and_none_at_degree_0():
    async def main():
        _, logs = some_logs(3)
        # Each with dice of its own: where all throw alike, no coin decides anything.
        one = Syncing(logs[0], degree=2, rng=random.Random(2))
        two = Syncing(logs[1], degree=2, rng=random.Random(3))
        three = Syncing(logs[2], degree=0)
        async with running(one, two, three):
            one.peers = lambda: [(HOST, two.port), (HOST, three.port)]
            two.peers = lambda: [(HOST, one.port), (HOST, three.port)]
            await until(lambda: one.standing == [(HOST, two.port)] and two.standing == [(HOST, one.port)])
            await until(lambda: three.ends)
            assert not three.standing
            assert all(end[1].reason is Reason.COMPLETE for end in three.ends)

    run(main())


def test_what_peers_have_acknowledged_is_known():
    async def main():
        writer, logs = some_logs(2)
        one, two = Syncing(logs[0], degree=1), Syncing(logs[1], degree=1)
        async with running(one):
            async with running(two):
                one.peers = lambda: [(HOST, two.port)]
                await until(lambda: one.standing and two.standing)
                before = len(writer.entries)
                writer.write((b"e", b"news"), b"y")
                logs[0].add(writer.entries[before:], writer.blocks)
                await until(lambda: one.neighbours.arrival(one.neighbours.mark())[0] is Acknowledged.ARRIVED)
                one.neighbours.push(writer.entries[before:])
                mark = one.neighbours.mark()
                assert one.neighbours.arrival(mark)[0] is Acknowledged.STUCK, "the session has not had its turn"
                await until(lambda: logs[1].root_hash() == logs[0].root_hash())
                await until(lambda: one.neighbours.arrival(mark)[0] is Acknowledged.ARRIVED)
            # Nobody knows what became of what was sent to a peer that is gone.
            await until(lambda: not one.standing)
            assert one.neighbours.arrival(mark)[0] is Acknowledged.STUCK
            assert one.neighbours.arrival(one.neighbours.mark())[0] is Acknowledged.ARRIVED

    run(main())


def test_a_session_that_has_stood_long_enough_gives_way_to_one_with_somebody_else():
    async def main():
        _, logs = some_logs(3)
        shared = [SessionContext(timing=SessionTiming(lifetime=(0.1, 0.2))) for _ in logs]
        one, two, three = (Syncing(log, degree=1, shared=each) for log, each in zip(logs, shared, strict=True))
        async with running(one, two, three):
            both = {(HOST, two.port), (HOST, three.port)}
            one.peers = lambda: sorted(both)
            met = set()

            def has_met_both():
                met.update(one.standing)
                return met == both

            await until(has_met_both)
            assert all(result.reason is Reason.COMPLETE for _, result in one.ends)

    run(main())


def test_a_session_stands_where_there_is_nobody_else():
    async def main():
        _, logs = some_logs(2)
        shared = [SessionContext(timing=SessionTiming(lifetime=(0.0, 0.0))) for _ in logs]
        one, two = (Syncing(log, degree=1, shared=each) for log, each in zip(logs, shared, strict=True))
        async with running(one, two):
            one.peers = lambda: [(HOST, two.port)]
            await until(lambda: one.standing)
            one.vacancies()
            for _ in range(10):
                await asyncio.sleep(0.01)
            assert one.standing and two.standing

    run(main())


def test_a_peer_that_goes_is_replaced():
    async def main():
        _, logs = some_logs(3)
        one, two, three = (Syncing(log, degree=1) for log in logs)
        async with running(one, three):
            await two.start()
            one.peers = lambda: [(HOST, two.port)]
            await until(lambda: one.standing)
            await two.stop()
            await until(lambda: not one.standing)
            one.peers = lambda: [(HOST, three.port)]
            await until(lambda: one.standing == [(HOST, three.port)] and three.standing)
        assert not one.standing

    run(main())


def test_traffic_counts_a_session_that_still_stands():
    async def main():
        logs = some_log(b"a"), some_log(b"b")
        peers = []
        one, two = Syncing(logs[0], peers, degree=1), Syncing(logs[1], degree=1)
        async with running(one, two):
            peers.append((HOST, two.port))
            await until(lambda: one.standing and two.standing)
            sent = lambda: one.traffic.total().bytes_sent  # noqa: E731
            await until(lambda: sent() > 0 and sent() == two.traffic.total().bytes_received)
            await until(lambda: one.contact((HOST, two.port)).sent == sent())
            # The session stands: nobody has said how it went, and it counts already.
            assert one.standing and not any(result.counters.bytes_sent for _, result in one.ends)

    run(main())
