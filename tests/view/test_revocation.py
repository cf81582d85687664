"""The paper's rules about keys that come and go (paper, section 3.1.1; docs/authority.md), one test each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.helpers import ALICE, BOB, CAROL, DAVE, ROOT_KEY, path
from tests.view.stories import Story, above, below


@pytest.fixture
def story(tmp_path: Path) -> Story:
    """Root and Alice hold keys of `/`."""
    return Story(tmp_path, (ROOT_KEY, ALICE))


def keys(story: Story, text: str) -> dict[str, int]:
    shown = story.at(text)
    assert shown is not None
    return dict(shown.keys)


def test_a_branch_that_lost_wins_again_when_its_key_gains_authority(story: Story) -> None:
    d = story.mkdir(ROOT_KEY, story.root, "d")
    last = story.grant(ROOT_KEY, story.grant(ROOT_KEY, d, BOB), CAROL)
    carols = story.write(CAROL, d, b"carol's", "f")
    story.write(BOB, d, b"bob's", "f", below(carols))
    assert story.content("/d/f") == b"carol's"
    story.grant(ROOT_KEY, story.keys, BOB)
    assert story.content("/d/f") == b"bob's"
    assert last


def test_unless_the_winner_was_acknowledged(story: Story) -> None:
    d = story.mkdir(ROOT_KEY, story.root, "d")
    story.grant(ROOT_KEY, story.grant(ROOT_KEY, d, BOB), CAROL)
    carols = story.write(CAROL, d, b"carol's", "f")
    story.write(BOB, d, b"bob's", "f", below(carols))
    story.ack(ROOT_KEY, carols)
    story.grant(ROOT_KEY, story.keys, BOB)
    assert story.content("/d/f") == b"carol's"


def test_revocation_without_acks_takes_trailing_writes_back(story: Story) -> None:
    first = story.write(ROOT_KEY, story.root, b"before", "f")
    story.write(ALICE, story.write(ALICE, first, b"one"), b"two")
    story.revoke(ROOT_KEY, story.keys, ALICE)
    assert story.content("/f") == b"before"


def test_revocation_with_acks_keeps_them(story: Story) -> None:
    first = story.write(ROOT_KEY, story.root, b"before", "f")
    last = story.write(ALICE, story.write(ALICE, first, b"one"), b"two")
    story.ack(ROOT_KEY, last)
    story.revoke(ROOT_KEY, story.keys, ALICE)
    assert story.content("/f") == b"two"


def test_writes_that_valid_keys_built_upon_stay_and_those_behind_vanish(story: Story) -> None:
    first = story.write(ALICE, story.root, b"one", "f")
    middle = story.write(ROOT_KEY, first, b"two")
    story.write(ALICE, middle, b"three")
    story.revoke(ROOT_KEY, story.keys, ALICE)
    assert story.content("/f") == b"two"


def test_a_write_concurrent_with_the_revocation_of_its_key_does_not_count(story: Story) -> None:
    # Nobody can tell a write that was made before the revoke from one that was made after it.
    story.revoke(ROOT_KEY, story.keys, ALICE)
    story.write(ALICE, story.root, b"in another partition", "f")
    assert story.at("/f") is None


def test_a_write_built_upon_in_the_other_partition_stays(story: Story) -> None:
    written = story.write(ALICE, story.root, b"one", "f")
    story.revoke(ROOT_KEY, story.keys, ALICE)
    story.mode(ROOT_KEY, written, 0o600)
    assert story.content("/f") == b"one"


def test_keys_of_one_rank_cannot_revoke_each_other(story: Story) -> None:
    d = story.mkdir(ROOT_KEY, story.root, "d")
    last = story.grant(ROOT_KEY, story.grant(ROOT_KEY, d, BOB), CAROL)
    story.revoke(BOB, last, CAROL)
    story.revoke(CAROL, last, BOB)
    assert keys(story, "/d") == {"root": 0, "alice": 0, "bob": 1, "carol": 1}


def test_of_two_that_revoke_each_other_the_granter_prevails(story: Story) -> None:
    d = story.mkdir(ROOT_KEY, story.root, "d")
    last = story.grant(BOB, story.grant(ROOT_KEY, d, BOB), CAROL)
    story.revoke(CAROL, last, BOB)
    story.revoke(BOB, last, CAROL)
    assert keys(story, "/d") == {"root": 0, "alice": 0, "bob": 1}


def test_grants_fall_with_their_granter_all_the_way_down(story: Story) -> None:
    d = story.mkdir(ROOT_KEY, story.root, "d")
    bobs = story.grant(ROOT_KEY, d, BOB)
    carols = story.grant(BOB, bobs, CAROL)
    last = story.grant(CAROL, carols, DAVE)
    e = story.mkdir(ROOT_KEY, d, "e")
    story.grant(CAROL, e, DAVE)
    story.revoke(ROOT_KEY, last, BOB)
    assert keys(story, "/d") == keys(story, "/d/e") == {"root": 0, "alice": 0}


def test_a_revoke_beats_a_concurrent_grant_of_the_same_key(story: Story) -> None:
    d = story.mkdir(ROOT_KEY, story.root, "d")
    first = story.grant(ROOT_KEY, d, BOB)
    story.revoke(ROOT_KEY, first, BOB)
    story.grant(ALICE, first, BOB)
    assert keys(story, "/d") == {"root": 0, "alice": 0}


def test_a_grant_behind_the_revoke_counts(story: Story) -> None:
    d = story.mkdir(ROOT_KEY, story.root, "d")
    story.grant(ALICE, story.revoke(ROOT_KEY, story.grant(ROOT_KEY, d, BOB), BOB), BOB)
    assert keys(story, "/d") == {"root": 0, "alice": 0, "bob": 1}


def test_rm_r_against_a_new_file_keeps_the_file_and_nothing_else(story: Story) -> None:
    d = story.mkdir(ROOT_KEY, story.root, "d")
    e = story.mkdir(ROOT_KEY, d, "e")
    old = story.write(ROOT_KEY, e, b"old", "old")
    for gone in (old, e, d):
        story.delete(ROOT_KEY, gone)
    story.write(ALICE, e, b"new", "new")
    assert set(story.tree()) == {(), path("/d"), path("/d/e"), path("/d/e/new")}


def test_a_deep_tree_deleted_on_one_side_and_edited_on_the_other(story: Story) -> None:
    directories = [story.root]
    for _ in range(6):
        directories.append(story.mkdir(ROOT_KEY, directories[-1], "x"))
    deep = story.write(ROOT_KEY, directories[-1], b"old", "f")
    story.delete(ROOT_KEY, deep, below(deep))
    for gone in reversed(directories[1:]):
        story.delete(ROOT_KEY, gone)
    assert set(story.tree()) == {()}
    # An edit and a delete of one file are a conflict; two contributors behind the edit decide it.
    edited = story.write(ALICE, deep, b"edited", wanted=above(deep))
    story.ack(ROOT_KEY, edited)
    assert story.content("/x/x/x/x/x/x/f") == b"edited"
