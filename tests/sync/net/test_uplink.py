"""Whose turn it is to upload, on links of every kind."""

from __future__ import annotations

import pytest

from basefs.sync.net.uplink import (
    BACKLOG,
    LARGE_TURN,
    REMEMBERED,
    SHOWN,
    STUCK,
    TURN,
    Flow,
    LinkWidth,
    Uplink,
)
from basefs.sync.session.inflight import WIDE


class Upload:
    """A connection over which something is sent."""

    def __init__(self) -> None:
        self.outstanding = self.acknowledged = 0
        self.shortest = self.latest = 0.001

    def flow(self) -> Flow:
        """See `basefs.sync.net.uplink.Upload`."""
        return Flow(self.outstanding, self.acknowledged, self.shortest, self.latest)


@pytest.fixture
def busy() -> tuple[Uplink, Upload, Upload]:
    """An uplink, the upload that has its turn, and another one."""
    uplink, first, second = Uplink(), Upload(), Upload()
    assert uplink.admits(first, 0.0)
    first.outstanding = 10_000
    return uplink, first, second


def test_on_a_narrow_link_one_is_served_after_the_other(busy):
    uplink, first, second = busy
    for tenth in range(1, 20):
        first.acknowledged += 400
        assert uplink.admits(first, tenth / 10) and not uplink.admits(second, tenth / 10)
    first.outstanding = 0
    assert uplink.admits(second, 2.0), "all that the first one wanted has arrived"
    second.outstanding = 1
    assert not uplink.admits(first, 2.01)


def test_on_a_wide_link_nobody_waits(busy):
    uplink, first, second = busy
    first.acknowledged = WIDE
    assert uplink.admits(second, 0.5)
    assert uplink.is_turn_of(first)


def test_on_a_long_link_nobody_waits_unless_it_is_narrow_as_well(busy):
    uplink, first, second = busy
    first.shortest, first.latest = 0.5, 0.6
    assert uplink.admits(second, 0.1)
    first.latest = 2.0
    assert not uplink.admits(second, 0.2)


def test_an_upload_that_is_stuck_is_not_waited_for(busy):
    uplink, first, second = busy
    assert not uplink.admits(second, STUCK / 2)
    first.acknowledged = 1
    assert not uplink.admits(second, STUCK)
    assert not uplink.admits(second, 1.9 * STUCK)
    assert uplink.admits(second, 2.1 * STUCK)


def test_nobody_has_the_link_for_ever(busy):
    uplink, first, second = busy
    for second_number in range(int(TURN) + 1):
        first.acknowledged += 1000
        assert not uplink.admits(second, second_number)
    first.acknowledged += 1000
    assert uplink.admits(second, TURN + 0.1)
    assert not uplink.is_turn_of(first)


def test_one_party_does_not_pass_the_turn_among_its_sessions():
    """A peer that reads slowly has the turn for as long as it may, and would have the next ones with other sessions."""
    uplink = Uplink()
    slow, honest = [Upload() for _ in range(8)], Upload()
    for upload in slow:
        upload.outstanding = 10_000
    now, served, waited, longest = 0.0, 0, 0.0, 0.0
    while now < 20 * TURN:
        for upload in slow:
            upload.acknowledged += uplink.admits(upload, now, party="slow")
        # Asks after all the others, each time.
        if uplink.admits(honest, now, party="honest"):
            longest, waited, served = max(longest, waited), 0.0, served + 1
            uplink.ended(honest)
            honest = Upload()
        else:
            waited += 0.5
        now += 0.5
    assert served >= 15 and longest <= TURN + 1


def test_a_party_alone_waits_for_nobody():
    uplink, first, second = Uplink(), Upload(), Upload()
    assert uplink.admits(first, 0.0, party="one")
    first.outstanding = 10_000
    assert not uplink.admits(second, 0.1, party="one")
    uplink.ended(first)
    assert uplink.admits(second, 0.2, party="one")
    other = Upload()
    second.outstanding = 10_000
    assert not uplink.admits(other, 0.3, party="other")
    uplink.ended(other)
    uplink.ended(second)
    assert uplink.admits(first, 0.4, party="one"), "the other one is gone"


def test_a_session_that_has_ended_gives_its_turn_back(busy):
    uplink, first, second = busy
    uplink.ended(second)
    assert not uplink.admits(second, 0.1)
    uplink.ended(first)
    assert uplink.admits(second, 0.1)


def test_a_narrow_link_is_not_filled_beyond_what_can_be_stopped(busy):
    uplink, first, _ = busy
    first.outstanding = BACKLOG
    assert not uplink.admits(first, 1.0)
    first.acknowledged = 2 * WIDE
    assert uplink.admits(first, 1.0)


