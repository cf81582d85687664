"""Recoveries: m of the n recovery keys that a root entry names put another key in the place of the root key.

    message := DOMAIN, identity of the filesystem (28 B), number (8 B), new root key (32 B)

A recovery is a grant on `/` of a key by itself, with the signatures of m recovery keys over this message.  They are
checked when an entry arrives, so that no log and no view ever holds a false one (docs/formats.md, section 4).
"""

from __future__ import annotations

from basefs.errors import InvalidEntry
from basefs.log.ed25519 import is_signed, is_sound
from basefs.log.entries import Entry
from basefs.log.extensions import RecoveryKeys
from basefs.log.hashes import sha224

#: Prefix of the signed bytes, so that a signature of a recovery is never valid for anything else.
DOMAIN = b"basefs recovery v1\x00"


def message(identity: bytes, number: int, public: bytes) -> bytes:
    """The bytes that recovery keys sign.

    `identity`: hash of the root entry (28 bytes); `number`: of the recovery, from 1 on; `public`: the new root key.
    """
    return DOMAIN + identity + number.to_bytes(8, "big") + public


def check_keys(keys: RecoveryKeys, root_key: bytes) -> None:
    """Check the recovery keys of a filesystem; `root_key`: raw public key.  Raises `InvalidEntry`."""
    if root_key in keys.publics:
        raise InvalidEntry("the root key is one of the recovery keys")
    if not all(map(is_sound, keys.publics)):
        raise InvalidEntry("a recovery key is not an Ed25519 key")


def check_recovery(entry: Entry, root: Entry | None) -> None:
    """Check what makes a grant a recovery, but not its own signature; `root`: the root entry.  Raises `InvalidEntry`.

    A false one costs a single verification: the first signature that is wrong ends it.
    """
    recovery = entry.extensions.recovery
    if recovery is None:
        return
    keys = None if root is None else root.extensions.recovery_keys
    label = f"recovery {entry.hash.hex()[:12]}"
    if root is None or keys is None:
        raise InvalidEntry(f"{label}: the filesystem has no recovery keys")
    if entry.fingerprint != sha224(entry.content):
        raise InvalidEntry(f"{label} is not signed by the key that it makes the root key")
    if len(recovery.signatures) != keys.threshold:
        raise InvalidEntry(f"{label} has {len(recovery.signatures)} signatures, and needs {keys.threshold}")
    signed = message(root.hash, recovery.number, entry.content)
    for index, signature in recovery.signatures:
        if index >= len(keys.publics) or not is_signed(signed, signature, keys.publics[index]):
            raise InvalidEntry(f"{label} has a wrong signature of recovery key {index}")
