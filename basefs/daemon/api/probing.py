"""Probes the sync ports of other nodes: do they let this node in, and if not, why?"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import ssl
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from basefs.daemon.config import SYNC_PORT_OFFSET, NodeAddress
from basefs.errors import UsageError
from basefs.log.hashes import ZERO_HASH
from basefs.log.keys import SigningKey, fingerprint_of
from basefs.replica.replica import Replica
from basefs.sync.net.tls import Credentials, Refused
from basefs.sync.net.transport import SessionContext, hang_up, sync_with
from basefs.sync.session.result import Reason, Result


class Answer(enum.Enum):
    """What a node says to this one, on its sync port."""

    WELCOME = "welcome"
    OTHER_FILESYSTEM = "other filesystem"
    OTHER_VERSION = "other version"
    UNKNOWN_THERE = "unknown there"  # it does not know the key of this node
    UNKNOWN_HERE = "unknown here"  # this node does not know its key
    NO_TLS = "no TLS"
    ONLY_TLS = "only TLS"
    BANNED = "banned"
    NOTHING = "nothing"  # no answer, or an inconclusive one


#: By the reason for which a session ended, and whether the other node gave it.
_ANSWERS = {
    (Reason.UNKNOWN_KEY, True): Answer.UNKNOWN_THERE,
    (Reason.UNKNOWN_KEY, False): Answer.UNKNOWN_HERE,
    (Reason.NO_TLS, True): Answer.ONLY_TLS,
    (Reason.NO_TLS, False): Answer.NO_TLS,
    **{(Reason.BANNED, by_peer): Answer.BANNED for by_peer in (True, False)},
    **{(Reason.WRONG_VERSION, by_peer): Answer.OTHER_VERSION for by_peer in (True, False)},
}


@dataclass(frozen=True, slots=True)
class Greeting:
    """What a node has answered.

    Attributes:
        address: of its gossip.
        answer: in one word.
        identity: of the filesystem that it serves, in hex; '' where it did not say.
        fingerprint: of the key that it has proved, in hex; '' where it proved none.
    """

    address: NodeAddress
    answer: Answer
    identity: str = ""
    fingerprint: str = ""


async def greet(
    addresses: Sequence[NodeAddress],
    identity: str,
    key: SigningKey | None,
    trusted: Collection[str] | None,
    patience: float,
) -> list[Greeting]:
    """Greet nodes as a newcomer that knows nothing but whom it trusts, all at once.

    Args:
        addresses: of their gossip, by IP address.
        identity: that they should have, in hex.
        key: of this node, which it shows under TLS.
        trusted: public keys in hex of those that it greets under TLS; `None`: the filesystem is open.
        patience: seconds that each has to answer.

    Raises `UsageError` where OpenSSL takes no Ed25519 key.
    """
    credentials = None
    if trusted is not None and key is not None:
        credentials = Credentials(key, [bytes.fromhex(public) for public in trusted])
    found = await asyncio.gather(*(_greet(address, credentials, patience) for address in addresses))
    return [_understood(address, result, identity) for address, result in zip(addresses, found, strict=True)]


async def _greet(address: NodeAddress, credentials: Credentials | None, patience: float) -> Result | None:
    port = address.port + SYNC_PORT_OFFSET
    with (
        tempfile.TemporaryDirectory() as directory,
        contextlib.closing(Replica.create(Path(directory), None)) as nothing,
        contextlib.suppress(asyncio.TimeoutError),
    ):
        session = sync_with(
            nothing, address.host, port, progress=hang_up, shared=SessionContext(credentials=credentials)
        )
        return await asyncio.wait_for(session, patience)
    return None


def _understood(address: NodeAddress, result: Result | None, identity: str) -> Greeting:
    if result is None:
        return Greeting(address, Answer.NOTHING)
    said = result.peer_identity.hex() if result.peer_identity != ZERO_HASH else ""
    proved = fingerprint_of(result.key).hex() if result.key else ""
    answer = _ANSWERS.get((result.reason, result.by_peer))
    if answer is None:
        answer = Answer.NOTHING if not said else Answer.WELCOME if said == identity else Answer.OTHER_FILESYSTEM
    return Greeting(address, answer, said, proved)


def signing_trouble() -> str | None:
    """Why this machine cannot sign; `None` where it can."""
    try:
        SigningKey.generate().secret.sign(b"")
    except UsageError as error:
        return str(error)
    return None


def tls_trouble() -> str | None:
    """Why two nodes of a closed filesystem could not talk on this machine; `None` where they can."""
    one, other = SigningKey.generate(), SigningKey.generate()
    try:
        client = Credentials(one, [other.public]).client()
        server = Credentials(other, [one.public]).server()
        flight = b""
        while True:
            is_done = client.shake(flight)
            if server.shake(client.to_send()) and is_done:
                return None
            flight = server.to_send()
    except UsageError as error:
        return str(error)
    except Refused:
        return (
            f"{ssl.OPENSSL_VERSION} of this machine makes no TLS connection with Ed25519 keys: a FIPS or "
            "crypto policy may forbid them"
        )
