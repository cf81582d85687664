"""Conflicts: the paper's rules one by one (paper, section 3.1; docs/authority.md)."""

from __future__ import annotations

from pathlib import Path

import pytest

from basefs.log.entries import Action
from basefs.view.states import Kind
from tests.support.helpers import ALICE, BOB, CAROL, ROOT_KEY, noise, path, tree_of
from tests.view.stories import Story, above, below


@pytest.fixture
def story(tmp_path: Path) -> Story:
    """A filesystem of root and Alice, who are granted on `/`; Bob and Carol are granted on `/d`."""
    story = Story(tmp_path, (ROOT_KEY, ALICE))
    story.mkdir(ROOT_KEY, story.root, "d")
    return story


@pytest.fixture
def directory_keys(story: Story) -> None:
    story.grant(ROOT_KEY, story.grant(ROOT_KEY, story.entries[-1], BOB), CAROL)


def directory(story: Story) -> int:
    return next(index for index, entry in enumerate(story.entries) if entry.name == b"d")


# -- rule 1: incomplete content ---------------------------------------------------------------------------------------


def test_incomplete_file_is_not_shown(story: Story) -> None:
    story.write(ROOT_KEY, story.root, noise(1, 1500), "f")
    assert story.at("/f", without=story.blocks[-1:]) is None
    assert story.content("/f") == noise(1, 1500)


def test_incomplete_write_leaves_the_content_before_it(story: Story) -> None:
    first = story.write(ROOT_KEY, story.root, b"old", "f")
    story.write(ROOT_KEY, first, noise(1, 1500))
    assert story.content("/f", without=story.blocks[-1:]) == b"old"
    assert story.content("/f") == noise(1, 1500)


def test_incomplete_branch_loses_to_a_weaker_complete_one(story: Story, directory_keys: None) -> None:
    home = story.entries[directory(story)]
    story.write(BOB, home, b"bob", "f")
    story.write(ROOT_KEY, home, noise(1, 1500), "f")
    assert story.content("/d/f", without=story.blocks[-1:]) == b"bob"
    assert story.content("/d/f") == noise(1, 1500)


def test_delta_on_incomplete_content_is_incomplete(tmp_path: Path) -> None:
    story = Story(tmp_path)
    replica = story.replica(ROOT_KEY)
    content = noise(1, 3000)
    made = [
        replica.commit(lambda author: author.write(path("/f"), content)),
        replica.commit(lambda author: author.write(path("/f"), content + b"more")),
    ]
    story.entries.extend(entry for applied in made for entry in applied.entries)
    story.blocks.extend(block for applied in made for block in applied.blocks)
    base = made[0].blocks
    assert len(made[1].blocks) == 1, "the second write is a delta"
    assert story.at("/f", without=base[-1:]) is None
    assert story.content("/f") == content + b"more"


# -- rule 2: authority ------------------------------------------------------------------------------------------------


def test_higher_authority_wins_whatever_the_number_of_contributors(story: Story, directory_keys: None) -> None:
    home = story.entries[directory(story)]
    crowd = story.write(BOB, home, b"bob", "f")
    crowd = story.write(CAROL, crowd, b"carol")
    story.write(BOB, crowd, b"bob again")
    story.write(ALICE, home, b"alice", "f", wanted=below(crowd))
    assert story.content("/d/f") == b"alice"


def test_any_contributor_of_a_branch_gives_it_its_authority(story: Story, directory_keys: None) -> None:
    home = story.entries[directory(story)]
    weak = story.write(BOB, home, b"bob", "f")
    strong = story.write(ALICE, weak, b"alice")
    story.write(CAROL, strong, b"carol on alice")
    story.write(CAROL, home, b"carol", "f", wanted=above(weak))
    assert story.content("/d/f") == b"carol on alice"


# -- rule 3: number of contributors -----------------------------------------------------------------------------------


def test_more_contributors_win(story: Story) -> None:
    first = story.write(ROOT_KEY, story.root, b"root", "f")
    story.write(ALICE, first, b"alice")
    story.write(ROOT_KEY, story.root, b"root alone", "f", wanted=above(first))
    assert story.content("/f") == b"alice"


