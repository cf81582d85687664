"""Their list against ours, case by case."""

from __future__ import annotations

import pytest

from basefs.log.hashes import sha224
from basefs.log.interface import Listing
from basefs.sync.session.compare import Differences, Subtree, compare
from basefs.sync.wire.limits import MAX_ITEMS
from basefs.sync.wire.messages import WHOLE, ItemKind, Ls, Part
from tests.sync.session.test_index import finish
from tests.sync.session.test_index import listing as many

E, X, Y = (sha224(letter) for letter in (b"E", b"X", b"Y"))
P = (b"p",)


def index(**fields):
    blank = {"entries": (), "children": ()}
    return finish(__import__("basefs.sync.session.compare", fromlist=["build"]).build(Listing(**{**blank, **fields})))


def test_own_entries():
    assert compare(Ls(P, WHOLE, entries=(E, X)), index(entries=(X, Y))) == Differences(
        ask_entries=[E], send_entries=[Y]
    )
    assert compare(Ls(P, WHOLE, entries=(E,)), index(entries=(E,))) == Differences()


CHILDREN = [
    (None, X, Differences(ask_children={b"n": X})),
    (X, None, Differences(send_paths=[(b"p", b"n")])),
    (X, X, Differences()),
    (X, Y, Differences(look=[Subtree((b"p", b"n"), WHOLE)])),
]


@pytest.mark.parametrize(("ours", "theirs", "plan"), CHILDREN)
def test_children(ours, theirs, plan):
    mine = index(children=((b"n", ours),) if ours else ())
    assert compare(Ls(P, WHOLE, children=((b"n", theirs),) if theirs else ()), mine) == plan


def test_an_unknown_path_is_asked_for_whole():
    assert compare(Ls(P, WHOLE, entries=(E,)), None) == Differences(ask_whole=True)
    assert compare(Ls(P, WHOLE, child_buckets={"0": X}), None) == Differences(ask_whole=True)
    assert compare(Ls(P, WHOLE), None) == Differences()


def test_buckets_lead_to_prefixes():
    listing = many(children=MAX_ITEMS + 10)
    mine = finish(__import__("basefs.sync.session.compare", fromlist=["build"]).build(listing))
    buckets = mine.child_buckets("")
    changed, gone, *_ = sorted(buckets)
    theirs = {digit: value for digit, value in buckets.items() if digit != gone} | {changed: X}
    plan = compare(Ls(P, WHOLE, child_buckets=theirs), mine)
    assert plan.look == [Subtree(P, Part(ItemKind.CHILDREN, changed))]
    assert {path[-1] for path in plan.send_paths} == {child.name for child in mine.children(gone)}
    assert compare(Ls(P, WHOLE, child_buckets={"0": X}), index()).look == [Subtree(P, Part(ItemKind.CHILDREN, "0"))]


def test_sub_paths_wait_until_many_own_entries_are_settled():
    own = many(MAX_ITEMS + 10)
    mine = index(entries=own.entries, children=((b"n", X),))
    buckets = mine.entry_buckets("")
    same = compare(Ls(P, WHOLE, entry_buckets=buckets), mine)
    assert same == Differences(send_paths=[(b"p", b"n")])
    differs = compare(Ls(P, WHOLE, entry_buckets=buckets | {"0": X}), mine)
    assert differs == Differences(look=[Subtree(P, Part(ItemKind.ENTRIES, "0"))], deferred=True)


def test_entries_of_a_bucket_that_the_peer_lacks_are_sent_in_the_order_of_the_log():
    own = many(MAX_ITEMS + 10)
    mine = index(entries=own.entries)
    assert compare(Ls(P, WHOLE), mine).send_entries == list(own.entries)
    only = sorted(mine.entry_buckets(""))[:8]
    theirs = {digit: value for digit, value in mine.entry_buckets("").items() if digit not in only}
    sent = compare(Ls(P, WHOLE, entry_buckets=theirs), mine).send_entries
    assert sent == [entry for entry in own.entries if entry.hex()[0] in only]
