"""The stream of view changes: applied to a model of the tree, it gives the tree."""

from __future__ import annotations

import pathlib
import random
from collections.abc import Iterator

import pytest
from hypothesis import given

from basefs.errors import Exists
from basefs.log.entries import Action, Entry
from basefs.log.keys import SigningKey
from basefs.path import Path
from basefs.replica.replica import Applied, Replica
from basefs.view.author import Author
from basefs.view.changes import Change, in_order, visible
from basefs.view.draft import Draft
from basefs.view.states import Kind, State
from tests.support.examples import rarely
from tests.support.helpers import ALICE, BOB, ROOT_KEY, genesis, live_nodes, make_replica, path
from tests.view.histories import SEEDS, Step, World, steps


class Model:
    """A model of the loaded paths and their states; it allows only the operations of a plain directory tree.

    Attributes:
        replica: what is followed.
        states: path -> what is there.
        changes: all that was told, in order.
    """

    def __init__(self, replica: Replica, states: dict[Path, State] | None = None) -> None:
        """`states`: only these paths were looked at, and the model must not look at others."""
        self.replica = replica
        self.states = states_of(replica) if states is None else states
        self.looks = states is None
        self.stat = {names: stat(replica, names) for names in self.states if self.looks}
        self.changes: list[Change] = []
        replica.subscribe(self._follow)

    def _follow(self, applied: Applied) -> None:
        for change in applied.changes:
            self._perform(change)
            self.changes.append(change)
        seen = {change.path for change in applied.changes}
        assert len(seen) == len(applied.changes), "a path changes once in a transaction"
        # A cache of attributes must be notified of every change of `stat`.
        now = {names: stat(self.replica, names) for names in self.states if self.looks}
        assert all(now[names] == self.stat[names] for names in now if names not in seen)
        self.stat = now

    def _perform(self, change: Change) -> None:
        names, states = change.path, self.states
        known = states.get(names)
        if not self.looks and known is None and (change.before is not None or names[:-1] not in states):
            # The search for contents that are needed has looked there, too.
            return
        assert (known is None) == (change.before is None)
        if known is not None and change.before is not None:
            assert visible(known) == visible(change.before)
        if change.after is None:
            assert not any(other[:-1] == names for other in states if other), "what is removed is empty"
            del states[names]
            return
        assert names == () or states[names[:-1]].kind is Kind.DIRECTORY, "what is created has a place"
        if change.before is not None and change.before.kind is not change.after.kind:
            assert not any(other[:-1] == names for other in states if other), "what is replaced is empty"
        states[names] = change.after

    def check(self) -> None:
        """The model is the tree."""
        actual = {names: visible(state) for names, state in states_of(self.replica).items()}
        assert {names: visible(state) for names, state in self.states.items()} == actual


def stat(replica: Replica, names: Path) -> bool:
    """What the attributes of a path tell and its state does not."""
    return replica.attributes(names).writable


def states_of(replica: Replica) -> dict[Path, State]:
    """Every live path and what is there."""
    return {names: node.state for names, node in live_nodes(replica).items()}


@rarely
@given(steps(), SEEDS)
def test_whoever_applies_all_changes_has_the_tree(history: list[Step], seed: int) -> None:
    with World.temporary() as world:
        for node in world.nodes:
            node.replica.observe()
        models = [Model(node.replica) for node in world.nodes]
        for step in history:
            world.play(step)
            for model in models:
                model.check()
        late = world.copy(world.nodes[0])
        late.replica.observe()
        model = Model(late.replica)
        world.deliver(late, world.entries(), world.blocks(), seed, lambda node: model.check())


@rarely
@given(steps(), SEEDS)
def test_who_is_told_the_tree_in_portions_has_it_with_all_changes_meanwhile(history: list[Step], seed: int) -> None:
    half = len(history) // 2
    with World.temporary() as world:
        for step in history[:half]:
            world.play(step)
        late = world.copy(world.nodes[0])
        states: dict[Path, State] = {}

        def follow(applied: Applied) -> None:
            for change in applied.changes:
                states.pop(change.path, None)
                if change.after is not None:
                    states[change.path] = change.after

        late.replica.subscribe(follow)
        portions = late.replica.observed()

        def take() -> None:
            for names, state, _ in next(portions, ()):
                states[names] = state

        take()
        for step in history[half:]:
            world.play(step)
        world.deliver(late, world.entries(), world.blocks(), seed, lambda node: take())
        for portion in portions:
            states.update((names, state) for names, state, _ in portion)
        actual = {names: visible(state) for names, state in states_of(late.replica).items()}
        assert {names: visible(state) for names, state in states.items()} == actual


