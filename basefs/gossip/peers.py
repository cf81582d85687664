"""The addresses of peers, kept for ever.

Serf forgets a failed member after 24 hours.  Two halves of a network that were apart for longer would then never meet
again, so the addresses are kept in a file: a JSON list of "address:port" strings, the one seen last at the end.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterable
from pathlib import Path

from basefs.durable import write_file
from basefs.gossip.members import split_host_port

log = logging.getLogger(__name__)

#: The name of the file, beside the log.
PEERS_FILE = "peers.json"
#: Addresses kept.  More would make the file grow with every address that a roaming node ever had; fewer would forget
#: real peers of a large network.  The one seen longest ago goes first.
MAX_PEERS = 1024
#: A file longer than this is not ours: 1024 addresses of 47 characters are under 64 KiB.
_MAX_FILE = 1024 * 1024


class PeerBook:
    """An ordered, bounded set of addresses with a file behind it.

    1. The file is replaced as a whole (`basefs/durable.py`), so it is never half.
    2. `add` changes memory only; `save` writes if the set has changed since it was loaded or saved.
    3. A file that cannot be read costs the addresses in it and nothing else: a WARNING, and an empty book.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._addresses: dict[str, None] = dict.fromkeys(_load(path))
        self._saved = frozenset(self._addresses)
        self._saving = threading.Lock()  # one save at a time, also if the task that waits for one is cancelled

    @property
    def addresses(self) -> list[str]:
        """All addresses, the one seen last first."""
        return list(reversed(self._addresses))

    def add(self, addresses: Iterable[str]) -> None:
        """Note that these addresses were seen alive just now."""
        for address in addresses:
            self._addresses.pop(address, None)
            self._addresses[address] = None
        while len(self._addresses) > MAX_PEERS:
            del self._addresses[next(iter(self._addresses))]

    @property
    def changed(self) -> bool:
        """Whether `save` has something to write."""
        return self._saved != self._addresses.keys()

    def save(self) -> None:
        """Write the file if the set has changed.  Blocks on the disk.  Raises OSError; the old file is whole then."""
        with self._saving:
            addresses = list(self._addresses)
            if self._saved != frozenset(addresses):
                write_file(self._path, json.dumps(addresses, indent=0).encode() + b"\n", mode=0o600)
                self._saved = frozenset(addresses)


def _load(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            data = json.loads(file.read(_MAX_FILE))
        if not isinstance(data, list):
            raise TypeError("not a list")
        for address in data:
            if not isinstance(address, str):
                raise TypeError("not a list of strings")
            split_host_port(address)
        return list(dict.fromkeys(data))[-MAX_PEERS:]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, RecursionError) as error:
        log.warning("cannot read %s, starting without known peers: %s", path, error)
        return []
