"""Partitions, merges, and nodes that share a key or lost their last days: always one state afterwards."""

from __future__ import annotations

import random
import shutil
from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from basefs.log.entries import Action
from basefs.replica.replica import LOG_FILE, Replica
from tests.support.examples import rarely
from tests.support.helpers import (
    ALICE,
    BOB,
    ROOT_KEY,
    Clock,
    Node,
    copy_replica,
    live_nodes,
    make_replica,
    path,
    tree_of,
)
from tests.view.histories import SEEDS, Step, World, plain, steps


def exchange(left: Node, right: Node) -> None:
    """A sync: afterwards both have what either had."""
    for source, target in ((left, right), (right, left)):
        assert not target.receive(list(source.entries.values()), list(source.blocks.values())).rejected


@rarely
@given(steps(4, 20), steps(4, 20), st.integers(1, 14), SEEDS)
def test_any_partition_heals_to_one_state(before: list[Step], during: list[Step], split: int, seed: int) -> None:
    chance = random.Random(seed)
    with World.temporary() as world:
        for step in before:
            world.play(step)
        groups = [[n for i, n in enumerate(world.nodes) if (split >> i & 1) == side] for side in (0, 1)]
        for step in during:
            node = world.nodes[step.node]
            group = next(group for group in groups if node in group)
            if world.action(step) in (World.synchronise, World.gossip):
                world.carry(chance.choice(group), node)
            else:
                world.play(step)
        # Healed in any order: a random spanning chain, there and back; and once more, for what waited on a node for a
        # key until the grant came from another one.
        order = chance.sample(world.nodes, len(world.nodes))
        for source, target in [*pairwise(order), *pairwise(reversed(order))] * 2:
            world.carry(source, target)
            assert target.replica.check_view() == []
        assert all(node.entries.keys() == order[0].entries.keys() for node in order)
        assert all(tree_of(node.replica) == tree_of(order[0].replica) for node in order)
        assert len({node.replica.root_hash() for node in order}) == 1


@rarely
@given(steps(), SEEDS)
def test_merging_is_commutative_associative_and_idempotent(history: list[Step], seed: int) -> None:
    with World.temporary() as world:
        for step in history:
            world.play(step)
        a, b, c = world.nodes[:3]
        merged = []
        for number, order in enumerate(((a, b, c), (c, b, a), (b, c, a, a, b))):
            node = world.node(f"merged{number}")
            for source in order:
                world.carry(source, node)
            merged.append(node)
        # (a + b) + c and a + (b + c)
        right = world.node("right")
        world.carry(b, right)
        world.carry(c, right)
        left = world.node("left")
        world.carry(a, left)
        world.carry(right, left)
        merged.append(left)
        trees = [tree_of(node.replica) for node in merged]
        assert all(tree == trees[0] for tree in trees)
        assert len({node.replica.root_hash() for node in merged}) == 1


@rarely
@given(steps(recoveries=False), st.integers(0, 2**16))
def test_a_state_that_all_agree_on_does_not_change_by_acks(history: list[Step], which: int) -> None:
    with World.temporary() as world:
        for step in history:
            world.play(step)
        node = world.node("agreed", (ROOT_KEY,))
        world.deliver(node, world.entries(), world.blocks(), which)
        before = plain(tree_of(node.replica))
        chance = random.Random(which)
        # Of merged directories the leading one is accepted: its mode and time are those of the path.
        live = [one for one in live_nodes(node.replica).values() if chance.random() < 0.5]
        tips = [one.outcome.tips[0] for one in live]
        acks = [ROOT_KEY.sign(tip.hash, 1, Action.ACK, tip.name) for tip in tips]
        assert not node.receive(acks, []).rejected
        assert plain(tree_of(node.replica)) == before
        assert node.replica.check_view() == []


def test_one_key_on_two_nodes_makes_ordinary_branches(tmp_path: Path) -> None:
    first = Node(make_replica(tmp_path / "first"))
    second = Node(copy_replica(first.replica, tmp_path / "second", (ROOT_KEY,)))
    for node, content in ((first, b"one"), (second, b"two")):
        node.replica.commit(lambda author: author.make_directory((b"d",)))
        node.replica.commit(lambda author, content=content: author.write(path("/d/f"), content))
        node.replica.commit(lambda author, content=content: author.write(path(f"/d/{content.decode()}"), content))
        node.replica.commit(lambda author: author.grant((b"d",), b"bob", BOB.public))
    # What both signed alike is one entry; what differs are two branches.
    exchange(first, second)
    assert tree_of(first.replica) == tree_of(second.replica)
    assert first.replica.read(path("/d/one")) == b"one" and first.replica.read(path("/d/two")) == b"two"
    first.replica.commit(lambda author: author.revoke((b"d",), b"bob", BOB.fingerprint))
    exchange(first, second)
    assert tree_of(first.replica) == tree_of(second.replica)
    for node in (first, second):
        assert node.replica.check_view() == []
        node.replica.close()


def test_a_log_restored_from_an_old_backup_makes_ordinary_branches(tmp_path: Path) -> None:
    peer = Node(make_replica(tmp_path / "peer", (ALICE,)))
    home = tmp_path / "home"
    node = Node(copy_replica(peer.replica, home, (ROOT_KEY,)))
    node.replica.commit(lambda author: author.grant((), b"alice", ALICE.public))
    node.replica.commit(lambda author: author.write((b"f",), b"base"))
    exchange(node, peer)
    # The backup is a copy of the file, as `cp` makes it of a filesystem that is not running.
    node.replica.close()
    shutil.copy(home / LOG_FILE, tmp_path / "backup.db")
    node = Node(Replica(home, (ROOT_KEY,), clock=Clock(2e9)))
    node.replica.commit(lambda author: author.write((b"f",), b"lost days"))
    node.replica.commit(lambda author: author.make_directory((b"d",)))
    exchange(node, peer)
    peer.replica.commit(lambda author: author.write((b"f",), b"on top of the lost days"))
    node.replica.close()
    for leftover in (LOG_FILE, f"{LOG_FILE}-wal", f"{LOG_FILE}-shm"):
        (home / leftover).unlink(missing_ok=True)
    shutil.copy(tmp_path / "backup.db", home / LOG_FILE)
    node = Node(Replica(home, (ROOT_KEY,), clock=Clock(2.1e9)))
    assert node.replica.read((b"f",)) == b"base"
    node.replica.commit(lambda author: author.write((b"f",), b"after the restore"))
    node.replica.commit(lambda author: author.make_directory((b"d",)))
    node.replica.commit(lambda author: author.write(path("/d/x"), b"x"))
    exchange(node, peer)
    exchange(node, peer)
    assert tree_of(node.replica) == tree_of(peer.replica)
    # Two contributors win against one, and nothing is gone from the history.
    assert node.replica.read((b"f",)) == b"on top of the lost days"
    assert node.replica.read(path("/d/x")) == b"x"
    (conflict,) = node.replica.survey((b"f",)).conflicts()
    node.replica.commit(lambda author: author.reverter.path((b"f",), conflict.lost.hash))
    exchange(node, peer)
    assert peer.replica.read((b"f",)) == b"after the restore"
    for each in (node, peer):
        assert each.replica.check_view() == []
        each.replica.close()
