"""The members of a filesystem: the keys whose holders may read it (docs/authority.md)."""

from __future__ import annotations

from basefs.log.store import Store
from basefs.view.supposing import grants_in_force
from basefs.view.tree import Tree


def members(store: Store, tree: Tree) -> frozenset[bytes]:
    """The raw public keys that a grant or admit in force names, anywhere, and the one that no revoke takes away."""
    named = {grant.entry.content for _, grant in grants_in_force(store, tree)}
    always = (store.granted.key(fingerprint) for fingerprint in tree.resolver.root_authority().depths)
    return frozenset(named.union(key for key in always if key is not None))
