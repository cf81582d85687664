"""Quotas (docs/authority.md): what a key may add, and which of its entries count once there are more."""

from __future__ import annotations

import itertools
import pathlib
import random
from functools import partial

import pytest

from basefs.errors import NotPermitted, QuotaExceeded
from basefs.log.entries import Action, Entry
from basefs.log.extensions import NO_LIMIT, Quota
from basefs.log.hashes import EntryHash
from basefs.log.keys import SigningKey
from basefs.log.missing import ContentProgress
from basefs.path import Path
from basefs.replica.replica import Replica
from basefs.view.history import RevisionStatus
from tests.support.cost import calls
from tests.support.helpers import ALICE, BOB, CAROL, ROOT_KEY, copy_replica, make_replica, path
from tests.view.stories import Story

SECOND = 10**9


def entries(most: int) -> Quota:
    return Quota(NO_LIMIT, most)


def size(most: int) -> Quota:
    return Quota(most, NO_LIMIT)


@pytest.fixture
def story(tmp_path: pathlib.Path) -> Story:
    return Story(tmp_path)


class Shared:
    """A directory, and files that a key with a quota writes in it."""

    def __init__(self, story: Story, quota: Quota | None, key: SigningKey = ALICE) -> None:
        self.story = story
        self.key = key
        self.directory = story.mkdir(ROOT_KEY, story.root, "d")
        self.granted = story.grant(ROOT_KEY, self.directory, key, quota)

    def write(self, name: str, text: bytes = b"four", at: int = 0) -> Entry:
        """A new file, signed at this second."""
        self.story.now = at * SECOND
        return self.story.write(self.key, self.directory, text, name)

    def names(self) -> str:
        """The names in the directory."""
        return " ".join(sorted(at[-1].decode() for at in self.story.tree() if len(at) == 2))


def test_of_more_than_the_quota_the_first_count(story: Story) -> None:
    d = Shared(story, entries(2))
    for at, name in enumerate("abcd"):
        d.write(name, at=at)
    assert d.names() == "a b"


def test_what_does_not_fit_ends_the_count(story: Story) -> None:
    d = Shared(story, size(10))
    for at, (name, text) in enumerate((("a", b"four"), ("b", b"much too long"), ("c", b"1"), ("d", b""))):
        d.write(name, text, at)
    assert d.names() == "a"


def test_what_is_removed_is_not_given_back(story: Story) -> None:
    d = Shared(story, size(8))
    first = d.write("a", at=1)
    story.now = 2 * SECOND
    story.delete(ALICE, first)
    d.write("b", at=3)
    d.write("c", at=4)
    assert d.names() == "b"


def test_an_early_entry_that_comes_late_moves_those_of_the_same_key(story: Story) -> None:
    d = Shared(story, entries(2))
    story.grant(ROOT_KEY, d.granted, BOB, entries(1))
    d.write("a", at=2)
    d.write("b", at=3)
    story.now = 9 * SECOND
    story.write(BOB, d.directory, b"text", "bobs")
    assert d.names() == "a b bobs"
    d.write("c", at=1)
    assert d.names() == "a bobs c"


def test_others_keep_what_they_have_built_on(story: Story) -> None:
    d = Shared(story, entries(1))
    story.grant(ROOT_KEY, d.granted, BOB, entries(5))
    last = d.write("last", at=5)
    story.now = 6 * SECOND
    story.write(BOB, last, b"bob has seen it")
    assert d.names() == "last"
    d.write("first", at=1)
    assert d.names() == "first last"
    assert story.content("/d/last") == b"bob has seen it"


def test_an_earlier_entry_does_not_bring_back_what_it_builds_on(story: Story) -> None:
    d = Shared(story, size(10))
    large = d.write("large", b"a long text", at=5)
    story.now = 0
    # These pretend to be older than what they follow or name.
    story.ack(ALICE, large)
    d.write("small", at=1)
    story.now = 0
    story.revert(ALICE, large, large)
    story.link(ALICE, d.directory, large, "link")
    below = story.mkdir(ALICE, d.directory, "below")
    story.write(ALICE, below, b"1", "f")
    assert d.names() == "below small"
    assert story.content("/d/below/f") == b"1"


