"""Names of keys, for people: what the grant or admit of the highest authority calls a key.

A holder of one directory, or of a key that was revoked, may sign grants of any key under any name.  So a name counts by
the grant that gives it: grants in force before others, which count only while their signer is valid; then those on a
higher directory, those nearer to the keys of the filesystem, and those that came first in the chain.
"""

from __future__ import annotations

from collections import Counter

from basefs.log.entries import Action
from basefs.log.hashes import EntryHash, Fingerprint
from basefs.log.keys import fingerprint_of
from basefs.log.store import Store
from basefs.path import Path
from basefs.view.permissions import Authority
from basefs.view.tree import Tree

#: Digits of the fingerprint that tell keys of one name apart.
_DIGITS = 6
#: Where a grant stands: whether it is not in force, depth, keys between it and those of the filesystem, place, hash.
_Rank = tuple[bool, int, int, int, EntryHash]


def key_names(store: Store, tree: Tree) -> dict[Fingerprint, str]:
    """The names of all keys that have one; where several share one, each with digits of its fingerprint."""
    best: dict[Fingerprint, tuple[_Rank, str]] = {}
    for path_id in store.key_paths():
        path = store.paths.path_of(path_id)
        node = tree.find(path)
        # Entries in a deleted directory stay in the history; the names count that keys valid above it have given.
        authority = _authority_above(tree, path) if node is None else node.authority
        distances = {} if node is None else _distances(authority, len(path), tree.resolver.root_authority())
        places: dict[EntryHash, int] = {}
        for entry in (placed.entry for placed in store.keys_at(path_id)):
            places[entry.hash] = place = places.get(entry.parent, -1) + 1
            if entry.action is Action.REVOKE or not authority.allows(entry.fingerprint):
                continue
            distance = distances.get(entry.hash)
            rank = distance is None, len(path), distance or 0, place, entry.hash
            found = rank, entry.name.decode("utf-8", "backslashreplace")
            fingerprint = fingerprint_of(entry.content)
            best[fingerprint] = min(found, best.get(fingerprint, found))
    shared = Counter(name for _, name in best.values())
    return {
        # A name may look as if it had digits.
        fingerprint: name if shared[name] == 1 and not name.endswith(")") else f"{name} ({fingerprint.hex()[:_DIGITS]})"
        for fingerprint, (_, name) in best.items()
    }


def _authority_above(tree: Tree, path: Path) -> Authority:
    """The authority of the nearest directory above a path that is there."""
    above = (tree.find(path[:depth]) for depth in range(len(path) - 1, 0, -1))
    return next((node.authority for node in above if node is not None), tree.root.authority)


def _distances(authority: Authority, depth: int, root: Authority) -> dict[EntryHash, int]:
    """How many keys of this directory stand between each grant or admit in force and the keys valid above."""
    signers: dict[Fingerprint, int] = {}
    found: dict[EntryHash, int] = {}
    # Those of a granter come behind the grants that make it one.
    for grant in authority.in_force:
        signer = grant.entry.fingerprint
        is_above = authority.depths[signer] < depth or root.allows(signer)
        found[grant.entry.hash] = distance = 0 if is_above else signers[signer]
        if grant.entry.action is Action.GRANT:
            signers.setdefault(grant.fingerprint, distance + 1)
    return found
