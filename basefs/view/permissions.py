"""Permissions: which keys may write at a path, and with what authority (paper, section 3.1.1; docs/authority.md).

A key is valid at a path if it is granted there or on a directory above; its authority is the depth of the shallowest
such directory, 0 being the root and the highest.  Rules for the effect of a revoke:

1. It takes back every grant of its key that does not come after it in the chain of grants, concurrent ones included.
   A concurrent one is kept if the revoke is *answered* by another grant of the key that counts and comes after it: so
   a key that was revoked on two chains at once can be granted again, by one grant behind each of the two.
2. Its signer must be valid at the path, and hold a higher authority than the key, or have granted it, directly or
   through others (then only the grants that stem from the signer fall), or be the key itself.
3. A grant whose signer is not valid at the path gives nothing: it falls with its signer.
4. The key that signed the root entry stays valid: a filesystem must always be repairable.

Evaluation goes level by level: keys valid above come first, then the keys that they granted here, then the keys that
those granted.  A key that may revoke a grant always belongs to an earlier level than the grant, so every order of
arrival gives the same answer, and mutual revocation cannot arise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from basefs.log.entries import Action, Entry
from basefs.log.hashes import EntryHash, Fingerprint
from basefs.log.keys import fingerprint_of


@dataclass(frozen=True, slots=True)
class Grant:
    """A grant in force.

    Attributes:
        entry: the grant entry; its name is the key's name.
        fingerprint: the key.
        lineage: the keys of this directory that it stems from, its signer first among them.
    """

    entry: Entry
    fingerprint: Fingerprint
    lineage: frozenset[Fingerprint]


class Authority:
    """The keys valid at one path.  Immutable, and shared by all paths below that have no grants of their own.

    Attributes:
        depths: valid key -> depth of the shallowest directory on which it is granted.
        grants: the grants in force that hang on the nearest path, here or above, that has any.
    """

    __slots__ = ("depths", "grants")

    def __init__(self, depths: Mapping[Fingerprint, int], grants: Sequence[Grant] = ()) -> None:
        self.depths = depths
        self.grants = tuple(grants)

    @classmethod
    def of_root_key(cls, root: Entry) -> Authority:
        """The authority before any grant: the key that signed the root entry."""
        return cls({root.fingerprint: 0})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Authority) and self.depths == other.depths and set(self.grants) == set(other.grants)

    __hash__ = None  # type: ignore[assignment]  # compared, never looked up

    def allows(self, fingerprint: Fingerprint) -> bool:
        """Whether a key is valid here."""
        return fingerprint in self.depths

    def extended(self, hanging: Iterable[Entry], depth: int) -> Authority:
        """The authority at a path of this depth, below here, on which these grant and revoke entries hang."""
        entries = list(hanging)
        if not entries:
            # The same object, so that a tree without grants of its own costs nothing.
            return self
        parents = {entry.hash: entry.parent for entry in entries}
        revokes: dict[bytes, list[Entry]] = {}
        for entry in entries:
            if entry.action is Action.REVOKE:
                revokes.setdefault(entry.content, []).append(entry)
        pending = [entry for entry in entries if entry.action is Action.GRANT]
        depths = dict(self.depths)
        lineages: dict[Fingerprint, frozenset[Fingerprint]] = {}
        accepted: list[Grant] = []
        while level := [entry for entry in pending if entry.fingerprint in depths]:
            pending = [entry for entry in pending if entry.fingerprint not in depths]
            grants = []
            for entry in level:
                lineage = lineages.get(entry.fingerprint, frozenset()) | {entry.fingerprint}
                grants.append(Grant(entry, fingerprint_of(entry.content), lineage))
            if revokes:
                # On two chains each grant may need the other one as the answer, so they fall one after another.
                while True:
                    answers = [*accepted, *grants]
                    kept = [grant for grant in grants if not self._is_taken(grant, answers, revokes, parents, depth)]
                    if len(kept) == len(grants):
                        break
                    grants = kept
            for grant in grants:
                depths.setdefault(grant.fingerprint, depth)
                lineages[grant.fingerprint] = lineages.get(grant.fingerprint, frozenset()) | grant.lineage
            accepted.extend(grants)
        return Authority(depths, accepted)

    def _is_taken(
        self,
        grant: Grant,
        answers: Sequence[Grant],
        revokes: Mapping[bytes, Sequence[Entry]],
        parents: Mapping[EntryHash, EntryHash],
        depth: int,
    ) -> bool:
        for revoke in revokes.get(grant.fingerprint, ()):
            if _comes_after(grant.entry, revoke, parents) or not self._may_take(revoke, grant, depth):
                continue
            is_answered = any(
                answer.fingerprint == grant.fingerprint and _comes_after(answer.entry, revoke, parents)
                for answer in answers
            )
            if not is_answered or _comes_after(revoke, grant.entry, parents):
                return True
        return False

    def _may_take(self, revoke: Entry, grant: Grant, depth: int) -> bool:
        signer = revoke.fingerprint
        if signer == grant.fingerprint or signer in grant.lineage:
            return True
        return signer in self.depths and self.depths[signer] < self.depths.get(grant.fingerprint, depth)


def _comes_after(entry: Entry, other: Entry, parents: Mapping[EntryHash, EntryHash]) -> bool:
    above: EntryHash | None = entry.parent
    while above is not None:
        if above == other.hash:
            return True
        above = parents.get(above)
    return False
