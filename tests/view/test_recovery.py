"""A lost or stolen root key is replaced by m of n recovery keys (docs/authority.md), whatever its holder signs."""

from __future__ import annotations

import itertools
import pathlib

import pytest
from hypothesis import example, given

from basefs.log.entries import Action, Entry
from basefs.log.keys import SigningKey
from basefs.replica.replica import Replica
from basefs.view.draft import Draft
from basefs.view.keyholder import GrantPlan
from tests.support.helpers import (
    ALICE,
    BOB,
    CAROL,
    DAVE,
    HEIR,
    ROOT_KEY,
    SECOND_HEIR,
    STRANGER,
    copy_replica,
    live_nodes,
    make_replica,
    path,
    recovery_keys,
    recovery_of,
    tree_of,
)
from tests.view.histories import Step, World, plain, steps
from tests.view.stories import Story
from tests.view.test_oracle import oracle_of, shown

#: Valid on `/`.
Valid = dict[str, int]


@pytest.fixture
def story(tmp_path: pathlib.Path) -> Story:
    """Root and Alice hold keys of `/`; two of three keys recover."""
    return Story(tmp_path, (ROOT_KEY, ALICE), recovery_keys())


def valid(story: Story) -> Valid:
    """The keys valid on `/`, the same ones in several orders of arrival."""
    found = story.at("/")
    assert found is not None
    return dict(found.keys)


def recover(
    replica: Replica, key: SigningKey = HEIR, dropped: tuple[SigningKey, ...] = (), *, discard: bool = False
) -> GrantPlan:
    """Replace the root key as the command does."""
    plans: list[GrantPlan] = []

    def make(author) -> Draft:  # type: ignore[no-untyped-def]
        state = author.key_holder.recoveries()
        recovery = recovery_of(state.root, state.last + 1, key)
        fingerprints = [one.fingerprint for one in dropped]
        plans.append(author.key_holder.recover(b"root", recovery, fingerprints, discard=discard))
        return plans[-1].draft

    replica.commit(make, key=key)
    assert replica.check_view() == []
    return plans[-1]


# -- the rule ---------------------------------------------------------------------------------------------------------


def test_a_recovery_counts_once_its_key_has_granted_itself_behind_it(story: Story) -> None:
    announced = story.recovery(HEIR)
    assert valid(story) == {"root": 0, "alice": 0}
    # Not by a grant of another key, or by one elsewhere in the chain.
    story.grant(HEIR, announced, BOB)
    story.grant(HEIR, story.keys, HEIR)
    assert valid(story) == {"root": 0, "alice": 0}
    story.grant(HEIR, story.grant(HEIR, announced, CAROL), HEIR)
    assert valid(story) == {"heir": 0, "bob": 0, "carol": 0}


def test_the_former_root_key_has_no_authority_before_beside_or_behind_a_recovery(story: Story) -> None:
    before = story.grant(ROOT_KEY, story.keys, BOB)
    story.write(ROOT_KEY, story.root, b"early", "early")
    last = story.recover(HEIR, story.grant(HEIR, story.recovery(HEIR), ALICE))
    beside = story.grant(ROOT_KEY, story.keys, CAROL)
    story.revoke(ROOT_KEY, before, ALICE)
    story.revoke(ROOT_KEY, story.keys, HEIR)
    behind = story.grant(ROOT_KEY, last, DAVE)
    story.revoke(ROOT_KEY, behind, HEIR)
    story.revoke(ROOT_KEY, behind, ALICE)
    for key, parent in ((BOB, before), (CAROL, beside), (DAVE, behind)):
        story.grant(key, parent, STRANGER)
        story.write(key, story.root, b"theirs", key.fingerprint.hex())
    story.write(ROOT_KEY, story.root, b"late", "late")
    story.write(ALICE, story.root, b"hers", "f")
    assert valid(story) == {"heir": 0, "alice": 0}
    assert story.tree().keys() == {path("/"), path("/f")}


def test_a_former_root_key_is_a_key_like_any_other(story: Story) -> None:
    last = story.recover(HEIR)
    last = story.grant(HEIR, last, ROOT_KEY)
    story.grant(ROOT_KEY, last, BOB)
    # With all that it has granted, before as well.
    assert valid(story) == {"heir": 0, "root": 0, "alice": 0, "bob": 0}
    # It cannot take anything from the one that took its place, and can be revoked.
    story.revoke(ROOT_KEY, last, HEIR)
    assert valid(story) == {"heir": 0, "root": 0, "alice": 0, "bob": 0}
    story.revoke(HEIR, last, ROOT_KEY)
    assert valid(story) == {"heir": 0}


