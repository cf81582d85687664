"""The queries of this filesystem, and their answers: which peers are missed, and the time of all nodes.

Serf forgets within a day that a member has left, tells a node that joins nothing of it, and never tells that a machine
has returned under another agent name.  So a node that was off meanwhile asks for the peers that it misses, and a node
that is told to forget one tells the others.
"""

from __future__ import annotations

import enum
import hashlib
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from basefs.errors import RemoteProtocolError

#: Bytes of the hash of an agent name: two of a thousand names share them once in 10^13 networks.
_DIGEST = 8
#: Digest, UNIX seconds, `PeerState` by its position in `_SENT`.
_CLAIM = struct.Struct(f">{_DIGEST}sdB")
#: Claims in one query: 680 of the 1024 bytes that Serf lets a query or an answer have, names of nodes included.
MAX_CLAIMS = 40


class PeerState(enum.Enum):
    """What a node knows of a peer that Serf does not call alive."""

    #: It is expected back, and missed until then.
    MEMBER = "member"
    #: It stopped in good order: its address is tried, and nobody misses it.
    LEFT = "left"
    #: Forgotten by request, or back under another agent name: its address is not tried.
    GONE = "gone"
    #: This node now, and this node under an agent name before.
    OWN = "own"
    FORMER = "former"


#: The states in which nobody misses a peer.
SETTLED = (PeerState.LEFT, PeerState.GONE)
_SENT = (PeerState.MEMBER, *SETTLED)


@dataclass(frozen=True, slots=True)
class Claim:
    """What a node knows of the peer with this digest: `member`, `left` or `gone`, since a time in UNIX seconds."""

    digest: bytes
    state: PeerState
    since: float


def digest_of(name: str) -> bytes:
    """What stands for an agent name, 8 bytes."""
    return hashlib.sha256(name.encode()).digest()[:_DIGEST]


def encode_claims(claims: Iterable[Claim]) -> bytes:
    """The payload of a query or an answer; at most `MAX_CLAIMS` of them."""
    return b"".join(_CLAIM.pack(claim.digest, claim.since, _SENT.index(claim.state)) for claim in claims)


def decode_claims(payload: bytes) -> list[Claim]:
    """The claims of a payload.  Raises RemoteProtocolError."""
    if len(payload) % _CLAIM.size or len(payload) > MAX_CLAIMS * _CLAIM.size:
        raise RemoteProtocolError(f"a query about missed peers has {len(payload)} bytes")
    rows = list(_CLAIM.iter_unpack(payload))
    if any(state >= len(_SENT) for _, _, state in rows):
        raise RemoteProtocolError("a query about missed peers has an unknown state")
    return [Claim(digest, _SENT[state], since) for digest, since, state in rows]


def queries(claims: Sequence[Claim]) -> Iterator[bytes]:
    """The payloads in which all of these claims travel."""
    for start in range(0, len(claims), MAX_CLAIMS):
        yield encode_claims(claims[start : start + MAX_CLAIMS])


#: UNIX seconds.
_TIME = struct.Struct(">d")


@dataclass(frozen=True, slots=True)
class ClockReading:
    """The clock of another node.  Nothing depends on it; it helps people find a wrong clock.  Answers are not signed.

    Attributes:
        name: of the node.
        offset: seconds that it is ahead of ours, negative if it is behind.
        doubt: by how many seconds that may be wrong: half of the time from the question to the answer.
    """

    name: str
    offset: float
    doubt: float


def encode_time(now: float) -> bytes:
    """The answer to the query: UNIX seconds."""
    return _TIME.pack(now)


def decode_reading(name: str, payload: bytes, asked: float, answered: float) -> ClockReading:
    """The reading in an answer; `asked` and `answered` by our clock, UNIX seconds.  Raises RemoteProtocolError."""
    if len(payload) != _TIME.size:
        raise RemoteProtocolError(f"{name} answered the question for its time with {len(payload)} bytes")
    (theirs,) = _TIME.unpack(payload)
    doubt = (answered - asked) / 2
    return ClockReading(name, theirs - (asked + doubt), doubt)
