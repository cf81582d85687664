"""A peer that holds no key: it speaks the sync protocol over connections of its own, and breaks it.

Behind it is the real core with a log of its own, so that it gets far into a session; what it sends is another matter.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence
from typing import Any, cast

from basefs.errors import BaseFSError
from basefs.replica.replica import Replica
from basefs.sync.net.tls import Credentials, Refused, TlsFilter
from basefs.sync.session.protocol import TICK, SyncProtocol
from basefs.sync.session.states import Role
from basefs.sync.wire.codec import parse
from basefs.sync.wire.messages import Message, Refuse
from basefs.tasks import within
from tests.simulation.bus import SYNC_PORT, Bus, SimulatedGossip
from tests.simulation.loop import PROCESS, Process
from tests.simulation.network import Network
from tests.simulation.node import HOSTILE
from tests.support.helpers import STRANGER

#: What it does in one session: it tells the truth, changes lines now and then, sends what is no line, sends without an
#: end, takes everything and gives nothing after it has greeted, or never says a word.
MANNERS = ("honest", "lies", "lies", "lies", "noise", "flood", "withholds", "silent")
#: Bytes of a flood at once.
_FLOOD = 256 * 1024
#: The first bytes of records of TLS (RFC 8446, section 5.1).
_RECORDS = (b"", b"\x14", b"\x15", b"\x16", b"\x17")


def _parsed(line: bytes) -> Message | None:
    with contextlib.suppress(BaseFSError):
        return parse(line.partition(b"\n")[0])
    return None


class HostilePeer:
    """A host that takes part in gossip as a member, answers sessions, and begins some."""

    def __init__(
        self,
        network: Network,
        bus: Bus,
        replica: Replica,
        hosts: Sequence[str],
        seed: int,
        members: Sequence[bytes] | None = None,
    ) -> None:
        """`replica`: its own log; `hosts`: of the honest nodes.

        `members`: raw public keys of members, which it believes and which do not believe it; `None`: the filesystem is
        open.
        """
        self._network, self._hosts, self._replica = network, hosts, replica
        self._rng = random.Random(f"{seed} hostile")
        self._process = Process(HOSTILE, random.Random(f"{seed} hostile process"), hostile=True)
        self._bus = bus
        self._gossip: SimulatedGossip | None = None
        self._credentials = None if members is None else Credentials(STRANGER, members)
        #: What it was told in a closed filesystem.
        self.found: list[str] = []

    async def run(self, seconds: float) -> None:
        """Take part for so long."""
        await self._network.loop.create_task(self._run(seconds))

    async def _run(self, seconds: float) -> None:
        PROCESS.set(self._process)
        loop = self._network.loop
        self._gossip = SimulatedGossip(self._bus, HOSTILE, self._hosts)
        self._gossip.start(lambda event: None, lambda peers: None, lambda: None)
        self._bus.ghosts.add(HOSTILE)
        server = self._network.listen(lambda: self._session(Role.RESPONDER), HOSTILE, SYNC_PORT)
        end = loop.time() + seconds
        while (pause := self._rng.expovariate(1.0)) + loop.time() < end:
            await asyncio.sleep(pause)
            connecting = self._network.connect(
                lambda: self._session(Role.INITIATOR), self._rng.choice(self._hosts), SYNC_PORT
            )
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                await within(2.0, connecting)
        await asyncio.sleep(max(end - loop.time(), 0.0))
        server.close()

    def leave(self) -> None:
        """End everything; afterwards nobody hears of it."""
        if self._gossip is not None:
            self._bus.ghosts.discard(HOSTILE)
            self._gossip.stop()
        self._network.kill(self._process)
        self._replica.close()

    def _session(self, role: Role) -> _Session:
        session = _Session(self._replica, role, self._rng.choice(MANNERS), self._rng, self._network.loop)
        if self._credentials is not None:
            session.disguise(self._credentials, self._rng.random() < 0.7, self.found)
        return session


class _Session(asyncio.Protocol):
    """One connection."""

    _transport: asyncio.Transport

    def __init__(self, replica: Replica, role: Role, manner: str, rng: random.Random, loop: Any) -> None:
        self._manner, self._rng, self._loop = manner, rng, loop
        self._core = SyncProtocol(replica, role, port=SYNC_PORT, stay=lambda port: True)
        self._rest = b""
        self._lines = self._sent = 0
        self._earlier: list[bytes] = []
        #: In a closed filesystem: TLS, whether its handshake is complete, what waits for that, and what to note.
        self._tls: TlsFilter | None = None
        self._shaken = False
        self._waiting: list[bytes] = []
        self._found: list[str] | None = None

    def disguise(self, credentials: Credentials, speaks_tls: bool, found: list[str]) -> None:
        """Meet members of a closed filesystem; `found` gets what they tell."""
        self._found = found
        if speaks_tls:
            is_client = self._core.role is Role.INITIATOR
            self._tls = credentials.client() if is_client else credentials.server()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._tls is not None and self._core.role is Role.INITIATOR:
            self._unwrap(b"")
        self._look()

    def data_received(self, data: bytes) -> None:
        if self._tls is not None:
            data = self._unwrap(data)
            told = bool(data)
        else:
            # A plain connection gets a refusal, or a handshake that leads nowhere.
            told = data[:1] not in _RECORDS and not isinstance(_parsed(data), Refuse)
        if self._found is not None and told:
            self._found.append(f"a stranger was told {data[:40]!r}")
        self._core.receive_data(data)
        self._pump()

    def _unwrap(self, data: bytes) -> bytes:
        """The plaintext of what has come."""
        tls = self._tls
        assert tls is not None
        plain = b""
        try:
            if self._shaken:
                plain = tls.decrypt(data)
            elif tls.shake(data):
                self._shaken = True
                plain = tls.decrypt(b"")
        except Refused:
            self._transport.close()
        self._transport.write(tls.to_send())
        if self._shaken:
            for each in self._waiting:
                self._send(each)
            self._waiting.clear()
        return plain

    def eof_received(self) -> None:
        self._core.receive_data(b"")
        self._pump()

    def _look(self) -> None:
        if not self._transport.is_closing():
            self._core.tick(self._loop.time())
            self._pump()
            self._loop.call_later(TICK, self._look)

    def _pump(self) -> None:
        added = None
        while self._core.wants_work:
            write = self._core.work(added)
            added = None if write is None else write()
        self._core.next_events()
        while data := self._core.data_to_send(1 << 16):
            self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            for each in self._instead_of(line + b"\n"):
                self._send(each)
            self._earlier.append(line + b"\n")
        if self._core.closed or self._core.result is not None:
            self._transport.close()

    def _send(self, data: bytes) -> None:
        if self._tls is not None and not self._shaken:
            self._waiting.append(data)
            return
        if self._tls is not None:
            self._tls.encrypt(data)
            data = self._tls.to_send()
        # The window of a peer that does not read is finite, also for this one.
        if self._transport.get_write_buffer_size() < 1 << 20:
            self._transport.write(data)

    def _instead_of(self, line: bytes) -> list[bytes]:
        """What is sent instead of a line of the core."""
        self._lines += 1
        match self._manner:
            case "silent":
                return []
            case "withholds":
                return [line] if self._lines == 1 else []
            case "noise":
                return [self._rng.randbytes(self._rng.randrange(1, 200))]
            case "flood":
                return [line, self._rng.choice((line * 500, b"A" * _FLOOD))]
            case "lies" if self._rng.random() < 0.3:
                return self._lie(line)
            case _:
                return [line]

    def _lie(self, line: bytes) -> list[bytes]:
        broken = bytearray(line)
        broken[self._rng.randrange(len(broken))] = self._rng.choice(b'0123456789abcdef"[]{}\n,')
        return self._rng.choice(
            (
                [],
                [line, line],
                [bytes(broken)],
                [self._rng.choice([line, *self._earlier])],
                [line, self._rng.choice([line, *self._earlier])],
                [line[: self._rng.randrange(len(line))]],
            )
        )
