"""Who may read: the keys that a grant or an admit in force names, and nobody else."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from basefs.errors import PermissionDenied
from basefs.log.entries import Action, Entry
from basefs.log.keys import SigningKey
from basefs.replica.replica import Replica
from basefs.view.invitations import Invitation
from basefs.view.states import Kind
from tests.support.cost import calls, calls_held
from tests.support.helpers import ALICE, BOB, CAROL, DAVE, ROOT_KEY, STRANGER, make_replica, parcels, path
from tests.view.stories import Story


@pytest.fixture
def story(tmp_path: Path) -> Story:
    """A filesystem of root and Alice, who are granted on `/`."""
    return Story(tmp_path, (ROOT_KEY, ALICE))


@pytest.fixture
def home(story: Story) -> Entry:
    """The directory `/d`."""
    return story.mkdir(ROOT_KEY, story.root, "d")


def members(story: Story) -> set[str]:
    """The members by name, in any order of arrival; and nobody who is only admitted may write anywhere."""
    replica = story.replica()
    found = replica.members()
    story.tree()
    for seed in range(4):
        other = make_replica(story.directory / f"members{seed}-{len(story.entries)}", born=[])
        for parcel in parcels(story.entries, story.blocks, random.Random(seed)):
            other.apply(parcel.entries, parcel.blocks)
            other.members()
        assert other.members() == found
        assert other.check_view() == []
        other.close()
    replica.close()
    names = {key.public: name for key, name in NAMES.items()}
    return {names[public] for public in found}


NAMES = {ROOT_KEY: "root", ALICE: "alice", BOB: "bob", CAROL: "carol", DAVE: "dave", STRANGER: "stranger"}


def test_every_key_that_is_granted_anywhere_is_a_member(story: Story, home: Entry) -> None:
    assert members(story) == {"root", "alice"}
    story.grant(ROOT_KEY, story.mkdir(ROOT_KEY, home, "e"), BOB)
    story.grant(ROOT_KEY, story.write(ROOT_KEY, home, b"text", "f"), CAROL)
    assert members(story) == {"root", "alice", "bob", "carol"}


def test_an_admitted_key_is_a_member_and_writes_nothing(story: Story, home: Entry) -> None:
    story.admit(ROOT_KEY, home, BOB)
    assert members(story) == {"root", "alice", "bob"}
    assert dict(story.tree()[path("/d")].keys) == {"root": 0, "alice": 0}
    replica = story.replica(BOB)
    mine = BOB.sign(home.hash, 5, Action.WRITE, b"f")
    taken = replica.apply([mine], [])
    assert not taken.entries and not replica.find_entries(mine.hash.hex())
    with pytest.raises(PermissionDenied):
        replica.commit(lambda author: author.write(path("/d/f"), b"text"))
    replica.close()


@pytest.mark.parametrize("action", [Action.GRANT, Action.ADMIT, Action.REVOKE])
def test_an_admitted_key_hangs_nothing_on_a_path(story: Story, home: Entry, action: Action) -> None:
    # Its signature can be checked, since it was granted elsewhere once.
    elsewhere = story.mkdir(ROOT_KEY, home, "e")
    story.revoke(ROOT_KEY, story.grant(ROOT_KEY, elsewhere, BOB), BOB)
    last = story.admit(ROOT_KEY, story.grant(ROOT_KEY, story.keys, CAROL), BOB)
    assert members(story) == {"root", "alice", "bob", "carol"}
    content = CAROL.fingerprint if action is Action.REVOKE else STRANGER.public
    story.sign(BOB, elsewhere, action, "key", content)
    story.write(BOB, elsewhere, b"text", "f")
    assert members(story) == {"root", "alice", "bob", "carol"}
    assert story.content("/d/e/f") is None
    story.revoke(ROOT_KEY, last, BOB)
    assert members(story) == {"root", "alice", "carol"}


def test_a_revoke_takes_a_key_out_and_what_only_it_has_let_in(story: Story, home: Entry) -> None:
    first = story.grant(ROOT_KEY, home, BOB)
    second = story.admit(BOB, story.grant(BOB, first, CAROL), DAVE)
    story.admit(CAROL, story.mkdir(CAROL, home, "e"), STRANGER)
    assert members(story) == {"root", "alice", "bob", "carol", "dave", "stranger"}
    story.revoke(ALICE, second, BOB)
    assert members(story) == {"root", "alice"}


def test_an_admit_is_taken_back_by_its_signer_by_more_authority_and_by_its_key(story: Story, home: Entry) -> None:
    last = story.grant(ROOT_KEY, story.grant(ROOT_KEY, home, BOB), CAROL)
    last = story.admit(BOB, last, DAVE)
    # An equal may not.
    last = story.revoke(CAROL, last, DAVE)
    assert "dave" in members(story)
    for signer in (BOB, ALICE):
        last = story.revoke(signer, last, DAVE)
        assert "dave" not in members(story)
        last = story.admit(BOB, last, DAVE)
        assert "dave" in members(story)


def test_grants_and_admits_do_not_answer_each_others_revokes(story: Story, home: Entry) -> None:
    first = story.grant(ROOT_KEY, home, BOB)
    # Concurrent with the revoke, which a grant answers: that one counts, and Bob may write.
    story.admit(ALICE, home, CAROL)
    revoke = story.revoke(ROOT_KEY, first, CAROL)
    assert "carol" not in members(story)
    granted = story.grant(ROOT_KEY, revoke, CAROL)
    assert "carol" in members(story)
    story.revoke(ROOT_KEY, granted, CAROL)
    assert "carol" not in members(story)
    story.grant(ALICE, home, DAVE)
    revoke = story.revoke(ROOT_KEY, first, DAVE)
    story.admit(ROOT_KEY, revoke, DAVE)
    assert "dave" in members(story)
    assert "dave" not in story.tree()[path("/d")].keys


def test_a_directory_in_the_place_of_a_file_shuts_out_nobody_that_was_granted_on_either(
    story: Story, home: Entry
) -> None:
    story.grant(ROOT_KEY, home, BOB)
    file = story.write(ROOT_KEY, home, b"text", "f")
    story.grant(ROOT_KEY, file, CAROL)
    made = story.mkdir(BOB, file)
    story.grant(BOB, made, DAVE)
    story.delete(BOB, made)
    assert members(story) == {"root", "alice", "bob", "carol", "dave"}


def test_removing_a_directory_ends_no_membership_and_gives_no_right_to_write(story: Story, home: Entry) -> None:
    """Nobody who types `rm -r` means to shut a machine out."""
    story.admit(ROOT_KEY, home, BOB)
    deep = story.mkdir(ROOT_KEY, home, "e")
    story.grant(ROOT_KEY, deep, CAROL)
    story.delete(ROOT_KEY, deep)
    story.delete(ROOT_KEY, home)
    again = story.mkdir(ROOT_KEY, story.entries[-1], "d")
    assert members(story) == {"root", "alice", "bob", "carol"}
    assert dict(story.tree()[path("/d")].keys) == {"root": 0, "alice": 0}
    # Neither by what is there now, nor by what was.
    story.write(CAROL, story.mkdir(CAROL, again, "e"), b"text", "f")
    assert story.content("/d/e/f") is None


def test_membership_by_a_removed_directory_ends_with_its_revoke_and_with_its_granter(story: Story, home: Entry) -> None:
    last = story.grant(ROOT_KEY, home, BOB)
    last = story.grant(ROOT_KEY, last, STRANGER)
    story.admit(BOB, story.mkdir(BOB, home, "e"), CAROL)
    story.delete(ROOT_KEY, home)
    assert members(story) == {"root", "alice", "bob", "carol", "stranger"}
    # An equal may not, there as elsewhere.
    story.revoke(STRANGER, last, BOB)
    assert members(story) == {"root", "alice", "bob", "carol", "stranger"}
    story.revoke(ALICE, last, BOB)
    assert members(story) == {"root", "alice", "stranger"}


def test_who_may_write_in_a_directory_cannot_shut_out_its_equals_by_removing_it(story: Story, home: Entry) -> None:
    story.grant(ROOT_KEY, story.grant(ROOT_KEY, home, BOB), CAROL)
    story.delete(BOB, home)
    assert members(story) == {"root", "alice", "bob", "carol"}


def test_what_was_revoked_before_its_directory_was_removed_stays_revoked(story: Story, home: Entry) -> None:
    first = story.grant(ROOT_KEY, home, BOB)
    story.grant(ROOT_KEY, story.mkdir(ROOT_KEY, home, "e"), BOB)
    story.revoke(ROOT_KEY, first, BOB)
    assert members(story) == {"root", "alice", "bob"}, "granted below"
    story.revoke(ROOT_KEY, story.entries[-2], BOB)
    story.delete(ROOT_KEY, home)
    assert members(story) == {"root", "alice"}


def make_twice(story: Story, names: str) -> tuple[Entry, Entry]:
    """Two nodes make the same directories, one in the other, without having received each other's entries."""
    first = second = story.root
    for name in names:
        other = second
        first = story.mkdir(ROOT_KEY, first, name)
        second = story.mkdir(ALICE, other, name)
    return first, second


