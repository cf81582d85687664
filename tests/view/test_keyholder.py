"""Grants and revokes are planned: the tree stays what it is for its users."""

from __future__ import annotations

import pathlib

import pytest
from hypothesis import example, given

from basefs.errors import PathError, PermissionDenied
from basefs.log.entries import Action, Entry
from basefs.log.keys import SigningKey
from basefs.view.keyholder import GrantPlan
from basefs.view.supposing import Difference
from tests.support.examples import rarely
from tests.support.helpers import ALICE, BOB, CAROL, DAVE, ROOT_KEY, Node, copy_replica, path, tree_of
from tests.support.names import rename
from tests.view.histories import KEYS, Step, World, plain, steps
from tests.view.stories import Story, above, below
from tests.view.users import User


def bobs(user: User, tmp_path: pathlib.Path, key: SigningKey = BOB) -> Node:
    """A node of another user with the same entries."""
    return Node(copy_replica(user.replica, tmp_path / "other" / str(key.fingerprint.hex()), (key,)))


def carry(source: Node, user: User) -> None:
    user.node.receive(list(source.entries.values()), list(source.blocks.values()))


def test_a_rename_by_a_revoked_key_stays(tmp_path: pathlib.Path) -> None:
    user = User(tmp_path, ROOT_KEY)
    user.makes("/d")
    user.writes("/d/old", b"text")
    user.does(lambda author: author.grant(path("/d"), b"bob", BOB.public))
    bob = bobs(user, tmp_path)
    bob.replica.commit(lambda author: rename(author, path("/d/old"), path("/d/new")))
    carry(bob, user)
    before = plain(user.sees())  # type: ignore[arg-type]
    user.does(lambda author: author.revoke(path("/d"), b"bob", BOB.fingerprint))
    assert plain(user.sees()) == before  # type: ignore[arg-type]
    bob.replica.close()


def test_a_file_that_a_revoked_key_changed_and_renamed_stays(tmp_path: pathlib.Path) -> None:
    user = User(tmp_path, ROOT_KEY)
    user.makes("/d")
    user.does(lambda author: author.grant(path("/d"), b"bob", BOB.public))
    bob = bobs(user, tmp_path)
    for text in (b"one", b"two"):
        bob.replica.commit(lambda author, text=text: author.write(path("/d/old"), text))  # type: ignore[misc]
    bob.replica.commit(lambda author: rename(author, path("/d/old"), path("/d/new")))
    bob.replica.commit(lambda author: author.set_attributes(path("/d/new"), mode=0o600, mtime=77))
    carry(bob, user)
    before = plain(user.sees())  # type: ignore[arg-type]
    assert before["/d/new"][4:] == (b"two", 77)  # type: ignore[index]
    user.does(lambda author: author.revoke(path("/d"), b"bob", BOB.fingerprint))
    assert plain(user.sees()) == before  # type: ignore[arg-type]
    bob.replica.close()


def test_a_link_to_what_lost_at_its_own_path_stays(tmp_path: pathlib.Path) -> None:
    story = Story(tmp_path, (ROOT_KEY, ALICE, DAVE))
    d = story.mkdir(ROOT_KEY, story.root, "d")
    winner = story.write(DAVE, d, b"dave", "a")
    loser = story.write(ALICE, d, b"one", "a", below(winner))
    story.mode(ALICE, story.write(ALICE, loser, b"two"), 0o600)
    story.link(ALICE, story.root, loser, "a")
    replica = story.replica(ROOT_KEY)
    before = plain(tree_of(replica))
    assert before[path("/a")][4] == b"one" and before[path("/d/a")][4] == b"dave"
    replica.commit(lambda author: author.revoke((), b"key", ALICE.fingerprint))
    assert replica.check_view() == [] and plain(tree_of(replica)) == before
    replica.close()


