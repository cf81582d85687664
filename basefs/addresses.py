"""The addresses of this machine: what a node listens on, and what it tells others."""

from __future__ import annotations

import ipaddress
import socket

import psutil

from basefs.config import format_address
from basefs.errors import UsageError


def own_addresses() -> list[str]:
    """The IP addresses of this machine."""
    families = (socket.AF_INET, socket.AF_INET6)
    return [
        address.address.partition("%")[0]
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
        if address.family in families
    ]


def resolve_bind(bind: tuple[str, int], interface: str | None) -> tuple[str, int]:
    """The address to listen on.  Raises `UsageError` for an interface that is not there or has no address."""
    host, port = bind
    if interface is None:
        return host, port
    found = [a.address for a in psutil.net_if_addrs().get(interface, ()) if a.family == socket.AF_INET]
    if not found:
        raise UsageError(f"the interface {interface} is not there or has no IPv4 address: see 'ip address'")
    return found[0], port


def advertised(host: str, port: int) -> str | None:
    """What others are told, where Serf could not find out: it looks for a private address and fails without one."""
    if not ipaddress.ip_address(host).is_unspecified:
        return None
    candidates = [ipaddress.ip_address(address) for address in own_addresses()]
    usable = [a for a in candidates if a.version == 4 and not a.is_loopback and not a.is_link_local]
    return format_address(str(min(usable, default=ipaddress.ip_address("127.0.0.1"))), port)
