"""Ed25519 keys, which sign entries (RFC 8032)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from basefs.durable import write_file
from basefs.errors import InvalidEntry, UsageError
from basefs.log.entries import DOMAIN, Action, Entry, check_fields, signed_part
from basefs.log.hashes import FINGERPRINT_SIZE, EntryHash, Fingerprint, sha224

PUBLIC_KEY_SIZE = 32


def fingerprint_of(public: bytes) -> Fingerprint:
    """The fingerprint of a raw public key: the first 16 bytes of its SHA-224."""
    return Fingerprint(sha224(public)[:FINGERPRINT_SIZE])


@lru_cache(maxsize=1024)
def _public_key(public: bytes) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(public)


def verify(entry: Entry, public: bytes) -> None:
    """Check an entry's signature against a raw public key.  Raises `InvalidEntry`."""
    try:
        _public_key(public).verify(entry.signature, DOMAIN + entry.body)
    except (InvalidSignature, ValueError):
        raise InvalidEntry(
            f"entry {entry.hash.hex()[:12]} has a wrong signature of key {entry.fingerprint.hex()[:12]}"
        ) from None


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A private key that this node signs with.

    Attributes:
        private: the Ed25519 key object.
        public: raw public key (32 bytes).
        fingerprint: of the public key.
    """

    private: Ed25519PrivateKey
    public: bytes
    fingerprint: Fingerprint

    @classmethod
    def _of(cls, private: Ed25519PrivateKey) -> SigningKey:
        public = private.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        return cls(private, public, fingerprint_of(public))

    @classmethod
    def generate(cls) -> SigningKey:
        """A new random key."""
        return cls._of(Ed25519PrivateKey.generate())

    @classmethod
    def from_seed(cls, seed: bytes) -> SigningKey:
        """The key of a 32-byte RFC 8032 secret; for test vectors."""
        return cls._of(Ed25519PrivateKey.from_private_bytes(seed))

    @classmethod
    def load(cls, path: Path) -> SigningKey:
        """Read a PKCS #8 PEM file, as `save` and `openssl genpkey -algorithm ed25519` write it.

        Raises `UsageError` where the file is missing, unreadable, or holds no Ed25519 private key.
        """
        try:
            private = serialization.load_pem_private_key(path.read_bytes(), password=None)
        except FileNotFoundError:
            raise UsageError(f"no key at {path}: make one with 'basefs genkey {path}'") from None
        except OSError as error:
            raise UsageError(f"cannot read the key {path}: {error.strerror}") from None
        except (ValueError, TypeError):
            raise UsageError(f"{path} is not an unencrypted private key in PEM format") from None
        if not isinstance(private, Ed25519PrivateKey):
            raise UsageError(f"{path} is not an Ed25519 key: make one with 'basefs genkey'")
        return cls._of(private)

    def save(self, path: Path, *, overwrite: bool = False) -> None:
        """Write the private key to `path` (mode 0600) and the public key, in hex, to `path`.pub, both durably.

        Raises `UsageError` if the file exists and `overwrite` is not set, or if it cannot be written.
        """
        if path.exists() and not overwrite:
            raise UsageError(f"{path} exists already: -f replaces it, and what it signed can no longer be continued")
        pem = self.private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_file(path, pem, mode=0o600)
            write_file(path.with_name(path.name + ".pub"), self.public.hex().encode() + b"\n", mode=0o644)
        except OSError as error:
            raise UsageError(f"cannot write the key {path}: {os.strerror(error.errno or 0)}") from None

    def sign(
        self, parent: bytes, timestamp: int, action: Action, name: bytes, content: bytes = b"", size: int = 0
    ) -> Entry:
        """Make an entry.  Raises `InvalidEntry` if the fields break a rule of the format."""
        check_fields(action, name, content, size)
        body = signed_part(parent, timestamp, action, name, content, size, self.fingerprint)
        signature = self.private.sign(DOMAIN + body)
        return Entry(EntryHash(parent), timestamp, action, name, content, size, self.fingerprint, signature)


def parse_public_key(text: str) -> bytes:
    """The raw public key of 64 hexadecimal digits.  Raises `UsageError`."""
    try:
        public = bytes.fromhex(text.strip())
        _public_key(public)
    except ValueError:
        raise UsageError(
            f"a public key is {2 * PUBLIC_KEY_SIZE} hexadecimal digits, as in the .pub file of genkey"
        ) from None
    return public
