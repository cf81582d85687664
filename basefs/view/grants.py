"""The grants and admits by which keys may read, and where they hang (docs/authority.md, Members)."""

from __future__ import annotations

from dataclasses import dataclass

from basefs.log.hashes import EntryHash
from basefs.log.store import Store
from basefs.path import Path
from basefs.view.permissions import Authority, Grant
from basefs.view.tree import Tree
from basefs.view.walk import Forest


@dataclass(frozen=True, slots=True)
class PlacedGrant:
    """A grant or admit by which a key may read, and where it hangs.

    Attributes:
        path: on which it hangs.
        grant: the grant or admit.
        made: the entry that made the directory or file on which it hangs.
        authority: the keys valid there; as if it were there still, where it was removed.
        in_force: whether it counts in the tree; otherwise it would had nothing ever been removed.
    """

    path: Path
    grant: Grant
    made: EntryHash
    authority: Authority
    in_force: bool


def placed_grants(store: Store, tree: Tree) -> list[PlacedGrant]:
    """Every grant and admit by which a key may read, on what is there and on what was removed."""
    found = []
    #: By the identity of an authority, which many directories of a path may share.
    known: dict[int, tuple[Authority, dict[EntryHash, Grant]]] = {}
    for path_id in store.key_paths():
        path = store.paths.path_of(path_id)
        node = tree.find(path)
        shown = {} if node is None else {grant.entry.hash: grant for grant in node.authority.in_force}
        for made, hanging in Forest.of(store.keys_at(path_id)).hanging.items():
            if node is not None:
                here = (shown[entry.hash] for entry in hanging if entry.hash in shown)
                found += [PlacedGrant(path, grant, made, node.authority, True) for grant in here]
            rest = [entry.hash for entry in hanging if entry.hash not in shown]
            placed = store.get(made) if rest else None
            if placed is not None:
                authority = tree.resolver.lasting_authority(placed)
                if id(authority) not in known:
                    known[id(authority)] = authority, {grant.entry.hash: grant for grant in authority.in_force}
                lasting = known[id(authority)][1]
                found += [PlacedGrant(path, lasting[hash], made, authority, False) for hash in rest if hash in lasting]
    return found


def all_grants(store: Store, tree: Tree) -> set[tuple[Path, Grant]]:
    """Every grant and admit by which a key may read, with the path on which it hangs."""
    return {(one.path, one.grant) for one in placed_grants(store, tree)}
