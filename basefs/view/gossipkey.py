"""The gossip key of a closed filesystem, which follows from its log (docs/security.md).

A secret is an annotation, and one hangs behind each revoke.  Entries travel parents first, so whoever has the secret
has the revoke, and gives nothing to the machine that it expels.  The gossip key is the hash of *all* secrets that
count: an expelled machine lacks at least the one behind its own revoke, whatever else it was given by nodes that had
not received that revoke yet.  Equal logs have equal gossip keys, so nobody hands a key over.

A secret counts as long as its signer is valid at `/`.  Others, and those who were revoked, change nothing.
"""

from __future__ import annotations

from hashlib import sha256

from basefs.log.entries import Action, Entry
from basefs.log.hashes import EntryHash
from basefs.log.keys import SigningKey
from basefs.log.store import Store
from basefs.view.invitations import is_invitation
from basefs.view.tree import Tree

#: Prefix of what is hashed and signed, so that neither is ever valid for anything else.
_DOMAIN = b"basefs gossip key v2\x00"


def gossip_key(store: Store, tree: Tree) -> bytes | None:
    """The gossip key, 32 bytes; `None` where no secret counts, as after an import."""
    found = {secret.content for secret in _counting(store, tree)}
    return sha256(_DOMAIN + b"".join(sorted(found))).digest() if found else None


def lacking(store: Store, tree: Tree) -> list[EntryHash]:
    """The revokes behind which no secret that counts hangs, in order of arrival.

    An invitation takes no part in gossip, so its end needs none.
    """
    covered = {secret.parent for secret in _counting(store, tree)}
    entries = (placed.entry for placed in store.keys_behind(0))
    return [entry.hash for entry in entries if needs_secret(entry) and entry.hash not in covered]


def needs_secret(entry: Entry) -> bool:
    """Whether a secret belongs behind an entry."""
    return entry.action is Action.REVOKE and not is_invitation(entry.name)


def _counting(store: Store, tree: Tree) -> list[Entry]:
    root = tree.find(())
    return [] if root is None else store.gossip_keys(root.authority.depths.keys())


def sign_secret(key: SigningKey, behind: EntryHash, made: int) -> Entry:
    """Another secret behind an entry, signed at a time (nanoseconds since 1970).

    A signature of these bytes exists nowhere else, and only the key can make it: its hash is as good as random bits.
    """
    secret = sha256(_DOMAIN + key.secret.sign(_DOMAIN + behind + made.to_bytes(8, "big", signed=True))).digest()
    return key.sign(behind, made, Action.GOSSIP_KEY, b"", secret)
