"""Trees brought back: the past is the log as it was, and a revert makes it the present again."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from basefs.log.keys import SigningKey
from basefs.path import Path
from basefs.replica.replica import Replica
from basefs.view.changes import visible
from basefs.view.states import Kind, State
from basefs.view.tree import Node, Tree
from tests.support.examples import rarely
from tests.support.helpers import ALICE, BOB, ROOT_KEY, Clock, copy_replica, live_nodes, make_replica, path
from tests.view.histories import Step, World, steps
from tests.view.stories import Story, below


def states(nodes: Mapping[Path, Node]) -> dict[Path, State]:
    """What a tree shows, modes, owners and times included."""
    return {names: visible(node.state) for names, node in nodes.items()}


def past(replica: Replica, sequence: int) -> dict[Path, State]:
    """What this log showed when it had so many entries."""
    with replica._store.as_of(sequence):
        return states(dict(Tree(replica._store, replica._tree.resolver).walk()))


@rarely
@given(steps())
def test_the_past_is_what_was_shown_then(history: list[Step]) -> None:
    with World.temporary() as world:
        node = world.nodes[0]
        seen: dict[int, dict[Path, State]] = {}
        blocks = 0
        for step in history:
            world.play(step)
            if len(node.blocks) != blocks:
                # A content that became complete later shows in the past as well.
                blocks = len(node.blocks)
                seen.clear()
            seen[node.replica.totals()["entries"]] = states(live_nodes(node.replica))
        for sequence, tree in seen.items():
            assert past(node.replica, sequence) == tree
        assert node.replica.check_view() == []


@rarely
@given(steps(recoveries=False), st.integers(0, 2**16))
def test_a_tree_is_again_what_it_was(history: list[Step], when: int) -> None:
    with World.temporary() as world:
        for step in history:
            world.play(step)
        node = world.nodes[0]
        world.deliver(node, world.entries(), world.blocks(), when)
        sequence = 2 + when % (node.replica.totals()["entries"] - 1)
        before = past(node.replica, sequence)
        node.replica.commit(lambda author: author.reverter.tree((), sequence))
        assert states(live_nodes(node.replica)) == before
        assert node.replica.check_view() == []
        assert not node.replica.commit(lambda author: author.reverter.tree((), sequence)).entries


def _steps(text: str) -> list[Step]:
    return [Step(*(int(number, 36) for number in step)) for step in text.split()]


@rarely
@given(steps(recoveries=False), st.integers(0, 2**16))
# A symbolic link is moved, and something else is made at its old path at the same time; then a directory is at the new
# one, or not.
@example(_steps("01000 80101 00011 00010 00010 00010 13000 30010 01012 00010 20010 60300 10101 10100 c0051"), 8)
@example(
    _steps(
        "01000 80100 01011 00011 11011 01010 11000 00011 20010 00010 20010 60300"
        + " 00000" * 6
        + " 00001 20001 10000 c0051"
    ),
    8,
)
# A new directory is at the old path, and what was made there as well has lost against it.
@example(
    _steps(
        "02000 801a7 e1900 g0000 g0000 0097b 00b10 01000 03050 200b0 6000b g000b 60370 c000a f0000 20000"
        + " 00000" * 3
        + " 0017a 00382 d0051 a0000"
    ),
    32697,
)
def test_a_tree_comes_back_beside_what_is_new(history: list[Step], when: int) -> None:
    with World.temporary() as world:
        for step in history:
            world.play(step)
        node = world.nodes[0]
        world.deliver(node, world.entries(), world.blocks(), when)
        sequence = 2 + when % (node.replica.totals()["entries"] - 1)
        then, live = past(node.replica, sequence), live_nodes(node.replica)
        now, shown = states(live), {mkdir for each in live.values() for mkdir in each.outcome.directories}
        node.replica.commit(lambda author: author.reverter.tree((), sequence, keep_new=True))
        live = live_nodes(node.replica)
        found = states(live)
        # A file where a directory was, or the reverse, is new itself, and so is what was below it out of reach.
        kept = {at for at in then.keys() & now.keys() if _is_directory(then[at]) != _is_directory(now[at])}
        back = {at: then[at] for at in then if not any(at[:depth] in kept for depth in range(len(at) + 1))}
        # With a directory comes back what had come into it before it was removed, and was never shown.
        assert {at: found.get(at) for at in back} == back
        for at in now.keys() - back.keys():
            # A new name of a file shows what comes back of that, or what it showed.
            origins = {path: {state.origin, now[path].origin if path in now else None} for path, state in back.items()}
            assert found.get(at) in (now[at], *(back[path] for path in back if now[at].origin in origins[path]))
        again = {at for at in back if not shown.issuperset(live[at].outcome.directories)}
        assert all(
            any(at[:depth] in again for depth in range(len(at))) for at in found.keys() - now.keys() - back.keys()
        )
        assert node.replica.check_view() == []
        assert not node.replica.commit(lambda author: author.reverter.tree((), sequence, keep_new=True)).entries


def _is_directory(state: State) -> bool:
    return state.kind is Kind.DIRECTORY


def test_a_merged_directory_comes_back_with_what_each_side_has_made_in_it(tmp_path: pathlib.Path) -> None:
    """Two nodes make one directory: a revert leaves the names of both in it, also after a change of its mode."""
    left = make_replica(tmp_path / "left", clock=Clock(1_000_000_000))
    right = make_replica(tmp_path / "right", clock=Clock(1_000_000_100))
    for replica, name in ((left, b"one"), (right, b"two")):
        replica.commit(lambda author: author.make_directory(path("/d")))
        made = replica.commit(lambda author, name=name: author.write((b"d", name), name))  # type: ignore[misc]
    left.add(list(right.walk(())), [block.encode() for block in made.blocks])
    sequence = left.totals()["entries"]
    left.commit(lambda author: author.set_attributes(path("/d"), mode=0o700))
    left.commit(lambda author: author.remove(path("/d/one"), directory=False))
    left.commit(lambda author: author.reverter.tree((), sequence))
    assert left.attributes(path("/d")).mode == 0o755
    assert (left.read(path("/d/one")), left.read(path("/d/two"))) == (b"one", b"two")
    assert not left.commit(lambda author: author.reverter.tree((), sequence)).entries
    assert left.check_view() == []
    for replica in (left, right):
        replica.close()


@pytest.mark.parametrize("merged", [False, True])
def test_a_directory_that_was_removed_while_something_came_into_it_comes_back(
    tmp_path: pathlib.Path, merged: bool
) -> None:
    """It was shown for what came; when that has gone, too, its own last entry is still the removal."""
    left = make_replica(tmp_path / "left", clock=Clock(1_000_000_000))
    right = make_replica(tmp_path / "right", clock=Clock(1_000_000_100))
    left.commit(lambda author: author.make_directory(path("/d"), mode=0o750))
    if merged:
        right.commit(lambda author: author.make_directory(path("/d"), mode=0o750))
        left.add(list(right.walk(())), [])
    right.add(list(left.walk(())), [])
    written = right.commit(lambda author: author.write(path("/d/f"), b"f"))
    left.commit(lambda author: author.remove(path("/d"), directory=True))
    left.add(list(right.walk(())), [block.encode() for block in written.blocks])
    sequence, before = left.totals()["entries"], states(live_nodes(left))
    assert left.read(path("/d/f")) == b"f"
    left.commit(lambda author: author.remove(path("/d/f"), directory=False))
    assert path("/d") not in dict(left.live_paths())
    left.commit(lambda author: author.reverter.tree((), sequence))
    assert states(live_nodes(left)) == before
    assert not left.commit(lambda author: author.reverter.tree((), sequence)).entries
    assert left.check_view() == []
    for replica in (left, right):
        replica.close()


def revoke(replica: Replica) -> None:
    """Bob's key, and all that counts by it alone."""
    replica.commit(lambda author: author.revoke((), b"key", BOB.fingerprint, discard=True))


