"""Forked paths, as a snapshot of the log tells them, against the conflicts that the view finds."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given

from tests.support.examples import rarely
from tests.support.helpers import ALICE, make_replica, path
from tests.view.histories import Step, World, steps


@rarely
@given(steps())
def test_whatever_lost_is_on_a_forked_path(history: list[Step]) -> None:
    with World.temporary() as world:
        for step in history:
            world.play(step)
        for source in world.nodes:
            for target in world.nodes:
                world.carry(source, target)
        replica = world.nodes[0].replica
        found = set(replica.forked_paths())
        every = replica.plan(lambda author: author.past.paths(()))
        assert {names for names in every if replica.survey(names).conflicts()} <= found <= set(every)


def test_a_log_without_forks(tmp_path: Path) -> None:
    replica = make_replica(tmp_path)
    replica.commit(lambda author: author.write(path("/a"), b"1"))
    replica.commit(lambda author: author.write(path("/a"), b"2"))
    replica.commit(lambda author: author.write(path("/b"), b"2"))
    replica.commit(lambda author: author.key_holder.grant((), b"alice", ALICE.public).draft)
    assert replica.forked_paths() == []
    replica.close()