@pytest.mark.parametrize("names", ["d", "de"])
@pytest.mark.parametrize("removed", ["below", "all", "one", "other"])
def test_removing_a_directory_that_two_nodes_have_made_ends_no_membership(
    story: Story, names: str, removed: str
) -> None:
    """Bob may write in it as the directory is one, and lets Carol in below the half on which he was not granted."""
    first, second = make_twice(story, names)
    granted = story.grant(ROOT_KEY, first, BOB)
    below = story.mkdir(BOB, second, "f")
    story.admit(CAROL, story.grant(BOB, below, CAROL), DAVE)
    assert members(story) == {"root", "alice", "bob", "carol", "dave"}
    for entry in {"below": [below], "all": [below, first, second], "one": [first], "other": [second]}[removed]:
        story.delete(ROOT_KEY, entry)
    assert members(story) == {"root", "alice", "bob", "carol", "dave"}
    # By him alone she may read.
    story.revoke(ROOT_KEY, granted, BOB)
    assert members(story) == {"root", "alice"}


def test_no_half_of_a_directory_brings_back_a_key_that_was_revoked_on_the_other(story: Story) -> None:
    first, second = make_twice(story, "d")
    story.grant(ROOT_KEY, first, BOB)
    story.revoke(ALICE, second, BOB)
    assert members(story) == {"root", "alice"}
    story.delete(ROOT_KEY, first)
    story.delete(ROOT_KEY, second)
    assert members(story) == {"root", "alice"}


