"""Order, window and laziness of what is sent."""

from __future__ import annotations

import pytest

from basefs.errors import RemoteProtocolError
from basefs.log.hashes import sha224
from basefs.sync.session.compare import Subtree
from basefs.sync.session.requests import RequestQueue
from basefs.sync.wire.codec import encode
from basefs.sync.wire.limits import MAX_REQUESTS, REQUEST_WINDOW
from basefs.sync.wire.messages import LATER, PAUSE, WHOLE, BlockReq, PathReq


def plain(wish):
    yield PAUSE
    yield b"LS\n" if isinstance(wish, Subtree) else encode(wish)


def outbox(write=plain, backlog=1 << 20):
    return RequestQueue(write, backlog)


def drain(box, size=1 << 20):
    data = b""
    while box.ready:
        data += box.take(size)
    return data


def paths(*names):
    return [PathReq((name,)) for name in names]


def test_control_then_requests_then_answers():
    box = outbox()
    box.answer(iter([b"one\n", b"two\n"]), 1)
    box.answer(iter([]), 1)
    box.ask(paths(b"a"))
    box.control(b"control\n")
    assert drain(box) == b"control\nPATH_REQ /a\none\ntwo\nEOF\nEOF\n"
    assert (box.asked, box.answered) == (1, 2)
    box.new_round()
    assert (box.asked, box.answered) == (0, 0)


def test_never_more_than_was_asked_for():
    box = outbox()
    box.answer(iter([b"x" * 999 + b"\n"] * 3), 1)
    pieces = []
    while box.ready:
        pieces.append(box.take(7))
    assert max(map(len, pieces)) == 7
    assert b"".join(pieces) == (b"x" * 999 + b"\n") * 3 + b"EOF\n"


def test_lazy():
    def lines():
        for number in range(1000):
            made.append(number)
            yield b"%04d\n" % number

    made = []
    box = outbox()
    box.answer(lines(), 1)
    box.take(50)
    assert len(made) == 10


def test_a_pause_gives_the_turn_back():
    box = outbox()
    box.answer(iter([b"a\n", PAUSE, b"b\n"]), 1)
    assert box.take(100) == b"a\n"
    assert box.ready
    assert box.take(100) == b"b\nEOF\n"


def test_what_an_answer_leads_to_goes_before_its_eof():
    def lines():
        box.ask(paths(b"a"))
        yield b"data\n"
        box.ask(paths(b"b"))

    box = outbox()
    box.answer(lines(), 1)
    assert drain(box) == b"data\nPATH_REQ /a\nPATH_REQ /b\nEOF\n"


def test_deepest_first_and_contents_last():
    block = BlockReq((sha224(b"b"),))
    box = outbox()
    box.ask([block, *paths(b"a", b"b")])
    box.ask(paths(b"c", b"d"))
    assert drain(box).splitlines() == [
        b"PATH_REQ /c", b"PATH_REQ /d", b"PATH_REQ /a", b"PATH_REQ /b", encode(block).strip()
    ]  # fmt: skip


def test_a_superfluous_request_is_left_out():
    box = outbox(write=lambda wish: iter(()))
    box.ask(paths(b"a", b"b"))
    assert drain(box) == b""
    assert box.idle and box.asked == 0


def test_requests_at_the_limit_and_above():
    box = outbox()
    box.ask(paths(*(b"%d" % number for number in range(MAX_REQUESTS + 1))))
    assert drain(box).count(b"\n") == MAX_REQUESTS
    assert not box.ready and not box.idle
    assert box.close_answer() == PathReq((b"0",))
    assert drain(box) == b"PATH_REQ /%d\n" % MAX_REQUESTS


def test_bytes_of_requests_at_the_limit_and_above():
    def large(wish):
        yield b"x" * 65535 + b"\n"

    box = outbox(write=large)
    box.ask(paths(*(b"%d" % number for number in range(100))))
    assert len(drain(box)) == REQUEST_WINDOW
    box.close_answer()
    assert len(drain(box)) == 65536


def test_contents_do_not_hold_up_entries():
    box = outbox()
    box.ask([BlockReq((sha224(b"%d" % number),)) for number in range(2)])
    assert drain(box).count(b"\n") == 2
    box.ask(paths(b"a"))
    assert drain(box) == b"PATH_REQ /a\n"
    assert box.expects_entries
    for _ in range(2):
        box.close_answer()
    assert box.current == PathReq((b"a",))
    box.close_answer()
    assert not box.expects_entries


def test_the_backlog_is_bounded():
    box = outbox(backlog=3 * 102)
    box.ask([BlockReq((sha224(b""),)), *paths(b"a", b"b", b"c")])
    assert drain(box).count(b"\n") == 3
    box.ask(paths(b"d" * 300))
    assert drain(box) == b""
    box.ask(paths(b"e", b"f"))
    assert drain(box).count(b"\n") == 2, "what was sent makes room"


def test_one_call_makes_a_bounded_number_of_lines():
    box = outbox()
    box.answer(iter([b"x\n"] * 1000), 1)
    assert len(box.take(1 << 20)) < 100


def test_the_peer_keeps_to_the_window_too():
    box = outbox()
    for _ in range(MAX_REQUESTS):
        box.answer(iter([]), 1)
    with pytest.raises(RemoteProtocolError):
        box.answer(iter([]), 1)
    box = outbox()
    box.answer(iter([]), REQUEST_WINDOW - 1)
    box.answer(iter([]), 65536)
    with pytest.raises(RemoteProtocolError):
        box.answer(iter([]), 1)


def test_eof_must_answer_something():
    with pytest.raises(RemoteProtocolError):
        outbox().close_answer()


def test_drop():
    box = outbox()
    box.answer(iter([b"x\n"]), 1)
    box.ask([Subtree((), WHOLE), BlockReq((sha224(b""),))])
    box.control(b"c\n")
    box.drop()
    assert box.idle and not box.ready


def test_an_answer_that_waits_for_another_session_is_not_asked_for_all_the_time():
    arrived = []

    def answer():
        yield b"one\n"
        while not arrived:
            yield LATER
        yield b"two\n"

    box = outbox()
    box.answer(answer(), 10)
    assert box.take(1000) == b"one\n"
    assert box.dormant and not box.ready and not box.idle
    box.control(b"control\n")
    assert box.ready
    assert box.take(1000) == b"control\n"
    assert box.dormant and not box.ready
    arrived.append(True)
    assert box.take(1000) == b"two\nEOF\n"
    assert not box.dormant and box.idle


def test_it_knows_whether_the_next_answer_may_hold_entries():
    box = outbox()
    assert not box.entries_follow
    box.ask([*paths(b"a", b"b"), BlockReq((sha224(b"1"),)), BlockReq((sha224(b"2"),))])
    drain(box)
    box.ask(paths(b"c"))
    drain(box)
    seen = []
    while box.current is not None:
        seen.append(box.entries_follow)
        box.close_answer()
    # Behind a: b; behind b and the first block: a block; behind the second one: c.
    assert seen == [True, False, False, True, False]
