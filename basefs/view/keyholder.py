"""Grants and revokes, planned before they are written (docs/authority.md).

A plan supposes its entries and compares the trees.  Where the tree would change under its users it acknowledges what
is there now: behind every path whose last signer stops being valid, and behind every path that would be something
else.  Acks can bring new differences to light, so it supposes again until nothing is left to acknowledge.  A hard link
may show a branch that lost at its first name, or was removed there: no ack can follow that, so the link is rewritten
to name it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from basefs.errors import NotPermitted, PermissionDenied
from basefs.log.entries import Action, Entry
from basefs.log.extensions import Extensions, Quota
from basefs.log.hashes import EntryHash, Fingerprint
from basefs.log.keys import SigningKey, fingerprint_of
from basefs.log.store import Store
from basefs.path import Path, display
from basefs.view.changes import visible
from basefs.view.draft import Draft
from basefs.view.permissions import Authority, Grant
from basefs.view.signer import Signer
from basefs.view.states import Kind, State
from basefs.view.supposing import (
    Difference,
    affected,
    all_grants,
    differences,
    grants_in_force,
    lasting_grants,
    reach,
    supposed,
)
from basefs.view.tree import Node, Tree


@dataclass(frozen=True, slots=True)
class GrantPlan:
    """The effect of a grant or revoke.

    Attributes:
        draft: the acks, then the grants or the revoke; empty if there is nothing to do.
        acks: the paths that are acknowledged, hard links that are made again among them.
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
class _Outlook:
    """The result of a supposition: differing paths, all live paths, the grants and admits that count."""

    differing: list[Difference]
    nodes: Mapping[Path, Node]
    grants: set[tuple[Path, Grant]]

    def changes(self) -> dict[Path, tuple[State, frozenset[EntryHash]] | None]:
        """The new states of the differing paths."""
        return {
            path: None if after is None else (visible(after.state), frozenset(after.outcome.directories))
            for path, _, after in ((d.path, d.before, d.after) for d in self.differing)
        }


#: Acknowledgements: the tip that each follows -> the path, and an ack, or a link with its former mode.
_Acks = dict[EntryHash, tuple[Path, Sequence[Entry]]]


