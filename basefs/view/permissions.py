"""Permissions: which keys may write at a path, and with what authority (paper, section 3.1.1; docs/authority.md).

A key is valid at a path if it is granted there or on a directory above; its authority is the depth of the shallowest
such directory, 0 being the root and the highest.  Rules for the effect of a revoke:

1. It takes back every grant of its key that does not come after it in the chain of grants, concurrent ones included.
   A concurrent one is kept if the revoke is *answered* by another grant of the key that counts and comes after it: so
   a key that was revoked on two chains at once can be granted again, by one grant behind each of the two.
2. Its signer must be valid at the path, and hold a higher authority than the key, or have granted it, directly or
   through others (then only the grants that stem from the signer fall), or be the key itself.
3. A grant whose signer is not valid at the path gives nothing: it falls with its signer.
4. The root key is valid everywhere, and no revoke takes it away: a filesystem must always be repairable.  It is the key
   that signed the root entry, or the one that the recovery on `/` with the highest number names; of two with the same
   number the one with the higher public key, which the recovery keys have signed and nobody can choose later.  A
   recovery counts once its key has granted itself again behind it: what that key signs in between, to keep what was
   there, then counts from the same moment on.  A key that was the root key is a key like any other.
5. An admit names a key that may read.  It counts and falls as a grant by the same signer would, but never makes its key
   valid: it gives no authority, answers no revoke of a grant, and no grant answers a revoke of it.

Evaluation goes level by level: keys valid above come first, then the keys that they granted here, then the keys that
those granted.  A key that may revoke a grant always belongs to an earlier level than the grant, so every order of
arrival gives the same answer, and mutual revocation cannot arise.

The holder of a key can hang any number of grants and revokes on its directory, so the cost is linear in their number:
the grants of one key by one signer fall together, and the signers from which a grant stems are the bits of a number.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from basefs.log.entries import Action, Entry
from basefs.log.hashes import EntryHash, Fingerprint
from basefs.log.keys import fingerprint_of, named_key
from basefs.view.layers import extended


@dataclass(frozen=True, slots=True)
class Grant:
    """A grant or admit in force.

    Attributes:
        entry: the entry; its name is the key's name.
        fingerprint: the key.
    """

    entry: Entry
    fingerprint: Fingerprint


class Authority:
    """The keys valid at one path.  Immutable, and shared by all paths below that have no grants of their own.

    Attributes:
        depths: valid key -> depth of the shallowest directory on which it is granted.
        grants: the grants in force that hang on the nearest path, here or above, that has any.
        admits: the admits in force that hang on the same path as the grants.
    """

    __slots__ = ("admits", "depths", "grants")

    def __init__(
        self,
        depths: Mapping[Fingerprint, int],
        grants: Sequence[Grant] = (),
        admits: Sequence[Grant] = (),
    ) -> None:
        self.depths = depths
        self.grants = tuple(grants)
        self.admits = tuple(admits)

    @classmethod
    def of_root_key(cls, root: Entry, hanging: Iterable[Entry] = ()) -> Authority:
        """The authority before any grant: the root key.

        `root`: the root entry; `hanging`: what hangs on `/`, parents first; admitted, so that no recovery is false.
        """
        #: Entry -> number and new root key of the recoveries that it comes behind.
        behind: dict[EntryHash, frozenset[tuple[int, bytes]]] = {}
        confirmed: set[tuple[int, bytes]] = set()
        for entry in hanging:
            above = behind.get(entry.parent, frozenset())
            recovery = entry.extensions.recovery
            if entry.action is Action.GRANT and entry.fingerprint == fingerprint_of(entry.content):
                confirmed.update(one for one in above if one[1] == entry.content)
            behind[entry.hash] = above if recovery is None else above | {(recovery.number, entry.content)}
        return cls({fingerprint_of(max(confirmed)[1]) if confirmed else root.fingerprint: 0})

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Authority)
            and self.depths == other.depths
            and set(self.grants) == set(other.grants)
            and set(self.admits) == set(other.admits)
        )

    __hash__ = None  # type: ignore[assignment]  # compared, never looked up

    @property
    def in_force(self) -> tuple[Grant, ...]:
        """The grants and the admits."""
        return (*self.grants, *self.admits)

    def allows(self, fingerprint: Fingerprint) -> bool:
        """Whether a key is valid here."""
        return fingerprint in self.depths

    def ignores(self, entry: Entry) -> bool:
        """Whether one more grant, revoke or admit leaves all as it is, where others hang already.

        So nobody need look at these again.  Of the root directory this says nothing about recoveries.
        """
        if entry.action is not Action.REVOKE:
            return not self.allows(entry.fingerprint)
        if entry.fingerprint != entry.content and not self.allows(entry.fingerprint):
            return True
        # Without any grant or admit of the key it takes nothing, and answers nothing.
        return all(grant.fingerprint != entry.content for grant in self.in_force)

    def extended(self, hanging: Iterable[Entry], depth: int) -> Authority:
        """The authority at a path of this depth, below here, on which these grants, revokes and admits hang."""
        entries = list(hanging)
        if not entries:
            # The same object, so that a tree without grants of its own costs nothing.
            return self
        revokers = _Revokers(self.depths, depth)
        disputes = _disputes(entries, revokers)
        pending: dict[Fingerprint, list[Grant]] = {}
        for entry in entries:
            if entry.action is Action.GRANT:
                pending.setdefault(entry.fingerprint, []).append(Grant(entry, fingerprint_of(entry.content)))
        new: dict[Fingerprint, int] = {}
        #: Granted key -> the revokers from which its grants stem.
        stems: dict[Fingerprint, int] = {}
        accepted: list[Grant] = []
        granters: set[Fingerprint] = set()
        signers = [signer for signer in pending if self.allows(signer)]
        while signers:
            reach = {signer: revokers.bit_of(signer) | stems.get(signer, 0) for signer in signers}
            level: dict[Fingerprint, dict[Fingerprint, list[Grant]]] = {}
            for signer in signers:
                for grant in pending.pop(signer):
                    level.setdefault(grant.fingerprint, {}).setdefault(signer, []).append(grant)
            for key, by_signer in level.items():
                if key in disputes:
                    disputes[key].settle(by_signer, reach, granters)
                for signer, grants in by_signer.items():
                    accepted += grants
                    granters.add(signer)
                    if key not in self.depths:
                        new[key] = depth
                    stems[key] = stems.get(key, 0) | reach[signer]
            signers = [key for key, by in level.items() if by and key in pending]
        found = Authority(extended(self.depths, new), accepted)
        found.admits = tuple(_admits(entries, found, revokers, stems, granters))
        return found


def _admits(
    entries: Sequence[Entry],
    authority: Authority,
    revokers: _Revokers,
    stems: Mapping[Fingerprint, int],
    granters: Collection[Fingerprint],
) -> list[Grant]:
    """The admits in force among these entries, once it is known which keys may grant here; `stems` as in `extended`."""
    pending: dict[Fingerprint, dict[Fingerprint, list[Grant]]] = {}
    for entry in entries:
        if entry.action is Action.ADMIT and authority.allows(entry.fingerprint):
            admit = Grant(entry, fingerprint_of(entry.content))
            pending.setdefault(admit.fingerprint, {}).setdefault(entry.fingerprint, []).append(admit)
    # Anew, since grants have answered the others.
    disputes = _disputes(entries, revokers) if pending else {}
    for key, by_signer in pending.items():
        if key in disputes:
            reach = {signer: revokers.bit_of(signer) | stems.get(signer, 0) for signer in by_signer}
            disputes[key].settle(by_signer, reach, granters)
    return [admit for by_signer in pending.values() for admits in by_signer.values() for admit in admits]


#: The bit of the revokers from which every grant of a key has to fear.
_ANYONES = 1


class _Revokers:
    """The keys that signed revokes, each with a bit of its own."""

    def __init__(self, above: Mapping[Fingerprint, int], depth: int) -> None:
        """`above`: the keys valid above this depth."""
        self._above = above
        self._depth = depth
        self._bits: dict[Fingerprint, int] = {}

    def bit_of(self, fingerprint: Fingerprint) -> int:
        """The bit of a key; 0 for one that signed no revoke."""
        return self._bits.get(fingerprint, 0)

    def add(self, revoke: Entry) -> int:
        """The bit of a revoke: of its signer, or `_ANYONES` if it can take any grant of the key."""
        signer, key = revoke.fingerprint, Fingerprint(revoke.content)
        has_more = signer in self._above and self._above[signer] < self._above.get(key, self._depth)
        if has_more or signer == key:
            return _ANYONES
        return self._bits.setdefault(signer, _ANYONES << 1 + len(self._bits))


@dataclass(slots=True)
class _Dispute:
    """The grants, admits and revokes of one key, of which some may come after others.

    Attributes:
        above: each -> the nearest revoke of the key that it comes after.
        bits: revoke -> its bit.
        behind: each -> the bits of the revokes that come after it.
        answers: revoke -> the number of grants (or admits) that count and of answered revokes directly behind it.
        signers: bit -> its key.
        unanswered: bit -> the number of its revokes without an answer.
        open: the bits that have any.
    """

    above: dict[EntryHash, EntryHash | None] = field(default_factory=dict)
    bits: dict[EntryHash, int] = field(default_factory=dict)
    behind: dict[EntryHash, int] = field(default_factory=dict)
    answers: dict[EntryHash, int] = field(default_factory=dict)
    signers: dict[int, Fingerprint] = field(default_factory=dict)
    unanswered: dict[int, int] = field(default_factory=dict)
    open: int = 0

    def settle(
        self,
        by_signer: dict[Fingerprint, list[Grant]],
        reach: Mapping[Fingerprint, int],
        granters: Collection[Fingerprint],
    ) -> None:
        """Take away the grants that fall.

        Args:
            by_signer: the grants of the key on one level; what falls is removed.
            reach: signer -> the bits of the revokers that can take its grants.
            granters: the keys from which others' grants stem.
        """
        for signer, grants in list(by_signer.items()):
            by_signer[signer] = [
                grant for grant in grants if not self.behind[grant.entry.hash] & _reached(reach, signer)
            ]
            for grant in by_signer[signer]:
                self._answer(grant.entry.hash)
            if not by_signer[signer]:
                # What the key grants does not stem from this signer.
                del by_signer[signer]
        doomed = [signer for signer in by_signer if self.open & _reached(reach, signer)]
        # On two chains each grant may need the other one as the answer, so they fall one after another.
        while doomed:
            opened = {bit for signer in doomed for grant in by_signer.pop(signer) for bit in self._withdraw(grant)}
            if _ANYONES in opened or any(self.signers[bit] in granters for bit in opened):
                newly = sum(opened)
                doomed = [signer for signer in by_signer if newly & _reached(reach, signer)]
            else:
                doomed = [signer for bit in opened if (signer := self.signers[bit]) in by_signer]

    def _answer(self, hash: EntryHash) -> None:
        revoke = self.above[hash]
        while revoke is not None:
            self.answers[revoke] += 1
            if self.answers[revoke] > 1:
                break
            bit = self.bits[revoke]
            self.unanswered[bit] -= 1
            if not self.unanswered[bit]:
                self.open ^= bit
            revoke = self.above[revoke]

    def _withdraw(self, grant: Grant) -> list[int]:
        """The bits of the revokes that had this answer alone."""
        opened = []
        revoke = self.above[grant.entry.hash]
        while revoke is not None:
            self.answers[revoke] -= 1
            if self.answers[revoke]:
                break
            bit = self.bits[revoke]
            self.unanswered[bit] += 1
            self.open |= bit
            opened.append(bit)
            revoke = self.above[revoke]
        return opened


def _reached(reach: Mapping[Fingerprint, int], signer: Fingerprint) -> int:
    return reach[signer] | _ANYONES


def _disputes(entries: Sequence[Entry], revokers: _Revokers) -> dict[Fingerprint, _Dispute]:
    """The disputes about all keys that any of these entries revokes."""
    disputes = {Fingerprint(entry.content): _Dispute() for entry in entries if entry.action is Action.REVOKE}
    if not disputes:
        return disputes
    known = {entry.hash for entry in entries}
    following: dict[EntryHash, list[Entry]] = {}
    for entry in entries:
        following.setdefault(entry.parent, []).append(entry)
    #: Key -> the grants and revokes of it from the first one down to where the pass is.
    chains: dict[Fingerprint, list[EntryHash]] = {}
    todo = [(entry, False) for entry in entries if entry.parent not in known]
    while todo:
        entry, is_left = todo.pop()
        key = named_key(entry)
        dispute = disputes.get(key)
        if not is_left:
            todo.append((entry, True))
            todo.extend((next, False) for next in following.get(entry.hash, ()))
        if dispute is None:
            continue
        chain = chains.setdefault(key, [])
        if not is_left:
            last = chain[-1] if chain else None
            dispute.above[entry.hash] = last if last is None or last in dispute.bits else dispute.above[last]
            dispute.behind[entry.hash] = 0
            if entry.action is Action.REVOKE:
                bit = revokers.add(entry)
                dispute.bits[entry.hash] = bit
                dispute.answers[entry.hash] = 0
                dispute.signers[bit] = entry.fingerprint
                dispute.unanswered[bit] = dispute.unanswered.get(bit, 0) + 1
                dispute.open |= bit
            chain.append(entry.hash)
        else:
            chain.pop()
            if chain:
                own = dispute.bits.get(entry.hash, 0)
                dispute.behind[chain[-1]] |= dispute.behind[entry.hash] | own
    return disputes
