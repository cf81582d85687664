"""Several names of one file, and names that move: what POSIX says of them must hold whatever entries record it."""

from __future__ import annotations

from pathlib import Path

import pytest

from basefs.log.entries import Action
from basefs.path import display
from basefs.replica.replica import Replica
from basefs.view.author import Author
from basefs.view.resolution import MAX_LINK_HOPS
from tests.support.helpers import ALICE, DAVE, ROOT_KEY, copy_replica, make_replica, path
from tests.view.stories import Story, above, below


@pytest.fixture
def replica(tmp_path: Path) -> Replica:
    return make_replica(tmp_path / "log")


def write(replica: Replica, text: str, content: bytes, **attributes: int) -> None:
    replica.commit(lambda author: author.write(path(text), content, **attributes))  # type: ignore[arg-type]


def move(replica: Replica, source: str, target: str) -> None:
    replica.commit(lambda author: author.rename(path(source), path(target)))


def link(replica: Replica, new: str, target: str) -> None:
    replica.commit(lambda author: author.make_link(path(new), path(target)))


def chmod(replica: Replica, text: str, mode: int) -> None:
    replica.commit(lambda author: author.set_attributes(path(text), mode=mode))


def mode(replica: Replica, text: str) -> int:
    return replica.attributes(path(text)).mode


def links(replica: Replica, text: str) -> int:
    return replica.attributes(path(text)).links


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


def test_all_names_show_a_mode_when_the_first_one_is_gone(replica: Replica) -> None:
    write(replica, "/a", b"content")
    link(replica, "/b", "/a")
    link(replica, "/c", "/a")
    replica.commit(lambda author: author.remove(path("/a"), directory=False))
    chmod(replica, "/b", 0o640)
    assert mode(replica, "/b") == mode(replica, "/c") == 0o640
    link(replica, "/d", "/c")
    assert mode(replica, "/d") == 0o640


@pytest.mark.parametrize(("kept", "replaced"), [("/a", "/b"), ("/b", "/a")], ids=["second name", "first name"])
def test_replacing_one_name_leaves_the_other_ones_alone(replica: Replica, kept: str, replaced: str) -> None:
    write(replica, "/a", b"old")
    link(replica, "/b", "/a")
    write(replica, "/new", b"new", mode=0o600)
    move(replica, "/new", replaced)
    assert (replica.read(path(kept)), mode(replica, kept), links(replica, kept)) == (b"old", 0o644, 1)
    assert (replica.read(path(replaced)), mode(replica, replaced), links(replica, replaced)) == (b"new", 0o600, 1)
    assert replica.check_view() == []


def test_a_file_with_two_names_keeps_them_when_one_replaces_something(replica: Replica) -> None:
    write(replica, "/a", b"shared")
    link(replica, "/b", "/a")
    write(replica, "/c", b"other")
    move(replica, "/b", "/c")
    assert (links(replica, "/a"), links(replica, "/c")) == (2, 2)
    write(replica, "/c", b"changed")
    assert replica.read(path("/a")) == b"changed"


def test_a_directory_that_replaces_an_empty_one_keeps_its_mode(replica: Replica) -> None:
    replica.commit(lambda author: author.make_directory(path("/private"), mode=0o700))
    replica.commit(lambda author: author.make_directory(path("/empty")))
    move(replica, "/private", "/empty")
    assert mode(replica, "/empty") == 0o700


def test_the_time_of_a_directory_can_be_set_again_after_its_names_changed(replica: Replica) -> None:
    def set_time(author: Author) -> object:
        return author.set_attributes(path("/d"), mtime=7)

    replica.commit(lambda author: author.make_directory(path("/d")))
    for name in ("/d/one", "/d/two"):
        replica.commit(set_time)  # type: ignore[arg-type]
        assert replica.attributes(path("/d")).mtime == 7
        write(replica, name, b"")
        assert replica.attributes(path("/d")).mtime > 7
    replica.commit(set_time)  # type: ignore[arg-type]
    assert replica.attributes(path("/d")).mtime == 7


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
def test_a_chain_of_links_by_a_key_holder_exhausts_nothing(tmp_path: Path) -> None:
    story = Story(tmp_path)
    last = story.write(ROOT_KEY, story.root, b"content", "f0")
    for number in range(500):
        last = story.sign(ROOT_KEY, story.root, Action.LINK, f"f{number + 1}", last.hash)
    replica = story.replica(ROOT_KEY)
    shown = replica.names_in(())
    assert b"f1" in shown
    assert f"f{MAX_LINK_HOPS + 1}".encode() not in shown
    write(replica, "/other", b"still works")
    assert replica.check_view() == []


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


