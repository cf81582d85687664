"""The members of a filesystem: the keys whose holders may read it, and in whose name (docs/authority.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from basefs.log.hashes import Fingerprint
from basefs.log.keys import fingerprint_of
from basefs.log.store import Store
from basefs.view.invitations import invite_keys
from basefs.view.permissions import Grant
from basefs.view.supposing import all_grants
from basefs.view.tree import Tree

#: Members that one key below `/` lets in, itself included, directly or through others: each costs every node a trust
#: anchor, 0.2 ms of the processor where there are hundreds, and a key holder can make any number.
MOST_OF_ONE = 100


@dataclass(frozen=True, slots=True)
class Members:
    """The members as one node counts them.

    Attributes:
        sponsors: raw public key of each member -> that of its sponsor: the first key below `/` on the way from a key
            that is valid at `/`, which can be the key itself; keys that are valid at `/` have none but themselves.
        invited: those that are keys of invitations alone, also expired ones, which are no members.
        left_out: sponsor -> how many keys that it has let in are no members, being more than `MOST_OF_ONE`.
    """

    sponsors: Mapping[bytes, bytes]
    invited: frozenset[bytes]
    left_out: Mapping[bytes, int]

    @property
    def keys(self) -> frozenset[bytes]:
        """The members."""
        return frozenset(self.sponsors)

    def has_room(self, signer: Fingerprint) -> bool:
        """Whether one more key would be a member if this key granted it."""
        sponsor = next((theirs for key, theirs in self.sponsors.items() if fingerprint_of(key) == signer), None)
        return sum(theirs == sponsor for theirs in self.sponsors.values()) < MOST_OF_ONE


NOBODY = Members({}, frozenset(), {})


def members(store: Store, tree: Tree, now: float) -> Members:
    """The members at a time, UNIX seconds.

    Members are the keys that a grant or admit in force names, anywhere, also on what was removed since, and the root
    key, which no revoke takes away.  A key that has nothing but expired invitations is none: the view counts an
    invitation until it is revoked, but it opens no door after its time.  Where one sponsor has let in more than
    `MOST_OF_ONE`, those nearest to it count, and of equally near ones those that this node received first: a new key
    takes the place of none that is as near.
    """
    order = {hash: number for number, hash in enumerate(store.key_hashes())}
    grants = sorted((grant for _, grant in all_grants(store, tree)), key=lambda grant: order[grant.entry.hash])
    always = tree.resolver.root_authority().depths.keys()
    ends = {key: end for key, end in invite_keys(grant.entry for grant in grants).items() if key not in always}
    named = always | {grant.fingerprint for grant in grants if ends.get(grant.fingerprint, now) >= now}
    publics = {grant.fingerprint: grant.entry.content for grant in grants}
    node = tree.find(())
    found: dict[bytes, bytes] = {}
    counts: Counter[bytes] = Counter()
    left_out: Counter[bytes] = Counter()
    for key, sponsor in _sponsors(grants, always if node is None else node.authority.depths.keys()).items():
        public = publics.get(key) or store.granted.key(key)
        if key not in named or public is None:
            continue
        theirs = publics.get(sponsor) or store.granted.key(sponsor) or public
        if counts[theirs] < MOST_OF_ONE:
            counts[theirs] += 1
            found[public] = theirs
        else:
            left_out[theirs] += 1
    return Members(found, frozenset(grant.entry.content for grant in grants if grant.fingerprint in ends), left_out)


def _sponsors(grants: Sequence[Grant], tops: Collection[Fingerprint]) -> dict[Fingerprint, Fingerprint]:
    """Each key that one of the `tops` has granted, directly or through others -> its sponsor; the nearest first.

    Of several signers that are equally near, the one counts whose grant came first: a later one takes no key over.
    """
    by_signer: dict[Fingerprint, list[tuple[int, Grant]]] = {}
    for number, grant in enumerate(grants):
        by_signer.setdefault(grant.entry.fingerprint, []).append((number, grant))
    found = {key: key for key in tops}
    level = list(found)
    # What hangs on a directory that was removed may have lost the grants above it: then its signer is where it begins.
    for start in (None, *by_signer):
        if start is not None and start not in found:
            found[start] = start
            level = [start]
        while level:
            signed = sorted((one for signer in level for one in by_signer.get(signer, ())), key=itemgetter(0))
            level = []
            for _, grant in signed:
                signer, key = grant.entry.fingerprint, grant.fingerprint
                if key not in found:
                    found[key] = key if signer in tops else found[signer]
                    level.append(key)
    return found