class KeyHolder:
    """Plans the grants and revokes of this node's keys.  Nothing here changes the log."""

    def __init__(self, store: Store, tree: Tree, signer: Signer) -> None:
        self._store = store
        self._tree = tree
        self._signer = signer

    def grant(self, path: Path, key_name: bytes, public: bytes, quota: Quota | None = None) -> GrantPlan:
        """Let a public key write at a path and below it, within a quota.

        Raises `NotFound`, `PermissionDenied`, and `NotPermitted` also where this node's key has a quota itself, or the
        key has a larger one there.
        """
        return self._permit(Action.GRANT, path, key_name, public, quota)

    def admit(self, path: Path, key_name: bytes, public: bytes) -> GrantPlan:
        """Let a public key read the filesystem, and write nothing; `path` decides only who may take it back.

        Raises as `grant`.
        """
        return self._permit(Action.ADMIT, path, key_name, public)

    def _permit(
        self, action: Action, path: Path, key_name: bytes, public: bytes, quota: Quota | None = None
    ) -> GrantPlan:
        node = self._tree.node(path)
        self._require_place(node)
        signer = self._granter(node, path)
        fingerprint = fingerprint_of(public)
        answers, what = node.authority.admits, "an admit"
        if action is Action.GRANT:
            answers, what = node.authority.grants, "a grant"
            self._require_no_less(node, path, fingerprint, quota)
        wanted = path, action, fingerprint, key_name, signer.fingerprint, quota
        for at, one in grants_in_force(self._store, self._tree):
            if wanted == (at, one.entry.action, one.fingerprint, one.entry.name, one.entry.fingerprint, one.quota):
                return GrantPlan(Draft())
        stamp = self._signer.now()
        entries = [
            signer.sign(end, stamp, action, key_name, public, Extensions(quota=quota))
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
        ours = {one for one in grants_in_force(self._store, self._tree) if _names(one, path, fingerprint)}
        removed = self._removed_grants(path, fingerprint)
        revokes: list[Entry] = []
        for made, (authority, grants) in removed.items():
            end = self._chain_ends(path, [made], fingerprint, authority.grants)[-1]
            revokes += self._revoke(self._signer.valid(authority), end, key_name, fingerprint, grants)
        if ours or not removed:
            node = self._tree.node(path)
            self._require_place(node)
            own = self._signer.key_for(node.authority, path)
            # The granter may always revoke its grant; another key of equal authority may not.
            granters = _granters(ours, node.authority)
            others = [key for key in self._signer.valid(node.authority) if key.fingerprint != fingerprint]
            candidates = sorted([*others, own], key=lambda key: key.fingerprint not in granters)
            end = self._chain_ends(path, _made(node), fingerprint, node.authority.grants)[-1]
            revokes += self._revoke(candidates, end, key_name, fingerprint, ours)
        if not revokes:
            raise PermissionDenied(
                f"{key_name.decode('utf-8', 'backslashreplace')} stays granted at {display(path)}: no key that signs "
                "here has authority over it; its granter can revoke it, or a key with higher authority, see -k"
            )
        return self._plan(path, revokes, keep=not discard)

    def _removed_grants(
        self, path: Path, fingerprint: Fingerprint
    ) -> Mapping[EntryHash, tuple[Authority, set[tuple[Path, Grant]]]]:
        """A key's grants on what is not at a path any more: by what it was, with the authority there."""
        removed: dict[EntryHash, tuple[Authority, set[tuple[Path, Grant]]]] = {}
        for one in lasting_grants(self._store, self._tree):
            if _names((one.path, one.grant), path, fingerprint):
                removed.setdefault(one.made, (one.authority, set()))[1].add((path, one.grant))
        return removed

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

    def _granter(self, node: Node, path: Path) -> SigningKey:
        """The key of this node with the highest authority among those that may grant at a path."""
        first = self._signer.key_for(node.authority, path)
        found = (key for key in self._signer.valid(node.authority) if node.authority.may_grant(key.fingerprint))
        granter = next(found, None)
        if granter is None:
            raise NotPermitted(
                f"the key {first.fingerprint.hex()[:12]} has a quota at {display(path)}, so it cannot grant: ask a key "
                "holder without a quota"
            )
        return granter

    @staticmethod
    def _require_no_less(node: Node, path: Path, fingerprint: Fingerprint, quota: Quota | None) -> None:
        """Raise `NotPermitted` where a grant with a quota would change nothing, as quotas do not become smaller."""
        if quota is None or not node.authority.allows(fingerprint):
            return
        limits = node.authority.limits.get(fingerprint)
        present = None if limits is None else limits.get(len(path))
        if limits is None:
            has = "is granted there without a quota"
        elif present is not None and (quota.bytes < present.bytes or quota.entries < present.entries):
            has = "has a larger quota there"
        else:
            return
        raise NotPermitted(f"that key {has}: take that back first, with 'basefs revoke', and grant it again")

    # -- where grants and revokes hang --------------------------------------------------------------------------------

    @staticmethod
    def _require_place(node: Node) -> None:
        if node.state.kind is Kind.SYMLINK or node.state.link is not None:
            # The entry that a grant would hang on lies at another path, or is none that can carry it.
            raise NotPermitted("keys are granted on directories and files, not on links: grant on the directory")

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
            elif any(grant.entry.hash == entry.hash for grant in answers):
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

    def _plan(self, path: Path, entries: Sequence[Entry], *, keep: bool) -> GrantPlan:
        counting = all_grants(self._store, self._tree)
        top = affected(self._tree, path)
        before = reach(self._store, self._tree, top)
        acks: _Acks = {}
        while True:
            outlook = self._suppose(top, before, [*_entries(acks), *entries])
            new = (self._acks(before, outlook, acks) or self._links(before, outlook, acks)) if keep else {}
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
            after = reach(self._store, tree, top)
            return _Outlook(differences(before, after), after, all_grants(self._store, tree))

    def _acks(self, before: dict[Path, Node], outlook: _Outlook, known: Collection[EntryHash]) -> _Acks:
        """The acks that a supposition calls for, and that are not known."""
        acks: _Acks = {}
        acked: set[Path] = set()
        for path, node in before.items():
            valid = self._valid_after(path, outlook, before)
            for tip, authority in zip(node.outcome.tips, node.outcome.authorities, strict=True):
                if tip.hash not in known and authority.allows(tip.fingerprint) > valid.allows(tip.fingerprint):
                    self._add_ack(acks, path, tip, authority, valid)
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
                for tip, authority in zip(outcome.tips, outcome.authorities, strict=True):
                    if tip.hash not in known and self._add_ack(acks, path, tip, authority, valid):
                        acked.add(path)
        return acks

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

    def _links(self, before: dict[Path, Node], outlook: _Outlook, known: _Acks) -> _Acks:
        """The hard links to be made again, because acks have not kept them as they are."""
        links: _Acks = {}
        for difference in outlook.differing:
            node = difference.before
            if node is None or node.state.link is None:
                continue
            end = self._tree.resolver.linked_end(node.state.link)
            tip, authority = node.outcome.tips[0], node.outcome.authorities[0]
            _, tried = known.get(tip.hash, ((), ()))
            key = self._key(authority, self._valid_after(difference.path, outlook, before))
            # A link is a copy as soon as its signer may not write at the path of its file.
            is_copy = difference.after is not None and difference.after.state.origin != node.state.origin
            if (
                (end == node.state.link and not is_copy)
                or any(entry.action is Action.LINK for entry in tried)
                or key is None
            ):
                continue
            state = node.state
            link = key.sign(tip.hash, self._signer.now(), Action.LINK, tip.name, end)
            draft = Draft([link])
            draft.follow_with_mode(key, link, self._tree.linked(end), state.mode, state.owner, state.mtime)
            links[tip.hash] = difference.path, draft.entries
        return links

    def _key(self, authority: Authority, valid: Authority) -> SigningKey | None:
        """A key of this node that is valid on a branch now and then."""
        return next((key for key in self._signer.valid(valid) if authority.allows(key.fingerprint)), None)

    def _add_ack(self, acks: _Acks, path: Path, tip: Entry, authority: Authority, valid: Authority) -> bool:
        """Acknowledge a tip; False if no key of this node can."""
        key = self._key(authority, valid)
        if key is not None:
            acks.setdefault(tip.hash, (path, [key.sign(tip.hash, self._signer.now(), Action.ACK, tip.name)]))
        return key is not None


def _entries(acks: _Acks) -> list[Entry]:
    return [entry for _, entries in acks.values() for entry in entries]


def _made(node: Node) -> list[EntryHash]:
    """The entries that made what is at a path, on which its keys hang."""
    # A file's first entry carries its keys through all its writes.
    made = node.outcome.directories if node.is_directory else (node.state.origin,)
    return [hash for hash in made if hash is not None]


def _names(granted: tuple[Path, Grant], path: Path, fingerprint: Fingerprint) -> bool:
    at, grant = granted
    return (at, grant.fingerprint) == (path, fingerprint)


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