def test_what_a_revoked_key_granted_others_and_what_they_wrote_stays(tmp_path: pathlib.Path) -> None:
    user = User(tmp_path, ROOT_KEY)
    user.makes("/d")
    user.does(lambda author: author.grant(path("/d"), b"bob", BOB.public))
    bob = bobs(user, tmp_path)
    bob.replica.commit(lambda author: author.make_directory(path("/d/e")))
    bob.replica.commit(lambda author: author.grant(path("/d/e"), b"carol", CAROL.public))
    carry(bob, user)
    carol = bobs(user, tmp_path, CAROL)
    carol.replica.commit(lambda author: author.write(path("/d/e/f"), b"by carol"))
    carry(carol, user)
    plans: list[GrantPlan] = []

    def revoke(author):  # type: ignore[no-untyped-def]
        plans.append(author.key_holder.revoke(path("/d"), b"bob", BOB.fingerprint))
        return plans[0].draft

    user.does(revoke)
    assert user.sees()["/d/e/f"].content == b"by carol"
    assert user.sees()["/d/e"].keys == (("alice", 0), ("root", 0))
    assert [(names, grant.entry.name) for names, grant in plans[0].fallen] == [
        (path("/d"), b"bob"),
        (path("/d/e"), b"carol"),
    ]
    assert plans[0].acks == (path("/d/e"), path("/d/e/f")) and plans[0].changed == ()
    bob.replica.close()
    carol.replica.close()


def test_grants_of_a_directory_that_was_removed_twice_stay(tmp_path: pathlib.Path) -> None:
    story = Story(tmp_path)
    d = story.mkdir(ROOT_KEY, story.root, "d")
    story.grant(ROOT_KEY, d, BOB)
    first = story.delete(ROOT_KEY, d)
    story.write(BOB, d, b"", "f")
    # The directory is back, because of the file that the first rmdir did not see; and is removed once more.
    story.delete(ROOT_KEY, first)
    shown = story.tree()
    assert dict(shown[path("/d")].keys) == {"root": 0, "bob": 1}
    assert path("/d/f") in shown


def test_a_grant_that_gives_a_loser_the_upper_hand_acknowledges_the_winner(tmp_path: pathlib.Path) -> None:
    user = User(tmp_path, ROOT_KEY)
    user.makes("/d")
    grants = user.does(lambda author: author.grant(path("/d"), b"bob", BOB.public)).entries
    carols = user.does(lambda author: author.grant(path("/d"), b"carol", CAROL.public)).entries
    d = grants[-1].parent
    assert carols
    ours = CAROL.sign(d, 1, Action.WRITE, b"f", b"")
    theirs = next(
        entry for stamp in range(100) if (entry := BOB.sign(d, stamp, Action.MKDIR, b"f", b"")).hash < ours.hash
    )
    user.node.receive([ours, theirs], [])
    before = plain(user.sees())  # type: ignore[arg-type]
    applied = user.does(lambda author: author.grant((), b"bob", BOB.public))
    assert [entry.action for entry in applied.entries] == [Action.ACK, Action.GRANT]
    assert plain(user.sees()) == before  # type: ignore[arg-type]


def test_a_grant_that_changes_nothing_has_no_acks(tmp_path: pathlib.Path) -> None:
    user = User(tmp_path, ROOT_KEY)
    user.makes("/d")
    user.writes("/d/f", b"x")
    applied = user.does(lambda author: author.grant((), b"bob", BOB.public))
    assert [entry.action for entry in applied.entries] == [Action.GRANT]
    assert not user.does(lambda author: author.grant((), b"bob", BOB.public)).entries, "the same grant again"


def test_a_revoke_without_authority_leaves_nothing_in_the_log(tmp_path: pathlib.Path) -> None:
    user = User(tmp_path, ROOT_KEY)
    user.makes("/d")
    user.does(lambda author: author.grant(path("/d"), b"bob", BOB.public))
    user.does(lambda author: author.grant(path("/d"), b"carol", CAROL.public))
    bob = bobs(user, tmp_path)
    with pytest.raises(PermissionDenied):
        bob.replica.commit(lambda author: author.revoke(path("/d"), b"carol", CAROL.fingerprint))
    assert not bob.entries
    bob.replica.close()


