"""What one peer sends too early does not push out what others have sent, as seen over real connections."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from basefs.log.entries import Action, Entry
from basefs.log.hashes import HASH_SIZE
from basefs.log.interface import Digest
from basefs.log.keys import SigningKey
from basefs.log.orphans import MAX_ENTRIES_PER_PEER
from basefs.replica.replica import Replica
from basefs.sync.net.connection import Connection
from basefs.sync.net.server import SyncServer
from basefs.sync.net.tls import Credentials
from basefs.sync.net.transport import SessionContext
from basefs.sync.wire.codec import encode
from basefs.sync.wire.limits import VERSION
from basefs.sync.wire.messages import Entries, Eof, Hash
from tests.support.asynchronous import HOST, run, until
from tests.support.helpers import ROOT_KEY, make_replica, noise

NODE, HONEST, HOSTILE = (SigningKey.generate() for _ in range(3))
#: Entries of a line.
_LINE = 32


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Replica]:
    """A node."""
    replica = make_replica(tmp_path, [ROOT_KEY])
    yield replica
    replica.close()


async def _answer(replica: Replica, port: int, source: str, key: SigningKey | None, entries: list[Entry]) -> None:
    """Be a peer: greet with another log, and answer the first request with these."""
    reader, writer = await asyncio.open_connection(HOST, port, local_addr=(source, 0))
    connection = Connection(reader, writer)
    if key is not None:
        await connection.begin(Credentials(key, [NODE.public]))
    connection.write(encode(Hash(VERSION, replica.identity, Digest(bytes(HASH_SIZE - 1) + b"x", 1), 0)))
    heard = b""
    while b"LS " not in heard:
        data = await connection.read()
        assert data, heard
        heard += data
    for start in range(0, len(entries), _LINE):
        connection.write(encode(Entries(tuple(entry.encode() for entry in entries[start : start + _LINE]))))
    connection.write(encode(Eof()))
    await connection.drain()
    await until(lambda: replica.totals()["orphans"] >= min(len(entries), MAX_ENTRIES_PER_PEER))
    connection.abort()


@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
def test_a_peer_that_fills_its_room_leaves_the_others_theirs(replica: Replica, closed: bool) -> None:
    """In an open filesystem peers are told apart by their addresses, in a closed one by their keys."""
    parent = ROOT_KEY.sign(replica.identity, 1, Action.MKDIR, b"p")
    child = ROOT_KEY.sign(parent.hash, 1, Action.MKDIR, b"c")
    junk = [
        ROOT_KEY.sign(noise(number, HASH_SIZE), 1, Action.MKDIR, b"junk") for number in range(MAX_ENTRIES_PER_PEER + 50)
    ]
    trusted = Credentials(NODE, [HONEST.public, HOSTILE.public]) if closed else None

    async def main() -> None:
        server = SyncServer(replica, HOST, 0, max_sessions=16, shared=SessionContext(credentials=trusted))
        await server.start()
        try:
            await _answer(replica, server.port, HOST, HONEST if closed else None, [child])
            source = HOST if closed else "127.0.0.2"
            await _answer(replica, server.port, source, HOSTILE if closed else None, junk)
        finally:
            await server.stop()

    run(main())
    assert replica.totals()["orphans"] == 1 + MAX_ENTRIES_PER_PEER
    replica.add([parent.encode()], [])
    assert replica.entry(child.hash) == child.encode()