@pytest.mark.parametrize("keep_new", [False, True])
def test_what_a_revoked_key_alone_has_made_comes_back(tmp_path: pathlib.Path, keep_new: bool) -> None:
    """No entry of these paths counts any more, so there is no last one that does and that a revert could follow."""
    story = Story(tmp_path)
    story.grant(ROOT_KEY, story.keys, BOB)
    home = story.mkdir(BOB, story.root, "d")
    file = story.write(BOB, story.mode(BOB, story.write(BOB, home, b"one", "f"), 0o600), b"two")
    story.link(BOB, story.root, file, "other")
    story.slink(BOB, home, b"f", "l")
    replica = story.replica(ROOT_KEY)
    sequence, before = replica.totals()["entries"], states(live_nodes(replica))
    revoke(replica)
    assert replica.live_paths() == [((), Kind.DIRECTORY)]
    replica.commit(lambda author: author.reverter.tree((), sequence, keep_new=keep_new))
    assert states(live_nodes(replica)) == before
    assert not replica.commit(lambda author: author.reverter.tree((), sequence, keep_new=keep_new)).entries
    assert replica.check_view() == []


def test_a_file_that_a_revoked_key_has_moved_has_its_new_name_again(tmp_path: pathlib.Path) -> None:
    story = Story(tmp_path)
    story.grant(ROOT_KEY, story.keys, BOB)
    file = story.write(ROOT_KEY, story.root, b"one", "old")
    moved = story.link(BOB, story.root, file, "new")
    story.mode(BOB, moved, 0o600)
    story.delete(BOB, file)
    replica = story.replica(ROOT_KEY)
    sequence, before = replica.totals()["entries"], states(live_nodes(replica))
    revoke(replica)
    assert [at for at, _ in replica.live_paths()] == [(), path("/old")]
    replica.commit(lambda author: author.reverter.tree((), sequence))
    assert states(live_nodes(replica)) == before
    replica.commit(lambda author: author.set_attributes(path("/new"), mode=0o640))
    replica.commit(lambda author: author.reverter.tree((), sequence))
    assert states(live_nodes(replica)) == before
    assert not replica.commit(lambda author: author.reverter.tree((), sequence)).entries
    assert replica.check_view() == []