def test_the_highest_number_counts_whatever_is_signed_again_later(story: Story) -> None:
    last = story.recover(HEIR, number=1)
    last = story.recover(SECOND_HEIR, last, number=2)
    assert valid(story) == {"second heir": 0}
    # The holder of the first one shows its signatures again and again.
    last = story.recover(HEIR, last, number=1)
    story.recover(HEIR, story.root, number=1)
    assert valid(story) == {"second heir": 0}
    # And of an announced one nothing counts before it is confirmed.
    announced = story.recovery(ROOT_KEY, last, number=3)
    assert valid(story) == {"second heir": 0}
    story.grant(ROOT_KEY, announced, ROOT_KEY)
    # So the first grants count again: nobody grants anything anew here.
    assert valid(story) == {"root": 0, "alice": 0}


def test_of_two_with_the_same_number_the_higher_key_counts_in_any_order(tmp_path: pathlib.Path) -> None:
    story = Story(tmp_path, (ROOT_KEY, ALICE), recovery_keys())
    both = [[story.recovery(key), story.grant(key, story.entries[-1], key)] for key in (HEIR, SECOND_HEIR)]
    winner = max((HEIR, SECOND_HEIR), key=lambda key: key.public)
    loser = min((HEIR, SECOND_HEIR), key=lambda key: key.public)
    # What the loser signs again has a hash of its own, which it can choose; that changes nothing.
    again = [story.recovery(loser, wanted=lambda entry: entry.hash > max(e.hash for e in both[0] + both[1]))]
    again.append(story.grant(loser, again[0], loser))
    groups = [*both, again]
    rest = [entry for entry in story.entries if not any(entry in group for group in groups)]
    for number, order in enumerate(itertools.permutations(groups)):
        directory = tmp_path / str(number)
        replica = make_replica(directory, born=[], identity=story.root.hash)
        for group in (rest, *order):
            replica.apply(group, [])
            assert replica.check_view() == []
            replica.close()
            replica = Replica(directory)
        assert replica.is_root_key(winner.fingerprint) and not replica.is_root_key(loser.fingerprint)
        assert {winner.public} == replica.members()
        replica.close()


def test_a_recovery_may_come_before_all_that_it_replaces(tmp_path: pathlib.Path) -> None:
    story = Story(tmp_path, (ROOT_KEY, ALICE), recovery_keys())
    announced = story.recovery(HEIR, story.root)
    again = story.grant(HEIR, announced, ALICE)
    confirmed = story.grant(HEIR, again, HEIR)
    late = [story.grant(ROOT_KEY, story.keys, BOB), story.write(ROOT_KEY, story.root, b"late", "late")]
    written = story.write(ALICE, story.root, b"hers", "f")
    recovered = [announced, again, confirmed]
    for number, order in enumerate(itertools.permutations([recovered, late, [written]])):
        replica = make_replica(tmp_path / str(number), born=[], identity=story.root.hash)
        for group in (story.entries[:3], *order):
            replica.apply(group, story.blocks)
            assert replica.check_view() == []
        assert {names for names, _ in replica.live_paths()} == {(), (b"f",)}
        assert replica.members() == {HEIR.public, ALICE.public}
        replica.close()


# -- the command's plan -----------------------------------------------------------------------------------------------


def does(replica: Replica, make, key: SigningKey = ROOT_KEY) -> None:  # type: ignore[no-untyped-def]
    replica.commit(make, key=key)


@pytest.fixture
def replica(tmp_path: pathlib.Path):  # type: ignore[no-untyped-def]
    """Root, Alice and Bob have written; Carol may only read."""
    story = Story(tmp_path / "story", (ROOT_KEY, ALICE), recovery_keys())
    replica = story.replica(ROOT_KEY)
    does(replica, lambda author: author.write(path("/roots"), b"root's"))
    does(replica, lambda author: author.make_directory(path("/d")))
    does(replica, lambda author: author.grant(path("/d"), b"bob", BOB.public))
    does(replica, lambda author: author.grant(path("/d"), b"dave", DAVE.public))
    does(replica, lambda author: author.key_holder.admit((), b"carol", CAROL.public).draft)
    does(replica, lambda author: author.write(path("/hers"), b"alice's"), ALICE)
    does(replica, lambda author: author.write(path("/d/his"), b"bob's"), BOB)
    does(replica, lambda author: author.write(path("/d/daves"), b"dave's"), DAVE)
    does(replica, lambda author: author.write(path("/gone"), b"gone"))
    does(replica, lambda author: author.remove(path("/gone"), directory=False))
    yield replica
    replica.close()