def test_many_entries_of_one_key_are_one_contributor(story: Story) -> None:
    first = story.write(ROOT_KEY, story.root, b"1", "f")
    last = story.write(ROOT_KEY, story.write(ROOT_KEY, first, b"2"), b"3")
    story.write(ALICE, story.root, b"alice", "f", wanted=above(first))
    assert story.content("/f") == b"alice"
    assert last.hash in {entry.hash for entry in story.entries}


def test_ack_is_a_contribution(story: Story) -> None:
    first = story.write(ROOT_KEY, story.root, b"acknowledged", "f")
    story.write(ROOT_KEY, story.root, b"other", "f", wanted=above(first))
    assert story.content("/f") == b"other"
    story.ack(ALICE, first)
    assert story.content("/f") == b"acknowledged"


# -- rule 4: hash -----------------------------------------------------------------------------------------------------


def test_higher_hash_wins(story: Story) -> None:
    first = story.write(ROOT_KEY, story.root, b"first", "f")
    story.write(ROOT_KEY, story.root, b"lower", "f", wanted=below(first))
    assert story.content("/f") == b"first"
    story.write(ROOT_KEY, story.root, b"higher", "f", wanted=above(first))
    assert story.content("/f") == b"higher"


def test_the_first_entry_of_a_branch_counts_not_its_last(story: Story) -> None:
    first = story.write(ROOT_KEY, story.root, b"first", "f")
    other = story.write(ROOT_KEY, story.root, b"other", "f", wanted=below(first))
    story.write(ROOT_KEY, other, b"late and high", wanted=above(first))
    assert story.content("/f") == b"first"


def test_later_forks_inside_the_winner_are_decided_alike(story: Story) -> None:
    first = story.write(ROOT_KEY, story.root, b"first", "f")
    left = story.write(ROOT_KEY, first, b"left")
    story.write(ROOT_KEY, first, b"right", wanted=above(left))
    assert story.content("/f") == b"right"
    story.mode(ALICE, left, 0o600)
    shown = story.at("/f")
    assert shown is not None
    assert (shown.content, shown.mode) == (b"left", 0o600)


# -- trailing entries of a revoked key --------------------------------------------------------------------------------


def test_trailing_entries_of_a_revoked_key_vanish(story: Story) -> None:
    kept = story.write(ROOT_KEY, story.root, b"root", "f")
    story.write(ALICE, story.write(ALICE, kept, b"alice"), b"alice again")
    story.write(ALICE, story.root, b"new", "g")
    assert story.content("/f") == b"alice again"
    story.revoke(ROOT_KEY, story.keys, ALICE)
    assert story.content("/f") == b"root"
    assert story.at("/g") is None


def test_entries_of_a_revoked_key_that_somebody_built_upon_stay(story: Story) -> None:
    theirs = story.write(ALICE, story.root, b"alice", "f")
    story.mode(ROOT_KEY, theirs, 0o600)
    acknowledged = story.write(ALICE, story.root, b"alice too", "g")
    story.ack(ROOT_KEY, acknowledged)
    story.revoke(ROOT_KEY, story.keys, ALICE)
    assert story.content("/f") == b"alice"
    assert story.content("/g") == b"alice too"


def test_directory_of_a_revoked_key_stays_while_a_valid_key_has_something_in_it(story: Story) -> None:
    full = story.mkdir(ALICE, story.root, "full")
    story.write(ALICE, full, b"alice", "theirs")
    story.write(ROOT_KEY, full, b"root", "ours")
    story.mkdir(ALICE, story.root, "empty")
    story.revoke(ROOT_KEY, story.keys, ALICE)
    tree = story.tree()
    assert path("/full/ours") in tree
    assert path("/full/theirs") not in tree
    assert path("/empty") not in tree


def test_a_grant_keeps_the_directory_of_a_revoked_key(story: Story) -> None:
    made = story.mkdir(ALICE, story.root, "e")
    story.grant(ROOT_KEY, made, BOB)
    story.revoke(ROOT_KEY, story.keys, ALICE)
    assert story.at("/e") is not None


def test_a_branch_of_a_revoked_key_is_no_branch(story: Story) -> None:
    kept = story.write(ROOT_KEY, story.root, b"root", "f")
    story.write(ALICE, story.write(ALICE, story.root, b"x", "f", wanted=above(kept)), b"y")
    assert story.content("/f") == b"y"
    story.revoke(ROOT_KEY, story.keys, ALICE)
    assert story.content("/f") == b"root"


