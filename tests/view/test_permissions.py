"""Grants and revokes: who may take what back from whom (paper, section 3.1.1; docs/authority.md)."""

from __future__ import annotations

from pathlib import Path

import pytest

from basefs.log.entries import Entry
from tests.support.helpers import ALICE, BOB, CAROL, DAVE, ROOT_KEY, STRANGER, path
from tests.view.stories import Story


@pytest.fixture
def story(tmp_path: Path) -> Story:
    """A filesystem of root and Alice, who are granted on `/`."""
    return Story(tmp_path, (ROOT_KEY, ALICE))


@pytest.fixture
def home(story: Story) -> Entry:
    """The directory `/d`."""
    return story.mkdir(ROOT_KEY, story.root, "d")


def keys(story: Story, text: str) -> dict[str, int]:
    """The keys valid at a path, with the depth of their authority."""
    return dict(story.tree()[path(text)].keys)


def test_a_grant_holds_for_the_directory_and_all_below(story: Story, home: Entry) -> None:
    story.mkdir(ROOT_KEY, story.mkdir(ROOT_KEY, home, "e"), "f")
    story.grant(ROOT_KEY, home, BOB)
    assert keys(story, "/") == {"root": 0, "alice": 0}
    assert keys(story, "/d") == keys(story, "/d/e") == keys(story, "/d/e/f") == {"root": 0, "alice": 0, "bob": 1}


def test_the_shallowest_grant_is_the_authority(story: Story, home: Entry) -> None:
    inner = story.mkdir(ROOT_KEY, home, "e")
    story.grant(ROOT_KEY, inner, BOB)
    story.grant(ROOT_KEY, home, BOB)
    assert keys(story, "/d/e") == {"root": 0, "alice": 0, "bob": 1}


def test_a_grant_on_a_file(story: Story) -> None:
    made = story.write(ROOT_KEY, story.root, b"root", "f")
    story.write(ROOT_KEY, story.root, b"other", "g")
    story.grant(ROOT_KEY, made, BOB)
    story.write(BOB, made, b"bob")
    assert keys(story, "/f") == {"root": 0, "alice": 0, "bob": 1}
    assert keys(story, "/g") == {"root": 0, "alice": 0}
    assert story.content("/f") == b"bob"


def test_a_granted_key_grants_others(story: Story, home: Entry) -> None:
    first = story.grant(ALICE, home, BOB)
    story.grant(BOB, first, CAROL)
    story.write(CAROL, home, b"carol", "f")
    assert story.content("/d/f") == b"carol"


def test_a_key_cannot_grant_above_its_place(story: Story, home: Entry) -> None:
    inner = story.mkdir(ROOT_KEY, home, "e")
    first = story.grant(ROOT_KEY, inner, BOB)
    replica = story.replica()
    refused = BOB.sign(home.hash, 1, first.action, b"key", CAROL.public)
    assert replica.apply([refused], []).rejected
    assert keys(story, "/d") == {"root": 0, "alice": 0}


def test_revoke_of_a_key_granted_by_the_revoker(story: Story, home: Entry) -> None:
    first = story.grant(BOB, story.grant(ROOT_KEY, home, BOB), CAROL)
    assert keys(story, "/d") == {"root": 0, "alice": 0, "bob": 1, "carol": 1}
    story.revoke(BOB, first, CAROL)
    assert keys(story, "/d") == {"root": 0, "alice": 0, "bob": 1}


def test_revoke_of_a_key_granted_through_others(story: Story, home: Entry) -> None:
    first = story.grant(ROOT_KEY, home, BOB)
    second = story.grant(BOB, first, CAROL)
    third = story.grant(CAROL, second, STRANGER)
    story.revoke(BOB, third, STRANGER)
    assert keys(story, "/d") == {"root": 0, "alice": 0, "bob": 1, "carol": 1}


def test_revoke_by_one_of_two_granters_takes_back_only_its_own_grant(story: Story, home: Entry) -> None:
    last = story.grant(ROOT_KEY, story.grant(ROOT_KEY, home, BOB), CAROL)
    last = story.grant(CAROL, story.grant(BOB, last, STRANGER), STRANGER)
    last = story.revoke(BOB, last, STRANGER)
    assert keys(story, "/d") == {"root": 0, "alice": 0, "bob": 1, "carol": 1, "stranger": 1}
    story.revoke(CAROL, last, STRANGER)
    assert keys(story, "/d") == {"root": 0, "alice": 0, "bob": 1, "carol": 1}


def test_equal_authority_cannot_revoke(story: Story, home: Entry) -> None:
    last = story.grant(ROOT_KEY, story.grant(ROOT_KEY, home, BOB), CAROL)
    story.revoke(BOB, last, CAROL)
    assert keys(story, "/d") == {"root": 0, "alice": 0, "bob": 1, "carol": 1}


def test_lower_authority_cannot_revoke(story: Story, home: Entry) -> None:
    last = story.grant(ROOT_KEY, story.grant(ROOT_KEY, home, BOB), ALICE)
    story.revoke(BOB, last, ALICE)
    assert keys(story, "/d") == {"root": 0, "alice": 0, "bob": 1}


def test_higher_authority_revokes_whoever_granted(story: Story, home: Entry) -> None:
    last = story.grant(BOB, story.grant(ROOT_KEY, home, BOB), CAROL)
    story.revoke(ALICE, last, CAROL)
    assert keys(story, "/d") == {"root": 0, "alice": 0, "bob": 1}


