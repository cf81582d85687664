"""What the kernel knows of a TCP connection (Linux: tcp(7), `struct tcp_info` in linux/tcp.h)."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import socket
import struct
import sys
import termios

from basefs.sync.net.uplink import Flow

#: Where the smoothed and the shortest round trip are in `struct tcp_info`, microseconds as u32; and how many segments
#: were sent again, and how many with data in all, as u32.
_RTT = 68
_REPEATED = 100
_MIN_RTT = 148
_SEGMENTS = 156
_INFO_SIZE = 192
#: Bytes written at once, and kept for who reads.
CHUNK = 64 * 1024
#: Bytes read at once, as many as one read of the kernel's brings: what waits is given to the log together.
_READ = 256 * 1024
#: Of a connection over which nothing has come back yet.
_UNKNOWN = 0xFFFFFFFF
#: The option of linux/tcp.h for the longest time-out, in milliseconds (Linux 6.15); Python has no name for it.
_TCP_RTO_MAX_MS = 44
#: Seconds, and round trips, after which the kernel sends again what was not acknowledged, however often that was in
#: vain.  It would double the time up to two minutes: where half of all packets are lost, a connection then does nothing
#: most of the time (docs/network.md).  Less than a second is not allowed, and less than a round trip would send
#: everything twice.
RETRY_SECONDS = 1.0
RETRY_ROUND_TRIPS = 3
#: The longest that the kernel allows.
_RETRY_AT_MOST = 120.0


def outstanding(writer: asyncio.StreamWriter) -> int:
    """Bytes that were written and that the peer has not acknowledged; of a closed connection none."""
    return writer.transport.get_write_buffer_size() + _in_kernel(writer)


def _in_kernel(writer: asyncio.StreamWriter) -> int:
    connection = writer.get_extra_info("socket")
    try:
        answer = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4))
    except (OSError, ValueError):
        return 0
    return int.from_bytes(answer, sys.byteorder)


def retry_after(round_trip: float) -> float:
    """Seconds after which to send again what was not acknowledged, at the latest, where a round trip takes so long."""
    return min(max(RETRY_SECONDS, RETRY_ROUND_TRIPS * round_trip), _RETRY_AT_MOST)


def persist(writer: asyncio.StreamWriter, seconds: float) -> None:
    """Have the kernel try again and again, and end a connection on which nothing is acknowledged for so many seconds.

    By itself it would go on for a quarter of an hour, with up to two minutes between two attempts.  Call it now and
    then, since round trips change.  A kernel that does not know one of these options goes on as it does for everybody.
    """
    connection = writer.get_extra_info("socket")
    latest = _info(connection).get(_RTT, 0) / 1e6
    options = (
        (_TCP_RTO_MAX_MS, round(retry_after(latest) * 1000)),
        (socket.TCP_USER_TIMEOUT, round(seconds * 1000)),  # RFC 5482
    )
    for option, value in options:
        with contextlib.suppress(OSError):  # not known, or the connection has ended
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


async def read_some(reader: asyncio.StreamReader, seconds: float | None) -> bytes | None:
    """What has come, b"" at the end, however the connection ended; `None` if nothing does for so many seconds."""
    try:
        return await asyncio.wait_for(reader.read(_READ), seconds)
    except asyncio.TimeoutError:
        # The kernel's time-out of a connection is the same error.
        return None if reader.exception() is None else b""
    except OSError:
        return b""


async def throw_away(reader: asyncio.StreamReader, most: int) -> None:
    """Read until there is no more, or until it is more than so many bytes.  Raises OSError."""
    while most > 0 and (data := await reader.read(CHUNK)):
        most -= len(data)


def flow(writer: asyncio.StreamWriter, sent: int) -> Flow:
    """The state of a connection on which `sent` bytes were written."""
    waiting = outstanding(writer)
    info = _info(writer.get_extra_info("socket"))
    shortest = info.get(_MIN_RTT, 0)
    return Flow(
        outstanding=waiting,
        acknowledged=max(sent - waiting, 0),
        shortest=0.0 if shortest == _UNKNOWN else shortest / 1e6,
        latest=info.get(_RTT, 0) / 1e6,
        segments=info.get(_SEGMENTS, 0),
        repeated=info.get(_REPEATED, 0),
    )


def _info(connection: socket.socket) -> dict[int, int]:
    """What the kernel tells of a connection, by place; nothing of a closed one or from an old kernel."""
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_SIZE)
    except (OSError, ValueError):
        return {}
    places = (_RTT, _REPEATED, _MIN_RTT, _SEGMENTS)
    if len(info) < max(places) + 4:
        return {}
    return {place: struct.unpack_from("=I", info, place)[0] for place in places}
