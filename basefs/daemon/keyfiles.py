"""The key files of a node: its default key, and new ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from basefs.daemon.config import Home
from basefs.log.keys import SigningKey


@dataclass(frozen=True, slots=True)
class KeyFile:
    """A private key in a file; `public` and `fingerprint` in hex."""

    path: str
    fingerprint: str
    public: str


def default_keys(home: Home) -> list[SigningKey]:
    """The default key, if there is one."""
    return [SigningKey.load(home.default_key)] if home.default_key.exists() else []


def own_key_files(home: Home) -> list[KeyFile]:
    """The file of the default key, if there is one."""
    return [_key_file(home.default_key, key) for key in default_keys(home)]


def make_key(path: Path, *, overwrite: bool = False) -> KeyFile:
    """Make a key pair: `path`, and `path`.pub beside it.  Raises `Exists`, OSError."""
    key = SigningKey.generate()
    key.save(path, overwrite=overwrite)
    return _key_file(path, key)


def ensure_default_key(home: Home) -> KeyFile:
    """The default key, which is made if there is none."""
    return own_key_files(home)[0] if home.default_key.exists() else make_key(home.default_key)


def _key_file(path: Path, key: SigningKey) -> KeyFile:
    return KeyFile(str(path), key.fingerprint.hex(), key.public.hex())
