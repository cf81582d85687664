"""The members of a filesystem: the keys whose holders may read it (docs/authority.md)."""

from __future__ import annotations

from basefs.log.store import Store
from basefs.view.invitations import invite_keys
from basefs.view.supposing import all_grants
from basefs.view.tree import Tree


def members(store: Store, tree: Tree, now: float) -> tuple[frozenset[bytes], frozenset[bytes]]:
    """The raw public keys of the members, and those that are keys of invitations alone, expired ones included.

    Members are the keys that a grant or admit in force names, anywhere, also on what was removed since, and the one
    that no revoke takes away, without those that have nothing but invitations that have expired by now, UNIX seconds:
    an invitation that counts in the view until it is revoked opens no door after its time.
    """
    grants = [grant for _, grant in all_grants(store, tree)]
    ends = invite_keys(grant.entry for grant in grants)
    named = {grant.entry.content for grant in grants if ends.get(grant.fingerprint, now) >= now}
    always = (store.granted.key(fingerprint) for fingerprint in tree.resolver.root_authority().depths)
    invited = frozenset(grant.entry.content for grant in grants if grant.fingerprint in ends)
    return frozenset(named.union(key for key in always if key is not None)), invited
