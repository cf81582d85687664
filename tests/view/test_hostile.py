"""The laws of the view, over entries that no honest node writes: equal logs show equal trees, however they arrived.

They also have equal members.

CI plays 300 histories; `HYPOTHESIS_PROFILE=once pytest tests/view/test_hostile.py` plays 100 000.
"""

from __future__ import annotations

import contextlib
import itertools
import pathlib
import random
import tempfile

from hypothesis import example, given

from basefs.log.entries import Action
from basefs.replica.replica import Replica
from basefs.view.states import Kind
from tests.support.examples import part
from tests.support.helpers import ALICE, BOB, CAROL, DAVE, ROOT_KEY, Node, Parcel, make_replica, parcels, path
from tests.view.histories import SEEDS, memory
from tests.view.hostile import Deed, Hostile, crowds, deeds, doubled, rivals, seen
from tests.view.stories import Story, above
from tests.view.test_oracle import oracle_of, shown

#: Checks of the view while a history arrives; all of a short one.
_CHECKS = 80


def deliver(directory: pathlib.Path, hostile: Hostile, seed: int, stack: contextlib.ExitStack) -> Node:
    """A node that was given everything in some order, in batches, restarted now and then, and checked after each."""
    chance = random.Random(seed)
    node = Node(make_replica(directory, born=[], identity=hostile.entries[0].hash))
    for parcel in _arrivals(hostile, chance):
        node.receive(parcel.entries, parcel.blocks)
        if chance.random() < 0.1:
            node.replica.close()
            node = Node(Replica(directory), node.entries)
        # Of many entries now and then: each check makes the whole view anew.
        if node.entries and chance.random() < _CHECKS / len(hostile.entries):
            assert node.replica.check_view() == []
            if chance.random() < 0.8:
                node.replica.live_paths()
        if chance.random() < 0.3:
            node.replica.membership()
    # What waited in memory when the node was restarted comes again.
    node.receive(hostile.entries, list(hostile.blocks.values()))
    stack.callback(node.replica.close)
    assert node.replica.check_view() == []
    return node


def _arrivals(hostile: Hostile, chance: random.Random) -> list[Parcel]:
    """Any order, or that of signing with a few late ones, each of which finds a view of all the others."""
    blocks = tuple(hostile.blocks.values())
    if chance.random() < 0.5:
        return parcels(hostile.entries, blocks, chance)
    late = chance.sample(hostile.entries, chance.choice((0, 0, 1, 3)))
    early = [entry for entry in hostile.entries if entry not in late]
    size = chance.choice((1, 3, 10))
    batches = [early[start : start + size] for start in range(0, len(early), size)]
    return [Parcel((), blocks), *(Parcel(tuple(batch), ()) for batch in [*batches, *([entry] for entry in late)])]


@given(deeds(), SEEDS)
# A hard link to an attribute behind a hard link.
@example([*[Deed(0, 0, 0, 0, 0)] * 7, Deed(16, 0, 0, 0, 0), Deed(28, 0, 0, 0, 0), Deed(16, 0, 0, 0, 0)], 0)
def test_no_order_of_arrival_decides_what_is_shown(history: list[Deed], seed: int) -> None:
    check_orders(Hostile(history), seed)


@part(10)
@given(crowds(), SEEDS)
def test_no_order_of_arrival_of_a_crowd_decides_what_is_shown(history: list[Deed], seed: int) -> None:
    check_orders(Hostile(history), seed)


@part(3)
@given(deeds(), SEEDS)
# A directory that is asked about twice, with other keys the second time.
@example(
    [
        Deed(11, 0, 2, 0, 0),
        *[Deed(0, 0, 0, 0, 0)] * 13,
        Deed(23, 3, 0, 0, 0),
        Deed(0, 0, 2, 0, 0),
        Deed(14, 0, 0, 0, 0),
        Deed(8, 0, 0, 0, 0),
        Deed(0, 0, 3, 20, 0),
        *[Deed(0, 0, 0, 0, 0)] * 2,
        Deed(25, 3, 3, 0, 0),
    ],
    0,
)
# A directory that stands against a file twice, behind one another, and has others' entries in it.
@example(
    [
        Deed(17, 11, 0, 0, 0),
        Deed(26, 4, 2, 0, 0),
        Deed(24, 12, 0, 3, 9),
        Deed(0, 0, 0, 0, 0),
        Deed(0, 0, 2, 0, 0),
        Deed(19, 0, 0, 0, 2),
        Deed(0, 0, 0, 0, 0),
        Deed(30, 0, 0, 0, 0),
        Deed(0, 0, 0, 0, 4),
        Deed(11, 0, 0, 3, 7),
        Deed(23, 10, 1, 44, 5),
        Deed(23, 10, 1, 44, 5),
        Deed(8, 0, 2, 51, 4),
        Deed(4, 6, 2, 2, 5),
        Deed(7, 2, 3, 3, 6),
        Deed(17, 2, 50, 48, 6),
        Deed(1, 2, 1, 3, 8),
        Deed(24, 7, 52, 0, 9),
        Deed(16, 0, 2, 3, 10),
        Deed(2, 11, 1, 3, 11),
        Deed(18, 7, 31, 3, 8),
        Deed(22, 3, 1, 3, 5),
    ],
    46512,
)
def test_no_order_of_arrival_among_rivals_decides_what_is_shown(history: list[Deed], seed: int) -> None:
    check_orders(Hostile(history, rivals(), (DAVE, DAVE, DAVE, CAROL, BOB, ROOT_KEY)), seed)


