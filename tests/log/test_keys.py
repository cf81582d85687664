"""Keys: files, signatures, fingerprints."""

from __future__ import annotations

import dataclasses
import stat
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from basefs.errors import Exists, InvalidEntry, UsageError
from basefs.log.entries import DOMAIN, Action
from basefs.log.hashes import HASH_SIZE, sha224
from basefs.log.keys import SigningKey, fingerprint_of, parse_public_key, verify
from tests.log.vectors import SECRETS
from tests.support.helpers import ALICE, ROOT_KEY

PARENT = bytes(HASH_SIZE)


def test_rfc_8032_keys() -> None:
    publics = [SigningKey.from_seed(secret).public.hex() for secret in SECRETS]
    assert publics == [
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
    ]


def test_fingerprint() -> None:
    assert ALICE.fingerprint == fingerprint_of(ALICE.public) == sha224(ALICE.public)


def test_signature_covers_the_domain_and_the_body() -> None:
    entry = ALICE.sign(PARENT, 1, Action.MKDIR, b"d")
    verify(entry, ALICE.public)
    ALICE.private.public_key().verify(entry.signature, DOMAIN + entry.body)
    for wrong in (
        dataclasses.replace(entry, made=2),
        dataclasses.replace(entry, signature=ALICE.private.sign(entry.body)),
        dataclasses.replace(entry, signature=bytes(64)),
    ):
        with pytest.raises(InvalidEntry):
            verify(wrong, ALICE.public)
    with pytest.raises(InvalidEntry):
        verify(entry, ROOT_KEY.public)


def test_a_public_key_that_is_none() -> None:
    with pytest.raises(InvalidEntry):
        verify(ALICE.sign(PARENT, 1, Action.MKDIR, b"d"), b"\xff" * 32)


def test_sign_refuses_what_the_format_forbids() -> None:
    with pytest.raises(InvalidEntry):
        ALICE.sign(PARENT, 1, Action.MKDIR, b"a/b")


def test_save_and_load(tmp_path: Path) -> None:
    file = tmp_path / "key"
    ALICE.save(file)
    loaded = SigningKey.load(file)
    assert (loaded.public, loaded.fingerprint) == (ALICE.public, ALICE.fingerprint)
    assert loaded.sign(PARENT, 1, Action.MKDIR, b"d") == ALICE.sign(PARENT, 1, Action.MKDIR, b"d")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert parse_public_key((tmp_path / "key.pub").read_text()) == ALICE.public


def test_save_never_replaces_by_accident(tmp_path: Path) -> None:
    file = tmp_path / "key"
    ALICE.save(file)
    with pytest.raises(Exists):
        ROOT_KEY.save(file)
    assert SigningKey.load(file).public == ALICE.public
    ROOT_KEY.save(file, overwrite=True)
    assert SigningKey.load(file).public == ROOT_KEY.public


def test_generated_keys_differ() -> None:
    assert SigningKey.generate().public != SigningKey.generate().public


def test_a_key_made_by_openssl(tmp_path: Path) -> None:
    file = tmp_path / "key"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", file], capture_output=True, check=True)
    entry = SigningKey.load(file).sign(PARENT, 1, Action.MKDIR, b"d")
    verify(entry, SigningKey.load(file).public)


def test_no_key(tmp_path: Path) -> None:
    missing, text, other = tmp_path / "missing", tmp_path / "text", tmp_path / "other"
    text.write_text("not a key")
    other.write_bytes(
        X25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    for file in (missing, text, other, tmp_path):
        with pytest.raises(UsageError):
            SigningKey.load(file)


@pytest.mark.parametrize("text", ["", "xy" * 32, "ab" * 31, "ab" * 33])
def test_no_public_key(text: str) -> None:
    with pytest.raises(UsageError):
        parse_public_key(text)
