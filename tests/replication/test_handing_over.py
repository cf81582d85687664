"""The hand-over of a node that stops: another one has everything before it says so."""

from __future__ import annotations

import asyncio
from pathlib import Path

from basefs.log.blocks import Block
from basefs.log.entries import Action, Entry
from basefs.replica.replica import Replica
from tests.support.asynchronous import HOST, until
from tests.support.helpers import ALICE, BOB, ROOT_KEY, copy_replica, genesis, make_replica, noise, path
from tests.support.syncing import Syncing, running

F = path("/f")


def test_a_content_that_may_turn_out_to_be_needed_is_not_handed_over_before_it_is_there(tmp_path: Path) -> None:
    """The other node withholds what a revoked key has written, until it has looked who has built upon it."""
    here = make_replica(tmp_path / "here", (ROOT_KEY,), born=genesis((ROOT_KEY, ALICE)))
    there, theirs = copy_replica(here, tmp_path / "there", (BOB,)), copy_replica(here, tmp_path / "alice", (ALICE,))
    content = noise(1, 150_000)
    written = theirs.commit(lambda author: author.write(F, content))
    here.apply(written.entries, [])
    while missing := here.missing_blocks(16):
        here.apply([], [Block.decode(raw) for _, hash in missing for raw in [theirs.block(hash)] if raw is not None])
    # This vouches for what she has written before.
    here.commit(lambda author: author.key_holder.revoke((), b"alice", ALICE.fingerprint).draft)
    there.live_paths()
    revoke = next(entry for entry in map(Entry.decode, here.walk(())) if entry.action is Action.REVOKE)
    there.apply([revoke], [])

    async def stop() -> None:
        mine, other = Syncing(here), Syncing(there)
        async with running(mine, other):
            other.request((HOST, mine.port), "the revoke came", jitter=0.0)
            await until(lambda: there.root_hash() == here.root_hash())
            assert F not in dict(there.live_paths()) and not there.missing_blocks(1)
            await mine.confirm([(HOST, other.port)])
            assert mine.holder([(HOST, other.port)]) is None
            assert there.review_needs(at_once=True) == 1
            other.request((HOST, mine.port), "contents", jitter=0.0)
            await until(lambda: F in dict(there.live_paths()))
            await mine.hand_over(lambda: [(HOST, other.port)])
            assert mine.holder([(HOST, other.port)]) == (HOST, other.port)
            assert there.read(F) == content

    asyncio.run(stop())
    for replica in (here, there, theirs):
        _close(replica)


def test_a_content_that_nobody_has_keeps_no_node_from_handing_over(tmp_path: Path) -> None:
    """Its writer has given away the entry, and no block."""
    here = make_replica(tmp_path / "here", (ROOT_KEY,), born=genesis((ROOT_KEY, ALICE)))
    there, theirs = copy_replica(here, tmp_path / "there", (BOB,)), copy_replica(here, tmp_path / "alice", (ALICE,))
    written = theirs.commit(lambda author: author.write(F, noise(1, 150_000)))
    here.apply(written.entries, [])

    async def stop() -> None:
        mine, other = Syncing(here), Syncing(there)
        async with running(mine, other):
            other.request((HOST, mine.port), "an entry came", jitter=0.0)
            await until(lambda: there.digest() == here.digest())
            assert here.digest().missing == 1
            await mine.hand_over(lambda: [(HOST, other.port)])
            assert mine.holder([(HOST, other.port)]) == (HOST, other.port)
            # One that has got it has something that the other one lacks.
            while missing := here.missing_blocks(16):
                here.add([], [raw for _, hash in missing for raw in [theirs.block(hash)] if raw is not None])
            assert mine.holder([(HOST, other.port)]) is None

    asyncio.run(stop())
    for replica in (here, there, theirs):
        _close(replica)


def _close(replica: Replica) -> None:
    assert replica.check_view() == []
    replica.close()