def test_the_tree_and_its_keys_stay_what_they_are(replica: Replica) -> None:
    before, members = plain(tree_of(replica)), replica.members()
    plan = recover(replica)
    assert plain(tree_of(replica)) == before and plan.changed == ()
    assert replica.members() == members - {ROOT_KEY.public} | {HEIR.public}
    assert [grant.fingerprint for _, grant in plan.fallen] == [ROOT_KEY.fingerprint]
    shown = tree_of(replica)
    assert dict(shown[()].keys) == {"heir": 0, "alice": 0}
    assert dict(shown[path("/d")].keys) == {"heir": 0, "alice": 0, "bob": 1, "dave": 1}
    # The machines go on.
    does(replica, lambda author: author.write(path("/d/daves"), b"more"), DAVE)
    does(replica, lambda author: author.write(path("/roots"), b"alice's"), ALICE)
    assert replica.read(path("/roots")) == b"alice's"
    assert replica.is_root_key(HEIR.fingerprint) and not replica.is_root_key(ROOT_KEY.fingerprint)


def test_the_entry_that_makes_it_count_comes_last(replica: Replica) -> None:
    entries = recover(replica).draft.entries
    assert entries[0].extensions.recovery is not None
    assert {entry.fingerprint for entry in entries} == {HEIR.fingerprint}
    confirmation = entries[-1]
    assert (confirmation.action, confirmation.content) == (Action.GRANT, HEIR.public)
    # All that hangs on '/' comes before it on every node, however it is delivered.
    chain = {entry.hash: entry for entry in entries if entry.action in (Action.GRANT, Action.ADMIT)}
    above: list[Entry] = [confirmation]
    while above[-1].parent in chain:
        above.append(chain[above[-1].parent])
    assert {entry.content for entry in above} == {HEIR.public, ALICE.public, CAROL.public}


def test_what_the_thief_signs_afterwards_is_ignored(replica: Replica, tmp_path: pathlib.Path) -> None:
    thief = copy_replica(replica, tmp_path / "thief", (ROOT_KEY,))
    signed: list[Entry] = []
    thief.subscribe(lambda applied: signed.extend(applied.entries))
    recover(replica)
    before = plain(tree_of(replica))
    does(thief, lambda author: author.grant((), b"thief", STRANGER.public))
    does(thief, lambda author: author.revoke((), b"alice", ALICE.fingerprint))
    does(thief, lambda author: author.write(path("/roots"), b"stolen"))
    does(thief, lambda author: author.remove(path("/hers"), directory=False))
    does(thief, lambda author: author.write(path("/new"), b"theirs"), STRANGER)
    replica.apply(signed, [])
    assert replica.check_view() == []
    assert plain(tree_of(replica)) == before
    assert STRANGER.public not in replica.members() and ALICE.public in replica.members()
    # Once the recovery has arrived, the thief can sign nothing more there.
    thief.close()


def test_dropped_keys_are_granted_nothing_and_what_they_granted_falls(replica: Replica) -> None:
    does(replica, lambda author: author.grant((), b"thief", STRANGER.public))
    does(replica, lambda author: author.write(path("/theirs"), b"thief's"), STRANGER)
    does(replica, lambda author: author.grant(path("/d"), b"friend", SECOND_HEIR.public), STRANGER)
    before = plain(tree_of(replica))
    plan = recover(replica, dropped=(STRANGER,))
    assert {grant.entry.name for _, grant in plan.fallen} == {b"root", b"thief", b"friend"}
    assert not {STRANGER.public, SECOND_HEIR.public} & replica.members()
    # As with a revoke: what they have written stays.
    assert plain(tree_of(replica)) == before


def test_a_key_that_another_one_granted_as_well_is_revoked_where_it_is_dropped(replica: Replica) -> None:
    for key in (ROOT_KEY, ALICE):
        does(replica, lambda author: author.key_holder.grant((), b"thief", STRANGER.public).draft, key)
    does(replica, lambda author: author.grant(path("/d"), b"thief", STRANGER.public), ALICE)
    recover(replica, dropped=(STRANGER,))
    assert STRANGER.public not in replica.members() and ALICE.public in replica.members()


