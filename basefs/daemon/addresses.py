"""The addresses and ports of this machine: what a node listens on, and what it advertises.

Gossip has one port, TCP and UDP, and sync the next one.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Sequence

import psutil

from basefs.daemon.config import SYNC_PORT_OFFSET, parse_address
from basefs.errors import UsageError
from basefs.gossip.members import join_host_port

_IP = ipaddress.IPv4Address | ipaddress.IPv6Address
#: Addresses that take the default route wherever there is one: those of documentation (RFC 5737, RFC 3849).
_WORLD = ("203.0.113.1", "2001:db8::1")
#: Looks in a row that miss the advertised address before another one is advertised.
MISSED_LOOKS = 5


def all_addresses() -> str:
    """Where a node listens unless told otherwise: at every address, of IPv6 as well if the kernel has it."""
    return "::" if socket.has_dualstack_ipv6() else "0.0.0.0"


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
        return str(ipaddress.ip_address(host)), port
    found = [a.address for a in psutil.net_if_addrs().get(interface, ()) if a.family == socket.AF_INET]
    if not found:
        raise UsageError(f"the interface {interface} is not there or has no IPv4 address: see 'ip address'")
    return found[0], port


def advertised(host: str, port: int, others: Sequence[str] = ()) -> str | None:
    """The address to advertise, "ip:port", where this node listens on all its addresses; `None` where it does not.

    A machine has several: of containers, of tunnels.  Others find it at the source address of packets to them
    (`others`: IP addresses, the first one with a route) or to the world; without a route, the smallest address is
    taken.  A node on "::" listens on the addresses of IPv4 as well.
    """
    bind = ipaddress.ip_address(host)
    if not bind.is_unspecified:
        return None
    usable = _reachable(own_addresses(), bind)
    return join_host_port(str(_source(others, usable) or _smallest(usable) or "127.0.0.1"), port)


class Whereabouts:
    """The advertised address, while the addresses of the machine come and go."""

    def __init__(self, told: str, host: str, others: Sequence[str]) -> None:
        """`told`: "ip:port", see `advertised`; `host`: what it listens on; `others`: IP addresses of other nodes."""
        self._first = self._told = told
        self._bind = ipaddress.ip_address(host)
        self._others = others
        self._missed = 0

    def look(self) -> str | None:
        """The address to advertise from now on; `None` if it has not changed.  Raises `OSError`.

        A tunnel or an interface may restart, so an address is replaced only after `MISSED_LOOKS`, and the first one
        returns as soon as the machine has it again.  An address without a route to others is not taken instead: it may
        be that of a container, while the machine is between two networks.
        """
        instead = self._instead(own_addresses())
        if instead is not None:
            self._told = instead
        return instead

    def _instead(self, mine: Sequence[str]) -> str | None:
        host, port = parse_address(self._told)
        had_none = _is_loopback(self._told)
        if self._first != self._told and not _is_loopback(self._first) and parse_address(self._first)[0] in mine:
            self._missed = 0
            return self._first
        if host in mine and not had_none:
            self._missed = 0
            return None
        usable = _reachable(mine, self._bind)
        address = _source(self._others, usable) or (_smallest(usable) if had_none else None)
        self._missed += 1
        if address is None or not (had_none or self._missed >= MISSED_LOOKS):
            return None
        self._missed = 0
        found = join_host_port(str(address), port)
        if _is_loopback(self._first):
            self._first = found
        return found


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(parse_address(address)[0]).is_loopback


def _reachable(addresses: Sequence[str], bind: _IP) -> list[_IP]:
    """Those at which others may find a machine that listens on `bind`."""
    found = [address for address in map(ipaddress.ip_address, addresses) if bind.version == 6 or address.version == 4]
    return [address for address in found if not address.is_loopback and not address.is_link_local]


def _smallest(addresses: Sequence[_IP]) -> _IP | None:
    return min(addresses, key=lambda address: (address.version, int(address)), default=None)


def _source(others: Sequence[str], usable: Sequence[_IP]) -> _IP | None:
    """The one of `usable` from which packets to the first of `others` that has a route would leave, or to the world."""
    for other in (*others, *_WORLD):
        family = socket.AF_INET if ipaddress.ip_address(other).version == 4 else socket.AF_INET6
        # Nothing is sent: the kernel looks for the route.
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((other, 9))
            address = ipaddress.ip_address(probe.getsockname()[0])
            if address in usable:
                return address
    return None


def try_port(host: str, port: int, kind: socket.SocketKind) -> OSError | None:
    """Why a port cannot be listened on, `None` if it can; `kind`: of TCP or UDP."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, kind) as probe:
        if kind is socket.SOCK_STREAM:
            # As the servers do: connections of before that linger are in nobody's way.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            if kind is socket.SOCK_STREAM:
                probe.listen(1)
        except OSError as error:
            return error
    return None


def try_gossip(host: str, port: int) -> OSError | None:
    """Why gossip cannot have a port, `None` if it can."""
    return try_port(host, port, socket.SOCK_STREAM) or try_port(host, port, socket.SOCK_DGRAM)


def free_pair(host: str, port: int) -> int:
    """A gossip port beyond this one that is free, and so is the one of sync; the next one if none is found."""
    after = port + 2 * SYNC_PORT_OFFSET
    for one in range(after, min(after + 2 * 200, 65536 - SYNC_PORT_OFFSET), 2):
        if try_gossip(host, one) is None and try_port(host, one + SYNC_PORT_OFFSET, socket.SOCK_STREAM) is None:
            return one
    return after
