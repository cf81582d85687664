"""The key files of a node: its default key, and new ones."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from basefs.daemon.api.messages import OtherKey
from basefs.daemon.config import Home
from basefs.errors import UsageError
from basefs.log.hashes import sha224
from basefs.log.keys import SigningKey, parse_public_key, read_key


@dataclass(frozen=True, slots=True)
class KeyFile:
    """A private key in a file; `public` and `fingerprint` in hex; `former`: where the key is that was there before."""

    file: str
    fingerprint: str
    public: str
    former: str | None = None


def default_keys(home: Home) -> list[SigningKey]:
    """The default key, if there is one."""
    return [SigningKey.load(home.default_key)] if home.default_key.exists() else []


def own_key_files(home: Home) -> list[KeyFile]:
    """The file of the default key, if there is one."""
    return [_key_file(home.default_key, key) for key in default_keys(home)]


def root_key_files(home: Home, name: str) -> list[KeyFile]:
    """The file of the root key that bootstrap made, if it is still here and can be read."""
    path = home.root_key(name)
    with contextlib.suppress(UsageError):
        return [_key_file(path, SigningKey.load(path))]
    return []


def other_key(path: Path, passphrase: Callable[[], str], agent: str | None) -> OtherKey:
    """The key in a file, for a request: a private one, or a public one whose other half an SSH agent has.

    `agent`: path of the agent's socket, as SSH_AUTH_SOCK names it.  Raises `UsageError`.
    """
    data = read_key(path)
    if b"PRIVATE KEY" in data:
        return OtherKey(seed=SigningKey.parse(data, path, passphrase).seed())
    public = parse_public_key(data.decode(errors="replace"))
    if not agent:
        raise UsageError(
            f"{path} is a public key, and SSH_AUTH_SOCK names no agent that has the private one: start one with "
            "'eval $(ssh-agent); ssh-add', under sudo add --preserve-env=SSH_AUTH_SOCK, or give the private key"
        )
    return OtherKey(agent=os.path.abspath(agent), public=public.hex())


def signing_key(other: OtherKey) -> SigningKey:
    """The key that a request brings along.  Raises `UsageError`."""
    if other.seed is not None:
        return SigningKey.from_seed(other.seed)
    return SigningKey.from_agent(other.agent or "", parse_public_key(other.public or ""))


def make_key(path: Path, *, overwrite: bool = False, passphrase: str = "") -> KeyFile:
    """Make a key pair; see `keep_key`."""
    return keep_key(SigningKey.generate(), path, overwrite=overwrite, passphrase=passphrase)


def keep_key(key: SigningKey, path: Path, *, overwrite: bool = False, passphrase: str = "") -> KeyFile:
    """Write a key pair: `path`, encrypted where there is a passphrase, and `path`.pub beside it.

    `overwrite`: an earlier key stays as `path`.old-FINGERPRINT; a file that is no key, as `path`.old- and a hash of it.

    Raises `Exists`, `UsageError`, `StoreError`, OSError.
    """
    kept = None
    if overwrite and path.exists():
        kept = path.with_name(f"{path.name}.old-{_digits(path)}")
        with contextlib.suppress(FileExistsError):
            os.link(path, kept)
    key.save(path, overwrite=overwrite, passphrase=passphrase)
    return replace(_key_file(path, key), former=None if kept is None else str(kept))


def _digits(path: Path) -> str:
    """What tells a file from others: the beginning of its key's fingerprint, or of its hash where it is no key."""
    try:
        return SigningKey.load(path).fingerprint.hex()[:12]
    except UsageError:
        try:
            return sha224(path.read_bytes()).hex()[:12]
        except OSError as error:
            raise UsageError(f"cannot read the key {path}: {error.strerror}") from None


def ensure_default_key(home: Home) -> KeyFile:
    """The default key, which is made if there is none."""
    if home.default_key.exists():
        return own_key_files(home)[0]
    home.make()
    return make_key(home.default_key)


def unused_key(home: Home, fingerprints: Sequence[str]) -> str | None:
    """The file and fingerprint of the default key if it is none of these, which a daemon signs with."""
    with contextlib.suppress(UsageError):
        for file in own_key_files(home):
            if file.fingerprint not in fingerprints:
                return f"the key in {file.file} ({file.fingerprint[:12]})"
    return None


def _key_file(path: Path, key: SigningKey) -> KeyFile:
    return KeyFile(str(path), key.fingerprint.hex(), key.public.hex())
