"""A TCP connection of a session, plain or under TLS: its bytes, and what the kernel knows of it.

What the kernel knows is in tcp(7) and `struct tcp_info` of linux/tcp.h.  Under TLS all numbers are of ciphertext, which
is what a peer acknowledges.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import socket
import struct
import sys
import termios
from collections.abc import Awaitable, Callable, Iterator

from basefs.sync.net.tls import FIRST_BYTE, Credentials, Refused, TlsFilter
from basefs.sync.net.uplink import Flow
from basefs.sync.session.result import Reason
from basefs.sync.wire.codec import encode
from basefs.sync.wire.messages import Refusal, Refuse
from basefs.tasks import within

#: Where the smoothed and the shortest round trip are in `struct tcp_info`, microseconds as u32.
_RTT = 68
_MIN_RTT = 148
#: Bytes written at once, and kept for who reads.
CHUNK = 64 * 1024
#: The option of linux/tcp.h for the longest time-out, in milliseconds (Linux 6.15); Python has no name for it.
_TCP_RTO_MAX_MS = 44
#: Round trips, and at least a second, after which the kernel sends again what was not acknowledged, however often that
#: was in vain.  It would double the time up to two minutes: where half of all packets are lost, a connection then does
#: nothing most of the time (docs/lab-notes.md).  Less than a second is not allowed, and less than a round trip would
#: send everything twice.
ROUND_TRIPS = 3

_OPEN = encode(Refuse(Refusal.TLS, "this filesystem is open: no TLS"))
_CLOSED = encode(Refuse(Refusal.TLS, "this filesystem is closed: TLS, and members only"))


def retry_after(round_trip: float) -> float:
    """Seconds after which to send again what was not acknowledged, at the latest, where a round trip takes so long."""
    # The kernel allows no more than two minutes.
    return min(max(1.0, ROUND_TRIPS * round_trip), 120.0)


@contextlib.contextmanager
def _copied() -> Iterator[None]:
    """Raises a copy of an OSError that asyncio stores with the connection.

    The reason is that of `Refused.copy`.
    """
    try:
        yield
    except OSError as error:
        raise type(error)(*error.args) from error.with_traceback(None)


class Connection:
    """One connection.

    Attributes:
        peer: the raw public key that the peer has proved to hold; `None` without TLS, or where any server is trusted.
        refused: why TLS has ended the connection, `None` if it has not.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A plain connection."""
        self._reader = reader
        self._writer = writer
        self._tls: TlsFilter | None = None
        self._begun = False
        self._overhead = [0, 0]
        self.peer: bytes | None = None
        self.refused: Refused | None = None

    @classmethod
    async def open(cls, host: str, port: int, credentials: Credentials | None) -> Connection:
        """Connect, under TLS with credentials.  Raises OSError, `Refused`."""
        connection = cls(*await asyncio.open_connection(host, port, limit=CHUNK))
        if credentials is not None:
            try:
                await connection.begin(credentials)
            except BaseException:
                connection.abort()
                raise
        return connection

    async def begin(self, credentials: Credentials) -> None:
        """Be the client of a TLS handshake.  Raises OSError, `Refused`."""
        await self._shake(credentials.client(), b"")

    async def accept(self, credentials: Credentials, turn: Callable[[], Awaitable[None]] | None = None) -> None:
        """Be the server of a TLS handshake.  Raises OSError, `Refused` after the peer was told why.

        `turn`: is awaited once the client has begun, before that costs anything.
        """
        first = await self._next(CHUNK)
        if not first:
            raise Refused(Reason.LOST, "the connection ended before the TLS handshake")
        if not first.startswith(FIRST_BYTE):
            self._writer.write(_CLOSED)
            raise Refused(Reason.NO_TLS, "it does not speak TLS, and this filesystem is closed")
        if turn is not None:
            await turn()
        await self._shake(credentials.server(), first)

    async def _shake(self, tls: TlsFilter, data: bytes) -> None:
        """Raises `Refused` also where the connection ends."""
        if data:
            self._overhead[1] += len(data)
        is_done = tls.shake(data)
        while True:
            try:
                self._send_of(tls)
                if is_done:
                    break
                data = await self._next(CHUNK)
                if not data:
                    raise Refused(Reason.LOST, "the connection ended in the TLS handshake")
                self._overhead[1] += len(data)
                is_done = tls.shake(data)
            except Refused:
                # An alert tells the peer.
                self._send_of(tls)
                raise
        self._tls, self.peer = tls, tls.peer

    def _send_of(self, tls: TlsFilter) -> int:
        data = tls.to_send()
        if data:
            self._overhead[0] += len(data)
            self._writer.write(data)
        return len(data)

    # -- bytes --------------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send data; `drain` waits until there is room again."""
        if self._tls is None:
            self._writer.write(data)
        else:
            self._tls.encrypt(data)
            self._send_of(self._tls)
            self._overhead[0] -= len(data)

    async def drain(self) -> None:
        """Wait until more can be sent.  Raises OSError."""
        with _copied():
            await self._writer.drain()

    async def _next(self, most: int) -> bytes:
        with _copied():
            return await self._reader.read(most)

    async def read(self, seconds: float | None = None) -> bytes | None:
        """What has come, b"" at the end, however the connection ended; `None` if nothing does for so many seconds."""
        if self._tls is None:
            data = await self._read_some(seconds)
            if data and not self._begun and data.startswith(FIRST_BYTE):
                self._refuse(Refused(Reason.NO_TLS, "it speaks TLS, and this filesystem is open"), _OPEN)
                return b""
            self._begun = self._begun or bool(data)
            return data
        now = asyncio.get_running_loop().time
        until = None if seconds is None else now() + seconds
        # It may have come with the handshake.
        data = self._decrypted(b"")
        while data is None:
            raw = await self._read_some(None if until is None else max(until - now(), 0.0))
            if not raw:
                return raw
            data = self._decrypted(raw)
        return data

    def _decrypted(self, raw: bytes) -> bytes | None:
        """What is whole of it, b"" at the end, `None` if nothing is yet."""
        assert self._tls is not None
        if self.refused is not None:
            return b""
        try:
            data = self._tls.decrypt(raw)
        except Refused as refused:
            self._refuse(refused, b"")
            return b""
        finally:
            self._send_of(self._tls)  # an answer of TLS itself, or an alert
        self._overhead[1] += len(raw) - len(data)
        return data or (b"" if self._tls.ended else None)

    def _refuse(self, refused: Refused, told: bytes) -> None:
        self.refused = refused.copy()
        if told and not self.closing:
            self._writer.write(told)

    async def _read_some(self, seconds: float | None) -> bytes | None:
        try:
            # As many as one read of the kernel's brings: what waits is given to the log together.
            return await within(seconds, self._next(256 * 1024))
        except asyncio.TimeoutError:
            # The kernel's time-out of a connection is the same error.
            return None if self._reader.exception() is None else b""
        except OSError:
            return b""

    async def throw_away(self, most: int) -> None:
        """Read until there is no more, or until it is more than so many bytes.  Raises OSError."""
        while most > 0 and (data := await self._next(CHUNK)):
            most -= len(data)

    def take_overhead(self) -> tuple[int, int]:
        """The bytes of TLS, sent and received, since the last call: those beside the bytes of the session."""
        sent, received = self._overhead
        self._overhead = [0, 0]
        return sent, received

    # -- its end ------------------------------------------------------------------------------------------------------

    @property
    def closing(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._writer.transport.is_closing()

    @property
    def unsent(self) -> int:
        """Bytes that the kernel has not taken yet."""
        return self._writer.transport.get_write_buffer_size()

    def write_eof(self) -> None:
        """Send nothing more.  The end of a session is a line of its own, so TLS need not vouch for it.

        Raises OSError, `RuntimeError` where that was said already.
        """
        self._writer.write_eof()

    def close(self) -> None:
        """Close it once everything is sent."""
        self._writer.close()

    async def close_within(self, seconds: float) -> None:
        """Close it, and wait for that, for so many seconds at the most."""
        self._writer.close()
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            await within(seconds, self._closed())

    async def _closed(self) -> None:
        with _copied():
            await self._writer.wait_closed()

    def abort(self) -> None:
        """Cut it off."""
        self._writer.transport.abort()

    # -- the kernel ---------------------------------------------------------------------------------------------------

    @property
    def host(self) -> str:
        """The address of the peer."""
        peer = self._writer.get_extra_info("peername")
        return str(peer[0]) if peer else "?"

    @property
    def outstanding(self) -> int:
        """Bytes that were written and that the peer has not acknowledged; of a closed connection none."""
        try:
            answer = fcntl.ioctl(self._socket.fileno(), termios.TIOCOUTQ, bytes(4))
        except (OSError, ValueError):
            return self.unsent
        return self.unsent + int.from_bytes(answer, sys.byteorder)

    def flow(self, sent: int) -> Flow:
        """Its state after `sent` bytes were written."""
        waiting = self.outstanding
        shortest, latest = self._round_trips()
        return Flow(waiting, max(sent - waiting, 0), shortest, latest)

    def persist(self, seconds: float) -> None:
        """Have the kernel try again and again, and end it if nothing is acknowledged for so many seconds.

        By itself it would go on for a quarter of an hour, with up to two minutes between two attempts.  Call it now and
        then, since round trips change.  A kernel that does not know one of these options goes on as it does for
        everybody.
        """
        _, latest = self._round_trips()
        options = (
            (_TCP_RTO_MAX_MS, round(retry_after(latest) * 1000)),
            (socket.TCP_USER_TIMEOUT, round(seconds * 1000)),  # RFC 5482
        )
        for option, value in options:
            with contextlib.suppress(OSError):  # not known, or the connection has ended
                self._socket.setsockopt(socket.IPPROTO_TCP, option, value)

    @property
    def _socket(self) -> socket.socket:
        found: socket.socket = self._writer.get_extra_info("socket")
        return found

    def _round_trips(self) -> tuple[float, float]:
        """Seconds of the shortest round trip and of one lately; 0 for a closed connection or an old kernel."""
        try:
            info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _MIN_RTT + 4)
        except (OSError, ValueError):
            return 0.0, 0.0
        if len(info) < _MIN_RTT + 4:
            return 0.0, 0.0
        shortest, latest = (struct.unpack_from("=I", info, place)[0] for place in (_MIN_RTT, _RTT))
        # Of a connection over which nothing has come back yet.
        return 0.0 if shortest == 0xFFFFFFFF else shortest / 1e6, latest / 1e6
