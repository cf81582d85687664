"""The bounded queue before Serf."""

from __future__ import annotations

from basefs.gossip.events import encode_announcement
from basefs.gossip.outgoing import Outbox


def drain(outbox: Outbox) -> list[bytes]:
    out = []
    while (payload := outbox.peek()) is not None:
        outbox.done(payload)
        out.append(payload)
    return out


def test_first_in_first_out() -> None:
    outbox = Outbox(limit=3)
    assert outbox.put([b"\x03a", b"\x03b"]) == 0
    assert outbox.put([b"\x03c"]) == 0
    assert len(outbox) == 3
    assert drain(outbox) == [b"\x03a", b"\x03b", b"\x03c"]


def test_what_does_not_fit_takes_everything_with_it() -> None:
    outbox = Outbox(limit=3)
    outbox.put([b"\x03a", b"\x03b", b"\x03c"])
    assert outbox.put([b"\x03d"]) == 4
    assert drain(outbox) == []
    assert outbox.put([b"\x03"] * 4) == 4
    assert outbox.put([b"\x03"] * 3) == 0


def test_the_newest_announcement_waits_last_and_survives() -> None:
    outbox = Outbox(limit=2)
    old, new = (encode_announcement(bytes([n]) * 28, None, []) for n in range(2))
    outbox.put([old, b"\x03a"])
    outbox.put([new])
    assert len(outbox) == 2
    assert drain(outbox) == [b"\x03a", new]
    outbox.put([new, *[b"\x03a"] * 3])
    assert drain(outbox) == [new]


def test_done_ignores_what_was_replaced_meanwhile() -> None:
    outbox = Outbox(limit=1)
    old, new = (encode_announcement(bytes([n]) * 28, None, []) for n in range(2))
    outbox.put([old])
    sending = outbox.peek()
    assert sending is old
    outbox.put([new])
    outbox.done(old)
    assert outbox.peek() is new
    event = b"\x03a"
    outbox.put([event])
    outbox.put([b"\x03b"])
    outbox.done(event)
    assert drain(outbox) == [new]
