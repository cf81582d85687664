"""Names that move, that are links, or that are deep."""

from __future__ import annotations

from pathlib import Path

import pytest

from basefs.path import display
from basefs.replica.replica import Replica
from basefs.view.states import Kind
from tests.support.helpers import ROOT_KEY, copy_replica, make_replica, path
from tests.support.names import rename
from tests.view.stories import Story


@pytest.fixture
def replica(tmp_path: Path) -> Replica:
    return make_replica(tmp_path / "log")


def write(replica: Replica, text: str, content: bytes, **attributes: int) -> None:
    replica.commit(lambda author: author.write(path(text), content, **attributes))  # type: ignore[arg-type]


def move(replica: Replica, source: str, target: str) -> None:
    replica.commit(lambda author: rename(author, path(source), path(target)))


def chmod(replica: Replica, text: str, mode: int) -> None:
    replica.commit(lambda author: author.set_attributes(path(text), mode=mode))


def mode(replica: Replica, text: str) -> int:
    return replica.attributes(path(text)).mode


def test_a_mode_set_after_a_rename_survives_the_next_one(replica: Replica) -> None:
    write(replica, "/a", b"secret", mtime=5)
    move(replica, "/a", "/b")
    chmod(replica, "/b", 0o600)
    move(replica, "/b", "/c")
    assert (mode(replica, "/c"), replica.attributes(path("/c")).mtime) == (0o600, 5)
    replica.commit(lambda author: author.make_directory(path("/d")))
    move(replica, "/c", "/d/c")
    move(replica, "/d", "/e")
    assert mode(replica, "/e/c") == 0o600
    assert replica.check_view() == []


def test_a_directory_that_replaces_an_empty_one_keeps_its_mode(replica: Replica) -> None:
    replica.commit(lambda author: author.make_directory(path("/private"), mode=0o700))
    replica.commit(lambda author: author.make_directory(path("/empty")))
    move(replica, "/private", "/empty")
    assert mode(replica, "/empty") == 0o700


@pytest.mark.slow
def test_a_file_that_is_renamed_and_edited_often_stays_quick_to_resolve(replica: Replica) -> None:
    write(replica, "/f0", b"0")
    for number in range(300):
        move(replica, f"/f{number}", f"/f{number + 1}")
        write(replica, f"/f{number + 1}", b"%d" % (number + 1))
    assert replica.read(path("/f300")) == b"300"


@pytest.mark.slow
def test_two_names_that_change_places_often_stay_quick_to_resolve(replica: Replica) -> None:
    write(replica, "/a", b"start")
    for number in range(20):
        move(replica, "/a", "/b")
        write(replica, "/b", b"b%d" % number)
        move(replica, "/b", "/a")
        write(replica, "/a", b"a%d" % number)
    assert replica.read(path("/a")) == b"a19"
    assert replica.check_view() == []


@pytest.mark.slow
def test_no_chain_of_links_exhausts_anything(tmp_path: Path) -> None:
    """However long, and whichever of them is looked at first."""
    story = Story(tmp_path)
    last = story.write(ROOT_KEY, story.root, b"content", "f0")
    for number in range(3000):
        last = story.link(ROOT_KEY, story.root, last, f"f{number + 1}")
        if number % 3 == 0:
            last = story.mode(ROOT_KEY, last, 0o600 + number % 2)
    # A revert of the last path to its own beginning, and a link to that.
    back = story.revert(ROOT_KEY, last, story.entries[-1])
    story.link(ROOT_KEY, story.root, back, "back")
    without = story.replica(without=story.blocks)
    assert without.live_paths() == [((), Kind.DIRECTORY)]
    changes = without.apply([], story.blocks).changes
    assert len(changes) == 3002
    replica = story.replica(ROOT_KEY)
    for each in (replica, without):
        assert each.read(path("/f3000")) == each.read(path("/back")) == b"content"
        assert each.check_view() == []
    write(replica, "/other", b"still works")


DEPTH = 250


@pytest.fixture
def deep(replica: Replica) -> Replica:
    """A tree deeper than the interpreter's stack allows a recursion over its levels to go."""
    for depth in range(1, DEPTH + 1):
        replica.commit(lambda author, depth=depth: author.make_directory((b"d",) * depth))  # type: ignore[misc]
    return replica


@pytest.mark.slow
def test_a_very_deep_tree_can_be_removed(deep: Replica, tmp_path: Path) -> None:
    for depth in range(DEPTH, 0, -1):
        deep.commit(lambda author, depth=depth: author.remove((b"d",) * depth, directory=True))  # type: ignore[misc]
    assert list(deep.names_in(())) == []
    again = copy_replica(deep, tmp_path / "copy")
    assert list(again.names_in(())) == []


@pytest.mark.slow
def test_a_file_deep_in_a_removed_tree_brings_it_back(deep: Replica, tmp_path: Path) -> None:
    bottom = (b"d",) * DEPTH
    other = copy_replica(deep, tmp_path / "other", (ROOT_KEY,))
    written = other.commit(lambda author: author.write((*bottom, b"f"), b"concurrent"))
    for depth in range(DEPTH, 0, -1):
        deep.commit(lambda author, depth=depth: author.remove((b"d",) * depth, directory=True))  # type: ignore[misc]
    deep.apply(written.entries, written.blocks)
    assert deep.read((*bottom, b"f")) == b"concurrent"


def test_a_name_breaks_no_line_and_moves_no_cursor() -> None:
    assert display((b"a b", "\u00e4".encode(), b"x\n\x1b[2J", b"\xff")) == "/a b/\u00e4/x\\n\\x1b[2J/\\xff"
