"""Opening sessions with peers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from basefs.log.interface import Digest, LogState
from basefs.sync.net.connection import CHUNK
from basefs.sync.net.shared import Shared
from basefs.sync.net.transport import Keeper, Session
from basefs.sync.session.protocol import SyncProtocol
from basefs.sync.session.result import Counters, Reason, Result
from basefs.sync.session.states import Role
from basefs.sync.wire.limits import DEFAULT_LIMITS, Limits

#: Seconds to wait for a connection.
CONNECT_TIMEOUT = 5.0
#: Round trips, where those to the peers of standing sessions are long: it takes one, and some are much longer.
_CONNECT_ROUND_TRIPS = 3
#: Seconds at the most: a node has few places for the sessions that it opens, and one bad link makes them all wait.
_MAX_CONNECT_TIMEOUT = 20.0


def patience(least: float, round_trip: float) -> float:
    """Seconds to wait for a connection, at least so many, where other peers' `round_trip` takes so many."""
    return max(least, min(_CONNECT_ROUND_TRIPS * round_trip, _MAX_CONNECT_TIMEOUT))


async def sync_with(
    state: LogState,
    host: str,
    port: int,
    *,
    own_port: int = 0,
    limits: Limits = DEFAULT_LIMITS,
    connect_timeout: float = CONNECT_TIMEOUT,
    progress: Callable[[Session], None] | None = None,
    keeper: Keeper | None = None,
    shared: Shared | None = None,
) -> Result:
    """Compare logs with a peer until both are equal.

    `own_port`: where the peer can reach us later, 0 if nowhere.  `progress` is called after each slice of work.
    `keeper`: who may keep the session open for news; then this returns when it ends.  `shared`: with the other
    sessions of this node.  All that can go wrong with the peer or the network is in the result
    (`Result.raise_for_reason` raises it).
    """
    try:
        opening = asyncio.open_connection(host, port, limit=CHUNK)
        reader, writer = await asyncio.wait_for(opening, connect_timeout)
    except (OSError, asyncio.TimeoutError) as error:
        detail = f"cannot reach {host}:{port} ({_why(error)}): is a filesystem running there, and the port open?"
        return Result(Reason.UNREACHABLE, detail, False, Counters())
    shared = shared or Shared()
    core = core_of(state, Role.INITIATOR, host, own_port, limits, keeper, shared)
    return await Session(core, reader, writer, (host, port), shared, progress, keeper).run()


def core_of(
    state: LogState, role: Role, host: str, port: int, limits: Limits, keeper: Keeper | None, shared: Shared
) -> SyncProtocol:
    """The core of a session with the peer at `host`; `port` is our own sync port, 0 if nowhere.

    What the peer tells of its log is noted among the contacts of this node.
    """

    def stay(peer: int) -> bool:
        return keeper is not None and keeper.may_keep((host, peer), role)

    def tells(peer: int, log: Digest) -> None:
        shared.contacts.told((host, peer), log, state.digest())

    core = SyncProtocol(state, role, port=port, limits=limits, stay=stay, claims=shared.claims)
    core.peer.host = host
    core.peer.subscribe(tells)
    return core


def _why(error: Exception) -> str:
    """The reason of a failed connection, without what asyncio adds to it."""
    number = getattr(error, "errno", None)
    return os.strerror(number) if number is not None and number > 0 else str(error) or "no answer"