@part(3)
@given(deeds(12), SEEDS)
def test_no_order_of_arrival_in_a_doubled_directory_decides_what_is_shown(history: list[Deed], seed: int) -> None:
    check_orders(Hostile(history, doubled(), (ALICE, BOB, ROOT_KEY)), seed)


def check_orders(hostile: Hostile, seed: int) -> None:
    """Two nodes that get a history in different orders show the same, and what the oracle says."""
    with tempfile.TemporaryDirectory(dir=memory()) as directory, contextlib.ExitStack() as stack:
        nodes = [
            deliver(pathlib.Path(directory, name), hostile, seed, stack) for seed, name in ((seed, "a"), (~seed, "b"))
        ]
        first, second = (node.replica for node in nodes)
        assert first.digest() == second.digest()
        assert nodes[0].entries.keys() == nodes[1].entries.keys()
        assert seen(first) == seen(second)
        assert shown(first) == oracle_of(nodes[0]).tree()
        members = first.membership()
        assert members == second.membership()
        assert members.keys == oracle_of(nodes[0]).members()


def test_reverts_that_wait_for_each_other_show_the_same_in_any_order(tmp_path: pathlib.Path) -> None:
    story = Story(tmp_path)
    first = story.write(ROOT_KEY, story.root, b"first", "f")
    second = story.write(ROOT_KEY, first, b"second")
    third = story.write(ROOT_KEY, second, b"third")
    to_second = story.revert(ROOT_KEY, third, second)
    for order in itertools.permutations((second, third, to_second)):
        rest = [entry for entry in story.entries if entry not in order]
        replica = make_replica(tmp_path / "-".join(str(story.entries.index(entry)) for entry in order), born=[])
        for entry in (*rest, *order, *rest):
            replica.apply([entry], story.blocks)
        assert replica.check_view() == []
        assert replica.read((b"f",)) == b"second"
        replica.close()


def test_a_link_shows_what_a_revert_of_a_revoked_key_has_waited_for(tmp_path: pathlib.Path) -> None:
    story = Story(tmp_path, (ROOT_KEY, ALICE))
    story.revoke(ROOT_KEY, story.keys, ALICE)
    directory = story.mkdir(ROOT_KEY, story.root, "d")
    first = story.write(ROOT_KEY, directory, b"first", "f")
    later = story.write(ROOT_KEY, first, b"later")
    revert = story.revert(ALICE, first, later)
    link = story.link(ROOT_KEY, story.root, revert, "link")
    replica = make_replica(tmp_path / "node", born=[], identity=story.root.hash)
    begin = story.entries[: story.entries.index(later)]
    for entries in (begin, [revert], [link], [later]):
        replica.apply(entries, story.blocks)
        replica.live_paths()
        assert replica.check_view() == []
    assert replica.read((b"link",)) == b"later"
    replica.close()


def test_what_happens_in_a_directory_that_is_not_shown_may_make_it_win(tmp_path: pathlib.Path) -> None:
    story = Story(tmp_path)
    directory = story.mkdir(ROOT_KEY, story.root, "d")
    grant = story.grant(ROOT_KEY, directory, BOB)
    story.write(ROOT_KEY, story.root, b"the file of one key", "d", above(directory))
    # Bob's key is valid in the directory alone, and two keys win against one.
    inner = story.write(BOB, directory, b"text", "inner")
    replica = make_replica(tmp_path / "node", born=[])
    replica.apply([entry for entry in story.entries if entry != inner], story.blocks)
    assert replica.read((b"d",)) == b"the file of one key"
    replica.apply([inner], story.blocks)
    assert replica.check_view() == []
    assert replica.read((b"d", b"inner")) == b"text"
    # Once its key is revoked there, it does not.
    revoke = story.revoke(ROOT_KEY, grant, BOB)
    replica.apply([revoke], [])
    assert replica.check_view() == []
    assert replica.read((b"d",)) == b"the file of one key"
    replica.apply([story.write(BOB, directory, b"text", "more")], story.blocks)
    assert replica.check_view() == []
    assert replica.read((b"d",)) == b"the file of one key"
    replica.close()


def test_a_key_that_is_valid_in_a_hidden_directory_by_a_merged_one_may_make_it_win(tmp_path: pathlib.Path) -> None:
    story = Story(tmp_path)
    begin = rivals()
    story.entries[:] = begin
    inner = next(entry for entry in begin if entry.action is Action.MKDIR and entry.name == b"a")
    replica = make_replica(tmp_path / "node", born=[], identity=begin[0].hash)
    replica.apply(begin, [])
    assert replica.read(path("/d/a")) == b""
    # Its own ancestors do not make the key valid, nor does anything that is shown.
    replica.apply([story.slink(DAVE, inner, b"target", "inner")], [])
    assert replica.check_view() == []
    assert replica.attributes(path("/d/a/inner")).kind is Kind.SYMLINK
    replica.close()


def test_a_directory_shown_by_a_revert_counts_twice_once_something_in_it_counts(tmp_path: pathlib.Path) -> None:
    story = Story(tmp_path)
    begin = doubled()
    story.entries[:] = begin
    replica = make_replica(tmp_path / "node", born=[], identity=begin[0].hash)
    replica.apply(begin, [])
    assert replica.attributes(path("/d")).kind is Kind.DIRECTORY
    # The branch that Alice began counts from here on: her key does not any more, but this one stands in her directory.
    theirs = next(entry for entry in begin if entry.name == b"d" and entry.action is Action.MKDIR)
    replica.apply([story.slink(ROOT_KEY, theirs, b"target", "inner")], [])
    assert replica.check_view() == []
    assert replica.attributes(path("/d/inner")).kind is Kind.SYMLINK
    replica.close()
