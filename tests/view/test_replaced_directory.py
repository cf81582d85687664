"""A directory is removed on one node while another one adds a file to it (docs/posix.md, "Two nodes at once")."""

from __future__ import annotations

from pathlib import Path

import pytest

from basefs.log.entries import Action, Entry
from basefs.replica.replica import Replica
from tests.support.helpers import BOB, ROOT_KEY, genesis, make_replica, path
from tests.view.stories import Story

DIRECTORY, NEW = path("/conf"), path("/conf/new")


@pytest.fixture
def nodes(tmp_path: Path) -> list[Replica]:
    """Two nodes that both have an empty directory."""
    born = genesis((ROOT_KEY, BOB))
    made = [make_replica(tmp_path / key.fingerprint.hex(), [key], born=born) for key in (ROOT_KEY, BOB)]
    made[0].commit(lambda author: author.make_directory(DIRECTORY))
    exchange(made)
    return made


def exchange(nodes: list[Replica]) -> None:
    """All that either knows reaches the other."""
    for source, target in (nodes, reversed(nodes)):
        blocks = [
            raw
            for entry in map(Entry.decode, source.walk(()))
            if entry.encoded is not None
            for raw in [source.block(entry.encoded.root)]
            if raw is not None
        ]
        target.add(list(source.walk(())), blocks)


def live(nodes: list[Replica]) -> list[list[str]]:
    """The live paths of both nodes."""
    return [sorted("/" + b"/".join(names).decode() for names, _ in node.live_paths()) for node in nodes]


def test_a_directory_that_was_only_removed_lives_on_with_what_was_added(nodes: list[Replica]) -> None:
    nodes[0].commit(lambda author: author.remove(DIRECTORY, directory=True))
    nodes[1].commit(lambda author: author.write(NEW, b"added"))
    exchange(nodes)
    assert live(nodes) == [["/", "/conf", "/conf/new"]] * 2


def test_one_that_was_made_anew_is_another_one_and_the_log_has_what_was_added(nodes: list[Replica]) -> None:
    nodes[0].commit(lambda author: author.remove(DIRECTORY, directory=True))
    nodes[0].commit(lambda author: author.make_directory(DIRECTORY))
    nodes[1].commit(lambda author: author.write(NEW, b"added"))
    exchange(nodes)
    assert live(nodes) == [["/", "/conf"]] * 2
    for node in nodes:
        (write,) = [e for e in map(Entry.decode, node.walk(NEW)) if e.action is Action.WRITE]
        assert node.content_at(write.hash) == b"added"


def test_what_lives_in_a_directory_that_lost_to_a_removal_keeps_no_directory_above_it(tmp_path: Path) -> None:
    story = Story(tmp_path)
    home = story.mkdir(ROOT_KEY, story.root, "home")
    story.grant(ROOT_KEY, home, BOB)
    above = story.mkdir(BOB, home, "d")
    made = story.mkdir(BOB, above, "p")
    story.write(BOB, made, b"unseen", "f")
    story.delete(BOB, made)
    # Of a higher key: nothing is at /home/d/p, so nothing lives in /home/d.
    story.delete(ROOT_KEY, story.write(ROOT_KEY, above, b"", "p"))
    story.delete(BOB, above)
    assert {*story.tree()} == {(), path("/home")}
