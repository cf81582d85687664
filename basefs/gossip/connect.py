"""Opening a TCP connection within a time limit, without losing a socket when it comes too late."""

from __future__ import annotations

import asyncio

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def open_tcp(host: str, port: int, timeout: float) -> Streams:
    """A connection to host and port.  Raises OSError, or asyncio's TimeoutError after `timeout` seconds.

    `asyncio.wait_for` may drop a connection that was made in the very moment in which time ran out or the caller was
    cancelled; this closes it.
    """
    opening = asyncio.ensure_future(asyncio.open_connection(host, port))
    try:
        await asyncio.wait({opening}, timeout=timeout)
        if opening.done():
            return opening.result()
        raise asyncio.TimeoutError
    except BaseException:
        opening.cancel()
        opening.add_done_callback(_close)
        raise


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


def _close(opening: asyncio.Future[Streams]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result()[1].close()