@rarely
@given(steps(), SEEDS)
def test_whoever_looked_at_some_paths_hears_what_becomes_of_them(history: list[Step], seed: int) -> None:
    chance = random.Random(seed)
    with World.temporary() as world:
        half = len(history) // 2
        for step in history[:half]:
            world.play(step)
        watched = world.copy(world.nodes[0])
        # Looking at a path loads the directories above it, with all the names in them.
        for names in sorted(states_of(world.nodes[0].replica)):
            if chance.random() < 0.5:
                watched.replica.attributes(names)
        loaded = {}
        todo: list[Path] = [()]
        while todo:
            names = todo.pop()
            node = watched.replica._tree.find(names)
            assert node is not None
            loaded[names] = node.state
            if node.children is not None:
                todo.extend((*names, name) for name in node.children)
        model = Model(watched.replica, loaded)
        for step in history[half:]:
            world.play(step)
        world.deliver(watched, world.entries(), world.blocks(), seed)
        actual = states_of(watched.replica)
        for names, state in model.states.items():
            assert visible(actual[names]) == visible(state)


def observed(directory: pathlib.Path, keys: tuple[SigningKey, ...] = (ROOT_KEY,)) -> tuple[Replica, Model]:
    replica = make_replica(directory, keys)
    replica.observe()
    return replica, Model(replica)


def told(model: Model) -> list[tuple[str, str]]:
    """What was told since the last call."""
    found = []
    for change in model.changes:
        what = "create" if change.created else "remove" if change.removed else "change"
        if change.before is not None and change.after is not None and visible(change.before) == visible(change.after):
            what = "attributes"
        found.append((what, "/" + "/".join(name.decode() for name in change.path)))
    model.changes.clear()
    return found


def test_a_write_is_one_change(tmp_path: pathlib.Path) -> None:
    replica, model = observed(tmp_path)
    replica.commit(lambda author: author.write((b"f",), b"one", mode=0o600))
    assert told(model) == [("create", "/f")]
    applied = replica.commit(lambda author: author.write((b"f",), b"two"))
    (change,) = applied.changes
    assert change.before is not None and change.after is not None
    assert change.before.content != change.after.content == change.entry.hash and change.entry == applied.entries[-1]
    assert told(model) == [("change", "/f")]
    replica.commit(lambda author: author.write((b"f",), b"two"))
    assert told(model) == []


def test_chmod_and_times_are_changes(tmp_path: pathlib.Path) -> None:
    replica, model = observed(tmp_path)
    replica.commit(lambda author: author.make_directory((b"d",)))
    replica.commit(lambda author: author.write((b"f",), b"one"))
    told(model)
    replica.commit(lambda author: author.set_attributes((b"f",), mode=0o600))
    replica.commit(lambda author: author.set_attributes((b"f",), mtime=5))
    replica.commit(lambda author: author.set_attributes((b"d",), mode=0o700))
    assert told(model) == [("change", "/f"), ("change", "/f"), ("change", "/d")]


def test_a_rename_can_be_recognised(tmp_path: pathlib.Path) -> None:
    replica, model = observed(tmp_path)
    replica.commit(lambda author: author.write((b"f",), b"one"))
    told(model)
    removal, creation = replica.commit(lambda author: author.rename((b"f",), (b"g",))).changes
    assert removal.before is not None and creation.after is not None
    assert removal.before.content == creation.after.content
    assert told(model) == [("remove", "/f"), ("create", "/g")]


def test_a_tree_is_made_from_above_and_removed_from_below(tmp_path: pathlib.Path) -> None:
    replica, model = observed(tmp_path)
    for names in ("/a", "/a/b"):
        replica.commit(lambda author, names=names: author.make_directory(path(names)))
    replica.commit(lambda author: author.write(path("/a/b/f"), b"x"))
    told(model)
    replica.commit(lambda author: author.rename((b"a",), (b"z",)))
    assert told(model) == [
        ("remove", "/a/b/f"),
        ("remove", "/a/b"),
        ("remove", "/a"),
        ("create", "/z"),
        ("create", "/z/b"),
        ("create", "/z/b/f"),
    ]