def test_revoked_keys_do_not_count_as_contributors(story: Story) -> None:
    shared = story.write(ALICE, story.root, b"shared", "f")
    shared = story.write(ROOT_KEY, shared, b"shared by two")
    story.write(ROOT_KEY, story.root, b"alone", "f", wanted=above(shared))
    assert story.content("/f") == b"shared by two"
    story.revoke(ROOT_KEY, story.keys, ALICE)
    first = story.entries[directory(story) + 1]
    last = story.entries[-2]
    assert story.content("/f") == (b"alone" if last.hash > first.hash else b"shared by two")


# -- directories ------------------------------------------------------------------------------------------------------


def test_the_same_directory_made_twice_is_one(story: Story) -> None:
    left = story.mkdir(ROOT_KEY, story.root, "e")
    right = story.mkdir(ALICE, story.root, "e")
    story.write(ROOT_KEY, left, b"left", "l")
    story.write(ALICE, right, b"right", "r")
    tree = story.tree()
    assert tree[path("/e/l")].content == b"left"
    assert tree[path("/e/r")].content == b"right"


def test_children_of_merged_directories_are_resolved_one_by_one(story: Story) -> None:
    left = story.mkdir(ROOT_KEY, story.root, "e")
    right = story.mkdir(ALICE, story.root, "e")
    weak = story.write(ROOT_KEY, left, b"one", "f")
    story.write(ROOT_KEY, story.write(ALICE, right, b"two", "f", wanted=below(weak)), b"three")
    assert story.content("/e/f") == b"three"


def test_grants_of_merged_directories_are_united(story: Story) -> None:
    left = story.mkdir(ROOT_KEY, story.root, "e")
    right = story.mkdir(ALICE, story.root, "e")
    story.grant(ROOT_KEY, left, BOB)
    story.grant(ALICE, right, CAROL)
    story.write(BOB, right, b"bob", "b")
    story.write(CAROL, left, b"carol", "c")
    tree = story.tree()
    assert tree[path("/e/b")].content == b"bob"
    assert tree[path("/e/c")].content == b"carol"
    assert dict(tree[path("/e")].keys) == {"root": 0, "alice": 0, "bob": 1, "carol": 1}


def test_rmdir_does_not_take_a_concurrent_file_with_it(story: Story) -> None:
    made = story.mkdir(ROOT_KEY, story.root, "e")
    story.delete(ROOT_KEY, made)
    assert story.at("/e") is None
    story.write(ALICE, made, b"precious", "f")
    assert story.content("/e/f") == b"precious"


def test_a_directory_that_is_alive_again_vanishes_with_its_last_file(story: Story) -> None:
    made = story.mkdir(ROOT_KEY, story.root, "e")
    story.delete(ROOT_KEY, made)
    concurrent = story.write(ALICE, made, b"precious", "f")
    assert story.at("/e") is not None
    story.delete(ALICE, concurrent)
    assert story.at("/e") is None


def test_a_concurrent_file_deep_below_keeps_all_directories(story: Story) -> None:
    outer = story.mkdir(ROOT_KEY, story.root, "e")
    inner = story.mkdir(ROOT_KEY, outer, "i")
    story.delete(ROOT_KEY, inner)
    story.delete(ROOT_KEY, outer)
    story.write(ALICE, inner, b"precious", "f")
    assert story.content("/e/i/f") == b"precious"


def test_chmod_of_a_directory_that_is_alive_again(story: Story) -> None:
    made = story.mkdir(ROOT_KEY, story.root, "e")
    gone = story.delete(ROOT_KEY, made)
    story.write(ALICE, made, b"precious", "f")
    story.mode(ROOT_KEY, gone, 0o700)
    shown = story.at("/e")
    assert shown is not None and shown.mode == 0o700


def test_rmdir_leaves_a_branch_that_it_did_not_see(story: Story) -> None:
    seen = story.mkdir(ROOT_KEY, story.root, "e")
    story.mkdir(ALICE, story.root, "e")
    story.delete(ROOT_KEY, seen)
    shown = story.at("/e")
    assert shown is not None and shown.kind is Kind.DIRECTORY


