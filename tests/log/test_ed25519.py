"""Signatures: the same verdict from every library, also about those that no honest key makes."""

from __future__ import annotations

import hashlib
import json
import os
import random
from dataclasses import replace

import pytest
from nacl.bindings import crypto_core_ed25519_add
from nacl.bindings import crypto_scalarmult_ed25519_base_noclamp as times_base

from basefs.errors import InvalidEntry, UsageError
from basefs.log.ed25519 import KEY_CHECKS, LIBRARIES, is_signed, is_sound
from basefs.log.entries import Action
from basefs.log.keys import SigningKey, parse_public_key, verify
from tests.support.helpers import ALICE, ROOT_KEY, genesis, make_replica
from tests.support.project import ROOT

VECTORS = json.loads((ROOT / "tests" / "data" / "signatures.json").read_text())
ORDER = 2**252 + 27742317777372353535851937790883648493
#: The points of small order, in all encodings that a library may take for one.
SMALL = [bytes.fromhex(row["public"]) for row in VECTORS if "small order:" in row["label"]]
#: Crafted signatures: BASEFS_SIGNATURES=1000000 takes a minute of the processor.
COUNT = int(os.environ.get("BASEFS_SIGNATURES", "3000"))


def test_both_libraries_are_compared() -> None:
    assert LIBRARIES.keys() == {"OpenSSL", "libsodium"}
    assert KEY_CHECKS.keys() == {"Python", "libsodium"}


@pytest.mark.parametrize("row", VECTORS, ids=lambda row: row["label"])
def test_vectors(row: dict[str, str]) -> None:
    public, message, signature = (bytes.fromhex(row[name]) for name in ("public", "message", "signature"))
    assert is_sound(public) is row["sound"]
    if is_sound(public):
        assert is_signed(message, signature, public) is row["signed"]


def test_no_library_disagrees_about_keys() -> None:
    chance = random.Random(2)
    whole = [point(scalar(chance), torsion) for torsion in SMALL for _ in range(8)]
    flipped = [(int.from_bytes(key, "little") ^ 1 << chance.randrange(256)).to_bytes(32, "little") for key in whole]
    beyond = [(2**255 - 19 + number | sign << 255).to_bytes(32, "little") for number in range(19) for sign in range(2)]
    random_bytes = [chance.randbytes(32) for _ in range(200)]
    verdicts = set()
    for public in (*SMALL, *whole, *flipped, *beyond, *random_bytes):
        found = {name: is_key(public) for name, is_key in KEY_CHECKS.items()}
        assert len(set(found.values())) == 1, (found, public.hex())
        verdicts.add(found["Python"])
    assert verdicts == {True, False}
    assert not is_sound(whole[0][:31]) and not is_sound(b"")


def scalar(chance: random.Random) -> int:
    return chance.randrange(1, ORDER)


def point(factor: int, torsion: bytes) -> bytes:
    """The encoding of a multiple of the base point, plus a point of small order."""
    return crypto_core_ed25519_add(times_base(factor.to_bytes(32, "little")), torsion)


def hashed(*parts: bytes) -> int:
    return int.from_bytes(hashlib.sha512(b"".join(parts)).digest(), "little")


def test_no_library_disagrees_about_crafted_signatures() -> None:
    chance = random.Random(1)
    secrets = [scalar(chance) for _ in range(6)]
    keys = [(secret, point(secret, torsion)) for secret in secrets for torsion in SMALL]
    keys += [(0, small) for small in SMALL]
    nonces = [(r, point(r, torsion)) for r in (scalar(chance) for _ in range(6)) for torsion in SMALL]
    nonces += [(0, small) for small in SMALL]
    sound = {public: is_sound(public) for _, public in keys}
    verdicts = {True: 0, False: 0}
    for number in range(COUNT):
        (secret, public), (r, begin) = chance.choice(keys), chance.choice(nonces)
        message = number.to_bytes(8, "big")
        s = (r + hashed(begin, public, message) * secret) % ORDER
        signature = bytearray(begin + s.to_bytes(32, "little"))
        match chance.randrange(6):
            case 0:
                signature[chance.randrange(64)] ^= 1 << chance.randrange(8)
            case 1:
                signature[32:] = (s + ORDER).to_bytes(32, "little")
            case 2:
                signature[:32] = ((2**255 - 19 + chance.randrange(19)) | chance.randrange(2) << 255).to_bytes(
                    32, "little"
                )
        if sound[public] and signature[:32] != b"\x01" + bytes(31):
            found = {name: judge(message, bytes(signature), public) for name, judge in LIBRARIES.items()}
            assert len(set(found.values())) == 1, (found, message.hex(), signature.hex(), public.hex())
            verdicts[is_signed(message, bytes(signature), public)] += 1
    assert min(verdicts.values()) > COUNT // 500


@pytest.mark.parametrize("public", SMALL, ids=bytes.hex)
def test_a_key_with_which_anybody_could_sign_is_granted_by_nobody(public: bytes, tmp_path) -> None:
    with pytest.raises(UsageError, match="not a valid Ed25519 public key"):
        parse_public_key(public.hex())
    for action in (Action.GRANT, Action.ADMIT):
        with pytest.raises(InvalidEntry, match="not an Ed25519 key"):
            verify(ALICE.sign(bytes(28), 1, action, b"key", public), ALICE.public)
    replica = make_replica(tmp_path / "log")
    grant = ROOT_KEY.sign(genesis()[-1].hash, 1, Action.GRANT, b"key", public)
    assert replica.apply([grant], []).rejected
    replica.close()


def test_honest_keys_are_sound_and_sign() -> None:
    for number in range(20):
        key = SigningKey.from_seed(bytes([number]) * 32)
        assert is_sound(key.public)
        entry = key.sign(bytes(28), 1, Action.MKDIR, b"d")
        verify(entry, key.public)
        with pytest.raises(InvalidEntry):
            verify(replace(entry, signature=b"\x01" + bytes(31) + entry.signature[32:]), key.public)
