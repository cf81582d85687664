"""What the kernel knows of a TCP connection (Linux: tcp(7), `struct tcp_info` in linux/tcp.h)."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import socket
import struct
import sys
import termios

from basefs.sync.uplink import Flow

#: Where the smoothed and the shortest round trip are in `struct tcp_info`, microseconds as u32.
_RTT = 68
_MIN_RTT = 148
_INFO_SIZE = 192
#: Bytes written at once, and kept for who reads.
CHUNK = 64 * 1024
#: Bytes read at once, as many as one read of the kernel's brings: what waits is given to the log together.
_READ = 256 * 1024
#: Of a connection over which nothing has come back yet.
_UNKNOWN = 0xFFFFFFFF


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


def give_up_after(writer: asyncio.StreamWriter, seconds: float) -> None:
    """Have the kernel end a connection once what was sent has not been acknowledged for so long (RFC 5482).

    By itself it would go on for a quarter of an hour, with up to two minutes between two attempts.
    """
    connection = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):  # it has ended already
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(seconds * 1000))


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


def round_trip(writer: asyncio.StreamWriter) -> float:
    """Seconds of the shortest round trip on a connection, 0 if unknown."""
    return _round_trips(writer.get_extra_info("socket"))[1]


def flow(writer: asyncio.StreamWriter, sent: int) -> Flow:
    """The state of a connection on which `sent` bytes were written."""
    waiting = outstanding(writer)
    latest, shortest = _round_trips(writer.get_extra_info("socket"))
    return Flow(waiting, max(sent - waiting, 0), shortest, latest)


def _round_trips(connection: socket.socket) -> tuple[float, float]:
    """Seconds of the latest (smoothed) and of the shortest round trip, 0 if unknown."""
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_SIZE)
    except (OSError, ValueError):
        return 0.0, 0.0
    if len(info) < _MIN_RTT + 4:
        return 0.0, 0.0  # an old kernel
    (latest,) = struct.unpack_from("=I", info, _RTT)
    (shortest,) = struct.unpack_from("=I", info, _MIN_RTT)
    return latest / 1e6, 0.0 if shortest == _UNKNOWN else shortest / 1e6
