"""History: what each revision is worth, and what lost to what."""

from __future__ import annotations

from pathlib import Path

import pytest

from basefs.errors import IncompleteContent, NotADirectory, NotFound, NotPermitted
from basefs.log.entries import Entry
from basefs.log.keys import SigningKey
from basefs.replica.replica import Replica
from basefs.view.history import ForkRule, RevisionStatus
from basefs.view.states import Kind
from tests.support.helpers import ALICE, BOB, CAROL, ROOT_KEY, noise, path
from tests.view.stories import Story, above, below


@pytest.fixture
def story(tmp_path: Path) -> Story:
    """A filesystem of root and Alice, who are granted on `/`."""
    return Story(tmp_path, (ROOT_KEY, ALICE))


def standings(replica: Replica, text: str) -> list[tuple[Entry, RevisionStatus]]:
    return [(revision.entry, revision.standing) for revision in replica.survey(path(text)).revisions()]


def conflicts(replica: Replica, text: str) -> list[tuple[Entry, Entry, ForkRule]]:
    return [(conflict.lost, conflict.won, conflict.rule) for conflict in replica.survey(path(text)).conflicts()]


def accept(replica: Replica, text: str) -> int:
    return len(replica.commit(lambda author: author.reverter.accept(path(text))).entries)


def revert(replica: Replica, text: str, target: Entry) -> int:
    return len(replica.commit(lambda author: author.reverter.path(path(text), target.hash)).entries)


def test_revisions_come_newest_first_and_the_last_one_is_current(story: Story) -> None:
    first = story.write(ROOT_KEY, story.root, b"one", "f")
    second = story.write(ROOT_KEY, first, b"two")
    removed = story.delete(ALICE, second)
    assert standings(story.replica(), "/f") == [
        (removed, RevisionStatus.CURRENT),
        (second, RevisionStatus.LAST),
        (first, RevisionStatus.PAST),
    ]


def test_a_branch_that_lost_is_told_with_the_rule(story: Story) -> None:
    won = story.write(ROOT_KEY, story.root, b"won", "f")
    lost = story.write(ALICE, story.root, b"lost", "f", wanted=below(won))
    last = story.mode(ALICE, lost, 0o600)
    replica = story.replica()
    assert standings(replica, "/f") == [
        (last, RevisionStatus.LOST),
        (lost, RevisionStatus.LOST),
        (won, RevisionStatus.CURRENT),
    ]
    assert conflicts(replica, "/f") == [(last, won, ForkRule.HASH)]


def test_the_last_one_is_what_was_shown_before_a_removal_that_ended_the_loser_as_well(story: Story) -> None:
    won = story.write(ROOT_KEY, story.root, b"won", "f")
    lost = story.write(ALICE, story.root, b"lost", "f", wanted=below(won))
    # One more contributor: so the path ends with the removal of the loser.
    story.delete(ROOT_KEY, won)
    story.delete(ROOT_KEY, lost)
    found = dict(standings(story.replica(), "/f"))
    assert found[won] is RevisionStatus.LAST
    assert found[lost] is RevisionStatus.PAST


def test_branches_that_end_alike_are_no_conflict(story: Story) -> None:
    base = story.write(ROOT_KEY, story.root, b"base", "f")
    story.write(ROOT_KEY, base, b"same")
    other = story.write(ALICE, base, b"same")
    assert conflicts(story.replica(), "/f") == []
    story.mode(ALICE, other, 0o600)
    assert len(conflicts(story.replica(), "/f")) == 1


def test_the_rule_is_contributors_where_they_differ(story: Story) -> None:
    one = story.write(ROOT_KEY, story.root, b"one", "f")
    both = story.ack(ALICE, one)
    lost = story.write(ALICE, story.root, b"lost", "f", wanted=above(one))
    assert conflicts(story.replica(), "/f") == [(lost, both, ForkRule.CONTRIBUTORS)]


def test_the_rule_is_authority_where_that_differs(story: Story) -> None:
    home = story.mkdir(ROOT_KEY, story.root, "d")
    story.grant(ROOT_KEY, story.grant(ROOT_KEY, home, BOB), CAROL)
    won = story.write(ROOT_KEY, home, b"won", "f")
    first = story.write(BOB, home, b"lost", "f", wanted=above(won))
    lost = story.ack(CAROL, first)
    assert conflicts(story.replica(), "/d/f") == [(lost, won, ForkRule.AUTHORITY)]


