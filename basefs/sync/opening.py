"""Opening sessions with peers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from basefs.sync.interface import LogState
from basefs.sync.limits import DEFAULT_LIMITS, Limits
from basefs.sync.protocol import SyncProtocol
from basefs.sync.result import Counters, Reason, Result
from basefs.sync.shell import CHUNK, Keeper, Session
from basefs.sync.states import Role
from basefs.sync.traffic import Traffic
from basefs.sync.uplink import Uplink

#: Seconds to wait for a connection.
CONNECT_TIMEOUT = 5.0


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
    traffic: Traffic | None = None,
    uplink: Uplink | None = None,
) -> Result:
    """Compare logs with a peer until both are equal.

    `own_port`: where the peer can reach us later, 0 if nowhere.  `progress` is called after each slice of work.
    `keeper`: who may keep the session open for news; then this returns when it ends.  `traffic` counts it; `uplink`
    decides when it may upload.  All that can go wrong with the peer or the network is in the result
    (`Result.raise_for_reason` raises it).
    """
    try:
        opening = asyncio.open_connection(host, port, limit=CHUNK)
        reader, writer = await asyncio.wait_for(opening, connect_timeout)
    except (OSError, asyncio.TimeoutError) as error:
        detail = f"cannot reach {host}:{port}: {str(error) or 'no answer'}"
        return Result(Reason.UNREACHABLE, detail, False, Counters())
    core = core_of(state, Role.INITIATOR, host, own_port, limits, keeper)
    return await Session(core, reader, writer, (host, port), progress, keeper, traffic, uplink).run()


def core_of(state: LogState, role: Role, host: str, port: int, limits: Limits, keeper: Keeper | None) -> SyncProtocol:
    """The core of a session with the peer at `host`; `port` is our own sync port, 0 if nowhere."""
    if keeper is None:
        return SyncProtocol(state, role, port=port, limits=limits)
    return SyncProtocol(state, role, port=port, limits=limits, stay=lambda peer: keeper.may_keep((host, peer), role))
