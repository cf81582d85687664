"""The identities of the filesystems that this node has fetched, by name: a file in its home that outlives them."""

from __future__ import annotations

import contextlib

from basefs.daemon.config import Home
from basefs.durable import write_file
from basefs.log.hashes import HASH_SIZE

#: Lines of a name and an identity in hex.
_FILE = "identities"


class KnownIdentities:
    """What a name meant the last time, so that another filesystem is noticed (trust on first use)."""

    def __init__(self, home: Home) -> None:
        self._path = home.path / _FILE

    def get(self, name: str) -> bytes | None:
        """The identity of the filesystem that was last fetched under a name; `None` if none was."""
        return self._read().get(name)

    def remember(self, name: str, identity: bytes) -> None:
        """Note what a name means from now on.  Raises OSError."""
        known = self._read()
        if known.get(name) == identity:
            return
        known[name] = identity
        write_file(self._path, "".join(f"{name} {known[name].hex()}\n" for name in sorted(known)).encode())

    def _read(self) -> dict[str, bytes]:
        """What is no such line is left out: without the file a name is only as unknown as it was at first."""
        known = {}
        with contextlib.suppress(OSError):
            for line in self._path.read_text(errors="replace").splitlines():
                name, _, digits = line.partition(" ")
                with contextlib.suppress(ValueError):
                    identity = bytes.fromhex(digits)
                    if len(identity) == HASH_SIZE:
                        known[name] = identity
        return known