def test_a_key_revoked_on_two_chains_at_once_can_be_granted_again(tmp_path: pathlib.Path) -> None:
    user = User(tmp_path, ROOT_KEY)
    user.makes("/d")
    grant = user.does(lambda author: author.grant(path("/d"), b"bob", BOB.public)).entries[0]
    for stamp, key in enumerate((ROOT_KEY, ALICE)):
        user.node.receive([key.sign(grant.hash, stamp, Action.REVOKE, b"bob", BOB.fingerprint)], [])
    assert dict(user.sees()["/d"].keys) == {"root": 0, "alice": 0}
    applied = user.does(lambda author: author.grant(path("/d"), b"bob", BOB.public))
    assert [entry.action for entry in applied.entries] == [Action.GRANT, Action.GRANT]
    assert dict(user.sees()["/d"].keys) == {"root": 0, "alice": 0, "bob": 1}
    user.does(lambda author: author.revoke(path("/d"), b"bob", BOB.fingerprint))
    assert dict(user.sees()["/d"].keys) == {"root": 0, "alice": 0}
    user.does(lambda author: author.grant(path("/d"), b"bob", BOB.public))
    assert dict(user.sees()["/d"].keys) == {"root": 0, "alice": 0, "bob": 1}


def test_an_answer_must_count_itself(tmp_path: pathlib.Path) -> None:
    story = Story(tmp_path, (ROOT_KEY, ALICE))
    d = story.mkdir(ROOT_KEY, story.root, "d")
    grant = story.grant(ROOT_KEY, d, BOB)
    left = story.revoke(ROOT_KEY, grant, BOB)
    right = story.revoke(ALICE, grant, BOB)
    answer = story.grant(ROOT_KEY, left, BOB)
    # Bob cannot answer for himself, nor can who is no key holder here.
    story.grant(BOB, right, BOB)
    assert dict(story.tree()[path("/d")].keys) == {"root": 0, "alice": 0}
    other = story.grant(ALICE, right, BOB)
    assert dict(story.tree()[path("/d")].keys) == {"root": 0, "alice": 0, "bob": 1}
    # Taking one answer back leaves its revoke without one.
    story.revoke(ALICE, other, BOB)
    assert dict(story.tree()[path("/d")].keys) == {"root": 0, "alice": 0}
    assert answer


def test_a_key_of_one_merged_branch_may_not_change_the_other(tmp_path: pathlib.Path) -> None:
    story = Story(tmp_path, (ROOT_KEY, ALICE))
    first = story.mkdir(ROOT_KEY, story.root, "d")
    second = story.mkdir(ALICE, story.root, "d", below(first))
    story.grant(ALICE, second, BOB)
    bob = story.replica(BOB)
    # New names in the directory are everybody's who is granted on any branch of it.
    bob.commit(lambda author: author.write(path("/d/f"), b""))
    assert bob.check_view() == []
    for attempt in (
        lambda author: author.set_attributes(path("/d"), mode=0o700),
        lambda author: rename(author, path("/d"), path("/e")),
    ):
        with pytest.raises(PermissionDenied):
            bob.commit(attempt)
    assert path("/d/f") in tree_of(bob)
    bob.close()


def test_a_key_of_the_leading_branch_changes_the_directory(tmp_path: pathlib.Path) -> None:
    story = Story(tmp_path, (ROOT_KEY, ALICE))
    first = story.mkdir(ROOT_KEY, story.root, "d")
    second = story.mkdir(ALICE, story.root, "d", above(first))
    story.grant(ALICE, second, BOB)
    bob = story.replica(BOB)
    bob.commit(lambda author: author.set_attributes(path("/d"), mode=0o700))
    assert bob.attributes(path("/d")).mode == 0o700
    bob.close()


