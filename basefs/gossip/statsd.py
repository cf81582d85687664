"""Serf's counters of its own traffic, which it sends to a UDP port of ours on loopback in statsd's format.

The kernel counts bytes by interface, not by process, and a count by process needs rights over the whole network.  Serf
counts the bytes of its messages, without the headers of IP, UDP and TCP, and does not count bytes received by TCP.  Any
local process can send wrong numbers to the port; they are shown, and nothing depends on them.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

#: Serf's name of each counter, as far as we use them (the beginning is its own prefix) -> our field.
_FIELDS = {
    b".memberlist.udp.sent": "udp_sent",
    b".memberlist.udp.received": "udp_received",
    b".memberlist.tcp.sent": "tcp_sent",
}


@dataclass(slots=True)
class SerfTraffic:
    """Totals since this node was started, over all runs of the agent.

    `udp_sent`, `udp_received`, `tcp_sent`: bytes of messages.
    """

    udp_sent: int = 0
    udp_received: int = 0
    tcp_sent: int = 0

    def take(self, datagram: bytes) -> None:
        """Count what one datagram says: lines of `NAME:VALUE|c`; everything else is left out."""
        for line in datagram.split(b"\n"):
            name, _, rest = line.partition(b":")
            value, _, kind = rest.partition(b"|")
            field = _FIELDS.get(name[name.find(b".") :])
            if field is None or kind != b"c":
                continue
            try:
                count = int(float(value))
            except (ValueError, OverflowError):
                continue
            # A larger one is no message of Serf's.
            if 0 <= count < 2**31:
                setattr(self, field, getattr(self, field) + count)


class _Ear(asyncio.DatagramProtocol):
    def __init__(self, traffic: SerfTraffic) -> None:
        self._traffic = traffic

    def datagram_received(self, data: bytes, address: object) -> None:
        self._traffic.take(data)


async def listen(traffic: SerfTraffic) -> tuple[asyncio.DatagramTransport, str]:
    """Open the port; returns its handle, and its "ip:port" for Serf.  Raises OSError."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: _Ear(traffic), local_addr=("127.0.0.1", 0))
    host, port = transport.get_extra_info("sockname")
    return transport, f"{host}:{port}"
