"""The members of a filesystem: the keys whose holders may read it, and in whose name (docs/authority.md)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass

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
    def parties(self) -> dict[bytes, bytes]:
        """Raw public key of each member -> those of its sponsors, joined.

        All of them: with one alone, a key holder could make the machines of another one its own by granting them.
        """
        return {key: b"".join(sorted(sponsors)) or key for key, sponsors in self.let_in.items()}

    def has_room(self, signer: Fingerprint) -> bool:
        """Whether one more key would be a member if this key granted it."""
        sponsors = next((theirs for key, theirs in self.let_in.items() if fingerprint_of(key) == signer), {})
        if not sponsors:
            return True
        return any(
            sum(theirs.get(sponsor, steps + 2) <= steps + 1 for theirs in self.let_in.values()) < MOST_OF_ONE
            for sponsor, steps in sponsors.items()
        )


NOBODY = Members({}, frozenset(), {})


def members(store: Store, tree: Tree, now: float) -> Members:
    """The members at a time, UNIX seconds.

    Members are the keys that a grant or admit in force names, anywhere, also on what was removed since, and the root
    key, which no revoke takes away.  A key that has nothing but expired invitations is none: the view counts an
    invitation until it is revoked, but it opens no door after its time.  Each sponsor lets in `MOST_OF_ONE` at most:
    those nearest to it, and of equally near ones those that this node received first.  What others have let in takes no
    place from them.
    """
    order = {hash: number for number, hash in enumerate(store.key_hashes())}
    grants = sorted((grant for _, grant in all_grants(store, tree)), key=lambda grant: order[grant.entry.hash])
    always = tree.resolver.root_authority().depths.keys()
    ends = {key: end for key, end in invite_keys(grant.entry for grant in grants).items() if key not in always}
    named = always | {grant.fingerprint for grant in grants if ends.get(grant.fingerprint, now) >= now}
    publics = {grant.fingerprint: grant.entry.content for grant in grants}
    node = tree.find(())
    sponsorship = _Sponsorship(grants, always if node is None else node.authority.depths.keys(), named)

    def public(key: Fingerprint) -> bytes:
        return publics.get(key) or store.granted.key(key) or key

    found = {
        public(key): {public(sponsor): steps for sponsor, steps in sponsors.items()}
        for key, sponsors in sponsorship.let_in.items()
        if key in named and public(key) != key
    }
    left_out = {public(sponsor): count for sponsor, count in sponsorship.left_out().items()}
    return Members(found, frozenset(grant.entry.content for grant in grants if grant.fingerprint in ends), left_out)


class _Sponsorship:
    """Who has let in whom.

    Attributes:
        let_in: each key -> its sponsors, with the grants between the two; none for the `tops`.
    """

    def __init__(self, grants: Sequence[Grant], tops: Collection[Fingerprint], named: Set[Fingerprint]) -> None:
        """`grants`: by arrival; `tops`: the keys that are valid at `/`; `named`: those that would be members."""
        self.let_in: dict[Fingerprint, dict[Fingerprint, int]] = {key: {} for key in tops}
        self._named = named
        self._left_out: dict[Fingerprint, set[Fingerprint]] = {}
        #: Signer -> the keys that it has granted, with the number of the first grant.
        self._granted: dict[Fingerprint, dict[Fingerprint, int]] = {}
        for number, grant in enumerate(grants):
            self._granted.setdefault(grant.entry.fingerprint, {}).setdefault(grant.fingerprint, number)
        sponsors = dict.fromkeys(key for top in tops for key in self._granted.get(top, ()) if key not in tops)
        self._apart = {*tops, *sponsors}
        reached = set(tops)
        # What hangs on a directory that was removed may have lost the grants above it: then its signer is a sponsor.
        for key in (*sponsors, *self._granted):
            if key not in reached:
                self._reach(key, reached)
                self._count(key)

    def left_out(self) -> dict[Fingerprint, int]:
        """See `Members`."""
        counts = {sponsor: len(keys & self._named - self.let_in.keys()) for sponsor, keys in self._left_out.items()}
        return {sponsor: count for sponsor, count in counts.items() if count}

    def _reach(self, start: Fingerprint, reached: set[Fingerprint]) -> None:
        """Note all that a key has let in, also those that are too many: they are no sponsors."""
        rest = [start]
        while rest:
            key = rest.pop()
            if key not in reached:
                reached.add(key)
                rest.extend(each for each in self._granted.get(key, ()) if each not in self._apart)

    def _count(self, sponsor: Fingerprint) -> None:
        """Let in what hangs on a sponsor, and on no other one that is between."""
        seen, too_many = {sponsor}, self._left_out.setdefault(sponsor, set())
        level, steps, count = [sponsor], 0, 0
        while level:
            further: dict[Fingerprint, int] = {}
            for key in level:
                if count == MOST_OF_ONE:
                    too_many.add(key)
                    continue
                count += key in self._named
                self.let_in.setdefault(key, {})[sponsor] = steps
                for each, number in self._granted.get(key, {}).items():
                    if each not in seen and each not in self._apart:
                        further[each] = min(number, further.get(each, number))
            seen |= further.keys()
            level, steps = sorted(further, key=further.__getitem__), steps + 1
