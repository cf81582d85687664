"""The keys of gossip between two members: each side sends its own over one connection under TLS.

A member needs the key before it takes part in gossip, and again if it was changed while it was away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from basefs.errors import NetworkError, PeerUnreachable
from basefs.sync.net.connection import Connection
from basefs.sync.net.tls import ALPN_KEY, Credentials, Refused
from basefs.tasks import within

#: Takes the public key of a member and the gossip key that it has; returns the one that this node has then.  Raises
#: OSError, also for a member that is to have none.
ExchangeKeys: TypeAlias = Callable[[bytes, bytes], Awaitable[bytes]]

#: Bytes of a key, its signer, the signature, and whether it has leaked.
_SIZE = 129
#: Seconds for all of it.
_PATIENCE = 10.0


async def exchange_keys(
    host: str, port: int, credentials: Credentials, key_for: Callable[[bytes], bytes]
) -> tuple[bytes, bytes]:
    """Send the gossip key to a member; returns its public key, and its gossip key, `_SIZE` bytes.

    `key_for`: what is sent to the member with a public key; raises OSError where that is to be nothing.  Raises
    `NetworkError`.
    """
    try:
        return await within(_PATIENCE, _exchange(host, port, credentials, key_for))
    except (OSError, asyncio.TimeoutError) as error:
        raise PeerUnreachable(f"{host}:{port} gives no gossip key: {str(error) or 'no answer'}") from None
    except Refused as refused:
        raise NetworkError(f"{host}:{port} gives no gossip key: {refused.detail}") from None


async def _exchange(
    host: str, port: int, credentials: Credentials, key_for: Callable[[bytes], bytes]
) -> tuple[bytes, bytes]:
    connection = await Connection.open(host, port, credentials, ALPN_KEY)
    try:
        peer = connection.peer or b""
        connection.write(key_for(peer))
        await connection.drain()
        return peer, await _receive(connection)
    finally:
        connection.abort()


async def answer_keys(connection: Connection, exchange: ExchangeKeys) -> None:
    """Answer a member.  Raises OSError; a member that breaks the rules gets no answer."""
    try:
        theirs = await within(_PATIENCE, _receive(connection))
        connection.write(await exchange(connection.peer or b"", theirs))
        await connection.drain()
    except (Refused, asyncio.TimeoutError):
        connection.abort()


async def _receive(connection: Connection) -> bytes:
    """Raises OSError, `Refused`."""
    data = b""
    while len(data) < _SIZE:
        part = await connection.read()
        if connection.refused is not None:
            raise connection.refused.copy()
        if not part:
            raise ConnectionError("it sent none")
        data += part
    return data[:_SIZE]
