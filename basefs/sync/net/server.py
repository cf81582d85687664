"""Accepting sessions: how many, from whom, and what the others are told.

In a closed filesystem a connection first proves a key, and everything goes by keys from then on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial

from basefs.log.interface import LogState
from basefs.sync.net.connection import CHUNK, Connection
from basefs.sync.net.parties import Party
from basefs.sync.net.peers import Address
from basefs.sync.net.places import Places
from basefs.sync.net.strangers import HANDSHAKE_SECONDS, Strangers
from basefs.sync.net.tls import Credentials, Refused
from basefs.sync.net.transport import Keeper, Session, SessionContext, core_of
from basefs.sync.session.push import Notice
from basefs.sync.session.recent import Recent
from basefs.sync.session.result import Result
from basefs.sync.session.states import Role
from basefs.sync.wire.codec import encode
from basefs.sync.wire.messages import Refusal, Refuse
from basefs.tasks import cancel, within

log = logging.getLogger(__name__)


class SyncServer:
    """Accepts sessions."""

    def __init__(
        self,
        state: LogState,
        host: str,
        port: int,
        *,
        max_sessions: int,
        on_result: Callable[[Address, Result], None] | None = None,
        keeper: Keeper | None = None,
        shared: SessionContext | None = None,
        is_known: Callable[[Party], bool] = lambda who: True,
    ) -> None:
        """`on_result` gets the peer's host with its sync port (0 if it did not tell) after each session.

        A session that the `keeper` lets stand does not count among the sessions that others may have at once.
        `is_known`: see `Places`.
        """
        self._keeper = keeper
        self._shared = shared or SessionContext()
        self._state = state
        self._host = host
        self._port = port
        self._max_sessions = max_sessions
        self._penalties = self._shared.penalties
        self._on_result = on_result
        self._server: asyncio.Server | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._places: Places[Connection] = Places(max_sessions, self._shared.per_party, is_known, self._shared.rng)
        self._strangers = Strangers(rng=self._shared.rng)
        #: Where members have proved their keys, the oldest first: strangers elsewhere do not keep them out.
        self._met: Recent[str, None] = Recent()
        #: Those of them that prove one again.
        self._returning: Counter[str] = Counter()
        self._told: Counter[Party] = Counter()

    @property
    def port(self) -> int:
        """The port that it listens on (useful if it was given as 0)."""
        return self._port

    @property
    def sessions(self) -> int:
        """How many are running."""
        return len(self._places)

    async def start(self) -> None:
        """Listen.  Raises `OSError` if the address is taken."""
        # asyncio takes "::" for IPv6 alone, None for both, as Serf does.
        host = None if self._host == "::" else self._host
        self._server = await asyncio.start_server(self._accept, host, self._port, limit=CHUNK)
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and end all sessions."""
        if self._server is None:
            return
        for listening in self._server.sockets:
            asyncio.get_running_loop().remove_reader(listening.fileno())
        # Loop turns until an accepted connection has its task.  Closing the server earlier would leak the connection
        # (python/cpython issue 109564).
        for _ in range(5):
            await asyncio.sleep(0)
        self._server.close()
        await cancel(list(self._tasks))
        await self._server.wait_closed()
        self._server = None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks[task] = None
        connection = Connection(reader, writer)
        host = connection.host
        try:
            with contextlib.suppress(OSError):
                await self._serve(host, connection)
        except asyncio.CancelledError:
            pass  # only `stop` cancels; a task of the server that ends cancelled would be reported as an error
        except Exception:
            log.exception("session with %s failed", host)
        finally:
            self._tasks.pop(task, None)
            connection.close()

    async def _serve(self, host: str, connection: Connection) -> None:
        credentials = self._shared.credentials
        if credentials is not None and not await self._meet(host, connection, credentials):
            return
        key = connection.peer or b""
        # Whoever shares an address with a member takes nothing from it.
        who = self._shared.parties.of(host, key)
        loop = asyncio.get_running_loop()
        if self._penalties.banned(who, loop.time()):
            return await self._turn_away(who, Refuse(Refusal.BANNED, "come back later"), connection)
        unlucky = self._places.enter(connection, who)
        if unlucky is connection:
            return await self._turn_away(who, Refuse(Refusal.BUSY, "too many sessions"), connection)
        if unlucky is not None:
            unlucky.abort()
        try:
            # Not turned away: the others behind the same address have done nothing.
            await asyncio.sleep(self._shared.pace.delay(who, loop.time()))
            core = core_of(self._state, Role.RESPONDER, host, key, self._port, self._keeper, self._shared)

            def notice(session: Session, what: Notice | None) -> None:
                if what is Notice.STANDS:
                    self._places.leave(connection)  # it costs next to nothing from then on
                if self._keeper is not None:
                    self._keeper.notice(session, what)

            result = await Session(core, connection, (host, 0), self._shared, None, notice).run()
        finally:
            self._places.leave(connection)
        if result.offends and key:
            self._penalties.punish(who, loop.time())
        elif result.offends:
            # A ban would be for everybody behind this address.
            self._shared.pace.rest(who, loop.time(), self._shared.timing.offence_pause)
        if self._on_result:
            address = (host, result.peer_port)
            self._on_result(address if self._shared.is_at(address, key) else (host, 0), result)

    async def _meet(self, host: str, connection: Connection, credentials: Credentials) -> bool:
        """Find out who is on the other side; False for a stranger, which learns nothing but that it is one."""
        # Several nodes may share it.
        if host in self._met and self._returning[host] < 4:
            self._returning[host] += 1
            try:
                return await self._shake(host, connection, credentials)
            finally:
                self._returning[host] -= 1
                self._returning += Counter()
        self._strangers.enter(connection, host)
        try:
            return await self._shake(host, connection, credentials, partial(self._strangers.turn, connection))
        finally:
            self._strangers.leave(connection)

    async def _shake(
        self,
        host: str,
        connection: Connection,
        credentials: Credentials,
        turn: Callable[[], Awaitable[None]] | None = None,
    ) -> bool:
        """Whether a member was on the other side of the handshake; `turn`: see `Connection.accept`."""
        try:
            await within(HANDSHAKE_SECONDS, connection.accept(credentials, turn))
        except (OSError, asyncio.TimeoutError):
            connection.abort()
            return False
        except Refused as refused:
            log.debug("%s: %s: %s", host, refused.reason.value, refused.detail)
            with contextlib.suppress(OSError, RuntimeError, asyncio.TimeoutError):
                connection.write_eof()
                # Unread, what it has sent would reset the connection, and it might never see the reason.
                await within(self._shared.timing.grace, connection.throw_away(CHUNK))
            return False
        self._met[host] = None
        return True

    async def _turn_away(self, who: Party, refuse: Refuse, connection: Connection) -> None:
        """Tell why and close; not even that if there are many to be told, which costs least."""
        if len(self._tasks) > 4 * self._max_sessions or self._told[who] >= 4:
            connection.abort()
            return
        self._told[who] += 1
        try:
            connection.write(encode(refuse))
            connection.write_eof()
            with contextlib.suppress(asyncio.TimeoutError):
                # Its greeting: unread, it would reset the connection.  Who does not hang up then has to wait.
                await within(self._shared.timing.grace, connection.throw_away(CHUNK))
        finally:
            self._told[who] -= 1
            self._told += Counter()
