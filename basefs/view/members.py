"""The members of a filesystem: the keys whose holders may read it (docs/authority.md)."""

from __future__ import annotations

from basefs.log.store import Store
from basefs.view.invitations import invite_keys
from basefs.view.supposing import grants_in_force
from basefs.view.tree import Tree


def invited(store: Store, tree: Tree) -> frozenset[bytes]:
    """The raw public keys of invitations: whoever holds a token has one, until another machine was adopted by it."""
    grants = [grant for _, grant in grants_in_force(store, tree)]
    keys = invite_keys(grant.entry for grant in grants)
    return frozenset(grant.entry.content for grant in grants if grant.fingerprint in keys)


def members(store: Store, tree: Tree, now: float) -> frozenset[bytes]:
    """The raw public keys that a grant or admit in force names, anywhere, and the one that no revoke takes away.

    Without those that have nothing but invitations that have expired by now, UNIX seconds: an invitation that counts in
    the view until it is revoked opens no door after its time.
    """
    grants = [grant for _, grant in grants_in_force(store, tree)]
    expired = {key for key, until in invite_keys(grant.entry for grant in grants).items() if until < now}
    named = {grant.entry.content for grant in grants if grant.fingerprint not in expired}
    always = (store.granted.key(fingerprint) for fingerprint in tree.resolver.root_authority().depths)
    return frozenset(named.union(key for key in always if key is not None))
