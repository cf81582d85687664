"""Shares: the signatures of recovery keys, one line each, which people carry from machine to machine.

A share holds no secret.  It says for which filesystem, number and new root key it is, and by which recovery key
(docs/formats.md, section 13).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from basefs.daemon.api.messages import OtherKey, RecoveryState
from basefs.daemon.keyfiles import signing_key
from basefs.daemon.token import from_line, to_line
from basefs.errors import NotPermitted, UsageError
from basefs.log.ed25519 import is_signed, is_sound
from basefs.log.extensions import MAX_RECOVERY_NUMBER, Recovery, RecoveryKeys
from basefs.log.keys import SigningKey, parse_public_key
from basefs.log.recovery import message
from basefs.view.keyholder import Recoveries

PREFIX = "share1-"
_FIELDS = struct.Struct(">28sQ32s32s64s")
_DOMAIN = b"basefs share v1\0"
_SPACE = re.compile(r"\s+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Share:
    """The signature of one recovery key.

    Attributes:
        identity: of the filesystem.
        number: of the recovery.
        root_key: the new root key, a raw public key.
        signer: the recovery key, a raw public key.
        signature: 64 bytes.
    """

    identity: bytes
    number: int
    root_key: bytes
    signer: bytes
    signature: bytes

    @classmethod
    def sign(cls, identity: bytes, number: int, root_key: bytes, signer: SigningKey) -> Share:
        """The share of a recovery key."""
        signature = signer.secret.sign(message(identity, number, root_key))
        return cls(identity, number, root_key, signer.public, signature)

    @property
    def is_valid(self) -> bool:
        """Whether the signature is right."""
        signed = message(self.identity, self.number, self.root_key)
        return is_sound(self.signer) and is_signed(signed, self.signature, self.signer)

    def __str__(self) -> str:
        """The one encoding."""
        body = _FIELDS.pack(self.identity, self.number, self.root_key, self.signer, self.signature)
        return to_line(PREFIX, _DOMAIN, body)

    @classmethod
    def parse(cls, text: str) -> Share:
        """The share in a text; spaces and line ends, which mail adds, do not matter.  Raises `UsageError`."""
        compact = _SPACE.sub("", text)
        if not compact.startswith(PREFIX):
            raise UsageError(f"that is no share: it begins with {PREFIX}, as 'basefs recover --sign' printed it")
        try:
            return cls(*_FIELDS.unpack(from_line(PREFIX, _DOMAIN, compact)))
        except (ValueError, struct.error):
            raise UsageError(
                "a share is damaged or cut off: copy the whole line that 'basefs recover --sign' printed"
            ) from None


def make_share(state: RecoveryState, root_key: str, signer: OtherKey, number: int | None) -> str:
    """The share of a recovery key for a new root key, a public key; `number`: `None` for the next recovery.

    Raises `UsageError`.
    """
    key = signing_key(signer)
    if key.public.hex() not in {known.public for known in state.keys}:
        raise UsageError(
            f"{key.fingerprint.hex()[:12]} is no recovery key of this filesystem: 'basefs keys NAME' lists them"
        )
    number = min(state.last + 1, MAX_RECOVERY_NUMBER) if number is None else number
    return str(Share.sign(bytes.fromhex(state.identity), number, parse_public_key(root_key), key))


def public_half(key: OtherKey) -> str:
    """The public key of a key that a request brings along."""
    return signing_key(key).public.hex()


def number_of(shares: Sequence[str]) -> int | None:
    """The number of the recovery that shares are of; `None` without any.  Raises `UsageError`."""
    return Share.parse(shares[0]).number if shares else None


def assemble(state: Recoveries, root_key: bytes, shares: Sequence[Share]) -> Recovery:
    """The recovery that makes a raw public key the root key.

    Raises `NotPermitted` in a filesystem without recovery keys, `UsageError` where the shares do not suffice.
    """
    keys = state.keys
    if keys is None:
        raise NotPermitted("this filesystem was made without recovery keys, so nothing replaces its root key")
    if root_key == state.root_key:
        raise UsageError("that is the root key already")
    for share in shares:
        _check(share, state.root.hash, root_key, keys)
    signatures = {keys.publics.index(share.signer): share.signature for share in shares}
    if len(signatures) < keys.threshold:
        raise UsageError(f"it takes {keys.threshold} recovery keys, and {len(signatures)} signed: add -k or --share")
    numbers = {share.number for share in shares}
    number = max(numbers)
    if len(numbers) > 1:
        raise UsageError(
            "the shares have different numbers: have all of them signed again, with 'basefs recover --sign'"
        )
    if number <= state.last:
        raise UsageError(
            f"the shares are for recovery {number}, and number {state.last} is there already: have them signed again"
        )
    return Recovery(number, tuple(sorted(signatures.items())[: keys.threshold]))


def _check(share: Share, identity: bytes, root_key: bytes, keys: RecoveryKeys) -> None:
    if share.identity != identity:
        raise UsageError("a share is for another filesystem")
    if share.root_key != root_key:
        raise UsageError(f"a share is for another new root key, {share.root_key.hex()}")
    if share.signer not in keys.publics:
        raise UsageError(f"a share is of {share.signer.hex()}, which is no recovery key of this filesystem")
    if not share.is_valid:
        raise UsageError(f"a share has a wrong signature of the recovery key {share.signer.hex()}")
