"""What an answer to the question for the time says."""

from __future__ import annotations

import pytest

from basefs.errors import RemoteProtocolError
from basefs.gossip.queries import ClockReading, decode_reading, encode_time


def test_an_answer_is_taken_for_the_middle_of_the_waiting() -> None:
    assert decode_reading("b", encode_time(1000.0), 100.0, 104.0) == ClockReading("b", 898.0, 2.0)
    assert decode_reading("b", encode_time(1000.0), 2000.0, 2001.0).offset == -1000.5


@pytest.mark.parametrize("payload", [b"", b"1234567", b"123456789"])
def test_another_payload(payload: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="b answered"):
        decode_reading("b", payload, 0.0, 1.0)
