"""The view against the oracle, over random histories."""

from __future__ import annotations

from hypothesis import given

from basefs.log.entries import Entry
from basefs.path import Path
from basefs.replica.replica import Replica
from basefs.view.states import State
from tests.support.helpers import Node, live_nodes
from tests.view.histories import SEEDS, Step, World, steps
from tests.view.oracle import Depths, Oracle


def oracle_of(node: Node) -> Oracle:
    """The oracle for what a node has."""
    store = node.replica._store

    def complete(entry: Entry) -> bool:
        placed = store.get(entry.hash)
        assert placed is not None
        return node.replica._contents.lineages.is_complete(placed)

    return Oracle(node.entries.values(), complete)


def shown(replica: Replica) -> dict[Path, tuple[State, Depths]]:
    """Every live path with its state and the keys valid there."""
    return {names: (node.state, dict(node.authority.depths)) for names, node in live_nodes(replica).items()}


@given(steps(), SEEDS)
def test_the_view_is_what_the_rules_say(history: list[Step], seed: int) -> None:
    with World.temporary() as world:
        for step in history:
            world.play(step)
        for node in world.nodes:
            assert shown(node.replica) == oracle_of(node).tree()
            assert node.replica.members() == oracle_of(node).members()
        everything = world.node("everything")
        world.deliver(everything, world.entries(), world.blocks(), seed)
        assert shown(everything.replica) == oracle_of(everything).tree()
