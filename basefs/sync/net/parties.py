"""Parties: a peer counts by its proved key, or by its network address if it has proved none.

What one party does is held against nobody else, and what each party gets of a node is bounded.
"""

from __future__ import annotations

import ipaddress
from typing import NewType

#: The name of a party; only this module makes any.
Party = NewType("Party", str)


#: All members whose keys are not valid at `/`, where they share.
_OTHERS = Party("others")


class Parties:
    """The parties of one node's peers, and which come first.

    A key that may grant makes any number of members, so those whose keys are valid at `/` come before all others, and
    share nothing with them.
    """

    def __init__(self) -> None:
        self._first: frozenset[Party] | None = None

    def prefer(self, keys: frozenset[bytes]) -> None:
        """These members (raw public keys) come first from now on; before, all do."""
        self._first = frozenset(map(_of_key, keys))

    def comes_first(self, who: Party) -> bool:
        """Whether a party that has proved a key comes before others."""
        return self._first is None or who in self._first

    def of(self, host: str, key: bytes) -> Party:
        """The party of a peer at a host; `key`: the raw public key that it has proved to hold, empty if none."""
        return _of_key(key) if key else Party(f"address {prefixes_of(host)[0].hex()}")

    def sharing(self, host: str, key: bytes) -> Party:
        """The same where all that do not come first share what there is for one party."""
        return _OTHERS if key and not self.comes_first(_of_key(key)) else self.of(host, key)

    def answering(self, address: tuple[str, int], key: bytes) -> Party:
        """The party of the peer that answers at an address: without a key the endpoint, as peers may share a host."""
        return _of_key(key) if key else Party("{}:{}".format(*address))


def _of_key(key: bytes) -> Party:
    return Party(f"key {key.hex()}")


def prefixes_of(host: str) -> tuple[bytes, bytes]:
    """The prefixes that identify a host and its network."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host.encode(), host.encode()
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    raw = address.packed
    # One machine can have all addresses of an IPv6 /64, and one customer those of a /24 or /48.
    return raw[: {4: 4, 6: 8}[address.version]], raw[: {4: 3, 6: 6}[address.version]]