def test_a_revert_counts_once_that_is_here_which_it_names(story: Story) -> None:
    d = Shared(story, entries(3))
    first = d.write("f", b"one", at=1)
    story.now = 2 * SECOND
    second = story.write(ALICE, first, b"two")
    story.now = 0
    story.revert(ALICE, second, first)
    assert story.content("/d/f") == b"one"
    # It is the third one, whatever it says.
    d.write("g", at=3)
    assert d.names() == "f"
    d.write("h", at=1)
    assert d.names() == "f h"
    assert story.content("/d/f") == b"two"


def test_a_link_between_two_directories_with_quotas_does_not_count(story: Story) -> None:
    d = Shared(story, size(3))
    other = story.mkdir(ROOT_KEY, story.root, "other")
    story.grant(ROOT_KEY, other, ALICE, size(3))
    large = d.write("large", at=1)
    story.link(ALICE, other, large, "link")
    assert story.at("/other/link") is None
    assert story.at("/d/large") is None


def test_a_key_with_a_quota_cannot_grant(story: Story) -> None:
    d = Shared(story, entries(5))
    story.grant(ALICE, d.granted, CAROL)
    story.write(CAROL, d.directory, b"text", "carols")
    assert d.names() == ""


def test_what_a_key_with_a_quota_hangs_on_its_own_entry_brings_nothing_back(story: Story) -> None:
    d = Shared(story, entries(0))
    written = d.write("a")
    story.revoke(ALICE, written, ALICE)
    story.grant(ALICE, written, ALICE)
    assert d.names() == ""


def test_of_several_grants_the_largest_quota_counts(story: Story) -> None:
    d = Shared(story, entries(1))
    for at, name in enumerate("abc"):
        d.write(name, at=at)
    last = story.grant(ROOT_KEY, d.granted, ALICE, entries(2))
    assert d.names() == "a b"
    last = story.grant(ROOT_KEY, last, ALICE, entries(1))
    assert d.names() == "a b"
    story.grant(ROOT_KEY, last, ALICE)
    assert d.names() == "a b c"


def test_a_grant_above_or_below_adds_to_a_quota(story: Story) -> None:
    d = Shared(story, entries(2))
    below = story.mkdir(ROOT_KEY, d.directory, "below")
    granted = story.grant(ROOT_KEY, below, ALICE, entries(1))
    d.write("a", at=1)
    for at, name in enumerate("bcd"):
        story.now = (2 + at) * SECOND
        story.write(ALICE, below, b"text", name)
    # The second one is the last that /d holds, the first one all that /d/below does.
    assert {at[-1] for at in story.tree() if len(at) == 3} == {b"b"}
    story.grant(ROOT_KEY, granted, ALICE)
    assert {at[-1] for at in story.tree() if len(at) == 3} == {b"b", b"c", b"d"}


def test_a_grant_after_a_revoke_counts_on(story: Story) -> None:
    d = Shared(story, entries(2))
    kept = [d.write(name, at=at) for at, name in enumerate("ab")]
    for one in kept:
        story.ack(ROOT_KEY, one)
    last = story.revoke(ROOT_KEY, d.granted, ALICE)
    story.grant(ROOT_KEY, last, ALICE, entries(3))
    d.write("c", at=5)
    d.write("d", at=6)
    assert d.names() == "a b c"


def test_contents_over_the_quota_are_withheld_until_it_is_larger(story: Story) -> None:
    d = Shared(story, size(1000))
    d.write("a", at=1)
    over = d.write("b", b"x" * 2000, at=2)
    later = story.grant(ROOT_KEY, d.granted, ALICE, size(5000))
    replica = make_replica(story.directory / "node", born=[])
    replica.apply([entry for entry in story.entries if entry not in (over, later)], story.blocks[:1])
    replica.apply([over], [])
    replica.review_needs(at_once=True)
    survey = replica.survey(path("/d/b"))
    assert survey is not None
    assert [one.standing for one in survey.revisions()] == [RevisionStatus.OVER]
    assert [one.progress for *_, one in replica.incomplete()] == [ContentProgress.WITHHELD]
    replica.apply([later], [])
    assert replica.review_needs(at_once=True) == 1
    replica.apply([], story.blocks)
    assert replica.read(path("/d/b")) == b"x" * 2000
    replica.close()


# -- what a second key adds -----------------------------------------------------------------------------------------


class Accomplice:
    """Alice has a quota in a directory; Carol's key is in the log and valid nowhere, since Alice cannot grant it."""

    def __init__(self, story: Story) -> None:
        self.d = Shared(story, Quota(40, 8))
        self.granted = story.grant(ALICE, self.d.granted, CAROL)


