"""Ed25519 keys, which sign entries (RFC 8032)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InternalError, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_private_key

from basefs.durable import write_file
from basefs.errors import Exists, InvalidEntry, StoreError, UsageError
from basefs.log.ed25519 import PUBLIC_KEY_SIZE, SIGNATURE_SIZE, is_signed, is_sound
from basefs.log.entries import DOMAIN, Action, Entry, check_fields, signed_part
from basefs.log.extensions import NO_EXTENSIONS, Extensions
from basefs.log.hashes import EntryHash, Fingerprint, sha224
from basefs.log.recovery import check_keys, check_recovery
from basefs.log.sshagent import AgentKey

_SSH_ED25519 = "ssh-ed25519"
#: How the first word of a line of SSH begins, of whatever kind the key is.
_SSH_KINDS = ("ssh-", "ecdsa-", "sk-")


def fingerprint_of(public: bytes) -> Fingerprint:
    """The fingerprint of a raw public key: its SHA-224."""
    return Fingerprint(sha224(public))


def named_key(entry: Entry) -> Fingerprint:
    """The key that a grant, revoke or admit names."""
    return Fingerprint(entry.content) if entry.action is Action.REVOKE else fingerprint_of(entry.content)


def verify(entry: Entry, public: bytes, root: Entry | None = None) -> None:
    """Check an entry's signature against a raw public key, the keys that it grants or names, and a recovery.

    `root`: the root entry, which only a recovery needs.  Raises `InvalidEntry`.
    """
    # First, so that a false one costs one signature, and none of a key that nobody knows.
    check_recovery(entry, root)
    if not is_sound(public) or not is_signed(DOMAIN + entry.body, entry.signature, public):
        raise InvalidEntry(f"entry {entry.hash.hex()[:12]} has a wrong signature of key {entry.fingerprint.hex()[:12]}")
    # Only now, since it costs as much as many signatures.
    if entry.action in (Action.GRANT, Action.ADMIT) and not is_sound(entry.content):
        raise InvalidEntry(f"entry {entry.hash.hex()[:12]} grants or admits something that is not an Ed25519 key")
    if entry.extensions.recovery_keys is not None:
        check_keys(entry.extensions.recovery_keys, public)


def is_signed_by(public: bytes, encoded: bytes) -> bool:
    """Whether a raw public key has signed an encoded entry, which this version may be unable to decode."""
    signed, signature = encoded[:-SIGNATURE_SIZE], encoded[-SIGNATURE_SIZE:]
    return is_sound(public) and is_signed(DOMAIN + signed, signature, public)


_NO_ED25519 = "OpenSSL of this machine takes no Ed25519 keys, and BaseFS has no others: a FIPS policy may forbid them"


@contextlib.contextmanager
def _available() -> Iterator[None]:
    """Raise `UsageError` where OpenSSL has no Ed25519."""
    try:
        yield
    except (InternalError, UnsupportedAlgorithm):
        raise UsageError(_NO_ED25519) from None


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A private key that this node signs with.

    Attributes:
        secret: what signs: the key, or the SSH agent that holds it.
        public: raw public key (32 bytes).
        fingerprint: of the public key.
    """

    secret: Ed25519PrivateKey | AgentKey
    public: bytes
    fingerprint: Fingerprint

    @classmethod
    def _of(cls, private: Ed25519PrivateKey) -> SigningKey:
        public = private.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        return cls(private, public, fingerprint_of(public))

    @classmethod
    def generate(cls) -> SigningKey:
        """A new random key.  Raises `UsageError` where OpenSSL has no Ed25519; so do the others below."""
        with _available():
            return cls._of(Ed25519PrivateKey.generate())

    @classmethod
    def from_seed(cls, seed: bytes) -> SigningKey:
        """The key of a 32-byte RFC 8032 secret, which an invitation carries."""
        with _available():
            return cls._of(Ed25519PrivateKey.from_private_bytes(seed))

    @classmethod
    def from_agent(cls, agent: str, public: bytes) -> SigningKey:
        """The key of a raw public key which the SSH agent at a socket holds."""
        return cls(AgentKey(agent, public), public, fingerprint_of(public))

    @property
    def private(self) -> Ed25519PrivateKey:
        """The key itself.  Raises `UsageError` where an agent holds it."""
        if isinstance(self.secret, AgentKey):
            raise UsageError("an SSH agent does not give its keys away")
        return self.secret

    def seed(self) -> bytes:
        """The 32-byte RFC 8032 secret, from which `from_seed` makes this key again; raises as `private`."""
        return self.private.private_bytes(
            serialization.Encoding.Raw, serialization.PrivateFormat.Raw, serialization.NoEncryption()
        )

    @classmethod
    def load(cls, path: Path, passphrase: Callable[[], str] | None = None) -> SigningKey:
        """Read a private key; see `read_key` and `parse`."""
        return cls.parse(read_key(path), path, passphrase)

    @classmethod
    def parse(cls, data: bytes, path: Path, passphrase: Callable[[], str] | None = None) -> SigningKey:
        """A private key: PKCS #8 in PEM, as `save` and `openssl genpkey -algorithm ed25519` write it, or OpenSSH.

        `path`: of the file, for errors; `passphrase` is called where the key is encrypted.

        Raises `UsageError` where it is no Ed25519 private key, or is encrypted and nobody knows the passphrase, and
        what `passphrase` raises.
        """
        read = load_ssh_private_key if b"OPENSSH PRIVATE KEY" in data else load_pem_private_key
        try:
            private = read(data, None)
        except ValueError:
            raise UsageError(f"{path} is not a private key in the PEM format, or that of OpenSSH") from None
        except TypeError:
            # So it is encrypted.
            if passphrase is None:
                raise UsageError(
                    f"the key {path} has a passphrase, which a daemon cannot ask for: use a key without one here"
                ) from None
            private = _decrypted(path, data, read, passphrase())
        except UnsupportedAlgorithm as error:
            raise UsageError(f"cannot read the key {path}: {error}") from None
        except InternalError:
            raise UsageError(_NO_ED25519) from None
        if not isinstance(private, Ed25519PrivateKey):
            raise UsageError(f"{path} is not an Ed25519 key: make one with 'basefs genkey'")
        return cls._of(private)

    def save(self, path: Path, *, overwrite: bool = False, passphrase: str = "") -> None:
        """Write the private key to `path` (mode 0600) and the public key, in hex, to `path`.pub, both durably.

        `passphrase`: encrypts the private key, unless it is empty.

        Raises `Exists` if there is a file and `overwrite` is not set, and `StoreError` if it cannot be written.
        """
        if path.exists() and not overwrite:
            raise Exists(f"{path} exists already: -f replaces it, and files that only it may write become read-only")
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if passphrase:
            encryption = serialization.BestAvailableEncryption(passphrase.encode("utf-8", "surrogateescape"))
        pem = self.private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
        try:
            write_file(path, pem, mode=0o600)
            write_file(path.with_name(path.name + ".pub"), self.public.hex().encode() + b"\n", mode=0o644)
        except OSError as error:
            raise StoreError(f"cannot write the key {path}: {os.strerror(error.errno or 0)}") from None

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
        signature = self.secret.sign(DOMAIN + body)
        return Entry(EntryHash(parent), made, action, name, content, extensions, self.fingerprint, signature)