def test_each_name_of_a_file_counts_the_others_whichever_is_asked_first(tmp_path: Path) -> None:
    story = Story(tmp_path)
    first = story.write(ROOT_KEY, story.root, b"text", "first")
    second = story.link(ROOT_KEY, story.root, first, "second")
    # No node of ours names a link, or an entry behind one.
    third = story.link(ROOT_KEY, story.root, second, "third")
    changed = story.mode(ROOT_KEY, third, 0o600)
    fourth = story.link(ROOT_KEY, story.root, changed, "fourth")
    for names in ("/first", "/second"), ("/third", "/fourth"):
        for one in map(path, names):
            replica = story.replica()
            assert set(replica.names_of(one)) == set(map(path, names))
            assert {replica.attributes(path(other)).links for other in names} == {2}
            replica.close()
    story.delete(ROOT_KEY, first)
    story.delete(ROOT_KEY, fourth)
    left = {path("/second"), path("/third")}
    for one in left:
        replica = story.replica()
        assert set(replica.names_of(one)) == left
        replica.close()


def test_who_has_seen_a_name_learns_of_each_other_one(tmp_path: Path) -> None:
    story = Story(tmp_path)
    first = story.write(ROOT_KEY, story.root, b"text", "first")
    second = story.link(ROOT_KEY, story.root, first, "second")
    replica = story.replica()
    replica.observe()
    third = story.link(ROOT_KEY, story.root, second, "third")
    changes = {change.path for change in replica.apply([third], []).changes}
    assert changes == {path("/first"), path("/second"), path("/third")}
    assert replica.attributes(path("/first")).links == 3
    replica.close()


def test_names_that_conflicts_decide_apart_are_two_files(tmp_path: Path) -> None:
    story = Story(tmp_path, (ROOT_KEY, ALICE, DAVE))
    file = story.write(ROOT_KEY, story.root, b"first", "a")
    story.link(ROOT_KEY, story.root, file, "b")
    changed = story.write(ALICE, file, b"second")
    gone = story.delete(ROOT_KEY, file)
    other = story.write(DAVE, gone, b"other")
    # Two keys stand behind what the first name shows now, and one of them behind its return as that file.
    story.revert(ROOT_KEY, other, file, below(changed))
    replica = story.replica(ROOT_KEY)
    shown = {name: (replica.read(path(name)), replica.attributes(path(name))) for name in ("/a", "/b")}
    assert [(content, attributes.links) for content, attributes in shown.values()] == [(b"first", 1), (b"second", 1)]
    assert len({attributes.origin for _, attributes in shown.values()}) == 2
    write(replica, "/b", b"third")
    assert replica.read(path("/a")) == b"first"
    assert replica.check_view() == []
    replica.close()


def test_a_name_with_a_mode_of_its_own_is_another_file_beside_the_first_one(tmp_path: Path) -> None:
    story = Story(tmp_path)
    file = story.write(ROOT_KEY, story.root, b"one", "a")
    link = story.link(ROOT_KEY, story.root, file, "b")
    # One node removes the first name and sets a mode, which is then recorded at the second one; another node writes.
    gone = story.delete(ROOT_KEY, file)
    story.mode(ROOT_KEY, link, 0o600)
    story.write(ROOT_KEY, file, b"two", wanted=above(gone))
    replica = story.replica(ROOT_KEY)
    seen = [(mode(replica, name), links(replica, name), replica.read(path(name))) for name in ("/a", "/b")]
    assert seen == [(0o644, 1, b"two"), (0o600, 1, b"two")]
    assert len({replica.attributes(path(name)).origin for name in ("/a", "/b")}) == 2
    chmod(replica, "/b", 0o640)
    assert (mode(replica, "/a"), mode(replica, "/b")) == (0o644, 0o640)
    # With one mode, they are one file again.
    chmod(replica, "/b", 0o644)
    assert [links(replica, name) for name in ("/a", "/b")] == [2, 2]
    assert replica.check_view() == []
    replica.close()


def test_a_revert_to_another_file_ends_the_file_of_a_link(tmp_path: Path) -> None:
    story = Story(tmp_path)
    file = story.write(ROOT_KEY, story.root, b"one", "a")
    other = story.write(ROOT_KEY, story.root, b"other", "a", above(file))
    story.link(ROOT_KEY, story.root, file, "b")
    # As `conflicts --accept` ends the losing branch.
    story.revert(ROOT_KEY, file, other)
    shown = story.tree()
    assert shown[path("/a")].content == b"other" and shown[path("/b")].content == b"one"
    assert (shown[path("/a")].links, shown[path("/b")].links) == (1, 1)


def test_a_copy_shows_as_soon_as_the_entry_arrives_that_it_names(tmp_path: Path) -> None:
    story = Story(tmp_path)
    directory, other = story.mkdir(ROOT_KEY, story.root, "d"), story.mkdir(ROOT_KEY, story.root, "other")
    story.grant(ROOT_KEY, other, ALICE)
    first = story.write(ROOT_KEY, directory, b"one", "f")
    second = story.write(ROOT_KEY, first, b"two")
    # Alice may not write at the path of the file.
    link = story.link(ALICE, other, second, "copy")
    replica = story.replica(without_entries=(second, link))
    replica.live_paths()
    for entry in (link, second):
        replica.apply([entry], story.blocks)
    assert replica.check_view() == []
    assert replica.read(path("/other/copy")) == b"two"
    replica.close()
