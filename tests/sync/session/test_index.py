"""Items by prefix: what is listed, what is aggregated, and that both add up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from basefs.log.hashes import HASH_SIZE, ZERO_HASH, sha224
from basefs.log.interface import Listing
from basefs.sync.session.compare import EMPTY, Indexes, build
from basefs.sync.wire.limits import MAX_ITEMS
from basefs.sync.wire.messages import PAUSE, WHOLE, ItemKind, Part
from tests.support.memory import MemoryLog
from tests.sync.helpers import ROOT, Writer


def finish(steps):
    """The return value of a generator that yields pauses."""
    while True:
        try:
            assert next(steps) == PAUSE
        except StopIteration as stop:
            return stop.value


def listing(entries=0, children=0):
    def some(kind, count):
        return [sha224(b"%s%d" % (kind, number)) for number in range(count)]

    return Listing(
        entries=tuple(some(b"e", entries)),
        children=tuple((b"name%d" % number, hash) for number, hash in enumerate(some(b"c", children))),
    )


@given(st.integers(0, 200), st.integers(0, 300))
def test_the_hash_of_a_part_stands_for_its_items(entries, children):
    index = finish(build(listing(entries, children)))
    assert len(index) == entries + children

    def below(part):
        """The items of a part by their keys, and their hashes, found by looking at all smaller parts."""
        ls = index.ls((), part)
        found = {entry: entry for entry in ls.entries}
        found |= {sha224(name): hash for name, hash in ls.children}
        for kind, buckets in ((ItemKind.ENTRIES, ls.entry_buckets), (ItemKind.CHILDREN, ls.child_buckets)):
            for digit, bucket in (buckets or {}).items():
                some = below(Part(kind, part.prefix + digit))
                assert bucket == (sha224(b"".join(some[key] for key in sorted(some))) if some else ZERO_HASH)
                assert bucket == index.value(Part(kind, part.prefix + digit))
                found |= some
        return found

    assert len(below(WHOLE)) == entries + children


def test_the_same_items_have_the_same_hash_in_any_order():
    whole = listing(100, 100)
    other = Listing(whole.entries[::-1], whole.children[::-1])
    parts = [Part(kind, digit) for kind in (ItemKind.ENTRIES, ItemKind.CHILDREN) for digit in "0123456789abcdef"]
    one, two = finish(build(whole)), finish(build(other))
    assert [one.value(part) for part in parts] == [two.value(part) for part in parts]


def test_listed_at_the_limit_aggregated_above():
    ls = finish(build(listing(MAX_ITEMS, children=MAX_ITEMS))).ls((), WHOLE)
    assert len(ls.entries) == len(ls.children) == MAX_ITEMS
    ls = finish(build(listing(MAX_ITEMS + 1, children=MAX_ITEMS + 1))).ls((), WHOLE)
    assert not ls.entries and not ls.children
    assert 8 < len(ls.entry_buckets) <= 16 and 8 < len(ls.child_buckets) <= 16


def test_entries_are_listed_in_the_order_of_the_log():
    whole = listing(MAX_ITEMS)
    assert finish(build(whole)).ls((), WHOLE).entries == whole.entries


def test_a_part_holds_one_kind():
    index = finish(build(listing(5, children=5)))
    assert not index.ls((), Part(ItemKind.CHILDREN, "0")).entries
    assert not index.ls((), Part(ItemKind.ENTRIES, "0")).children
    assert EMPTY.ls((), WHOLE).entries == ()


def test_a_whole_key_is_always_listed():
    # More than MAX_ITEMS entries with one hash cannot be; this only shows that the digits end.
    same = Listing((sha224(b"x"),) * (MAX_ITEMS + 1), ())
    part = Part(ItemKind.ENTRIES, sha224(b"x").hex())
    assert len(part.prefix) == 2 * HASH_SIZE
    assert len(finish(build(same)).ls((), part).entries) == MAX_ITEMS + 1


def test_a_large_listing_is_indexed_in_slices():
    assert len(list(build(listing(children=5000)))) == 4


def test_an_index_is_a_snapshot_until_the_next_round():
    writer = Writer()
    writer.mkdir((b"d",))
    log = writer.log()
    indexes = Indexes(log)
    assert len(finish(indexes.open(()))) == 2
    assert finish(indexes.open((b"e",))) is None
    writer.mkdir((b"e",))
    log.add(writer.entries, ())
    assert len(finish(indexes.open(()))) == 2
    indexes.clear()
    assert len(finish(indexes.open(()))) == 3


def test_the_cache_is_bounded():
    asked = []

    class Asked(MemoryLog):
        def listing(self, path):
            asked.append(path)
            return super().listing(path)

    writer = Writer()
    for number in range(20):
        writer.write((b"%d" % (number % 5), b"f%d" % number))
    log = Asked(ROOT.hash)
    log.add(writer.entries, ())
    paths = [(b"%d" % name,) for name in range(5)]
    indexes, roomy = Indexes(log, most=10), Indexes(log)
    for each in (indexes, roomy):
        for path in paths:
            assert len(finish(each.open(path))) == 5
    asked.clear()
    for path in paths[::-1]:
        finish(roomy.open(path))
        finish(indexes.open(path))
    assert asked == paths[-2::-1], "the last one is kept, and one more at a time"
