"""The members of a filesystem: the keys whose holders may read it (docs/authority.md)."""

from __future__ import annotations

from collections.abc import Collection, Set
from dataclasses import dataclass

from basefs.log.hashes import Fingerprint
from basefs.log.store import Store
from basefs.view.grants import all_grants
from basefs.view.invitations import invite_keys
from basefs.view.permissions import Grant
from basefs.view.tree import Tree


@dataclass(frozen=True, slots=True)
class Members:
    """The members of a filesystem, as raw public keys.

    Attributes:
        keys: all of them.
        root_keys: those that are valid at `/`.
        invited: keys of invitations alone, also of expired ones, which are no members.
    """

    keys: frozenset[bytes]
    root_keys: frozenset[bytes]
    invited: frozenset[bytes]


NOBODY = Members(frozenset(), frozenset(), frozenset())


@dataclass(frozen=True, slots=True)
class MemberGrants:
    """What decides who the members are, as one node has received it.

    Attributes:
        grants: the grants and admits in force, anywhere, also on what was removed since.
        root: the root key.
        root_public: the same as a raw public key; `None` where it was lost to damage.
        tops: the keys that are valid at `/`.
    """

    grants: Collection[Grant]
    root: Fingerprint
    root_public: bytes | None
    tops: Set[Fingerprint]

    @classmethod
    def look(cls, store: Store, tree: Tree) -> MemberGrants:
        """As it stands now; nobody may write meanwhile."""
        (root,) = tree.resolver.root_authority().depths
        grants = [grant for _, grant in all_grants(store, tree)]
        return cls(grants, root, store.granted.key(root), tree.root.authority.depths.keys())


def members(granted: MemberGrants, now: float) -> Members:
    """The members at a time, UNIX seconds.

    Members are the keys that a grant or admit in force names, and the root key, which no revoke takes away.  A key that
    has nothing but expired invitations is none: the view counts an invitation until it is revoked, but it opens no door
    after its time.
    """
    ends = invite_keys(grant.entry for grant in granted.grants)
    ends.pop(granted.root, None)
    named = {grant.fingerprint: grant.entry.content for grant in granted.grants}
    found = {key: public for key, public in named.items() if ends.get(key, now) >= now}
    if granted.root_public is not None:
        found[granted.root] = granted.root_public
    return Members(
        frozenset(found.values()),
        frozenset(public for key, public in found.items() if key in granted.tops),
        frozenset(public for key, public in named.items() if key in ends),
    )
