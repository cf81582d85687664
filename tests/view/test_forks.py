"""Forks, read from the file of the log, against the conflicts that the view finds (`basefs/log/forks.py`)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given

from basefs.errors import StoreError
from basefs.log.forks import forked_paths
from basefs.replica.replica import LOG_FILE
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
        forked = forked_paths(replica.directory / LOG_FILE)
        found = set(replica.plan(lambda author: author.past.names_of(forked)))
        every = replica.plan(lambda author: author.past.paths(()))
        assert {names for names in every if replica.survey(names).conflicts()} <= found <= set(every)


def test_a_log_without_forks(tmp_path: Path) -> None:
    replica = make_replica(tmp_path)
    replica.commit(lambda author: author.write(path("/a"), b"1"))
    replica.commit(lambda author: author.write(path("/a"), b"2"))
    replica.commit(lambda author: author.write(path("/b"), b"2"))
    replica.commit(lambda author: author.key_holder.grant((), b"alice", ALICE.public).draft)
    assert forked_paths(tmp_path / LOG_FILE) == []
    replica.close()


def test_a_file_that_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no log"):
        forked_paths(tmp_path / LOG_FILE)
    (tmp_path / LOG_FILE).write_bytes(b"this is no database")
    with pytest.raises(StoreError, match="cannot read the log"):
        forked_paths(tmp_path / LOG_FILE)
