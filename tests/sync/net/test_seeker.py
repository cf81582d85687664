"""Looking for who has the rest of a content."""

from __future__ import annotations

import asyncio
import itertools
import random

import pytest

from basefs.log.hashes import BlockHash, sha224
from basefs.sync.net import seeker
from basefs.sync.net.seeker import MAX_TRIES, Seeker
from basefs.sync.session.inflight import RequestTable
from basefs.sync.session.result import Reason, Result, SessionCounters
from tests.support.memory import MemoryLog
from tests.sync.helpers import ROOT, Writer, random_bytes
from tests.sync.net.test_transport import run, until

PEERS = [(f"10.0.0.{number}", 1) for number in range(1, 5)]


@pytest.fixture
def parts(monkeypatch):
    """A log with a content of which the rest is missing, its claims, the peers that are busy, those that were asked."""
    monkeypatch.setattr(seeker, "FIRST_PAUSE", 0.0001)
    writer = Writer()
    writer.write((b"large",), random_bytes(100_000))
    log = MemoryLog(ROOT.hash)
    log.add(writer.entries, writer.blocks[:1])
    return log, RequestTable(), {}, [], writer


def started(parts):
    log, claims, jobs, asked, _ = parts

    def request(peer, reason):
        asked.append(peer)
        return True

    return Seeker(log, claims, lambda: PEERS, random.Random(1), jobs, request)


def result(blocks):
    return Result(Reason.COMPLETE, "", False, SessionCounters(blocks_received=blocks))


async def until_it_gives_up(found, asked, end):
    """Each peer that is asked is left again, and `end` is called for its session."""
    found.progress(True)
    for count in range(1, MAX_TRIES + 1):
        await until(lambda count=count: len(asked) == count)
        end()
        found.left(asked[-1])
    assert found._timer is None


def test_one_after_the_other_is_asked_and_not_for_ever(parts):
    log, _, _, asked, writer = parts

    async def main():
        found = started(parts)
        await until_it_gives_up(found, asked, lambda: found.ended(result(0)))
        assert all(one != two for one, two in itertools.pairwise(asked)), "nobody twice in succession"
        found.ended(result(1))
        assert found._timer is None, "it brought something else"
        log.add([], writer.blocks[1:2])
        found.ended(result(1))
        await until(lambda: len(asked) == MAX_TRIES + 1)
        found.stop()

    run(main())


def test_nobody_is_asked_for_what_a_session_brings_or_with_whom_there_is_a_session(parts):
    _, claims, jobs, asked, writer = parts

    async def main():
        found = started(parts)
        owner = object()
        claims.moved(owner)
        claims.take(BlockHash(sha224(writer.blocks[1])), owner)
        found.progress(True)
        await until(lambda: found._timer is None)
        assert not asked
        claims.let_go(owner)
        jobs.update(dict.fromkeys(PEERS[:3]))
        found.progress(True)
        await until(lambda: asked)
        assert asked == [PEERS[3]]
        found.stop()

    run(main())


def test_nothing_is_missing(parts):
    log, _, _, asked, writer = parts
    log.add([], writer.blocks)

    async def main():
        found = started(parts)
        found.progress(False)
        assert found._timer is None
        found.progress(True)
        await until(lambda: found._timer is None)
        assert not asked

    run(main())


def test_stop(parts):
    async def main():
        found = started(parts)
        found.progress(True)
        found.stop()
        found.progress(True)
        await asyncio.sleep(0)
        assert not parts[3]

    run(main())


def test_a_session_that_ends_when_everything_stops_leads_to_no_other(parts):
    async def main():
        found = started(parts)
        found.stop()
        found.ended(result(1))
        assert found._timer is None

    run(main())


def test_who_cannot_be_asked_now_is_not_waited_for(parts):
    log, claims, jobs, asked, _ = parts

    async def main():
        found = Seeker(log, claims, lambda: PEERS, random.Random(1), jobs, lambda peer, reason: asked.append(peer))
        found.progress(True)
        await until(lambda: len(asked) == MAX_TRIES)
        assert found._timer is None

    run(main())


def test_another_content_is_looked_for_although_one_cannot_be_had(parts):
    log, _, _, asked, writer = parts

    async def main():
        found = started(parts)
        await until_it_gives_up(found, asked, lambda: None)
        writer.write((b"another",), random_bytes(100_000, 1))
        log.add(writer.entries, [])
        found.progress(True)
        await until(lambda: len(asked) == MAX_TRIES + 1)
        found.stop()

    run(main())
