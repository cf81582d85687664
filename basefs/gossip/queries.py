"""The query for the time of all nodes, and its answers."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from basefs.errors import RemoteProtocolError

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