@pytest.mark.parametrize("keep_new", [False, True])
@pytest.mark.parametrize("removed", [False, True])
def test_a_merged_directory_comes_back_with_the_branch_of_a_revoked_key(
    tmp_path: pathlib.Path, keep_new: bool, removed: bool
) -> None:
    """What is in it hangs on that branch."""
    story = Story(tmp_path, (ROOT_KEY, ALICE))
    story.grant(ROOT_KEY, story.keys, BOB)
    story.write(ALICE, story.mkdir(ALICE, story.root, "d"), b"a", "a")
    story.write(BOB, story.mkdir(BOB, story.root, "d"), b"b", "b")
    replica = story.replica(ROOT_KEY)
    sequence, before = replica.totals()["entries"], states(live_nodes(replica))
    revoke(replica)
    assert [at for at, _ in replica.live_paths()] == [(), path("/d"), path("/d/a")]
    if removed:
        replica.commit(lambda author: author.remove(path("/d/a"), directory=False))
        replica.commit(lambda author: author.remove(path("/d"), directory=True))
    replica.commit(lambda author: author.reverter.tree((), sequence, keep_new=keep_new))
    assert states(live_nodes(replica)) == before
    assert not replica.commit(lambda author: author.reverter.tree((), sequence, keep_new=keep_new)).entries
    assert replica.check_view() == []


def test_a_directory_comes_back_beside_one_that_won_against_a_file_in_its_place(tmp_path: pathlib.Path) -> None:
    story = Story(tmp_path, (ROOT_KEY, ALICE))
    home = story.mkdir(ROOT_KEY, story.root, "d")
    old = story.write(ROOT_KEY, home, b"old", "old")
    story.delete(ROOT_KEY, old)
    story.write(ROOT_KEY, story.delete(ROOT_KEY, home), b"a file")
    other = story.mkdir(ALICE, story.root, "d")
    story.ack(ROOT_KEY, story.write(ALICE, other, b"new", "new"))
    replica = story.replica(ROOT_KEY)
    assert [at for at, _ in replica.live_paths()] == [(), path("/d"), path("/d/new")]
    replica.commit(lambda author: author.reverter.tree((), author.past.sequence(old.hash), keep_new=True))
    assert (replica.read(path("/d/old")), replica.read(path("/d/new"))) == (b"old", b"new")
    assert replica.check_view() == []


@pytest.mark.parametrize("name", ["f", "d/f"])
def test_one_file_that_a_revoked_key_alone_has_made_comes_back(tmp_path: pathlib.Path, name: str) -> None:
    """With the directory that is gone with it."""
    story = Story(tmp_path)
    story.grant(ROOT_KEY, story.keys, BOB)
    home = story.mkdir(BOB, story.root, "d")
    files = {"f": story.write(BOB, story.root, b"f", "f"), "d/f": story.write(BOB, home, b"f", "f")}
    replica = story.replica(ROOT_KEY)
    before = states(live_nodes(replica))
    revoke(replica)
    replica.commit(lambda author: author.reverter.path(path(f"/{name}"), files[name].hash))
    after = states(live_nodes(replica))
    assert after.keys() == {(), path(f"/{name}"), path(f"/{name}")[:-1]}
    assert after == {at: before[at] for at in after}
    assert not replica.commit(lambda author: author.reverter.path(path(f"/{name}"), files[name].hash)).entries
    assert replica.check_view() == []


