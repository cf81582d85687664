"""Grants and revokes, planned before they are written (docs/authority.md).

A plan supposes its entries and compares the trees.  Where the tree would change under its users it acknowledges what
is there now: behind every path whose last signer stops being valid, and behind every path that would be something
else.  Acks can bring new differences to light, so it supposes again until nothing is left to acknowledge.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from basefs.errors import NotPermitted, PermissionDenied
from basefs.log.entries import BEARING_ACTIONS, Action, Entry
from basefs.log.extensions import NO_EXTENSIONS, Extensions, Recovery, RecoveryKeys
from basefs.log.hashes import EntryHash, Fingerprint
from basefs.log.keys import SigningKey, fingerprint_of
from basefs.log.placement import ROOT_PATH_ID, EntryKind
from basefs.log.store import Store
from basefs.path import Path, display
from basefs.view.changes import visible
from basefs.view.draft import Draft
from basefs.view.gossipkey import gossip_key, lacking, needs_secret, sign_secret
from basefs.view.grants import PlacedGrant, all_grants, placed_grants
from basefs.view.permissions import Authority, Grant
from basefs.view.signer import Signer
from basefs.view.states import State
from basefs.view.supposing import Difference, affected, differences, subtree, supposed
from basefs.view.tree import Node, Tree
from basefs.view.walk import Outcome


@dataclass(frozen=True, slots=True)
class GrantPlan:
    """The effect of a grant or revoke.

    Attributes:
        draft: the acks, then the grants or the revoke; empty if there is nothing to do.
        acks: the paths that are acknowledged.
        changed: the paths that will be something else all the same.
        fallen: the grants and admits that do not count any more, with the path on which they hang.
        gained: the grants and admits that count then.
    """

    draft: Draft
    acks: tuple[Path, ...] = ()
    changed: tuple[Difference, ...] = ()
    fallen: tuple[tuple[Path, Grant], ...] = ()
    gained: tuple[tuple[Path, Grant], ...] = ()


@dataclass(frozen=True, slots=True)
class Recoveries:
    """How the root key can be replaced, and has been.

    Attributes:
        root: the root entry.
        keys: the recovery keys; `None` where nothing replaces the root key.
        last: the highest number of a recovery in the log, whether or not it counts; 0 without any.
        root_key: the present root key, a raw public key.
    """

    root: Entry
    keys: RecoveryKeys | None
    last: int
    root_key: bytes


@dataclass(frozen=True, slots=True)
class _Outlook:
    """The result of a supposition: differing paths, all live paths, the grants and admits that count, the root key."""

    differing: list[Difference]
    nodes: Mapping[Path, Node]
    grants: set[tuple[Path, Grant]]
    root: Authority

    def changes(self) -> dict[Path, tuple[State, frozenset[EntryHash]] | None]:
        """The new states of the differing paths."""
        return {
            one.path: None
            if one.after is None
            else (visible(one.after.state), frozenset(one.after.outcome.directories))
            for one in self.differing
        }


#: Acknowledgements: the tip that each follows -> the path, and the ack.
_Acks = dict[EntryHash, tuple[Path, Entry]]


class _Chains:
    """What one key hangs on paths in one draft, one behind the other.

    Attributes:
        entries: parents first.
    """

    def __init__(self, key: SigningKey, made: int) -> None:
        """`made`: when it signs."""
        self._key = key
        self._made = made
        #: The end of a chain in the log -> the last entry that is to come behind it.
        self._last: dict[EntryHash, EntryHash] = {}
        self.entries: list[Entry] = []

    def next(
        self, end: EntryHash, action: Action, name: bytes, content: bytes, extensions: Extensions = NO_EXTENSIONS
    ) -> Entry:
        """The next entry of the chain with this end, not added to it."""
        return self._key.sign(self._last.get(end, end), self._made, action, name, content, extensions)

    def add(
        self, end: EntryHash, action: Action, name: bytes, content: bytes, extensions: Extensions = NO_EXTENSIONS
    ) -> None:
        """Sign the next entry of the chain with this end."""
        entry = self.next(end, action, name, content, extensions)
        self._last[end] = entry.hash
        self.entries.append(entry)

    def repeat(self, end: EntryHash, grant: Grant) -> None:
        """Sign a grant or admit of another key anew, in the chain with this end."""
        entry = grant.entry
        self.add(end, entry.action, entry.name, entry.content)


class KeyHolder:
    """Plans the grants and revokes of this node's keys.  Nothing here changes the log."""

    def __init__(self, store: Store, tree: Tree, signer: Signer) -> None:
        self._store = store
        self._tree = tree
        self._signer = signer

    def grant(self, path: Path, key_name: bytes, public: bytes) -> GrantPlan:
        """Let a public key write at a path and below it.  Raises `NotFound`, `PermissionDenied`, `NotPermitted`."""
        return self._permit(Action.GRANT, path, key_name, public)

    def admit(self, path: Path, key_name: bytes, public: bytes) -> GrantPlan:
        """Let a public key read the filesystem, and write nothing; `path` decides only who may take it back.

        Raises as `grant`.
        """
        return self._permit(Action.ADMIT, path, key_name, public)

    def _permit(self, action: Action, path: Path, key_name: bytes, public: bytes) -> GrantPlan:
        node = self._tree.node(path)
        self._require_place(node)
        signer = self._signer.key_for(node.authority, path)
        fingerprint = fingerprint_of(public)
        answers, what = node.authority.admits, "an admit"
        if action is Action.GRANT:
            answers, what = node.authority.grants, "a grant"
        wanted = action, key_name, signer.fingerprint
        for one in self._placed(path, fingerprint):
            entry = one.grant.entry
            if one.in_force and wanted == (entry.action, entry.name, entry.fingerprint):
                return GrantPlan(Draft())
        stamp = self._signer.now()
        entries = [
            signer.sign(end, stamp, action, key_name, public)
            for end in self._chain_ends(path, _made(node), fingerprint, answers)
        ]
        plan = self._plan(path, entries, keep=True)
        if not any((at, one.entry.action, one.fingerprint) == (path, action, fingerprint) for at, one in plan.gained):
            raise PermissionDenied(
                f"{what} at {display(path)} would have no effect: a key with higher authority has revoked it"
            )
        return plan

    def revoke(self, path: Path, key_name: bytes, fingerprint: Fingerprint, *, discard: bool = False) -> GrantPlan:
        """Take a key's grants and admits on a path back; `discard` leaves the acks out.

        Also of one that is gone, where the key may read still.  Raises `NotFound`, and `PermissionDenied` where no key
        of this node has the authority.
        """
        placed = self._placed(path, fingerprint)
        ours = {(path, one.grant) for one in placed if one.in_force}
        #: What is not there any more, by its entry.
        removed: dict[EntryHash, list[PlacedGrant]] = {}
        for one in placed:
            if not one.in_force:
                removed.setdefault(one.made, []).append(one)
        revokes: list[Entry] = []
        for made, grants in removed.items():
            authority = grants[0].authority
            end = self._chain_ends(path, [made], fingerprint, authority.grants)[-1]
            taken = {(path, one.grant) for one in grants}
            revokes += self._revoke(self._signer.valid(authority), end, key_name, fingerprint, taken)
        if ours or not removed:
            node = self._tree.node(path)
            if not ours:
                # A key that may write at a path may leave something else in the place of the file that grants hang on.
                self._require_place(node)
            own = self._signer.key_for(node.authority, path)
            # The granter may always revoke its grant; another key of equal authority may not.
            granters = _granters(ours, node.authority)
            others = [key for key in self._signer.valid(node.authority) if key.fingerprint != fingerprint]
            candidates = sorted([*others, own], key=lambda key: key.fingerprint not in granters)
            # Of a directory that several nodes have made, each one with a grant: any of them may be removed alone.
            for made in dict.fromkeys(one.made for one in placed if one.in_force):
                end = self._chain_ends(path, [made], fingerprint, node.authority.grants)[-1]
                revokes += self._revoke(candidates, end, key_name, fingerprint, ours)
        if not revokes:
            raise PermissionDenied(
                f"{key_name.decode('utf-8', 'backslashreplace')} stays granted at {display(path)}: no key that signs "
                "here has authority over it; its granter can revoke it, or a key with higher authority, see -k"
            )
        return self._with_secrets(self._plan(path, revokes, keep=not discard), fingerprint)

    def renew_gossip_key(self, *, if_due: bool = False) -> Draft:
        """Another secret of the gossip key behind each revoke that lacks one, or else behind the grant that came last.

        `if_due`: only where a revoke lacks one, or where there is none at all.  Raises `NotPermitted` where no key of
        this node is valid at `/`.
        """
        key = self._secret_maker()
        if key is None:
            raise NotPermitted("no key that signs here is valid at /, so it makes no gossip key: see -k")
        behind = lacking(self._store, self._tree)
        if not behind and not (if_due and gossip_key(self._store, self._tree)):
            behind = [self._store.keys_behind(0)[-1].entry.hash]
        return Draft(self._secrets(key, behind))

    def _with_secrets(self, plan: GrantPlan, revoked: Fingerprint) -> GrantPlan:
        """The same with a secret behind each revoke.  Where a key revokes itself, others make it."""
        key = self._secret_maker(revoked)
        if key is None:
            return plan
        entries = plan.draft.entries
        return replace(plan, draft=Draft([*entries, *self._secrets(key, _in_need(entries))]))

    def _secret_maker(self, revoked: Fingerprint | None = None) -> SigningKey | None:
        """The key that makes secrets here, if any: in a closed filesystem, one that is valid at `/` and not revoked."""
        keys = self._signer.valid(self._tree.root.authority) if self._is_closed() else []
        return next((key for key in keys if key.fingerprint != revoked), None)

    def _secrets(self, key: SigningKey, behind: Iterable[EntryHash]) -> list[Entry]:
        made = self._signer.now()
        return [sign_secret(key, entry, made) for entry in behind]

    def _is_closed(self) -> bool:
        root = self._store.root()
        return root is not None and not root.extensions.is_open

    def _placed(self, path: Path, fingerprint: Fingerprint) -> list[PlacedGrant]:
        """The grants and admits of a key at a path by which it may read."""
        counting = placed_grants(self._store, self._tree)
        return [one for one in counting if (one.path, one.grant.fingerprint) == (path, fingerprint)]

    def _revoke(
        self,
        candidates: Sequence[SigningKey],
        end: EntryHash,
        key_name: bytes,
        fingerprint: Fingerprint,
        ours: set[tuple[Path, Grant]],
    ) -> list[Entry]:
        """The revoke behind an entry, by the one of these keys that takes back most of some grants, if any does."""
        stamp = self._signer.now()
        best: list[Entry] = []
        least = len(ours)
        for key in dict.fromkeys(candidates):
            entry = key.sign(end, stamp, Action.REVOKE, key_name, fingerprint)
            with supposed(self._store, self._tree.resolver, [entry]) as tree:
                left = len(ours & all_grants(self._store, tree))
            if left < least:
                best, least = [entry], left
        return best

    def recoveries(self) -> Recoveries:
        """How the root key can be replaced, and has been."""
        root = self._store.root()
        (fingerprint,) = self._tree.resolver.root_authority().depths
        public = self._store.granted.key(fingerprint)
        assert root is not None and public is not None, "a tree has its root entry, and the grant of the root key"
        found = (placed.entry.extensions.recovery for placed in self._store.keys_at(ROOT_PATH_ID))
        last = max((recovery.number for recovery in found if recovery is not None), default=0)
        return Recoveries(root, root.extensions.recovery_keys, last, public)

    def recover(
        self, key_name: bytes, recovery: Recovery, dropped: Collection[Fingerprint] = (), *, discard: bool = False
    ) -> GrantPlan:
        """Make the key that signs the root key, and grant anew what counted by the former one.

        What the former root key has revoked stays revoked.

        Args:
            key_name: of the new root key.
            recovery: with the signatures that it takes.
            dropped: keys that are granted nothing then, nor what they have granted.
            discard: leave out the acks of what those have signed.
        """
        key = self._signer.keys[0]
        former = self._tree.resolver.root_authority()
        gone = {*former.depths, *dropped} - {key.fingerprint}
        counting = sorted(placed_grants(self._store, self._tree), key=lambda one: _order((one.path, one.grant)))
        top = self._tree.root
        end = self._chain_ends((), _made(top), key.fingerprint, top.authority.grants)[-1]
        chains = _Chains(key, self._signer.now())
        chains.add(end, Action.GRANT, key_name, key.public, Extensions(recovery=recovery))
        for one in counting:
            if one.grant.entry.fingerprint in former.depths and one.grant.fingerprint not in {*gone, key.fingerprint}:
                self._grant_again(chains, one, former)
        known = {one.grant.entry.hash for one in counting}
        settled: set[tuple[EntryHash, Fingerprint]] = set()
        while True:
            # All of this counts from this entry on: it is behind the recovery and the grants on '/'.
            entries = [*chains.entries, chains.next(end, Action.GRANT, key_name, key.public)]
            unwanted = self._unwanted(entries, known, gone)
            new = unwanted.keys() - settled
            if not new:
                break
            settled |= new
            for made, fingerprint in sorted(new):
                kept = () if fingerprint in gone else [one for one in counting if one.made == made]
                self._settle(chains, unwanted[made, fingerprint], kept)
        plan = self._plan((), entries, keep=True, discarded=dropped if discard else ())
        acks = plan.draft.entries[: -len(entries)]
        again = {(path, grant.fingerprint) for path, grant in plan.gained}
        fallen = tuple(one for one in plan.fallen if (one[0], one[1].fingerprint) not in again)
        gained = tuple(one for one in plan.gained if one[1].entry.extensions.recovery is None)
        signed = [*entries[:-1], *acks, entries[-1]]
        if self._is_closed():
            signed += self._secrets(key, [*_in_need(signed), entries[-1].hash])
        return replace(plan, draft=Draft(signed), fallen=fallen, gained=gained)

    def _unwanted(
        self, entries: Sequence[Entry], known: Collection[EntryHash], gone: Collection[Fingerprint]
    ) -> dict[tuple[EntryHash, Fingerprint], PlacedGrant]:
        """What would count once these entries do: grants of keys that are gone, and of others that were taken back.

        By what they hang on and the key; `known`: the grants that count now.
        """
        expected = {*known, *(entry.hash for entry in entries)}
        with supposed(self._store, self._tree.resolver, entries) as tree:
            return {
                (one.made, one.grant.fingerprint): one
                for one in placed_grants(self._store, tree)
                if one.grant.fingerprint in gone
                or (one.grant.entry.hash not in expected and one.grant.fingerprint != entries[0].fingerprint)
            }

    def _grant_again(self, chains: _Chains, one: PlacedGrant, former: Authority) -> None:
        """Sign once more what the former root key has granted."""
        is_grant = one.grant.entry.action is Action.GRANT
        counting = one.authority.grants if is_grant else one.authority.admits
        answers = [other for other in counting if other.entry.fingerprint not in former.depths]
        for end in self._chain_ends(one.path, [one.made], one.grant.fingerprint, answers):
            chains.repeat(end, one.grant)

    def _settle(self, chains: _Chains, unwanted: PlacedGrant, counting: Iterable[PlacedGrant]) -> None:
        """Take back what would count again of a key at a path, and grant what counted of it before, of these."""
        fingerprint = unwanted.grant.fingerprint
        end = self._chain_ends(unwanted.path, [unwanted.made], fingerprint, unwanted.authority.grants)[-1]
        chains.add(end, Action.REVOKE, unwanted.grant.entry.name, fingerprint)
        for one in counting:
            if one.grant.fingerprint == fingerprint:
                chains.repeat(end, one.grant)

    # -- where grants and revokes hang --------------------------------------------------------------------------------

    def _require_place(self, node: Node) -> None:
        began = None if node.state.origin is None else self._store.get(node.state.origin)
        if began is not None and began.entry.action not in BEARING_ACTIONS:
            # The log takes a grant behind no other entry.
            raise NotPermitted("keys are granted on directories and files: grant on the directory")

    def _chain_ends(
        self, path: Path, made: Iterable[EntryHash], fingerprint: Fingerprint, answers: Sequence[Grant]
    ) -> list[EntryHash]:
        """The grants, revokes and admits of a path behind which the next one for a key goes, or the path's own entry.

        `made`: the entries that made what is there.

        Grants and revokes on several nodes make several chains.  Every revoke of the key must be answered, so these
        are the ends of all chains with one that is not; otherwise the end of the longest chain alone.  `answers`: the
        grants, or admits, in force on the path.
        """
        #: entry -> the revokes of the key above it, and the length of its chain
        chains: dict[EntryHash, tuple[frozenset[EntryHash], int]] = {head: (frozenset(), 0) for head in made}
        answering = {grant.entry.hash for grant in answers}
        parents = set()
        answered: set[EntryHash] = set()
        path_id = self._store.paths.id_of(path)
        for placed in () if path_id is None else self._store.keys_at(path_id):
            # In order of arrival, so each one comes after its parent.
            entry = placed.entry
            if entry.parent not in chains:
                continue
            revokes, length = chains[entry.parent]
            if entry.action is Action.REVOKE and entry.content == fingerprint:
                revokes |= {entry.hash}
            elif entry.hash in answering:
                answered |= revokes if fingerprint_of(entry.content) == fingerprint else set()
            chains[entry.hash] = (revokes, length + 1)
            parents.add(entry.parent)
        ends = sorted((end for end in chains if end not in parents), key=lambda end: (chains[end][1], end))
        chosen: list[EntryHash] = []
        for end in reversed(ends):
            unanswered = chains[end][0] - answered
            if unanswered:
                chosen.append(end)
                answered |= unanswered
        return chosen or [ends[-1]]

    # -- supposing ----------------------------------------------------------------------------------------------------

    def _plan(
        self, path: Path, entries: Sequence[Entry], *, keep: bool, discarded: Collection[Fingerprint] = ()
    ) -> GrantPlan:
        """The plan of these entries with the acks that they need, before them; none of what these keys have signed."""
        counting = all_grants(self._store, self._tree)
        top = affected(self._tree, path)
        before = subtree(self._tree, top)
        acks: _Acks = {}
        while True:
            outlook = self._suppose(top, before, [*_entries(acks), *entries])
            new = self._acks(before, outlook, acks, discarded) if keep else {}
            if not new:
                break
            acks.update(new)
        changed = outlook.changes()
        vain = {tip for tip, (at, _) in acks.items() if at in changed}
        if vain:
            without = {tip: ack for tip, ack in acks.items() if tip not in vain}
            again = self._suppose(top, before, [*_entries(without), *entries])
            if again.changes() == changed:
                acks, outlook = without, again
        return GrantPlan(
            Draft([*_entries(acks), *entries]),
            tuple(sorted({at for at, _ in acks.values()})),
            tuple(outlook.differing),
            tuple(sorted(counting - outlook.grants, key=_order)),
            tuple(sorted(outlook.grants - counting, key=_order)),
        )

    def _suppose(self, top: Path, before: dict[Path, Node], entries: Sequence[Entry]) -> _Outlook:
        with supposed(self._store, self._tree.resolver, entries) as tree:
            after = subtree(tree, top)
            grants, root = all_grants(self._store, tree), tree.resolver.root_authority()
            return _Outlook(differences(before, after), after, grants, root)

    def _acks(
        self,
        before: dict[Path, Node],
        outlook: _Outlook,
        known: _Acks,
        discarded: Collection[Fingerprint],
    ) -> _Acks:
        """The acks that a supposition calls for and that are not known; none of what the discarded keys have signed."""
        acks: _Acks = {}
        acked: set[Path] = set()
        for path, node in before.items():
            valid = self._valid_after(path, outlook, before)
            for tip, authority in self._tips(node.outcome, known, discarded):
                if authority.allows(tip.fingerprint) > valid.allows(tip.fingerprint):
                    self._add_ack(acks, path, tip, self._key(authority, valid, outlook))
        if acks:
            # Often that is all: one more key on a branch that needs none may decide what two keys have left to chance.
            return acks
        for difference in outlook.differing:
            path = difference.path
            if any(path[:depth] in acked for depth in range(len(path))):
                # That may be all that was wrong here as well.
                continue
            valid = self._valid_after(path, outlook, before)
            outcome = None if difference.before is None else difference.before.outcome
            if outcome is None and path:
                directory = before.get(path[:-1]) or self._tree.find(path[:-1])
                if directory is not None and directory.is_directory:
                    # A name that was removed, and would be back.
                    outcome = self._tree.absent(directory, path[-1])
            if outcome is not None:
                for tip, authority in self._tips(outcome, known, discarded):
                    if self._add_ack(acks, path, tip, self._key(authority, valid, outlook)):
                        acked.add(path)
        return acks

    def _tips(
        self, outcome: Outcome, known: _Acks, discarded: Collection[Fingerprint]
    ) -> Iterator[tuple[Entry, Authority]]:
        """The tips of an outcome that are not known, with the keys valid there.

        Of a branch that the discarded keys have signed last, what was there before.
        """
        for tip, authority in zip(outcome.tips, outcome.authorities, strict=True):
            entry: Entry | None = tip
            while entry is not None and entry.fingerprint in discarded:
                placed, above = self._store.get(entry.hash), self._store.get(entry.parent)
                follows = placed is not None and placed.kind is EntryKind.SUCCESSOR
                entry = above.entry if follows and above is not None else None
            if entry is not None and entry.hash not in known:
                yield entry, authority

    def _valid_after(self, path: Path, outlook: _Outlook, before: dict[Path, Node]) -> Authority:
        """The keys valid at a path in a supposed tree; of a path that is gone there, those of the nearest above it."""
        for depth in range(len(path), -1, -1):
            node = outlook.nodes.get(path[:depth])
            if node is not None:
                return node.authority
            if path[:depth] not in before:
                break
        above = self._tree.find(path[:depth])
        return self._tree.root.authority if above is None else above.authority

    def _key(self, authority: Authority, valid: Authority, outlook: _Outlook) -> SigningKey | None:
        """A key of this node that is valid on a branch now and then; the root key then is valid on all of them."""
        keys = self._signer.valid(valid)
        return next((k for k in keys if authority.allows(k.fingerprint) or outlook.root.allows(k.fingerprint)), None)

    def _add_ack(self, acks: _Acks, path: Path, tip: Entry, key: SigningKey | None) -> bool:
        """Acknowledge a tip with a key; False without one."""
        if key is not None:
            acks.setdefault(tip.hash, (path, key.sign(tip.hash, self._signer.now(), Action.ACK, tip.name)))
        return key is not None