def test_directories_that_merge_are_no_conflict(story: Story) -> None:
    story.mkdir(ROOT_KEY, story.root, "d")
    story.mkdir(ALICE, story.root, "d")
    replica = story.replica()
    assert conflicts(replica, "/d") == []
    assert [standing for _, standing in standings(replica, "/d")] == [RevisionStatus.CURRENT, RevisionStatus.CURRENT]


def test_a_fork_in_the_middle_is_found(story: Story) -> None:
    first = story.write(ROOT_KEY, story.root, b"first", "f")
    won = story.write(ROOT_KEY, first, b"won")
    lost = story.write(ALICE, first, b"lost", wanted=below(won))
    assert conflicts(story.replica(), "/f") == [(lost, won, ForkRule.HASH)]


def test_a_branch_that_was_brought_back_is_no_conflict_any_more(story: Story) -> None:
    won = story.write(ROOT_KEY, story.root, b"won", "f")
    lost = story.write(ALICE, story.root, b"lost", "f", wanted=below(won))
    last = story.write(ALICE, lost, b"lost as well")
    story.revert(ROOT_KEY, won, last)
    replica = story.replica()
    assert replica.read(path("/f")) == b"lost as well"
    assert conflicts(replica, "/f") == []


def test_what_was_brought_back_and_what_it_replaced_are_both_past(story: Story) -> None:
    won = story.write(ROOT_KEY, story.root, b"won", "f")
    lost = story.write(ALICE, story.root, b"lost", "f", wanted=below(won))
    back = story.revert(ROOT_KEY, won, lost)
    found = dict(standings(story.replica(), "/f"))
    assert found == {back: RevisionStatus.CURRENT, lost: RevisionStatus.PAST, won: RevisionStatus.PAST}


@pytest.mark.parametrize("signer", [ROOT_KEY, ALICE])
def test_after_an_acceptance_what_is_shown_is_current_and_what_lost_is_lost(story: Story, signer: SigningKey) -> None:
    """Whether the branch that was accepted wins then, by a key more, or does not."""
    won = story.write(ROOT_KEY, story.root, b"won", "f")
    lost = story.write(ALICE, story.root, b"lost", "f", wanted=below(won))
    replica = story.replica(signer)
    assert accept(replica, "/f") == 1
    (acceptance,) = [one for one in replica.survey(path("/f")).revisions() if one.accepts]
    assert replica.read(path("/f")) == b"won"
    assert dict(standings(replica, "/f")) == {
        acceptance.entry: RevisionStatus.PAST,
        won: RevisionStatus.CURRENT,
        lost: RevisionStatus.LOST,
    }
    (last,) = replica.commit(lambda author: author.write(path("/f"), b"later")).entries
    found = dict(standings(replica, "/f"))
    assert (found[last], found[won], found[lost]) == (
        RevisionStatus.CURRENT,
        RevisionStatus.PAST,
        RevisionStatus.LOST,
    )
    assert [one.accepts for one in replica.survey(path("/f")).revisions()].count(True) == 1


def test_two_removals_are_no_conflict(story: Story) -> None:
    first = story.write(ROOT_KEY, story.root, b"one", "f")
    story.delete(ROOT_KEY, first)
    story.delete(ALICE, first)
    assert conflicts(story.replica(), "/f") == []


def test_a_directory_that_came_back_against_a_file_is_removed_without_a_conflict(story: Story) -> None:
    made = story.mkdir(ROOT_KEY, story.root, "t")
    story.write(ROOT_KEY, story.root, b"won", "t", above(made))
    replica = story.replica(ROOT_KEY)
    assert replica.read(path("/t")) == b"won"
    replica.commit(lambda author: author.reverter.path(path("/t"), made.hash))
    replica.commit(lambda author: author.write(path("/t/x"), b"x"))
    assert conflicts(replica, "/t") == []
    replica.commit(lambda author: author.remove(path("/t/x"), directory=False))
    replica.commit(lambda author: author.remove(path("/t"), directory=True))
    assert conflicts(replica, "/t") == []
    replica.close()


