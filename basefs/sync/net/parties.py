"""Parties: a peer counts by its proved key, or by its network address if it has proved none.

What one party does is held against nobody else, and what each party gets of a node is bounded.
"""

from __future__ import annotations

import ipaddress

#: Bytes of an IPv4 or IPv6 address that are one address, and those that are the network around it: one machine can have
#: all addresses of an IPv6 /64, and one customer those of a /24 or /48.
_ADDRESS_BYTES = {4: 4, 6: 8}
_NETWORK_BYTES = {4: 3, 6: 6}


def party(host: str, key: bytes) -> str:
    """The party of a peer at a host; `key`: the raw public key that it has proved to hold, empty if none."""
    return f"key {key.hex()}" if key else f"address {prefixes_of(host)[0].hex()}"


def prefixes_of(host: str) -> tuple[bytes, bytes]:
    """The prefixes that identify a host and its network."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host.encode(), host.encode()
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    raw = address.packed
    return raw[: _ADDRESS_BYTES[address.version]], raw[: _NETWORK_BYTES[address.version]]