def test_what_is_made_again_has_nothing_of_what_was_there(story: Story) -> None:
    made = story.mkdir(ROOT_KEY, story.root, "e")
    story.grant(ROOT_KEY, made, BOB)
    old = story.write(BOB, made, b"bob", "f")
    gone = story.delete(ROOT_KEY, made)
    story.delete(BOB, old)
    again = story.mkdir(ROOT_KEY, gone)
    story.write(BOB, again, b"bob", "f")
    tree = story.tree()
    assert dict(tree[path("/e")].keys) == {"root": 0, "alice": 0}
    assert path("/e/f") not in tree


def test_a_path_that_became_something_else_hides_the_file_that_came_too_late(story: Story) -> None:
    made = story.mkdir(ROOT_KEY, story.root, "e")
    gone = story.delete(ROOT_KEY, made)
    story.write(ROOT_KEY, gone, b"a file now")
    story.write(ALICE, made, b"too late", "f")
    assert story.content("/e") == b"a file now"


def test_directory_against_file(story: Story, directory_keys: None) -> None:
    home = story.entries[directory(story)]
    made = story.mkdir(BOB, home, "x")
    story.write(BOB, home, b"file", "x", wanted=above(made))
    assert story.content("/d/x") == b"file"
    story.write(CAROL, made, b"carol", "in")
    tree = story.tree()
    assert tree[path("/d/x")].kind is Kind.DIRECTORY
    assert tree[path("/d/x/in")].content == b"carol"


def test_merged_directories_unite_their_contributors_against_a_file(story: Story) -> None:
    left = story.mkdir(ROOT_KEY, story.root, "x")
    story.mkdir(ALICE, story.root, "x", wanted=above(left))
    best = max(story.entries[-2:], key=lambda entry: entry.hash)
    story.write(ROOT_KEY, story.root, b"file", "x", wanted=above(best))
    shown = story.at("/x")
    assert shown is not None and shown.kind is Kind.DIRECTORY


# -- links and reverts ------------------------------------------------------------------------------------------------


def test_a_link_shows_the_state_after_the_entry_that_it_names_whatever_comes_behind(story: Story) -> None:
    first = story.write(ROOT_KEY, story.root, b"one", "f")
    named = story.mode(ALICE, first, 0o600)
    story.link(ROOT_KEY, story.root, named, "g")
    story.link(ROOT_KEY, story.root, first, "h")
    story.write(ROOT_KEY, story.delete(ROOT_KEY, story.write(ALICE, named, b"two")), b"another file")
    tree = story.tree()
    assert [(tree[path(name)].content, tree[path(name)].mode) for name in ("/f", "/g", "/h")] == [
        (b"another file", 0o644),
        (b"one", 0o600),
        (b"one", 0o644),
    ]


def test_a_link_is_a_path_of_its_own(story: Story) -> None:
    first = story.write(ROOT_KEY, story.root, b"one", "f")
    link = story.link(ROOT_KEY, story.root, first, "g")
    changed = story.mode(ALICE, story.write(ROOT_KEY, link, b"two"), 0o600)
    story.link(ROOT_KEY, story.root, changed, "h")
    story.revert(ROOT_KEY, changed, link)
    tree = story.tree()
    assert [(tree[path(name)].content, tree[path(name)].mode) for name in ("/f", "/g", "/h")] == [
        (b"one", 0o644),
        (b"one", 0o644),
        (b"two", 0o600),
    ]


def test_a_link_counts_by_its_own_key_alone(story: Story, directory_keys: None) -> None:
    """Whether or not what it names counts, has lost, or is gone: its signer could have written the same."""
    home, last_grant = story.entries[directory(story)], story.entries[-1]
    first = story.write(ROOT_KEY, story.mkdir(ROOT_KEY, home, "e"), b"root", "f")
    bobs = story.write(BOB, first, b"bob")
    lost = story.write(ROOT_KEY, first, b"lost", wanted=below(bobs))
    story.ack(CAROL, bobs)
    story.delete(ROOT_KEY, bobs)
    for name, named in (("bobs", bobs), ("lost", lost)):
        story.link(ROOT_KEY, story.root, named, name)
    story.revoke(ROOT_KEY, last_grant, BOB)
    tree = story.tree()
    assert (tree[path("/bobs")].content, tree[path("/lost")].content) == (b"bob", b"lost")