def test_a_change_that_one_key_more_has_decided_is_listed_and_ends_with_it(tmp_path: pathlib.Path) -> None:
    story = Story(tmp_path, (ROOT_KEY, ALICE, DAVE))
    first = story.write(ROOT_KEY, story.root, b"root's", "f")
    story.write(DAVE, story.root, b"dave's", "f", above(first))
    story.write(ALICE, first, b"alice's")
    root = story.replica(ROOT_KEY)
    assert root.read(path("/f")) == b"alice's"
    plan = root.plan(lambda author: author.key_holder.revoke((), b"alice", ALICE.fingerprint))
    # An ack of the root key does not help, since that has its part in the branch already.
    assert [each.path for each in plan.changed] == [path("/f")]
    root.commit(lambda author: author.revoke((), b"alice", ALICE.fingerprint))
    assert root.read(path("/f")) == b"dave's"
    assert root.check_view() == []
    root.close()


@rarely
@given(steps(), steps(1, 4))
# A file that Alice has removed, and the revoke of her key brings back.
@example(
    [Step(1, 0, 0, 0, 1), Step(1, 3, 0, 0, 1), Step(15, 1, 0, 0, 0), Step(4, 1, 1, 0, 0)],
    [Step(0, 0, 0, 1, 1)],
)
def test_revokes_and_grants_of_the_root_key_change_nothing_that_users_see(
    history: list[Step], last: list[Step]
) -> None:
    with World.temporary() as world:
        for step in history:
            world.play(step)
        node = world.nodes[0]
        world.deliver(node, world.entries(), world.blocks(), 1)
        for step in last:
            names = world.pick(node, step.a)
            assert names is not None
            before = plain(tree_of(node.replica))
            key = (*KEYS, DAVE)[step.b % (1 + len(KEYS))]
            plan: GrantPlan | None = None
            try:
                if step.c % 2:
                    plan = node.replica.plan(lambda a, n=names, k=key: a.key_holder.revoke(n, b"k", k.fingerprint))
                else:
                    plan = node.replica.plan(lambda a, n=names, k=key: a.key_holder.grant(n, b"k", k.public))
            except PathError:
                continue
            assert plain(tree_of(node.replica)) == before and node.replica.check_view() == [], "a plan changes nothing"
            signed: list[Entry] = plan.draft.entries
            if len(node.receive(signed, []).entries) > len(signed):
                # A grant lets in what its key has signed before.
                continue
            after = plain(tree_of(node.replica))
            changed = {difference.path for difference in plan.changed}
            differing = {names for names in before.keys() | after.keys() if before.get(names) != after.get(names)}
            # Directories that merge alike are seen by one side only.
            assert differing <= changed
            if step.c % 2:
                lost = {d.path: d for d in plan.changed if not leads_elsewhere(d)}
                for path, difference in lost.items():
                    # What was removed may be back.
                    assert (difference.before is None) == (path not in before)
                    if not any(path[:depth] in lost for depth in range(len(path))):
                        shown = before.get(path)
                        assert not can_be_kept(world, node, difference, shown), "acknowledged as far as possible"


def leads_elsewhere(difference: Difference) -> bool:
    """Whether a merged directory is the same but for its mode and time, which are those of its leading branch.

    Who leads is decided by all who wrote in each branch, so an ack cannot hold it (docs/deviations.md).
    """
    old, new = difference.before, difference.after
    if old is None or new is None or not (old.is_directory and new.is_directory):
        return False
    return len(old.outcome.tips) > 1 and set(old.outcome.directories) == set(new.outcome.directories)


def can_be_kept(world: World, node: Node, difference: Difference, shown: tuple[object, ...] | None) -> bool:
    """Whether a path that a plan of the root key changes would stay if that key did more there.

    It may have a part in the branch already, which then has one contributor less than before (docs/authority.md).
    """
    if difference.before is None:
        return False
    tips = difference.before.outcome.tips
    copy = world.copy(node)
    copy.receive([ROOT_KEY.sign(tip.hash, 9, Action.ACK, tip.name) for tip in tips], [])
    there = plain(tree_of(copy.replica)).get(difference.path)
    return there is not None and shown is not None and (there[0], there[4]) == (shown[0], shown[4])
