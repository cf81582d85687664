"""Accepting sessions: how many, from whom, and what the others are told."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable

from basefs.log.interface import LogState
from basefs.sync.net.peers import FIRST_BAN, Address, PenaltyBox
from basefs.sync.net.transport import CHUNK, GRACE, Keeper, Session, SessionContext, core_of, throw_away
from basefs.sync.session.push import Notice
from basefs.sync.session.result import Reason, Result
from basefs.sync.session.states import Role
from basefs.sync.wire.codec import encode
from basefs.sync.wire.messages import Refusal, Refuse

log = logging.getLogger(__name__)

#: Those of one host that are turned away with a reason at once; the next are cut off, which costs least.
_TOLD_PER_HOST = 4


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
    ) -> None:
        """`on_result` gets the peer's host with its sync port (0 if it did not tell) after each session.

        A session that the `keeper` lets stand does not count among the sessions that others may have at once.
        """
        self._keeper = keeper
        self._shared = shared or SessionContext()
        self._state = state
        self._host = host
        self._port = port
        self._max_sessions = max_sessions
        self._penalties = self._shared.penalties
        #: Those whose greeting did not come in time, never longer: where packets are lost, honest ones too.
        self._silent = PenaltyBox(FIRST_BAN, FIRST_BAN)
        self._on_result = on_result
        self._server: asyncio.Server | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._hosts: Counter[str] = Counter()
        self._told: Counter[str] = Counter()

    @property
    def port(self) -> int:
        """The port that it listens on (useful if it was given as 0)."""
        return self._port

    @property
    def sessions(self) -> int:
        """How many are running."""
        return self._hosts.total()

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
        self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks[task] = None
        peer = writer.get_extra_info("peername")
        host = str(peer[0]) if peer else "?"
        try:
            with contextlib.suppress(OSError):
                await self._serve(host, reader, writer)
        except asyncio.CancelledError:
            pass  # only `stop` cancels; a task of the server that ends cancelled would be reported as an error
        except Exception:
            log.exception("session with %s failed", host)
        finally:
            self._tasks.pop(task, None)
            writer.close()

    async def _serve(self, host: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        now = asyncio.get_running_loop().time()
        if self._penalties.banned(host, now) or self._silent.banned(host, now):
            return await self._turn_away(host, Refuse(Refusal.BANNED, "come back later"), reader, writer)
        if self._hosts.total() >= self._max_sessions or self._hosts[host] >= self._shared.per_host:
            return await self._turn_away(host, Refuse(Refusal.BUSY, "too many sessions"), reader, writer)
        with contextlib.ExitStack() as slot:
            self._hosts[host] += 1
            slot.callback(self._free_slot, host)
            # Not turned away: the others behind the same address have done nothing.
            await asyncio.sleep(self._shared.pace.delay(host, asyncio.get_running_loop().time()))
            core = core_of(self._state, Role.RESPONDER, host, self._port, self._keeper, self._shared)

            def notice(session: Session, what: Notice | None) -> None:
                if what is Notice.STANDS:
                    slot.close()  # it costs next to nothing from then on
                if self._keeper is not None:
                    self._keeper.notice(session, what)

            result = await Session(core, reader, writer, (host, 0), self._shared, None, notice).run()
        if result.misbehaved:
            self._penalties.punish(host, asyncio.get_running_loop().time())
        elif result.reason is Reason.TIMEOUT and not any(result.peer_identity):
            self._silent.punish(host, asyncio.get_running_loop().time())
        if self._on_result:
            self._on_result((host, result.peer_port), result)

    def _free_slot(self, host: str) -> None:
        self._hosts[host] -= 1
        self._hosts += Counter()  # drops the hosts without a session

    async def _turn_away(
        self, host: str, refuse: Refuse, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Tell why and close; not even that if there are many to be told."""
        if len(self._tasks) > 4 * self._max_sessions or self._told[host] >= _TOLD_PER_HOST:
            writer.transport.abort()
            return
        self._told[host] += 1
        try:
            writer.write(encode(refuse))
            writer.write_eof()
            with contextlib.suppress(asyncio.TimeoutError):
                # Its greeting: unread, it would reset the connection.  Who does not hang up then has to wait.
                await asyncio.wait_for(throw_away(reader, CHUNK), GRACE)
        finally:
            self._told[host] -= 1
            self._told += Counter()