def test_a_link_waits_for_the_entry_that_it_names(story: Story) -> None:
    first = story.write(ROOT_KEY, story.root, b"one", "f")
    second = story.write(ROOT_KEY, first, b"two")
    link = story.link(ROOT_KEY, story.root, second, "g")
    behind = story.mode(ROOT_KEY, link, 0o600)
    replica = story.replica(without_entries=(second, link, behind))
    replica.live_paths()
    for entry, missing in ((behind, link), (link, second)):
        applied = replica.apply([entry], [])
        assert (applied.entries, applied.missing_parents) == ((), (missing.hash,))
    assert set(replica.apply([second], []).entries) == {second, link, behind}
    assert (replica.read(path("/g")), replica.attributes(path("/g")).mode) == (b"two", 0o600)
    assert replica.check_view() == []


def test_a_link_shows_once_the_content_is_here_that_it_names(story: Story) -> None:
    first = story.write(ROOT_KEY, story.root, noise(1, 1500), "f")
    link = story.link(ROOT_KEY, story.root, story.mode(ROOT_KEY, first, 0o600), "g")
    story.link(ROOT_KEY, story.root, link, "h")
    blocks = story.blocks[-1:]
    replica = story.replica(without=blocks)
    assert replica.live_paths() == [((), Kind.DIRECTORY), (path("/d"), Kind.DIRECTORY)]
    changes = {change.path for change in replica.apply([], blocks).changes}
    assert changes == {path("/f"), path("/g"), path("/h")}
    assert replica.read(path("/h")) == noise(1, 1500)
    assert replica.check_view() == []


@pytest.mark.parametrize("target", ["directory", "delete", "itself", "revert to a directory"])
def test_a_link_to_no_file_is_not_shown(story: Story, target: str) -> None:
    made = story.mkdir(ROOT_KEY, story.root, "e")
    named = {
        "directory": lambda: made,
        "delete": lambda: story.delete(ROOT_KEY, story.write(ROOT_KEY, story.root, b"x", "x")),
        "itself": lambda: made,
        "revert to a directory": lambda: story.revert(ROOT_KEY, made, made),
    }[target]()
    story.link(ROOT_KEY, made if target == "itself" else story.root, named, "g")
    tree = story.tree()
    assert path("/g") not in tree
    assert path("/e/g") not in tree


@pytest.mark.parametrize("action", [Action.LINK, Action.REVERT])
def test_what_a_link_or_revert_cannot_name_is_refused(story: Story, action: Action) -> None:
    first = story.write(ROOT_KEY, story.root, b"one", "f")
    other = story.write(ROOT_KEY, story.root, b"other", "g")
    granted = story.grant(ROOT_KEY, first, BOB)
    replica = story.replica()
    for named in (granted, story.keys) if action is Action.LINK else (granted, other):
        entry = ROOT_KEY.sign(first.hash, 1, action, b"f", bytes(named.hash))
        assert replica.apply([entry], []).rejected
    assert replica.read(path("/f")) == b"one"


def test_a_link_to_the_directory_that_only_it_keeps_alive(story: Story, directory_keys: None) -> None:
    home, last_grant = story.entries[directory(story)], story.entries[-1]
    made = story.mkdir(BOB, home, "e")
    story.link(ROOT_KEY, made, made, "g")
    story.revoke(ROOT_KEY, last_grant, BOB)
    assert story.at("/d/e") is None


def test_names_swapped_again_and_again(story: Story) -> None:
    first = story.write(ROOT_KEY, story.root, b"one", "f")
    name, other = first, None
    for _ in range(4):
        link = story.link(ROOT_KEY, story.root, first, "g") if other is None else story.link(ROOT_KEY, other, first)
        name, other = link, story.delete(ROOT_KEY, name)
    tree = story.tree()
    assert tree[path("/f")].content == b"one"
    assert path("/g") not in tree


def test_a_file_reverted_to_a_link_to_itself_comes_to_an_end(story: Story) -> None:
    first = story.write(ROOT_KEY, story.root, b"one", "f")
    itself = story.link(ROOT_KEY, story.delete(ROOT_KEY, first), first)
    second = story.write(ROOT_KEY, first, b"two")
    story.revert(ALICE, second, itself)
    tree = story.tree()
    assert path("/f") in tree