@pytest.mark.parametrize("kept", [0, 1])
def test_a_key_holder_revokes_a_key_on_each_half_of_a_directory(story: Story, kept: int) -> None:
    """Removing one alone, as a node does that has not received the other, brings nobody back."""
    halves = make_twice(story, "d")
    for made in halves:
        story.grant(ROOT_KEY, made, BOB)
    # The longest chain of grants is that of a key of its own.
    story.grant(ROOT_KEY, story.grant(ROOT_KEY, halves[1 - kept], CAROL), DAVE)
    replica = story.replica(ROOT_KEY)
    replica.commit(lambda author: author.revoke(path("/d"), b"key", BOB.fingerprint))
    assert replica.members() == {key.public for key in (ROOT_KEY, ALICE, CAROL, DAVE)}
    replica.apply([ALICE.sign(halves[1 - kept].hash, story.now, Action.DELETE, b"d")], [])
    assert replica.attributes(path("/d")).kind is Kind.DIRECTORY
    assert BOB.public not in replica.members()
    assert BOB.fingerprint not in {grant.fingerprint for grant in replica.grants(path("/d"))}
    replica.close()


def test_a_directory_that_was_made_again_has_no_members_of_before(story: Story) -> None:
    """Bob lets nobody in by what he was granted on the one before, where that was taken back."""
    first, second = make_twice(story, "d")
    granted = story.grant(ROOT_KEY, first, BOB)
    gone = story.delete(ROOT_KEY, first)
    story.delete(ROOT_KEY, second)
    again = story.mkdir(ROOT_KEY, gone)
    story.grant(ROOT_KEY, again, STRANGER)
    story.grant(BOB, story.mkdir(BOB, again, "e"), CAROL)
    assert members(story) == {"root", "alice", "bob", "stranger"}
    story.revoke(ROOT_KEY, granted, STRANGER)
    assert members(story) == {"root", "alice", "bob", "stranger"}, "granted on the new one"


def test_the_first_root_key_stays_a_member(story: Story) -> None:
    story.revoke(ROOT_KEY, story.keys, ROOT_KEY)
    assert members(story) == {"root", "alice"}