def test_a_branch_is_still_lost_when_only_its_beginning_was_brought_back(story: Story) -> None:
    won = story.write(ROOT_KEY, story.root, b"won", "f")
    lost = story.write(ALICE, story.root, b"lost", "f", wanted=below(won))
    last = story.write(ALICE, lost, b"lost as well")
    back = story.revert(ROOT_KEY, won, lost)
    assert conflicts(story.replica(), "/f") == [(last, back, ForkRule.HASH)]


def test_what_a_revoked_key_wrote_last_is_ignored(story: Story) -> None:
    granted = story.grant(ROOT_KEY, story.keys, BOB)
    first = story.write(ROOT_KEY, story.root, b"valid", "f")
    trailing = story.write(BOB, first, b"trailing")
    story.revoke(ROOT_KEY, granted, BOB)
    assert standings(story.replica(), "/f") == [(trailing, RevisionStatus.IGNORED), (first, RevisionStatus.CURRENT)]


def test_content_that_has_not_arrived_is_incomplete(story: Story) -> None:
    first = story.write(ROOT_KEY, story.root, b"here", "f")
    missing = story.write(ROOT_KEY, first, noise(1, 1500))
    replica = story.replica(ROOT_KEY, without=story.blocks[-1:])
    assert standings(replica, "/f") == [(missing, RevisionStatus.INCOMPLETE), (first, RevisionStatus.CURRENT)]
    with pytest.raises(IncompleteContent):
        revert(replica, "/f", missing)


def test_what_was_in_a_directory_that_is_gone(story: Story) -> None:
    home = story.mkdir(ROOT_KEY, story.root, "d")
    child = story.write(ROOT_KEY, home, b"child", "f")
    removed = story.delete(ROOT_KEY, child)
    story.delete(ROOT_KEY, home)
    assert standings(story.replica(), "/d/f") == [(removed, RevisionStatus.GONE), (child, RevisionStatus.LAST)]


def test_what_was_written_while_its_directory_was_removed_is_a_conflict_and_comes_back_with_it(story: Story) -> None:
    """By a key with less authority: otherwise it keeps the directory."""
    home = story.mkdir(ROOT_KEY, story.root, "d")
    story.grant(ROOT_KEY, home, BOB)
    inner = story.mkdir(ROOT_KEY, home, "e")
    other = story.write(ROOT_KEY, home, b"stays away", "other")
    first = story.write(ROOT_KEY, inner, b"first", "f")
    lost = story.write(BOB, first, b"lost")
    won = story.delete(ROOT_KEY, first)
    story.delete(ROOT_KEY, other)
    story.delete(ROOT_KEY, inner)
    story.delete(ROOT_KEY, home)
    replica = story.replica(ROOT_KEY)
    assert conflicts(replica, "/d/e/f") == [(lost, won, ForkRule.AUTHORITY)]
    gone = [(won, RevisionStatus.GONE), (lost, RevisionStatus.GONE), (first, RevisionStatus.LAST)]
    assert dict(standings(replica, "/d/e/f")) == dict(gone)
    assert revert(replica, "/d/e/f", lost) == 3
    assert replica.read(path("/d/e/f")) == b"lost"
    assert [list(replica.names_in(path(text))) for text in ("/d", "/d/e")] == [[b"e"], [b"f"]]
    assert conflicts(replica, "/d/e/f") == []


def test_what_had_lost_before_its_directory_was_removed_is_no_conflict_any_more(story: Story) -> None:
    home = story.mkdir(ROOT_KEY, story.root, "d")
    won = story.write(ROOT_KEY, home, b"won", "f")
    story.write(ALICE, home, b"lost", "f", wanted=below(won))
    replica = story.replica(ROOT_KEY)
    replica.commit(lambda author: author.remove(path("/d/f"), directory=False))
    replica.commit(lambda author: author.remove(path("/d"), directory=True))
    assert replica.live_paths() == [((), Kind.DIRECTORY)]
    assert conflicts(replica, "/d/f") == []


def test_a_file_comes_back_with_its_directory_but_not_where_a_file_is_now(story: Story) -> None:
    home = story.mkdir(ROOT_KEY, story.root, "d")
    child = story.write(ROOT_KEY, home, b"child", "f")
    story.delete(ROOT_KEY, child)
    removed = story.delete(ROOT_KEY, home)
    replica = story.replica(ROOT_KEY)
    assert revert(replica, "/d/f", child) == 2
    assert replica.read(path("/d/f")) == b"child"
    story.write(ROOT_KEY, removed, b"a file")
    with pytest.raises(NotADirectory, match="/d is not a directory"):
        revert(story.replica(ROOT_KEY), "/d/f", child)