def test_grants_and_revokes_are_told_where_they_matter(tmp_path: pathlib.Path) -> None:
    replica, _ = observed(tmp_path / "root")
    replica.commit(lambda author: author.make_directory((b"d",)))
    replica.commit(lambda author: author.write(path("/d/f"), b""))
    other = make_replica(tmp_path / "bob", (BOB,))
    other.observe()
    other.apply(entries_of(replica), [])
    model = Model(other)
    grant = replica.commit(lambda author: author.grant((b"d",), b"bob", BOB.public))
    other.apply(grant.entries, [])
    assert told(model) == [("attributes", "/d"), ("attributes", "/d/f")]
    revoke = replica.commit(lambda author: author.revoke((b"d",), b"bob", BOB.fingerprint))
    other.apply(revoke.entries, [])
    assert told(model) == [("attributes", "/d"), ("attributes", "/d/f")]


def entries_of(replica: Replica) -> list[Entry]:
    return [Entry.decode(raw) for raw in replica.walk(())]


def test_an_empty_log_tells_all_that_comes_first(tmp_path: pathlib.Path) -> None:
    source = make_replica(tmp_path / "source")
    source.commit(lambda author: author.write((b"f",), b""))
    empty = make_replica(tmp_path / "empty", born=[])
    empty.observe()
    changes = empty.apply(entries_of(source), []).changes
    assert [change.path for change in changes] == [(b"f",)]


def test_what_lost_and_wins_again_is_told(tmp_path: pathlib.Path) -> None:
    replica = make_replica(tmp_path, born=[])
    born = genesis((ROOT_KEY, ALICE))
    replica.apply(born, [])
    replica.observe()
    model = Model(replica)
    ours = ROOT_KEY.sign(born[0].hash, 1, Action.WRITE, b"f", b"")
    theirs = ALICE.sign(born[0].hash, 1, Action.MKDIR, b"f", b"")
    below = ALICE.sign(theirs.hash, 1, Action.WRITE, b"x", b"")
    replica.apply([theirs, below], [])
    assert told(model) == [("create", "/f"), ("create", "/f/x")]
    replica.apply([ours], [])
    model.check()
    back = ROOT_KEY.sign(ours.hash, 1, Action.DELETE, b"f")
    again = ROOT_KEY.sign(below.hash, 1, Action.ACK, b"x")
    replica.apply([back, again], [])
    model.check()


def test_order() -> None:
    state = State(Kind.FILE)
    changes = [
        Change((b"a",), None, state, None),
        Change((b"a", b"b"), state, None, None),
        Change((), state, state, None),
        Change((b"c",), state, None, None),
        Change((b"c", b"d"), state, None, None),
    ]
    names = [change.path for change in in_order(changes)]
    assert names == [(b"a", b"b"), (b"c", b"d"), (b"c",), (), (b"a",)]


def test_many_drafts_in_one_transaction_are_told_once(tmp_path: pathlib.Path) -> None:
    replica, model = observed(tmp_path)

    def make(author: Author) -> Iterator[Draft]:
        yield author.make_directory((b"a",))
        yield author.write(path("/a/f"), b"one")
        yield author.rename((b"a",), (b"b",))
        yield author.write(path("/b/f"), b"two")

    replica.commit(make)
    assert told(model) == [("create", "/b"), ("create", "/b/f")]
    model.check()


def test_a_transaction_that_fails_changes_nothing(tmp_path: pathlib.Path) -> None:
    replica, model = observed(tmp_path)
    replica.commit(lambda author: author.write((b"f",), b"one"))

    def make(author: Author) -> Iterator[Draft]:
        yield author.remove((b"f",), directory=False)
        yield author.make_directory((b"f",))
        yield author.make_directory((b"f",))

    told(model)
    with pytest.raises(Exists):
        replica.commit(make)
    model.check()
    assert replica.check_view() == [] and told(model) == []
    replica.commit(lambda author: author.write((b"f",), b"two"))
    assert told(model) == [("change", "/f")]
