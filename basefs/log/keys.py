"""Ed25519 keys, which sign entries (RFC 8032)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from basefs.durable import write_file
from basefs.errors import Exists, InvalidEntry, UsageError
from basefs.log.ed25519 import PUBLIC_KEY_SIZE, is_signed, is_sound
from basefs.log.entries import DOMAIN, Action, Entry, check_fields, signed_part
from basefs.log.extensions import NO_EXTENSIONS, Extensions
from basefs.log.hashes import EntryHash, Fingerprint, sha224


def fingerprint_of(public: bytes) -> Fingerprint:
    """The fingerprint of a raw public key: its SHA-224."""
    return Fingerprint(sha224(public))


def verify(entry: Entry, public: bytes) -> None:
    """Check an entry's signature against a raw public key, and the key that it grants.  Raises `InvalidEntry`."""
    if not is_sound(public) or not is_signed(DOMAIN + entry.body, entry.signature, public):
        raise InvalidEntry(f"entry {entry.hash.hex()[:12]} has a wrong signature of key {entry.fingerprint.hex()[:12]}")
    # Only now, since it costs as much as many signatures.
    if entry.action in (Action.GRANT, Action.ADMIT) and not is_sound(entry.content):
        raise InvalidEntry(f"entry {entry.hash.hex()[:12]} grants or admits something that is not an Ed25519 key")


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
        """The key of a 32-byte RFC 8032 secret, which an invitation carries."""
        return cls._of(Ed25519PrivateKey.from_private_bytes(seed))

    def seed(self) -> bytes:
        """The 32-byte RFC 8032 secret, from which `from_seed` makes this key again."""
        return self.private.private_bytes(
            serialization.Encoding.Raw, serialization.PrivateFormat.Raw, serialization.NoEncryption()
        )

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

        Raises `Exists` if there is a file and `overwrite` is not set, and `UsageError` if it cannot be written.
        """
        if path.exists() and not overwrite:
            raise Exists(f"{path} exists already: -f replaces it, and files that only it may write become read-only")
        pem = self.private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        try:
            write_file(path, pem, mode=0o600)
            write_file(path.with_name(path.name + ".pub"), self.public.hex().encode() + b"\n", mode=0o644)
        except OSError as error:
            raise UsageError(f"cannot write the key {path}: {os.strerror(error.errno or 0)}") from None

    def sign(
        self,
        parent: bytes,
        made: int,
        action: Action,
        name: bytes,
        content: bytes = b"",
        extensions: Extensions = NO_EXTENSIONS,
    ) -> Entry:
        """Make an entry; `made`: nanoseconds since 1970.  Raises `InvalidEntry` if it breaks a rule of the format."""
        check_fields(action, name, content, extensions)
        body = signed_part(parent, made, action, name, content, extensions, self.fingerprint)
        signature = self.private.sign(DOMAIN + body)
        return Entry(EntryHash(parent), made, action, name, content, extensions, self.fingerprint, signature)


def parse_public_key(text: str) -> bytes:
    """The raw public key of 64 hexadecimal digits.  Raises `UsageError`."""
    try:
        public = bytes.fromhex(text.strip())
    except ValueError:
        public = b""
    if len(public) != PUBLIC_KEY_SIZE:
        raise UsageError(f"a public key is {2 * PUBLIC_KEY_SIZE} hexadecimal digits, as in the .pub file of genkey")
    if not is_sound(public):
        raise UsageError(f"{text.strip()} is not a valid Ed25519 public key: anybody could sign with it, or nobody")
    return public