def test_an_empty_log_has_no_members(tmp_path: Path) -> None:
    replica = Replica.create(tmp_path, None)
    assert replica.members() == frozenset()
    replica.close()


def test_a_key_holder_admits_and_revokes(tmp_path: Path) -> None:
    replica = make_replica(tmp_path / "log")
    before = replica.members()
    replica.commit(lambda author: author.make_directory(path("/d")))
    replica.commit(lambda author: author.admit(path("/d"), b"reader", BOB.public))
    assert replica.members() == before | {BOB.public}
    assert replica.key_names()[BOB.fingerprint] == "reader"
    assert not replica.commit(lambda author: author.admit(path("/d"), b"reader", BOB.public)).entries
    # A grant beside it is another thing.
    assert replica.commit(lambda author: author.grant(path("/d"), b"reader", BOB.public)).entries
    assert len(replica.grants(path("/d"))) == 2
    replica.commit(lambda author: author.revoke(path("/d"), b"reader", BOB.fingerprint))
    assert replica.members() == before
    replica.commit(lambda author: author.admit(path("/d"), b"reader", BOB.public))
    assert replica.members() == before | {BOB.public}
    replica.close()


def test_a_key_holder_of_no_authority_admits_nobody(tmp_path: Path) -> None:
    root = make_replica(tmp_path / "root")
    entries = [Entry.decode(raw) for raw in root.walk(())]
    root.close()
    replica = make_replica(tmp_path / "stranger", (STRANGER,), born=entries)
    with pytest.raises(PermissionDenied):
        replica.commit(lambda author: author.admit((), b"reader", CAROL.public))
    replica.close()


@pytest.mark.parametrize("made_again", [False, True])
def test_a_key_holder_revokes_what_is_granted_on_a_removed_directory(tmp_path: Path, *, made_again: bool) -> None:
    replica = make_replica(tmp_path / "log")
    before = replica.members()
    replica.commit(lambda author: author.make_directory(path("/d")))
    replica.commit(lambda author: author.admit(path("/d"), b"reader", BOB.public))
    replica.commit(lambda author: author.grant(path("/d"), b"writer", CAROL.public))
    replica.commit(lambda author: author.remove(path("/d"), directory=True))
    if made_again:
        replica.commit(lambda author: author.make_directory(path("/d")))
        # Both are taken back at once.
        replica.commit(lambda author: author.grant(path("/d"), b"reader", BOB.public))
    assert replica.members() == before | {BOB.public, CAROL.public}
    standings = {(one.entry.content, one.standing) for one in replica.plan(lambda author: author.past.grants())}
    assert {(BOB.public, "reads"), (CAROL.public, "reads")} <= standings
    for key, name in ((BOB, b"reader"), (CAROL, b"writer")):
        replica.commit(lambda author, key=key, name=name: author.revoke(path("/d"), name, key.fingerprint))  # type: ignore[misc]
        assert key.public not in replica.members()
    assert replica.members() == before
    standings = {(one.entry.content, one.standing) for one in replica.plan(lambda author: author.past.grants())}
    assert (CAROL.public, "gone") in standings or (CAROL.public, "revoked") in standings
    replica.close()


def test_a_link_in_the_place_of_a_directory_keeps_no_key(story: Story, home: Entry) -> None:
    """Its holder may write at the path itself."""
    granted = story.grant(ROOT_KEY, home, BOB)
    story.admit(ROOT_KEY, granted, CAROL)
    story.slink(BOB, story.mode(BOB, home, 0o755), b"elsewhere")
    replica = story.replica(ROOT_KEY)
    assert replica.attributes(path("/d")).kind is Kind.SYMLINK
    for key in (BOB, CAROL):
        assert key.public in replica.members()
        replica.commit(lambda author, key=key: author.revoke(path("/d"), b"key", key.fingerprint))  # type: ignore[misc]
        assert key.public not in replica.members()
    assert replica.members() == {ROOT_KEY.public, ALICE.public}
    replica.close()