def test_a_conflict_that_was_accepted_is_none_any_more_and_nothing_else_changes(story: Story) -> None:
    won = story.write(ROOT_KEY, story.root, b"won", "f")
    lost = story.write(ALICE, story.root, b"lost", "f", wanted=below(won))
    replica = story.replica(ROOT_KEY)
    before = replica.attributes(path("/f"))
    assert accept(replica, "/f") == 1
    assert conflicts(replica, "/f") == []
    after = replica.attributes(path("/f"))
    assert (replica.read(path("/f")), after.mtime, after.mode) == (b"won", before.mtime, before.mode)
    assert accept(replica, "/f") == 0
    # What lost is still there.
    assert revert(replica, "/f", lost) == 1
    assert replica.read(path("/f")) == b"lost"


def test_what_was_written_while_a_conflict_was_accepted_is_a_conflict_or_wins(story: Story) -> None:
    won = story.write(ROOT_KEY, story.root, b"won", "f")
    lost = story.write(ALICE, story.root, b"lost", "f", wanted=below(won))
    later = story.write(ROOT_KEY, won, b"later")
    accepted = story.revert(ROOT_KEY, lost, won)
    # Root and Alice have a part in the branch that was accepted, and root alone in the other one.
    assert conflicts(story.replica(), "/f") == [(later, accepted, ForkRule.CONTRIBUTORS)]
    assert story.replica().read(path("/f")) == b"won"


def test_a_removal_that_won_is_accepted_without_the_directory(story: Story) -> None:
    home = story.mkdir(ROOT_KEY, story.root, "d")
    story.grant(ROOT_KEY, home, BOB)
    first = story.write(ROOT_KEY, home, b"first", "f")
    story.write(BOB, first, b"lost")
    story.delete(ROOT_KEY, first)
    story.delete(ROOT_KEY, home)
    replica = story.replica(ROOT_KEY)
    assert accept(replica, "/d/f") == 1
    assert conflicts(replica, "/d/f") == []
    assert list(replica.names_in(())) == []


@pytest.mark.parametrize("more", [False, True])
def test_an_edit_beats_the_removal_by_an_equal_and_that_is_told(story: Story, more: bool) -> None:
    first = story.write(ROOT_KEY, story.root, b"first", "f")
    lost = story.delete(ROOT_KEY, first)
    if more:
        lost = story.ack(ALICE, lost)
    won = story.write(ALICE, first, b"won", wanted=below(lost))
    replica = story.replica(ROOT_KEY)
    assert replica.read(path("/f")) == b"won"
    assert conflicts(replica, "/f") == [(lost, won, ForkRule.LIFE)]
    assert accept(replica, "/f") == 1
    assert (replica.read(path("/f")), conflicts(replica, "/f")) == (b"won", [])


def test_a_file_that_won_against_a_directory_is_accepted(story: Story) -> None:
    home = story.mkdir(ALICE, story.root, "f")
    story.write(ALICE, home, b"below", "g")
    won = story.write(ROOT_KEY, story.ack(ALICE, story.write(ROOT_KEY, story.root, b"first", "f")), b"won")
    replica = story.replica(ROOT_KEY)
    assert conflicts(replica, "/f") == [(home, won, ForkRule.CONTRIBUTORS)]
    assert accept(replica, "/f") == 1
    assert conflicts(replica, "/f") == []
    assert replica.read(path("/f")) == b"won"


def test_a_directory_that_won_against_a_file_is_accepted_and_can_be_removed(story: Story) -> None:
    home = story.ack(ALICE, story.mkdir(ROOT_KEY, story.root, "d"))
    story.write(ROOT_KEY, story.entries[-2], b"below", "g")
    lost = story.write(ALICE, story.root, b"lost", "d")
    replica = story.replica(ROOT_KEY)
    assert conflicts(replica, "/d") == [(lost, home, ForkRule.CONTRIBUTORS)]
    assert accept(replica, "/d") == 1
    assert conflicts(replica, "/d") == []
    assert replica.read(path("/d/g")) == b"below"
    for text, is_directory in (("/d/g", False), ("/d", True)):
        replica.commit(lambda author, t=text, d=is_directory: author.remove(path(t), directory=d))  # type: ignore[misc]
    assert list(replica.names_in(())) == []
    assert replica.check_view() == []


