"""Parties: a peer counts by its proved key, or by its network address if it has proved none.

What one party does is held against nobody else, and what each party gets of a node is bounded.  Members with the same
sponsors are one party.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import NewType

#: The name of a party; only this module makes any.
Party = NewType("Party", str)


class Parties:
    """The parties of one node's peers."""

    def __init__(self) -> None:
        self._groups: Mapping[bytes, bytes] = {}

    def group(self, groups: Mapping[bytes, bytes]) -> None:
        """Count these raw public keys together that have the same value: a key that may grant makes any number."""
        self._groups = groups

    def of(self, host: str, key: bytes) -> Party:
        """The party of a peer at a host; `key`: the raw public key that it has proved to hold, empty if none."""
        if key:
            return Party(f"key {self._groups.get(key, key).hex()}")
        return Party(f"address {prefixes_of(host)[0].hex()}")

    def answering(self, address: tuple[str, int], key: bytes) -> Party:
        """The party of the peer that answers at an address: without a key the endpoint, as peers may share a host."""
        return self.of(address[0], key) if key else Party("{}:{}".format(*address))


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
