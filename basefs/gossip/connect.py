"""Opening a TCP connection within a time limit, without losing a socket when it comes too late."""

from __future__ import annotations

import asyncio

from basefs.tasks import within

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def open_tcp(host: str, port: int, timeout: float) -> Streams:
    """A connection to host and port.  Raises OSError, or asyncio's TimeoutError after `timeout` seconds."""
    return await within(timeout, asyncio.open_connection(host, port), lambda streams: streams[1].close())


async def probe(host: str, port: int, timeout: float) -> tuple[str, int] | None:
    """The IP address and port behind this if it takes a connection within `timeout` seconds, which is closed at once.

    `None` if it does not, or makes no sense.
    """
    try:
        _, writer = await open_tcp(host, port, timeout)
    except (OSError, ValueError, asyncio.TimeoutError):  # UnicodeError, of a strange host name, is a ValueError
        return None
    address: tuple[str, int] = writer.get_extra_info("peername")[:2]
    writer.close()
    return address
