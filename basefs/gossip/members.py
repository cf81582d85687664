"""Members of the Serf cluster, and which of them are peers of this filesystem.  No I/O."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from basefs.errors import RemoteProtocolError
from basefs.gossip.events import Address

log = logging.getLogger(__name__)

#: Tags that make a member a BaseFS peer: the filesystem's identity (hex) and the port of the sync protocol.
TAG_FS = "fs"
TAG_SYNC = "sync"
#: Names of strangers that were already logged; a cluster with more strangers than this is logged again.
MAX_STRANGERS = 1024


@dataclass(frozen=True, slots=True)
class Member:
    """A node as Serf knows it.  `status`: alive, leaving, left, failed or none; `port`: Serf's own (TCP and UDP)."""

    name: str
    addr: str
    port: int
    tags: dict[str, str]
    status: str

    @property
    def gossip_address(self) -> str:
        """`ip:port`, an IPv6 address in brackets: the form in which Serf joins it."""
        return join_host_port(self.addr, self.port)


@dataclass(frozen=True, slots=True)
class Peer:
    """A member that serves this filesystem.  `host`: IP address; both ports are TCP."""

    name: str
    host: str
    gossip_port: int
    sync_port: int
    status: str

    @property
    def sync_address(self) -> Address:
        """Where it answers the sync protocol."""
        return Address(self.host, self.sync_port)


def join_host_port(host: str, port: int) -> str:
    """`host:port`, with brackets where the host is an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_host_port(text: str) -> tuple[str, int]:
    """The parts of `host:port` or `[host]:port`.  Raises ValueError without a port 1..65535."""
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r}: an IPv6 address needs brackets: [ADDRESS]:PORT")
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is not ADDRESS:PORT")
    return host, int(port)


def parse_member(record: dict[str, Any]) -> Member:
    """A member from an RPC body.  Raises RemoteProtocolError if a field is missing or of another type."""
    try:
        packed = ipaddress.ip_address(bytes(record["Addr"]))
        if isinstance(packed, ipaddress.IPv6Address) and packed.ipv4_mapped is not None:
            packed = packed.ipv4_mapped  # Go keeps an IPv4 address in 16 bytes
        tags = {str(key): str(value) for key, value in (record["Tags"] or {}).items()}
        return Member(str(record["Name"]), str(packed), int(record["Port"]), tags, str(record["Status"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RemoteProtocolError(f"the Serf agent sent a broken member: {error!r}") from error


class PeerFilter:
    """Picks the peers of one filesystem out of the members.

    Members of another filesystem, and those without a usable tag, are ignored, with one INFO message for each name.
    """

    def __init__(self, fsid: bytes, node_name: str) -> None:
        self._fsid = fsid.hex()
        self._node_name = node_name
        self._strangers: dict[str, None] = {}
        #: How many names of strangers were seen.
        self.foreign = 0

    def peers(self, members: Iterable[Member]) -> list[Peer]:
        """The peers among `members`, sorted by name; this node itself is none of them."""
        out = []
        for member in members:
            if member.name == self._node_name:
                continue
            port = member.tags.get(TAG_SYNC, "")
            if member.tags.get(TAG_FS) != self._fsid:
                self._ignore(member.name, "another filesystem")
            elif not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65536):
                self._ignore(member.name, "no sync port")
            else:
                out.append(Peer(member.name, member.addr, member.port, int(port), member.status))
        return sorted(out, key=lambda peer: peer.name)

    def _ignore(self, name: str, reason: str) -> None:
        if name in self._strangers:
            return
        if len(self._strangers) >= MAX_STRANGERS:
            del self._strangers[next(iter(self._strangers))]
        self._strangers[name] = None
        self.foreign += 1
        log.info("ignoring member %r of the Serf cluster: %s", name, reason)
