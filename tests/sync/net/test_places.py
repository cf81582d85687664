"""Places: whoever comes, with whatever number of connections, leaves some for the others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from basefs.sync.net.places import Places

MOST, PER_PARTY = 6, 4


def test_two_parties_do_not_take_all() -> None:
    places: Places[int] = Places(4, 2)
    assert [places.enter(number, who) for number, who in enumerate("aabb")] == [None] * 4
    assert not places.admit("a") and not places.admit("b")
    assert places.admit("c")
    assert places.enter(4, "c") in range(4)
    assert len(places) == 4
    assert places.admit("d") and places.enter(5, "d") in range(4)
    assert not places.admit("e"), "now each has one"
    assert not places.admit("a"), "nor does anybody get a second one"


def test_strangers_make_room_for_those_who_are_known() -> None:
    places: Places[int] = Places(4, 2, str.isupper)
    for number, who in enumerate("abcd"):
        places.enter(number, who)
    assert not places.admit("e")
    assert [places.enter(number, who) in range(4) for number, who in enumerate("ABCD", 4)] == [True] * 4
    assert not places.admit("a") and not places.admit("E") and not places.admit("A")


def test_who_was_told_of_a_place_that_is_taken_meanwhile_gets_none() -> None:
    places: Places[int] = Places(4, 2)
    assert all(places.admit("a") for _ in range(3))
    assert [places.enter(number, "a") for number in range(3)] == [None, None, 2]
    assert len(places) == 2


def test_who_has_lost_its_place_may_say_that_it_leaves() -> None:
    places: Places[int] = Places(1, 2, str.isupper)
    places.enter(0, "a")
    assert places.enter(1, "A") == 0
    places.leave(0)
    assert len(places) == 1
    places.leave(1)
    assert len(places) == 0 and places.admit("a")


@given(st.lists(st.tuples(st.sampled_from("abcABC"), st.booleans())))
def test_whatever_comes_nobody_has_more_than_its_share(steps: list[tuple[str, bool]]) -> None:
    places: Places[int] = Places(MOST, PER_PARTY, str.isupper)
    inside: dict[int, str] = {}
    for number, (who, leaves) in enumerate(steps):
        mine = [guest for guest, party in inside.items() if party == who]
        if leaves and mine:
            places.leave(mine[0])
            del inside[mine[0]]
        elif places.admit(who):
            unlucky = places.enter(number, who)
            if unlucky is not None:
                other = inside.pop(unlucky)
                left = list(inside.values()).count(other)
                assert left >= len(mine) + 1 or (who.isupper() and other.islower())
            inside[number] = who
        assert len(places) == len(inside) <= MOST
        assert all(list(inside.values()).count(party) <= PER_PARTY for party in "abcABC")