def test_discard_drops_what_dropped_keys_have_written(replica: Replica) -> None:
    does(replica, lambda author: author.grant((), b"thief", STRANGER.public))
    before = plain(tree_of(replica))
    does(replica, lambda author: author.write(path("/roots"), b"stolen"), STRANGER)
    does(replica, lambda author: author.write(path("/new"), b"theirs"), STRANGER)
    does(replica, lambda author: author.remove(path("/hers"), directory=False), STRANGER)
    recover(replica, dropped=(STRANGER,), discard=True)
    assert plain(tree_of(replica)) == before


def test_what_the_former_root_key_had_revoked_stays_revoked(replica: Replica) -> None:
    does(replica, lambda author: author.grant((), b"stranger", STRANGER.public), ALICE)
    does(replica, lambda author: author.write(path("/theirs"), b"stranger's"), STRANGER)
    does(replica, lambda author: author.grant(path("/d"), b"second", SECOND_HEIR.public), STRANGER)
    does(replica, lambda author: author.revoke((), b"stranger", STRANGER.fingerprint))
    before, members = plain(tree_of(replica)), replica.members()
    assert STRANGER.public not in members
    recover(replica)
    assert replica.members() == members - {ROOT_KEY.public} | {HEIR.public}
    assert plain(tree_of(replica)) == before


def test_grants_on_what_was_removed_let_their_keys_read_still(replica: Replica) -> None:
    does(replica, lambda author: author.make_directory(path("/e")))
    does(replica, lambda author: author.grant(path("/e"), b"stranger", STRANGER.public))
    does(replica, lambda author: author.remove(path("/e"), directory=True))
    assert STRANGER.public in replica.members()
    recover(replica)
    assert STRANGER.public in replica.members()


def test_a_second_recovery_replaces_the_first_one(replica: Replica) -> None:
    before = plain(tree_of(replica))
    recover(replica)
    does(replica, lambda author: author.grant((), b"stranger", STRANGER.public), HEIR)
    recover(replica, SECOND_HEIR)
    assert plain(tree_of(replica)) == before
    assert replica.members() >= {SECOND_HEIR.public, STRANGER.public, ALICE.public}
    assert not {ROOT_KEY.public, HEIR.public} & replica.members()
    # And the first root key may come back.
    recover(replica, ROOT_KEY)
    assert replica.is_root_key(ROOT_KEY.fingerprint) and HEIR.public not in replica.members()


def test_a_key_that_is_granted_already_may_become_the_root_key(replica: Replica) -> None:
    before = plain(tree_of(replica))
    recover(replica, BOB)
    assert plain(tree_of(replica)) == before
    assert dict(tree_of(replica)[()].keys) == {"alice": 0, "bob": 0}


#: Two nodes make one directory with different modes; one more key on either branch decides between them.
MERGED = [Step(0, 0, 0, 0, 1), *[Step(0, 0, 0, 0, 0)] * 18, Step(0, 1, 0, 0, 0), Step(15, 0, 1, 0, 0)]


@given(steps())
@example(MERGED)
def test_a_recovery_changes_nothing_for_users_whatever_has_happened(history: list[Step]) -> None:
    with World.temporary() as world:
        for step in history:
            world.play(step)
        node = world.nodes[0]
        # Which branch of a forked directory gives it its mode follows from all who wrote in each (docs/deviations.md).
        forked = {at for at, live in live_nodes(node.replica).items() if len(live.outcome.tips) > 1}
        before, rights = plain(tree_of(node.replica)), keys_of(node.replica)
        former = node.replica._tree.resolver.root_authority().depths
        # A key that has signed nothing yet.
        recover(node.replica, STRANGER)
        now = plain(tree_of(node.replica))
        assert now.keys() == before.keys()
        for at, seen in now.items():
            assert seen[0] == before[at][0] if at in forked else seen == before[at]
        after, gone = keys_of(node.replica), {*former, STRANGER.fingerprint}
        for names, keys in rights.items():
            assert {k: d for k, d in keys.items() if k not in gone} == {
                k: d for k, d in after[names].items() if k not in gone
            }
        assert shown(node.replica) == oracle_of(node).tree()


def keys_of(replica: Replica) -> dict[tuple[bytes, ...], dict[bytes, int]]:
    """The keys valid at each live path."""
    return {names: dict(node.authority.depths) for names, node in live_nodes(replica).items()}
