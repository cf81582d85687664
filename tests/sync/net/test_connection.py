"""What the kernel is asked to do for a connection, and what it tells of one: real TCP on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import socket

from basefs.sync.net.connection import ROUND_TRIPS, Connection, retry_after
from basefs.sync.net.server import SyncServer
from basefs.sync.net.transport import sync_with
from tests.support.patience import DEADLINE
from tests.sync.helpers import Writer

HOST = "127.0.0.1"
#: linux/tcp.h
RTO_MAX_MS = 44


def connected_to(port):
    """The sockets of this process that are connected to a port, as the kernel has them."""
    found = []
    for link in pathlib.Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if not link.is_socket():
                continue
            one = socket.socket(fileno=os.dup(int(link.name)))
            try:
                if one.family == socket.AF_INET and one.getpeername()[1] == port:
                    found.append(one.dup())
            finally:
                one.close()
    return found


def option(connection, number):
    """An option of TCP, `None` where the kernel does not know it."""
    try:
        return connection.getsockopt(socket.IPPROTO_TCP, number)
    except OSError:
        return None


def test_it_is_sent_again_every_second_or_after_some_round_trips():
    assert retry_after(0.0) == retry_after(0.3) == 1.0
    assert retry_after(2.0) == 2.0 * ROUND_TRIPS
    assert retry_after(1000.0) == 120.0, "the kernel refuses more"


def test_a_session_persists_while_packets_are_lost():
    seen = []

    async def main():
        log = Writer().log()
        server = SyncServer(log, HOST, 0, max_sessions=4)
        await server.start()

        def look(session):
            (connection,) = connected_to(server.port)
            with connection:
                seen.append([option(connection, n) for n in (RTO_MAX_MS, socket.TCP_USER_TIMEOUT)])

        try:
            other = Writer()
            other.write((b"f",), b"x")
            await asyncio.wait_for(sync_with(other.log(), HOST, server.port, progress=look), DEADLINE)
        finally:
            await server.stop()

    asyncio.run(main())
    assert seen
    for longest, patience in seen:
        assert longest in (1000, None), "Linux before 6.15 does not know it"
        assert patience == 300_000, "as long as the protocol itself waits, however many attempts that are"


def test_a_connection_that_has_ended_is_left_alone():
    async def main():
        server = await asyncio.start_server(lambda reader, writer: writer.close(), HOST, 0)
        reader, writer = await asyncio.open_connection(HOST, server.sockets[0].getsockname()[1])
        await asyncio.wait_for(reader.read(), DEADLINE)
        connection = Connection(reader, writer)
        connection.persist(5.0)
        connection.abort()
        await asyncio.sleep(0)
        connection.persist(5.0)
        assert connection.flow(0).outstanding == 0
        server.close()
        await server.wait_closed()

    asyncio.run(main())