def read_key(path: Path) -> bytes:
    """The bytes of a key file, read once, so that it may be a pipe.  Raises `UsageError`."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise UsageError(f"no key at {path}: make one with 'basefs genkey {path}'") from None
    except OSError as error:
        raise UsageError(f"cannot read the key {path}: {error.strerror}") from None


def _decrypted(
    path: Path, data: bytes, read: Callable[[bytes, bytes], PrivateKeyTypes], passphrase: str
) -> PrivateKeyTypes:
    try:
        return read(data, passphrase.encode("utf-8", "surrogateescape"))
    except (ValueError, TypeError):
        raise UsageError(f"that is not the passphrase of {path}") from None
    except UnsupportedAlgorithm as error:
        # Of OpenSSH's format: it takes a library that need not be there.
        raise UsageError(f"cannot decrypt {path}: {error}; use 'ssh-add {path}' and give {path}.pub") from None


def parse_public_key(text: str) -> bytes:
    """The raw public key of 64 hexadecimal digits, or of a line of SSH (`ssh-ed25519 ...`).  Raises `UsageError`."""
    words = text.split()
    public = _from_ssh(words[:2]) if words[:1] and words[0].startswith(_SSH_KINDS) else _from_hex(text.strip())
    if not is_sound(public):
        raise UsageError(f"{' '.join(words)} is not a valid Ed25519 public key: anybody could sign with it, or nobody")
    return public


def _from_hex(text: str) -> bytes:
    try:
        public = bytes.fromhex(text)
    except ValueError:
        public = b""
    if len(public) != PUBLIC_KEY_SIZE:
        raise UsageError(
            f"a public key is {2 * PUBLIC_KEY_SIZE} hexadecimal digits, as in the .pub file of genkey, or a line of "
            "SSH that begins with ssh-ed25519"
        )
    return public


def _from_ssh(words: list[str]) -> bytes:
    """The key in a line of an `id_ed25519.pub` (RFC 4253, section 6.6; RFC 8709, section 4)."""
    if words[0] != _SSH_ED25519:
        raise UsageError(f"a key of the kind {words[0]} cannot sign here: make one with 'ssh-keygen -t ed25519'")
    try:
        key = serialization.load_ssh_public_key(" ".join(words).encode("utf-8", "surrogateescape"))
    except (ValueError, UnsupportedAlgorithm):
        raise UsageError("that line is not whole: give all of the file that ssh-keygen has made") from None
    return key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
