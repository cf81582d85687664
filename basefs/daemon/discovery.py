"""Where a name leads: the nodes that its DNS TXT records list (docs/commands.md).

A TXT record `basefs=IP` or `basefs=IP:PORT` names a node; a name may have many of them.
"""

from __future__ import annotations

import logging

import dns.exception
import dns.resolver

from basefs.daemon.config import NodeAddress, is_ip, parse_address
from basefs.errors import UsageError

log = logging.getLogger(__name__)

_PREFIX = b"basefs="


def find_nodes(text: str, resolver: dns.resolver.Resolver | None = None) -> list[NodeAddress]:
    """The nodes that `HOST[:PORT]` stands for: those that its TXT records name, or else the host itself.

    Args:
        text: as a user types it.  The port is that of the host; a record may name another one.
        resolver: whom to ask; by default the system's name servers.

    Raises `UsageError` for what is no address.  A name server that does not answer leaves the host itself, which may be
    known otherwise (`/etc/hosts`).
    """
    address = parse_address(text)
    if is_ip(address.host):
        return [address]
    host, port = address
    found = []
    for record in _records(host, resolver):
        if record.startswith(_PREFIX):
            try:
                found.append(parse_address(record[len(_PREFIX) :].decode("utf-8", "replace"), port))
            except UsageError as error:
                log.warning("ignoring a TXT record of %s: %s", host, error)
    return list(dict.fromkeys(found)) or [address]


def _records(host: str, resolver: dns.resolver.Resolver | None) -> list[bytes]:
    try:
        asked = resolver or dns.resolver.Resolver()
        answer = asked.resolve(host, "TXT", lifetime=5.0)
    except dns.exception.DNSException as error:
        log.debug("no TXT records of %s: %s", host, error)
        return []
    # A record of over 255 bytes comes in pieces.
    return sorted(b"".join(data.strings) for data in answer)