def test_three_branches_are_settled_at_once_whichever_wins_then(story: Story) -> None:
    """Two keys have a part in each of them after it, and then the highest hash wins: one that had lost."""
    story.grant(ROOT_KEY, story.keys, BOB)
    first = story.write(ALICE, story.root, b"won", "f")
    won = story.ack(BOB, first)
    for text, key in ((b"two", ALICE), (b"three", BOB)):
        story.write(key, story.root, text, "f", wanted=above(first))
    replica = story.replica(ROOT_KEY)
    assert len(conflicts(replica, "/f")) == 2
    assert {entry for _, entry, _ in conflicts(replica, "/f")} == {won}
    assert accept(replica, "/f") == 2
    assert conflicts(replica, "/f") == []
    assert replica.read(path("/f")) == b"won"
    # Where only one of the two has arrived, too.
    for left_out in (-1, -2):
        other = story.replica(ROOT_KEY)
        entries = [Entry.decode(raw) for raw in replica.walk(())]
        added = [entry for entry in entries if entry not in story.entries]
        other.apply([entry for entry in added if entry is not added[left_out]], [])
        assert other.read(path("/f")) == b"won"
        assert len(conflicts(other, "/f")) == 1


def test_grants_are_current_while_they_are_in_force(story: Story) -> None:
    granted = story.grant(ROOT_KEY, story.keys, BOB)
    kept = story.grant(ROOT_KEY, granted, CAROL)
    revoked = story.revoke(ROOT_KEY, kept, BOB)
    found = dict(standings(story.replica(), "/"))
    assert found[granted] is RevisionStatus.PAST
    assert found[kept] is RevisionStatus.CURRENT
    assert found[revoked] is RevisionStatus.PAST


def test_nothing_was_ever_there(story: Story) -> None:
    with pytest.raises(NotFound, match="the log has nothing at /nowhere"):
        story.replica().survey(path("/nowhere"))


def test_content_at_each_revision(story: Story) -> None:
    first = story.write(ROOT_KEY, story.root, b"one", "f")
    second = story.write(ROOT_KEY, first, b"two")
    removed = story.delete(ROOT_KEY, second)
    back = story.revert(ROOT_KEY, removed, first)
    replica = story.replica()
    contents = [replica.content_at(entry.hash) for entry in (first, second, removed, back)]
    assert contents == [b"one", b"two", b"", b"one"]


# -- revert -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [ROOT_KEY, ALICE], ids=["root", "alice"])
def test_revert_brings_back_a_revision_a_deleted_path_and_a_branch_that_lost(story: Story, key: SigningKey) -> None:
    first = story.write(ROOT_KEY, story.root, b"first", "f")
    won = story.write(ROOT_KEY, first, b"won")
    lost = story.write(ALICE, first, b"lost", wanted=below(won))
    removed = story.write(ROOT_KEY, story.root, b"removed", "g")
    story.delete(ROOT_KEY, removed)
    replica = story.replica(key)
    assert replica.read(path("/f")) == b"won"
    assert revert(replica, "/f", lost) == 1
    assert replica.read(path("/f")) == b"lost"
    assert revert(replica, "/f", first) == 1
    assert replica.read(path("/f")) == b"first"
    assert revert(replica, "/g", removed) == 1
    assert replica.read(path("/g")) == b"removed"
    assert replica.check_view() == []


def test_revert_to_what_is_there_costs_nothing(story: Story) -> None:
    first = story.write(ROOT_KEY, story.root, b"one", "f")
    assert revert(story.replica(ROOT_KEY), "/f", first) == 0


def test_revert_refuses_what_cannot_come_back(story: Story) -> None:
    first = story.write(ROOT_KEY, story.root, b"one", "f")
    other = story.write(ROOT_KEY, story.root, b"other", "g")
    granted = story.grant(ROOT_KEY, first, BOB)
    replica = story.replica(ROOT_KEY)
    with pytest.raises(NotFound, match="not a revision of /f"):
        revert(replica, "/f", other)
    with pytest.raises(NotPermitted):
        revert(replica, "/f", granted)
    with pytest.raises(NotPermitted):
        revert(replica, "/", story.root)
    with pytest.raises(NotFound, match="the log has nothing at /nowhere"):
        revert(replica, "/nowhere/f", first)