def test_a_key_without_authority_revokes_nothing_on_a_removed_directory(tmp_path: Path) -> None:
    root = make_replica(tmp_path / "root")
    root.commit(lambda author: author.make_directory(path("/d")))
    root.commit(lambda author: author.grant(path("/d"), b"bob", BOB.public))
    root.commit(lambda author: author.grant(path("/d"), b"carol", CAROL.public))
    root.commit(lambda author: author.remove(path("/d"), directory=True))
    entries = [Entry.decode(raw) for raw in root.walk(())]
    root.close()
    replica = make_replica(tmp_path / "bob", (BOB,), born=entries)
    with pytest.raises(PermissionDenied):
        replica.commit(lambda author: author.revoke(path("/d"), b"carol", CAROL.fingerprint))
    # Its own always.
    replica.commit(lambda author: author.revoke(path("/d"), b"bob", BOB.fingerprint))
    assert BOB.public not in replica.members()
    replica.close()


def test_who_is_valid_at_the_root_and_who_is_let_in_by_others(story: Story, home: Entry) -> None:
    bob = story.grant(ROOT_KEY, home, BOB)
    story.admit(BOB, story.grant(BOB, bob, CAROL), STRANGER)
    story.admit(ALICE, story.keys, DAVE)
    assert members(story) == {"root", "alice", "bob", "carol", "dave", "stranger"}
    replica = story.replica()
    assert replica.membership().root_keys == {ROOT_KEY.public, ALICE.public}
    replica.close()


def test_a_key_lets_in_any_number(tmp_path: Path) -> None:
    """All nodes agree on who is a member; what many keys get of a node is bounded elsewhere (`tests/sync/net`)."""
    replica = make_replica(tmp_path / "log")
    replica.commit(lambda author: author.make_directory(path("/d")))
    replica.commit(lambda author: author.grant(path("/d"), b"bob", BOB.public))
    grant = replica.grants(path("/d"))[-1].entry
    minted = [SigningKey.generate().public for _ in range(300)]
    made = [BOB.sign(grant.hash, 1, Action.GRANT, b"%d" % at, key) for at, key in enumerate(minted)]
    assert len(replica.apply(made, []).entries) == len(made)
    assert replica.members() == {ROOT_KEY.public, BOB.public, *minted}
    replica.commit(lambda author: author.revoke(path("/d"), b"bob", BOB.fingerprint))
    assert replica.members() == {ROOT_KEY.public}
    replica.close()


def test_a_grant_that_is_named_like_an_invitation_takes_no_membership_of_the_root_key(tmp_path: Path) -> None:
    replica = make_replica(tmp_path / "log")
    replica.commit(lambda author: author.make_directory(path("/d")))
    replica.commit(lambda author: author.grant(path("/d"), b"bob", BOB.public))
    replica.commit(lambda author: author.grant(path("/d"), Invitation(b"", 1).encode(), ROOT_KEY.public), key=BOB)
    found = replica.membership()
    assert found.keys == {ROOT_KEY.public, BOB.public} and not found.invited
    replica.close()


@pytest.mark.parametrize("is_made_at_once", [True, False])
def test_a_look_is_linear_in_the_directories_that_were_made_in_one_place(
    tmp_path: Path, *, is_made_at_once: bool
) -> None:
    """A key is granted on each, and all are removed, one after the other or all at once."""
    found = []
    for count in (60, 120):
        story = Story(tmp_path / str(count))
        behind = home = story.mkdir(ROOT_KEY, story.root, "d")
        for _ in range(count):
            made = story.mkdir(ROOT_KEY, behind, "e")
            story.now += 1
            story.revoke(ROOT_KEY, story.grant(ROOT_KEY, made, CAROL), BOB)
            removed = story.delete(ROOT_KEY, made)
            behind = home if is_made_at_once else removed
        replica = story.replica()
        found.append(calls(lambda replica=replica: replica.membership()))  # type: ignore[misc]
        assert replica.members() == {ROOT_KEY.public, CAROL.public}
        replica.close()
    assert found[1] <= 2.3 * found[0]


def test_a_look_holds_the_lock_to_read_each_grant_once(tmp_path: Path) -> None:
    """To read one takes 32 calls."""
    count = 400
    story = Story(tmp_path)
    bob = story.grant(ROOT_KEY, story.mkdir(ROOT_KEY, story.root, "d"), BOB)
    story.entries += [BOB.sign(bob.hash, at, Action.GRANT, b"key", CAROL.public) for at in range(count)]
    replica = story.replica()
    assert replica.members() == {ROOT_KEY.public, BOB.public, CAROL.public}
    assert calls_held(replica.membership) < 2 * 32 * count
    replica.close()
