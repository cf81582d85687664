"""The laws of the view, over random histories (docs/authority.md).

The view is a pure function of the set of entries and complete blocks: order, batches, duplicates and restarts never
matter, and the live view always equals a rebuild.
"""

from __future__ import annotations

import pathlib
import random
import tempfile
from contextlib import ExitStack

from hypothesis import given

from basefs.log.entries import KEY_ACTIONS, Action, Entry
from basefs.log.hashes import EntryHash
from basefs.view.states import Kind
from tests.support.examples import part, rarely
from tests.support.helpers import DAVE, KEY_NAMES, ROOT_KEY, Node, copy_replica, keys_at, make_replica, parcels, tree_of
from tests.view.histories import SEEDS, Step, World, memory, steps
from tests.view.hostile import Deed, Hostile, deeds, seen


def check(node: Node) -> None:
    """The live view equals a rebuild, on all loaded paths."""
    if node.entries:
        assert node.replica.check_view() == []


def load_and_check(node: Node) -> None:
    """`check`, then look everywhere, so that the next check covers everything."""
    check(node)
    if node.entries:
        node.replica.live_paths()


@part(2)
@given(steps(), SEEDS)
def test_live_view_equals_a_rebuild_after_every_step(history: list[Step], seed: int) -> None:
    chance = random.Random(seed)
    with World.temporary() as world:
        for step in history:
            node = world.play(step)
            # Half the time only the paths that were used are loaded.
            if chance.random() < 0.5:
                load_and_check(node)
            check(node)
        for node in world.nodes:
            assert tree_of(world.copy(node).replica) == tree_of(node.replica)


@part(2)
@given(steps(), SEEDS)
def test_same_set_same_tree(history: list[Step], seed: int) -> None:
    with World.temporary() as world:
        for step in history:
            world.play(step)
        entries, blocks = world.entries(), world.blocks()
        chance = random.Random(seed)
        withheld = {hash: block for hash, block in blocks.items() if chance.random() < 0.3}
        given_blocks = {hash: block for hash, block in blocks.items() if hash not in withheld}

        eager, lazy = world.node("eager"), world.node("lazy")
        world.deliver(eager, entries, given_blocks, seed, load_and_check)
        world.deliver(lazy, entries, given_blocks, seed + 1, check)
        assert eager.entries.keys() == lazy.entries.keys()
        assert tree_of(eager.replica) == tree_of(lazy.replica) == tree_of(world.copy(eager).replica)
        assert eager.replica.root_hash() == lazy.replica.root_hash()

        everyone = [eager, lazy, *world.nodes]
        for index, node in enumerate(everyone):
            world.deliver(node, entries, blocks, seed + index)
        expected = tree_of(eager.replica)
        for node in everyone:
            assert tree_of(node.replica) == expected
            load_and_check(node)
        assert len({node.replica.root_hash() for node in everyone}) == 1


@rarely
@given(steps(), SEEDS)
def test_what_a_key_without_permission_signed_last_is_not_shown(history: list[Step], seed: int) -> None:
    with World.temporary() as world:
        for step in history:
            world.play(step)
        node = world.node("observer")
        world.deliver(node, world.entries(), world.blocks(), seed)
        built_upon = {entry.parent for entry in node.entries.values() if entry.action in KEY_ACTIONS}
        for names, kind in node.replica.live_paths():
            tip = node.entries[node.replica.attributes(names).entry]
            if kind is not Kind.DIRECTORY and tip.hash not in built_upon:
                assert KEY_NAMES[tip.fingerprint] in dict(keys_at(node.replica, names))


def without_trailing(entries: dict[EntryHash, Entry]) -> dict[EntryHash, Entry]:
    """All but what Dave signed and nothing refers to; his grants stay, since others' entries cannot come without."""
    kept = dict(entries)
    while True:
        needed = {entry.parent for entry in kept.values()} | {EntryHash(entry.content) for entry in kept.values()}
        trailing = [
            hash
            for hash, entry in kept.items()
            if entry.fingerprint == DAVE.fingerprint and entry.action is not Action.GRANT and hash not in needed
        ]
        if not trailing:
            return kept
        for hash in trailing:
            del kept[hash]


@rarely
@given(steps(recoveries=False), SEEDS)
def test_trailing_entries_of_a_revoked_key_might_as_well_not_exist(history: list[Step], seed: int) -> None:
    with World.temporary() as world:
        for step in history:
            world.play(step)
        entries, blocks = world.entries(), world.blocks()
        revoke = ROOT_KEY.sign(world.daves.hash, 1, Action.REVOKE, b"dave", DAVE.fingerprint)
        entries[revoke.hash] = revoke
        full, pruned = world.node("full"), world.node("pruned")
        world.deliver(full, entries, blocks, seed, check)
        world.deliver(pruned, without_trailing(entries), blocks, seed + 1)
        assert tree_of(full.replica) == tree_of(pruned.replica)


@rarely
@given(deeds(), SEEDS)
def test_the_laws_hold_for_entries_that_no_honest_node_signs(history: list[Deed], seed: int) -> None:
    hostile, chance = Hostile(history), random.Random(seed)
    some = [block for block in hostile.blocks.values() if chance.random() < 0.7]
    with tempfile.TemporaryDirectory(dir=memory()) as directory, ExitStack() as stack:
        base = pathlib.Path(directory)
        identity = hostile.entries[0].hash
        eager, lazy = (Node(make_replica(base / name, born=[], identity=identity)) for name in ("eager", "lazy"))
        for node in (eager, lazy):
            stack.callback(node.replica.close)
        for entry in hostile.entries:
            eager.receive([entry], [])
            load_and_check(eager)
        eager.receive([], some)
        for parcel in parcels(hostile.entries, some, chance):
            lazy.receive(parcel.entries, parcel.blocks)
            check(lazy)
        lazy.receive(hostile.entries, some)
        for number, blocks in enumerate((some, list(hostile.blocks.values()))):
            for node in (eager, lazy):
                node.receive([], blocks)
                check(node)
            copy = copy_replica(eager.replica, base / f"copy{number}")
            stack.callback(copy.close)
            assert seen(eager.replica) == seen(lazy.replica) == seen(copy)
            assert eager.replica.root_hash() == lazy.replica.root_hash() == copy.root_hash()