def _entries(acks: _Acks) -> list[Entry]:
    return [entry for _, entry in acks.values()]


def _in_need(entries: Iterable[Entry]) -> list[EntryHash]:
    """Those of these entries behind which a secret belongs."""
    return [entry.hash for entry in entries if needs_secret(entry)]


def _made(node: Node) -> list[EntryHash]:
    """The entries that made what is at a path, on which its keys hang."""
    # A file's first entry carries its keys through all its writes.
    made = node.outcome.directories if node.is_directory else (node.state.origin,)
    return [hash for hash in made if hash is not None]


def _granters(granted: Collection[tuple[Path, Grant]], authority: Authority) -> set[Fingerprint]:
    """The keys from which these grants stem, directly or through others."""
    signers: dict[Fingerprint, set[Fingerprint]] = {}
    for grant in authority.grants:
        signers.setdefault(grant.fingerprint, set()).add(grant.entry.fingerprint)
    found: set[Fingerprint] = set()
    todo = [grant.entry.fingerprint for _, grant in granted]
    while todo:
        key = todo.pop()
        if key not in found:
            found.add(key)
            todo.extend(signers.get(key, ()))
    return found


def _order(granted: tuple[Path, Grant]) -> tuple[Path, bytes, EntryHash]:
    path, grant = granted
    return path, grant.entry.name, grant.entry.hash