LARGE = b"far more than the quota of Alice has room for"


def test_an_entry_within_a_quota_brings_back_no_write_of_a_key_that_is_not_valid(story: Story) -> None:
    d = Accomplice(story).d
    large = story.write(CAROL, d.directory, LARGE, "large")
    changed = story.mode(ALICE, large, 0o600)
    story.write(ALICE, story.ack(ALICE, changed), b"small")
    other = story.write(CAROL, d.directory, LARGE, "removed")
    story.write(ALICE, story.delete(ALICE, other), b"small")
    assert d.names() == ""


def test_nor_a_directory(story: Story) -> None:
    d = Accomplice(story).d
    below = story.mkdir(CAROL, d.directory, "below")
    deeper = story.mkdir(ALICE, below, "deeper")
    story.write(ALICE, deeper, b"small", "f")
    story.mode(ALICE, story.mkdir(CAROL, d.directory, "other"), 0o700)
    assert d.names() == ""
    # One without a quota does, and with it what Alice has there.
    story.write(ROOT_KEY, deeper, b"text", "roots")
    assert d.names() == "below"
    assert story.content("/d/below/deeper/f") == b"small"


def test_nor_what_it_reverts_or_links_to(story: Story) -> None:
    d = Accomplice(story).d
    mine = d.write("mine")
    large = story.write(CAROL, mine, LARGE)
    story.revert(ALICE, mine, large)
    story.link(ALICE, d.directory, large, "link")
    # That follows neither the revert nor the link, and names both.
    again = story.revert(CAROL, mine, large)
    story.mode(ALICE, story.revert(ALICE, mine, again), 0o600)
    link = story.link(CAROL, d.directory, large, "second")
    story.link(ALICE, d.directory, link, "third")
    assert d.names() == "mine"
    assert story.content("/d/mine") == b"four"


def test_a_key_without_a_quota_brings_both_back(story: Story) -> None:
    d = Accomplice(story).d
    large = story.write(CAROL, d.directory, LARGE, "large")
    mine = story.write(ALICE, large, b"small")
    link = story.link(ALICE, d.directory, large, "link")
    assert d.names() == ""
    story.ack(ROOT_KEY, mine)
    assert d.names() == "large link"
    assert story.content("/d/large") == story.content("/d/link") == b"small"
    assert link in story.entries


def test_what_a_revoked_key_wrote_stays_with_the_ack_of_the_revoke(story: Story) -> None:
    d = Shared(story, Quota(40, 8))
    granted = story.grant(ROOT_KEY, d.granted, BOB)
    bobs = story.write(BOB, d.directory, b"bob's", "f")
    story.write(ALICE, bobs, b"alice's")
    story.link(ALICE, d.directory, bobs, "link")
    replica = node_of(story, ROOT_KEY)
    plan = replica.plan(lambda author: author.key_holder.revoke(path("/d"), b"bob", BOB.fingerprint))
    assert plan.changed == ()
    replica.commit(lambda author: author.revoke(path("/d"), b"bob", BOB.fingerprint))
    assert replica.read(path("/d/f")) == replica.read(path("/d/link")) == b"alice's"
    replica.close()
    # Without it both are gone.
    story.revoke(ROOT_KEY, granted, BOB)
    assert d.names() == ""


def test_a_file_that_no_valid_key_vouches_for_is_copied_into_a_quota(story: Story) -> None:
    d = Shared(story, Quota(40, 8))
    granted = story.grant(ROOT_KEY, d.granted, BOB)
    first = story.write(BOB, d.directory, b"bob's", "first")
    story.link(ROOT_KEY, d.directory, first, "second")
    story.delete(ROOT_KEY, first)
    story.revoke(ROOT_KEY, granted, BOB)
    replica = node_of(story, ALICE)
    assert replica.read(path("/d/second")) == b"bob's"
    replica.commit(lambda author: author.rename(path("/d/second"), path("/d/third")))
    assert replica.read(path("/d/third")) == b"bob's"
    assert replica.quota_left(path("/d")) == {path("/d"): (35, 6)}
    replica.close()