def test_large_contents_go_one_after_the_other_on_a_wide_link_too():
    uplink, first, second, small = Uplink(), Upload(), Upload(), Upload()
    assert uplink.admits(first, 0.0, large=True)
    for tenth in range(1, 20):
        first.acknowledged += WIDE
        first.outstanding = 1000 * (tenth % 2)  # it waits for its own blocks now and then
        assert not uplink.admits(second, tenth / 10, large=True)
        assert uplink.admits(small, tenth / 10), "what is small waits for nobody"
        assert uplink.admits(second, tenth / 10), "until it is large"
        assert uplink.admits(first, tenth / 10, large=True) and uplink.is_turn_of(first)
    assert not uplink.admits(second, 2.5, large=True)
    assert uplink.admits(second, 1.9 + STUCK, large=True)
    assert not uplink.admits(first, 1.9 + STUCK, large=True)


@pytest.mark.parametrize(
    ("rate", "leave", "turn"),
    [
        (2 * WIDE, "with their session", LARGE_TURN),
        (2 * WIDE, "silently", LARGE_TURN),
        (2 * WIDE, "", TURN),
        (WIDE // 2, "with their session", TURN),
    ],
)
def test_a_large_content_does_not_keep_another_one_waiting_for_ever(rate, leave, turn):
    """Who is quick serves the others meanwhile: they come again, and leave when it has brought what they wait for."""
    uplink, first, second = Uplink(), Upload(), Upload()
    assert uplink.admits(first, 0.0, large=True)
    for half in range(1, 2 * int(turn) + 1):
        if half % 6 == 0:
            if leave == "with their session":
                uplink.ended(second)
                second = Upload()
            elif leave == "silently":
                continue
        first.acknowledged += rate // 2
        first.outstanding = 1000
        assert not uplink.admits(second, half / 2, large=True)
    assert uplink.admits(second, turn + 0.6, large=True)
    assert not uplink.admits(first, turn + 0.7, large=True)


def test_a_peer_that_waits_in_vain_ends_the_turns_of_others_early_only_while_it_waits():
    uplink, first, second, third = Uplink(), Upload(), Upload(), Upload()
    assert uplink.admits(first, 0.0, large=True)
    for half in range(1, 2 * int(LARGE_TURN) + 1):
        first.acknowledged += WIDE
        first.outstanding = 1000
        if half == 2 * int(TURN) - 4:
            uplink.ended(second)
        if half < 2 * int(TURN) - 4:
            assert not uplink.admits(second, half / 2, large=True)
        if half % 10 == 0:
            third = Upload()
            assert not uplink.admits(third, half / 2, large=True)
    assert uplink.admits(third, LARGE_TURN + 0.6, large=True)


def test_large_contents_go_at_once_on_a_long_link():
    uplink, first, second = Uplink(), Upload(), Upload()
    assert uplink.admits(first, 0.0, large=True)
    first.outstanding, first.shortest, first.latest = 10_000, 0.5, 0.6
    assert uplink.admits(second, 0.1, large=True)


def test_a_link_is_wide_once_much_was_acknowledged_soon():
    link = LinkWidth()
    link.note(SHOWN - 1, 0.0)
    assert not link.is_wide(0.0)
    link.note(SHOWN + 200, 0.001)
    assert link.is_wide(0.001) and link.is_wide(REMEMBERED)
    assert not link.is_wide(REMEMBERED + 0.1)


def test_what_is_acknowledged_by_and_by_does_not_make_a_link_wide():
    link, acknowledged = LinkWidth(), 0
    for second in range(100):
        # It was quick, for all that is known.
        acknowledged += SHOWN // 2
        link.note(acknowledged, float(second))
        assert not link.is_wide(float(second))


@pytest.mark.parametrize("looks", [1, 20])
def test_what_a_token_bucket_lets_through_does_not_make_a_link_wide(looks):
    link, acknowledged = LinkWidth(), 0
    for second in range(1, 30):
        # A burst of 4 KiB after a silence, or what 32 kbit/s carry.
        acknowledged += 4096 if second % 10 == 1 else 0
        for look in range(looks):
            acknowledged += 4000 // looks
            now = second + look / looks
            link.note(acknowledged, now)
            assert not link.is_wide(now)


def test_what_one_neighbour_shows_says_nothing_of_another():
    quick, other = LinkWidth(), LinkWidth()
    quick.note(10 * SHOWN, 1.0)
    assert quick.is_wide(1.0) and not other.is_wide(1.0)
