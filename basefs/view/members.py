"""The members of a filesystem: the keys whose holders may read it, and in whose name (docs/authority.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from basefs.log.hashes import Fingerprint
from basefs.log.keys import fingerprint_of
from basefs.log.store import Store
from basefs.view.grants import all_grants
from basefs.view.invitations import invite_keys
from basefs.view.permissions import Grant
from basefs.view.tree import Tree

#: Members that one key below `/` lets in, itself included, directly or through others: each costs every node a trust
#: anchor, 0.2 ms of the processor where there are hundreds, and a key holder can make any number.
MOST_OF_ONE = 100


@dataclass(frozen=True, slots=True)
class Members:
    """The members as one node counts them.

    Attributes:
        let_in: raw public key of each member -> those of its sponsors, with the number of grants between the two.  A
            sponsor is a key below `/` that a key which is valid at `/` has granted; keys that are valid at `/` have
            none.
        invited: those that are keys of invitations alone, also expired ones, which are no members.
        left_out: sponsor -> how many keys that it has let in are no members, since they are more than `MOST_OF_ONE`.
    """

    let_in: Mapping[bytes, Mapping[bytes, int]]
    invited: frozenset[bytes]
    left_out: Mapping[bytes, int]

    @property
    def keys(self) -> frozenset[bytes]:
        """The members."""
        return frozenset(self.let_in)

    @property
    def root_keys(self) -> frozenset[bytes]:
        """Those that are valid at `/`."""
        return frozenset(key for key, sponsors in self.let_in.items() if not sponsors)

    @property
    def parties(self) -> dict[bytes, bytes]:
        """Raw public key of each member -> those of its sponsors, joined.

        All of them: with one alone, a key holder could make the machines of another one its own by granting them.
        """
        return {key: b"".join(sorted(sponsors)) or key for key, sponsors in self.let_in.items()}

    def has_room(self, signer: Fingerprint) -> bool:
        """Whether one more key would be a member if this key granted it."""
        sponsors = next((theirs for key, theirs in self.let_in.items() if fingerprint_of(key) == signer), None)
        return sponsors is not None and (
            not sponsors
            or any(
                sum(theirs.get(sponsor, steps + 2) <= steps + 1 for theirs in self.let_in.values()) < MOST_OF_ONE
                for sponsor, steps in sponsors.items()
            )
        )


NOBODY = Members({}, frozenset(), {})


@dataclass(frozen=True, slots=True)
class MemberGrants:
    """What decides who the members are, as one node has received it.

    Attributes:
        grants: the grants and admits in force, anywhere, also on what was removed since; by arrival.
        root: the root key.
        tops: the keys that are valid at `/`.
        publics: their raw public keys.
    """

    grants: Sequence[Grant]
    root: Fingerprint
    tops: Set[Fingerprint]
    publics: Mapping[Fingerprint, bytes]

    @classmethod
    def look(cls, store: Store, tree: Tree) -> MemberGrants:
        """As it stands now; nobody may write meanwhile."""
        order = {hash: number for number, hash in enumerate(store.key_hashes())}
        grants = sorted((grant for _, grant in all_grants(store, tree)), key=lambda grant: order[grant.entry.hash])
        (root,) = tree.resolver.root_authority().depths
        node = tree.find(())
        tops = {root} if node is None else node.authority.depths.keys()
        return cls(grants, root, tops, {key: store.granted.key(key) or key for key in tops})


def members(granted: MemberGrants, now: float) -> Members:
    """The members at a time, UNIX seconds.

    Members are the keys that a grant or admit in force names, and the root key, which no revoke takes away.  A key that
    has nothing but expired invitations is none: the view counts an invitation until it is revoked, but it opens no door
    after its time.  Each sponsor lets in `MOST_OF_ONE` at most: those nearest to it, and of equally near ones those
    that this node received first.  Keys that others have let in take no place from them.
    """
    grants, root, tops = granted.grants, granted.root, granted.tops
    ends = {key: end for key, end in invite_keys(grant.entry for grant in grants).items() if key != root}
    named = {root} | {grant.fingerprint for grant in grants if ends.get(grant.fingerprint, now) >= now}
    publics = {grant.fingerprint: grant.entry.content for grant in grants}
    let_in, too_many = _let_in(grants, tops, named)

    def public(key: Fingerprint) -> bytes:
        return publics.get(key) or granted.publics.get(key) or key

    found = {
        public(key): {public(sponsor): steps for sponsor, steps in sponsors.items()}
        for key, sponsors in let_in.items()
        if key in named and public(key) != key
    }
    left_out = {public(sponsor): len(keys) for sponsor, keys in too_many.items() if keys}
    return Members(found, frozenset(grant.entry.content for grant in grants if grant.fingerprint in ends), left_out)


def _let_in(
    grants: Sequence[Grant], tops: Set[Fingerprint], named: Set[Fingerprint]
) -> tuple[dict[Fingerprint, dict[Fingerprint, int]], dict[Fingerprint, set[Fingerprint]]]:
    """Each key that the keys of `/` have let in -> its sponsors, with the grants between the two; and who was too many.

    What hangs on no such key lets in nobody: otherwise the holder of one directory could be many sponsors.

    Args:
        grants: by arrival.
        tops: the keys that are valid at `/`.
        named: the keys that would be members; others take no place.
    """
    #: Signer -> the keys that it has granted, with the number of the first grant.
    by_signer: dict[Fingerprint, dict[Fingerprint, int]] = {}
    for number, grant in enumerate(grants):
        by_signer.setdefault(grant.entry.fingerprint, {}).setdefault(grant.fingerprint, number)
    sponsors = {key for top in tops for key in by_signer.get(top, ()) if key not in tops}
    let_in: dict[Fingerprint, dict[Fingerprint, int]] = {key: {} for key in tops}
    too_many: dict[Fingerprint, set[Fingerprint]] = {sponsor: set() for sponsor in sponsors}
    for sponsor in sponsors:
        seen = {sponsor}
        level, steps, count = [sponsor], 0, 0
        while level:
            further: dict[Fingerprint, int] = {}
            for key in level:
                if count == MOST_OF_ONE:
                    too_many[sponsor].add(key)
                    continue
                count += key in named
                let_in.setdefault(key, {})[sponsor] = steps
                for each, number in by_signer.get(key, {}).items():
                    if each not in seen and each not in tops and each not in sponsors:
                        further[each] = min(number, further.get(each, number))
            seen |= further.keys()
            level, steps = sorted(further, key=further.__getitem__), steps + 1
    return let_in, {sponsor: keys & named - let_in.keys() for sponsor, keys in too_many.items()}