def test_this_node_reverts_to_nothing_that_would_not_count(story: Story) -> None:
    d = Shared(story, Quota(40, 8))
    mine = d.write("f")
    story.now = 2 * SECOND
    bobs = story.write(BOB, mine, b"bob's")
    story.grant(ROOT_KEY, story.revoke(ROOT_KEY, story.grant(ROOT_KEY, d.granted, BOB), BOB), CAROL)
    replica = node_of(story, ALICE)
    before = replica.digest()
    with pytest.raises(NotPermitted, match="has a quota"):
        replica.commit(lambda author: author.reverter.path(path("/d/f"), bobs.hash))
    assert replica.digest() == before
    replica.close()


# -- what this node signs ----------------------------------------------------------------------------------------------


def node_of(story: Story, *keys: SigningKey) -> Replica:
    replica = make_replica(story.directory / "node", keys, born=[])
    replica.apply(story.entries, story.blocks)
    return replica


def test_this_node_signs_nothing_over_its_quota(story: Story) -> None:
    Shared(story, Quota(10, 2))
    replica = node_of(story, ALICE)
    with pytest.raises(QuotaExceeded, match="quota"):
        replica.commit(lambda author: author.write(path("/d/a"), b"a long text"))
    replica.commit(lambda author: author.write(path("/d/a"), b"text"))
    replica.commit(lambda author: author.remove(path("/d/a"), directory=False))
    with pytest.raises(QuotaExceeded):
        replica.commit(lambda author: author.write(path("/d/b"), b""))
    replica.close()


def test_a_file_from_elsewhere_is_copied_into_a_quota(story: Story) -> None:
    Shared(story, Quota(10, 9))
    other = story.mkdir(ROOT_KEY, story.root, "other")
    story.grant(ROOT_KEY, other, ALICE)
    story.write(ALICE, other, b"text", "f")
    story.write(ALICE, other, b"a long text", "g")
    replica = node_of(story, ALICE)
    replica.commit(lambda author: author.rename(path("/other/f"), path("/d/f")))
    assert replica.read(path("/d/f")) == b"text"
    with pytest.raises(QuotaExceeded):
        replica.commit(lambda author: author.rename(path("/other/g"), path("/d/g")))
    assert replica.read(path("/other/g")) == b"a long text"
    replica.commit(lambda author: author.rename(path("/d/f"), path("/d/h")))
    assert replica.read(path("/d/h")) == b"text"
    replica.close()


def test_a_node_with_a_quota_grants_nothing(story: Story) -> None:
    Shared(story, entries(5))
    replica = node_of(story, ALICE)
    with pytest.raises(NotPermitted, match="has a quota"):
        replica.plan(lambda author: author.key_holder.grant(path("/d"), b"carol", CAROL.public))
    replica.close()


def test_a_quota_becomes_larger_and_not_smaller(story: Story) -> None:
    Shared(story, entries(5))
    replica = node_of(story, ROOT_KEY)

    def grant(quota: Quota | None) -> int:
        plan = replica.plan(lambda author: author.key_holder.grant(path("/d"), b"key", ALICE.public, quota))
        return len(plan.draft.entries)

    assert grant(entries(5)) == 0
    assert grant(entries(6)) == 1
    assert grant(None) == 1
    for smaller in (entries(4), size(10)):
        with pytest.raises(NotPermitted, match="larger quota"):
            grant(smaller)
    replica.close()


def test_what_is_refused_leaves_nothing_behind(story: Story) -> None:
    Shared(story, Quota(10, 5))
    replica = node_of(story, ALICE)
    before = replica.digest()
    with pytest.raises(QuotaExceeded):
        replica.commit(lambda author: author.write(path("/d/a"), b"a long text"))
    assert replica.digest() == before
    assert replica.check_view() == []
    other = copy_replica(replica, story.directory / "copy", (ALICE,))
    other.commit(lambda author: author.write(path("/d/a"), b"text"))
    assert other.quota_left(path("/d")) == {path("/d"): (6, 4)}
    other.close()
    replica.close()


def test_actions(story: Story) -> None:
    """Grants, revokes and annotations are not counted."""
    d = Shared(story, entries(1))
    story.sign(ALICE, d.directory, Action(64), "", b"note")
    d.write("a")
    assert d.names() == "a"