def test_arrival_tells_what_was_there_and_not_the_times_of_files(tmp_path: pathlib.Path) -> None:
    clock = Clock(1_000_000_000)
    replica = make_replica(tmp_path, clock=clock)
    replica.commit(lambda author: author.write((b"f",), b"one", mtime=2_000_000_000))
    first = clock()
    replica.commit(lambda author: author.write((b"f",), b"two", mtime=5))
    replica.commit(lambda author: author.write((b"g",), b"new", mtime=5))
    replica.commit(lambda author: author.reverter.tree((), author.past.sequence_at(first)))
    assert replica.read((b"f",)) == b"one" and replica.live_paths()[-1][0] != path("/g")
    assert path("/g") not in dict(replica.live_paths())
    replica.close()


def test_what_comes_back_has_the_time_that_it_had(tmp_path: pathlib.Path) -> None:
    clock = Clock(1_000_000_000)
    replica = make_replica(tmp_path, clock=clock)
    replica.commit(lambda author: author.make_directory(path("/d")))
    (first,) = replica.commit(lambda author: author.write(path("/d/f"), b"one", mtime=7)).entries
    replica.commit(lambda author: author.make_symlink(path("/d/l"), b"f", mtime=8))
    moment = clock()

    def times() -> list[int]:
        return [replica.attributes(path(text)).mtime for text in ("/d/f", "/d/l")]

    replica.commit(lambda author: author.write(path("/d/f"), b"two", mtime=9))
    replica.commit(lambda author: author.reverter.path(path("/d/f"), first.hash))
    assert times() == [7, 8]
    for text, directory in (("/d/f", False), ("/d/l", False), ("/d", True)):
        replica.commit(lambda author, t=text, d=directory: author.remove(path(t), directory=d))
    replica.commit(lambda author: author.reverter.tree(path("/d"), author.past.sequence_at(moment)))
    assert times() == [7, 8] and replica.read(path("/d/f")) == b"one"
    assert replica.check_view() == []
    replica.close()


def test_the_time_of_modification_alone_comes_back(tmp_path: pathlib.Path) -> None:
    replica = make_replica(tmp_path, clock=Clock(1_000_000_000))
    replica.commit(lambda author: author.make_directory(path("/d"), mtime=6))
    replica.commit(lambda author: author.write(path("/d/f"), b"one", mtime=7))
    replica.commit(lambda author: author.make_symlink(path("/d/l"), b"f", mtime=8))
    replica.commit(lambda author: author.make_link(path("/other"), path("/d/f")))
    sequence, before = replica.totals()["entries"], states(live_nodes(replica))
    for text in ("/d", "/d/f", "/d/l"):
        replica.commit(lambda author, t=text: author.set_attributes(path(t), mtime=9))
    assert replica.attributes(path("/other")).mtime == 7
    replica.commit(lambda author: author.reverter.tree((), sequence))
    assert states(live_nodes(replica)) == before
    assert not replica.commit(lambda author: author.reverter.tree((), sequence)).entries
    assert replica.check_view() == []
    replica.close()


def test_a_revision_that_looks_like_what_is_there_costs_nothing(tmp_path: pathlib.Path) -> None:
    """But for a directory that was made anew: the names of the first one come back with it alone."""
    replica = make_replica(tmp_path, clock=Clock(1_000_000_000))
    (first,) = replica.commit(lambda author: author.write(path("/f"), b"one", mtime=7)).entries
    replica.commit(lambda author: author.set_attributes(path("/f"), mode=0o600))
    (last,) = replica.commit(lambda author: author.set_attributes(path("/f"), mode=0o644)).entries
    assert not replica.commit(lambda author: author.reverter.path(path("/f"), first.hash)).entries
    replica.commit(lambda author: author.set_attributes(path("/f"), mtime=8))
    assert replica.commit(lambda author: author.reverter.path(path("/f"), last.hash)).entries
    assert replica.attributes(path("/f")).mtime == 7
    (removed,) = replica.commit(lambda author: author.remove(path("/f"), directory=False)).entries
    assert not replica.commit(lambda author: author.reverter.path(path("/f"), removed.hash)).entries
    (made,) = replica.commit(lambda author: author.make_directory(path("/d"), mtime=7)).entries
    replica.commit(lambda author: author.remove(path("/d"), directory=True))
    replica.commit(lambda author: author.make_directory(path("/d"), mtime=7))
    assert replica.commit(lambda author: author.reverter.path(path("/d"), made.hash)).entries
    assert replica.check_view() == []
    replica.close()