def test_a_key_may_revoke_itself(story: Story, home: Entry) -> None:
    story.revoke(BOB, story.grant(ROOT_KEY, home, BOB), BOB)
    assert keys(story, "/d") == {"root": 0, "alice": 0}


def test_a_revoke_holds_on_its_own_path_only(story: Story, home: Entry) -> None:
    inner = story.mkdir(ROOT_KEY, home, "e")
    story.grant(ROOT_KEY, home, BOB)
    story.revoke(ROOT_KEY, inner, BOB)
    assert keys(story, "/d/e") == {"root": 0, "alice": 0, "bob": 1}


def test_a_grant_falls_with_its_granter(story: Story, home: Entry) -> None:
    first = story.grant(ROOT_KEY, home, BOB)
    second = story.grant(BOB, first, CAROL)
    deeper = story.mkdir(ROOT_KEY, home, "e")
    story.grant(CAROL, deeper, STRANGER)
    story.write(STRANGER, deeper, b"stranger", "f")
    assert story.content("/d/e/f") == b"stranger"
    story.revoke(ROOT_KEY, second, BOB)
    assert keys(story, "/d/e") == {"root": 0, "alice": 0}
    assert story.content("/d/e/f") is None


def test_a_grant_by_two_keys_falls_with_the_second(story: Story, home: Entry) -> None:
    last = story.grant(ROOT_KEY, story.grant(ROOT_KEY, home, BOB), CAROL)
    last = story.grant(CAROL, story.grant(BOB, last, STRANGER), STRANGER)
    last = story.revoke(ROOT_KEY, last, BOB)
    assert keys(story, "/d") == {"root": 0, "alice": 0, "carol": 1, "stranger": 1}
    story.revoke(ROOT_KEY, last, CAROL)
    assert keys(story, "/d") == {"root": 0, "alice": 0}


def test_a_grant_after_the_revoke_counts(story: Story, home: Entry) -> None:
    last = story.revoke(ROOT_KEY, story.grant(ROOT_KEY, home, BOB), BOB)
    assert keys(story, "/d") == {"root": 0, "alice": 0}
    story.grant(ROOT_KEY, last, BOB)
    assert keys(story, "/d") == {"root": 0, "alice": 0, "bob": 1}


def test_a_revoke_takes_back_concurrent_grants(story: Story, home: Entry) -> None:
    first = story.grant(ROOT_KEY, home, BOB)
    story.grant(ALICE, home, BOB)
    story.revoke(ROOT_KEY, first, BOB)
    assert keys(story, "/d") == {"root": 0, "alice": 0}


def test_two_keys_that_grant_each_other_do_not_hold_each_other_up(story: Story, home: Entry) -> None:
    first = story.grant(ROOT_KEY, home, BOB)
    second = story.grant(BOB, first, CAROL)
    third = story.grant(CAROL, second, BOB)
    story.revoke(ROOT_KEY, third, BOB)
    assert keys(story, "/d") == {"root": 0, "alice": 0}


def test_keys_that_revoke_each_other(story: Story, home: Entry) -> None:
    last = story.grant(BOB, story.grant(ROOT_KEY, home, BOB), CAROL)
    story.revoke(BOB, last, CAROL)
    story.revoke(CAROL, last, BOB)
    assert keys(story, "/d") == {"root": 0, "alice": 0, "bob": 1}


def test_root_keys_are_revoked_by_the_first_root_key_only(story: Story) -> None:
    last = story.revoke(ALICE, story.keys, ROOT_KEY)
    assert keys(story, "/") == {"root": 0, "alice": 0}
    story.revoke(ROOT_KEY, last, ALICE)
    assert keys(story, "/") == {"root": 0}


def test_the_first_root_key_stays_even_if_it_revokes_itself(story: Story) -> None:
    story.revoke(ROOT_KEY, story.keys, ROOT_KEY)
    assert keys(story, "/") == {"root": 0, "alice": 0}


def test_equal_authority_above_cannot_revoke_a_second_grant_either(story: Story, home: Entry) -> None:
    story.grant(ROOT_KEY, story.keys, CAROL)
    last = story.grant(ROOT_KEY, home, CAROL)
    story.revoke(ALICE, last, CAROL)
    assert [grant.fingerprint for grant in story.replica().grants(path("/d"))] == [CAROL.fingerprint]
    story.revoke(ROOT_KEY, last, CAROL)
    assert story.replica().grants(path("/d")) == []


def test_what_a_key_grants_does_not_stem_from_a_granter_whose_own_grant_fell(story: Story, home: Entry) -> None:
    both = story.grant(ROOT_KEY, story.grant(ROOT_KEY, home, BOB), CAROL)
    taken = story.revoke(BOB, story.grant(BOB, both, DAVE), DAVE)
    last = story.grant(DAVE, story.grant(CAROL, taken, DAVE), STRANGER)
    # Dave is granted by Carol alone now.
    story.revoke(BOB, last, STRANGER)
    assert keys(story, "/d").keys() == {"root", "alice", "bob", "carol", "dave", "stranger"}
    story.revoke(CAROL, last, STRANGER)
    assert keys(story, "/d").keys() == {"root", "alice", "bob", "carol", "dave"}