def test_symbolic_link(story: Story) -> None:
    story.slink(ROOT_KEY, story.root, b"/anywhere/\xff", "s")
    shown = story.at("/s")
    assert shown is not None
    assert (shown.kind, shown.content, shown.mode, shown.size) == (Kind.SYMLINK, b"/anywhere/\xff", 0o777, 11)


def test_revert_to_an_earlier_entry(story: Story) -> None:
    first = story.write(ROOT_KEY, story.root, b"one", "f")
    second = story.write(ROOT_KEY, story.mode(ROOT_KEY, first, 0o600), b"two")
    story.revert(ROOT_KEY, second, first)
    shown = story.at("/f")
    assert shown is not None
    assert (shown.content, shown.mode) == (b"one", 0o644)


def test_revert_brings_back_what_was_deleted(story: Story) -> None:
    made = story.mkdir(ROOT_KEY, story.root, "e")
    story.grant(ROOT_KEY, made, BOB)
    story.write(BOB, made, b"bob", "f")
    gone = story.delete(ROOT_KEY, story.mode(ROOT_KEY, made, 0o700))
    other = story.write(ROOT_KEY, gone, b"file")
    story.revert(ROOT_KEY, other, made)
    tree = story.tree()
    assert tree[path("/e/f")].content == b"bob"
    assert dict(tree[path("/e")].keys) == {"root": 0, "alice": 0, "bob": 1}


def test_revert_to_a_loser(story: Story) -> None:
    winner = story.write(ROOT_KEY, story.root, b"winner", "f")
    loser = story.write(ROOT_KEY, story.root, b"loser", "f", wanted=below(winner))
    story.revert(ROOT_KEY, winner, loser)
    assert story.content("/f") == b"loser"


def test_a_revert_that_comes_before_its_target_waits_for_it(story: Story) -> None:
    first = story.write(ROOT_KEY, story.root, b"one", "f")
    second = story.write(ROOT_KEY, first, b"two")
    story.revert(ROOT_KEY, first, second, wanted=above(second))
    replica = story.replica(without_entries=story.entries[-2:])
    assert replica.read(path("/f")) == b"one"
    for entry in story.entries[:-3:-1]:
        replica.apply([entry], [])
        assert replica.check_view() == []
    assert tree_of(replica) == story.tree()


def test_a_mode_that_no_version_writes_has_no_effect(story: Story, caplog: pytest.LogCaptureFixture) -> None:
    first = story.write(ROOT_KEY, story.root, b"one", "f")
    senseless = story.sign(ROOT_KEY, first, Action.MODE, content=b"\xff\xff")
    shown = story.at("/f")
    assert shown is not None and shown.mode == 0o644
    # Also behind what somebody has looked at.
    replica = story.replica(without_entries=[senseless])
    assert replica.attributes(path("/f")).mode == 0o644
    replica.apply([senseless], [])
    assert replica.attributes(path("/f")).mode == 0o644
    assert replica.check_view() == []
    assert not caplog.records


def test_a_removed_directory_is_back_for_one_in_it_in_which_anything_counts(story: Story) -> None:
    top = story.mkdir(ROOT_KEY, story.root, "top")
    story.revoke(ROOT_KEY, story.grant(ROOT_KEY, top, BOB), BOB)
    # A directory of a key that is not valid, and in it a file that a valid one has made and removed.
    inner = story.mkdir(BOB, top, "inner")
    story.delete(ROOT_KEY, story.write(ROOT_KEY, inner, b"text", "f"))
    assert story.at("/top/inner") is not None
    story.delete(ROOT_KEY, top)
    assert story.at("/top/inner") is not None


def test_a_directory_that_wins_by_what_is_in_it_wins_at_each_fork_on_the_way(tmp_path: Path) -> None:
    story = Story(tmp_path, (ROOT_KEY, ALICE, BOB))
    first = story.write(ROOT_KEY, story.root, b"first", "d")
    # Two keys against one, and three against two.
    other = story.write(ROOT_KEY, story.root, b"other", "d")
    story.write(ALICE, other, b"other")
    removed = story.delete(ROOT_KEY, first)
    made = story.mkdir(ROOT_KEY, removed, "d")
    story.write(ROOT_KEY, removed, b"file", "d", above(made))
    story.write(ALICE, made, b"", "one")
    story.write(BOB, made, b"", "two")
    shown = story.at("/d")
    assert shown is not None and shown.kind is Kind.DIRECTORY