@pytest.mark.parametrize("key", [ROOT_KEY, ALICE], ids=["root", "alice"])
def test_what_had_lost_does_not_come_with_a_removal(tmp_path: pathlib.Path, key: SigningKey) -> None:
    """Between equals something beats nothing, so the removal ends the branches that have lost, too."""
    story = Story(tmp_path, (ROOT_KEY, ALICE))
    first = story.write(ROOT_KEY, story.root, b"one", "f")
    gone = story.delete(ROOT_KEY, first)
    won = story.write(ROOT_KEY, gone, b"won")
    story.write(ALICE, gone, b"lost", wanted=below(won))
    replica = story.replica(key)
    replica.commit(lambda author: author.reverter.path(path("/f"), gone.hash))
    assert replica.live_paths() == [((), Kind.DIRECTORY)]
    replica.commit(lambda author: author.reverter.tree((), author.past.sequence(won.hash)))
    assert replica.read(path("/f")) == b"won"
    replica.commit(lambda author: author.reverter.tree((), author.past.sequence(gone.hash)))
    assert replica.live_paths() == [((), Kind.DIRECTORY)]
    assert replica.check_view() == []


@pytest.mark.parametrize("keep_new", [False, True])
def test_a_rename_is_undone_while_the_file_was_written_elsewhere(tmp_path: pathlib.Path, keep_new: bool) -> None:
    replica = make_replica(tmp_path / "one", clock=Clock(1_000_000_000))
    old, new = path("/old"), path("/new")
    replica.commit(lambda author: author.write(old, b"one"))
    sequence, before = replica.totals()["entries"], states(live_nodes(replica))
    other = copy_replica(replica, tmp_path / "other", (ROOT_KEY,), clock=Clock(1_000_000_500))
    replica.commit(lambda author: author.rename(old, new))
    written = other.commit(lambda author: author.write(old, b"two"))
    replica.apply(written.entries, written.blocks)
    assert (replica.read(old), replica.read(new)) == (b"two", b"one")
    replica.commit(lambda author: author.reverter.tree((), sequence, keep_new=keep_new))
    after = states(live_nodes(replica))
    assert after.pop(new, None) is None or keep_new
    assert after == before
    assert not replica.commit(lambda author: author.reverter.tree((), sequence, keep_new=keep_new)).entries
    assert replica.check_view() == []
    for each in (replica, other):
        each.close()


def test_extended_attributes_come_back(tmp_path: pathlib.Path) -> None:
    replica = make_replica(tmp_path)
    replica.commit(lambda author: author.make_directory(path("/d")))
    replica.commit(lambda author: author.write(path("/f"), b""))
    for text in ("/d", "/f"):
        replica.commit(lambda author, t=text: author.set_attributes(path(t), xattrs=((b"user.a", b"1"),)))  # type: ignore[misc]
    sequence, before = replica.totals()["entries"], states(live_nodes(replica))
    for text in ("/d", "/f"):
        replica.commit(lambda author, t=text: author.set_attributes(path(t), xattrs=()))  # type: ignore[misc]
    replica.commit(lambda author: author.reverter.tree((), sequence))
    assert states(live_nodes(replica)) == before
    assert replica.attributes(path("/d")).xattrs == ((b"user.a", b"1"),)
    assert not replica.commit(lambda author: author.reverter.tree((), sequence)).entries
    replica.close()


def test_a_clock_that_was_reset_for_a_while_does_not_move_the_past(tmp_path: pathlib.Path) -> None:
    """A machine begins in 1970, or in 2100, until somebody tells it the time."""
    clock = Clock(1_000_000_000)
    replica = make_replica(tmp_path, clock=clock)

    def write(text: bytes, now: float) -> float:
        clock.now = now
        replica.commit(lambda author: author.write((b"f",), text))
        return clock.now

    first = write(b"one", 1_000_001_000)
    write(b"from the future", 4_000_000_000)
    second = write(b"two", 1_000_002_000)
    write(b"from 1970", 5)
    third = write(b"three", 1_000_003_000)
    clock.now = 1_000_004_000
    # What came while the clock was wrong came somewhere between what came before and behind it.
    for when, text in ((first, b"from the future"), (second, b"from 1970"), (third, b"three")):
        replica.commit(lambda author, at=when: author.reverter.tree((), author.past.sequence_at(at)))  # type: ignore[misc]
        assert replica.read((b"f",)) == text
    replica.close()