def test_many_entries_in_any_order_of_their_times(story: Story) -> None:
    d = Shared(story, entries(600))
    chance = random.Random(1)
    files = []
    for number, at in enumerate(chance.sample(range(1500), 1500)):
        story.now = at * SECOND
        files.append(story.write(ALICE, d.directory, b"x" * (at % 7), str(number)))
    larger = [story.grant(ROOT_KEY, d.granted, ALICE, quota) for quota in (entries(900), Quota(2000, 1000))]
    order = sorted(files, key=lambda entry: (entry.made, entry.hash))

    def within(here: set[EntryHash], quota: Quota) -> set[Path]:
        there = [entry for entry in order if entry.hash in here]
        sizes = itertools.accumulate(entry.size for entry in there)
        used = zip(there, sizes, itertools.count(1), strict=False)
        return {path(f"/d/{e.name.decode()}") for e, size, n in used if size <= quota.bytes and n <= quota.entries}

    replica = make_replica(story.directory / "node", born=[])
    replica.apply([entry for entry in story.entries if entry not in (*files, *larger)], story.blocks)
    here: set[EntryHash] = set()
    chance.shuffle(files)
    for start in range(0, 1500, 300):
        part = files[start : start + 300]
        for some in (part[:1], part[1:40], part[40:]):
            replica.apply(some, story.blocks)
            here |= {entry.hash for entry in some}
            assert {names for names, _ in replica.live_paths() if len(names) == 2} == within(here, entries(600))
    assert replica.check_view() == []
    for grant, quota in zip(larger, (entries(900), Quota(NO_LIMIT, 1000)), strict=True):
        # Of two grants on a directory the larger number counts of each.
        replica.apply([grant], [])
        assert {names for names, _ in replica.live_paths() if len(names) == 2} == within(here, quota)
    assert replica.check_view() == []
    replica.close()


def test_an_early_entry_pushes_others_out_after_any_number_of_grants(story: Story) -> None:
    d = Shared(story, Quota(100, 5))
    for at, name in enumerate("abcde", 1):
        d.write(name, at=at)
    replica = make_replica(story.directory / "node", born=[])
    replica.apply(story.entries, story.blocks)
    last = d.granted
    for number in range(80):
        last = story.grant(ROOT_KEY, last, ALICE, Quota(100 + number, 5))
        replica.apply([last], [])
        assert len(replica.live_paths()) == 7
    early = d.write("early", at=0)
    replica.apply([early], story.blocks)
    assert replica.check_view() == []
    assert {names[-1] for names, _ in replica.live_paths() if len(names) == 2} == {b"early", b"a", b"b", b"c", b"d"}
    replica.close()


# -- what it costs -----------------------------------------------------------------------------------------------------


def test_each_directory_with_a_quota_costs_the_same(story: Story) -> None:
    """However deep: of a key that is granted on all directories above its entries, which are over each quota."""
    costs = []
    for depth in (20, 40, 80):
        deep = Story(story.directory)
        parent = deep.root
        for _ in range(depth):
            parent = deep.mkdir(ROOT_KEY, parent, "d")
            deep.grant(ROOT_KEY, parent, ALICE, entries(0))
        for number in range(60):
            deep.write(ALICE, parent, b"", str(number))
        replica = make_replica(deep.directory / str(depth), born=[])
        replica.apply(deep.entries, [])
        costs.append(calls(replica.live_paths) / depth)
        replica.close()
    assert costs[2] <= 1.25 * costs[0]


def test_quotas_of_others_cost_an_entry_nothing(story: Story) -> None:
    replica = make_replica(story.directory / "node", born=[])
    mine = story.write(ROOT_KEY, story.root, b"", "f")
    costs = []
    for number in range(200):
        directory = story.mkdir(ROOT_KEY, story.root, str(number))
        story.grant(ROOT_KEY, directory, ALICE, entries(1))
        story.write(ALICE, directory, b"", "f")
        replica.apply(story.entries, [])
        replica.live_paths()
        mine = story.write(ROOT_KEY, mine, b"")
        costs.append(calls(partial(replica.apply, [mine], [])))
    assert costs[-1] <= 1.1 * costs[10]
    replica.close()


def test_a_look_at_the_past_changes_nothing(story: Story) -> None:
    d = Shared(story, entries(1000))
    for number in range(100):
        d.write(str(number), b"")
    replica = node_of(story, ROOT_KEY)
    replica.live_paths()

    def write() -> int:
        return calls(partial(replica.commit, lambda author: author.write(path("/f"), b"")))

    write()
    cost = write()
    assert len(replica.plan(lambda author: author.past.live(path("/d"), 5))) < 10
    # What a key has written is counted again, and no path is resolved again.
    assert write() <= cost + 100 * 100
    assert replica.check_view() == []
    replica.close()
