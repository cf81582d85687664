"""The gossip key follows from the log: who changes it, when a revoke does, and what an expelled machine lacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from basefs.errors import NotPermitted
from basefs.log.entries import Action, Entry
from basefs.log.hashes import EntryHash
from basefs.log.keys import SigningKey
from basefs.replica.replica import Replica
from tests.support.helpers import (
    ALICE,
    BOB,
    CAROL,
    HEIR,
    ROOT_KEY,
    STRANGER,
    copy_replica,
    genesis,
    make_replica,
    path,
    recovery_keys,
    recovery_of,
)

INVITATION = b"invite gamma until 2099-01-01T00:00:00Z"


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Replica]:
    """Root and Alice hold keys of `/`, Bob one of `/web`, and Carol reads."""
    made = make_replica(tmp_path / "root", born=genesis((ROOT_KEY, ALICE), recovery=recovery_keys()))
    made.commit(lambda author: author.make_directory(path("/web")))
    made.commit(lambda author: author.grant(path("/web"), b"bob", BOB.public))
    made.commit(lambda author: author.admit(path("/"), b"carol", CAROL.public))
    made.commit(lambda author: author.key_holder.renew_gossip_key())
    yield made
    made.close()


def key_of(replica: Replica) -> bytes:
    found = replica.gossip_key()
    assert found is not None
    return found


def secrets(replica: Replica) -> list[Entry]:
    entries = map(Entry.decode, replica.walk(()))
    return [entry for entry in entries if entry.action is Action.GOSSIP_KEY]


def revoke(replica: Replica, where: str, name: bytes, key: SigningKey) -> Sequence[Entry]:
    return replica.commit(lambda author: author.revoke(path(where), name, key.fingerprint)).entries


def grant(replica: Replica, where: str, name: bytes, key: SigningKey) -> Sequence[Entry]:
    return replica.commit(lambda author: author.grant(path(where), name, key.public)).entries


def secret(key: SigningKey, parent: EntryHash, content: bytes = bytes(32)) -> Entry:
    return key.sign(parent, 1, Action.GOSSIP_KEY, b"", content)


def test_equal_logs_have_equal_keys(replica: Replica, tmp_path: Path) -> None:
    other = copy_replica(replica, tmp_path / "other", [BOB])
    assert key_of(other) == key_of(replica)
    other.close()


def test_a_log_without_a_secret_has_none(tmp_path: Path) -> None:
    made = make_replica(tmp_path)
    assert made.gossip_key() is None
    made.close()


@pytest.mark.parametrize(
    ("where", "name", "key"), [("/web", b"bob", BOB), ("/", b"carol", CAROL), ("/", b"alice", ALICE)]
)
def test_a_revoke_of_a_member_brings_a_secret_behind_it_in_one_transaction(
    replica: Replica, where: str, name: bytes, key: SigningKey
) -> None:
    before = key_of(replica)
    entries = revoke(replica, where, name, key)
    assert [entry.action for entry in entries[-2:]] == [Action.REVOKE, Action.GOSSIP_KEY]
    assert entries[-1].parent == entries[-2].hash
    assert key_of(replica) != before


def test_each_revoke_has_a_secret_behind_it(replica: Replica) -> None:
    """A node that has received one of two revokes of a key gives it what hangs behind the other one."""
    replica.commit(lambda author: author.admit(path("/"), b"bob", BOB.public))
    before = secrets(replica)
    revokes = [revoke(replica, where, b"bob", BOB)[-2] for where in ("/web", "/")]
    assert {entry.parent for entry in secrets(replica) if entry not in before} == {entry.hash for entry in revokes}


def test_a_secret_is_due_behind_each_revoke_that_lacks_one_that_counts(replica: Replica, tmp_path: Path) -> None:
    """Alice has revoked a reader of hers, and Bob two keys for `/web`; then Root revokes Alice."""
    alice, bob = (copy_replica(replica, tmp_path / key.fingerprint.hex(), [key]) for key in (ALICE, BOB))
    for name, key in ((b"one", STRANGER), (b"two", HEIR)):
        replica.apply(grant(bob, "/web", name, key), [])
    entries = [*revoke(bob, "/web", b"one", STRANGER), *revoke(bob, "/web", b"two", HEIR)]
    assert all(entry.action is not Action.GOSSIP_KEY for entry in entries), "his would not count"
    reader = SigningKey.generate()
    entries += alice.commit(lambda author: author.admit(path("/"), b"reader", reader.public)).entries
    entries += revoke(alice, "/", b"reader", reader)
    replica.apply(entries, [])
    revoke(replica, "/", b"alice", ALICE)
    due = {entry.hash for entry in entries if entry.action is Action.REVOKE}
    made = replica.commit(lambda author: author.key_holder.renew_gossip_key(if_due=True)).entries
    assert {entry.parent for entry in made} == due and len(made) == 3
    assert not replica.commit(lambda author: author.key_holder.renew_gossip_key(if_due=True)).entries
    for one in (alice, bob):
        one.close()


def test_the_end_of_an_invitation_brings_none(replica: Replica) -> None:
    replica.commit(lambda author: author.grant(path("/web"), INVITATION, STRANGER.public))
    before = key_of(replica)
    revoke(replica, "/web", INVITATION, STRANGER)
    assert key_of(replica) == before


def test_only_keys_that_are_valid_at_the_root_change_the_key(replica: Replica) -> None:
    before = key_of(replica)
    (root,) = (entry for entry in map(Entry.decode, replica.walk(())) if entry.is_root)
    (web,) = (entry for entry in map(Entry.decode, replica.walk(())) if entry.name == b"web")
    replica.apply([secret(signer, parent) for signer in (BOB, CAROL, STRANGER) for parent in (root.hash, web.hash)], [])
    assert key_of(replica) == before
    assert {one.fingerprint for one in secrets(replica)} == {ROOT_KEY.fingerprint, BOB.fingerprint}, "it is stored"
    replica.apply([secret(ALICE, root.hash)], [])
    assert key_of(replica) != before


def test_the_secrets_of_a_revoked_key_count_no_longer(replica: Replica) -> None:
    (root,) = (entry for entry in map(Entry.decode, replica.walk(())) if entry.is_root)
    replica.apply([secret(ALICE, root.hash)], [])
    *_, newest = revoke(replica, "/", b"alice", ALICE)
    kept = key_of(replica)
    replica.apply([secret(ALICE, root.hash, bytes([number] * 32)) for number in (1, 2)], [])
    assert key_of(replica) == kept
    assert newest.fingerprint == ROOT_KEY.fingerprint


def test_a_revoked_key_lacks_a_secret_whatever_nodes_give_to_it_that_had_not_received_its_revoke(
    replica: Replica, tmp_path: Path
) -> None:
    """Alice revokes Bob, and Root Carol, on two sides of a cut; Carol gets all of Alice's side, Bob all of Root's."""
    alice, bob, carol = (copy_replica(replica, tmp_path / name, []) for name in ("alice", "bob", "carol"))
    other = copy_replica(replica, tmp_path / "other", [ALICE])
    revoke(replica, "/", b"carol", CAROL)
    revoke(other, "/web", b"bob", BOB)
    for expelled, side in ((carol, other), (bob, replica)):
        expelled.apply([Entry.decode(raw) for raw in side.walk(())], [])
    everything = [Entry.decode(raw) for one in (replica, other) for raw in one.walk(())]
    for one in (replica, other, alice):
        one.apply(everything, [])
    assert key_of(replica) == key_of(other) == key_of(alice)
    assert len({key_of(one) for one in (replica, bob, carol)}) == 3
    for one in (alice, bob, carol, other):
        one.close()


def test_a_key_that_revokes_itself_leaves_the_secret_to_others(replica: Replica, tmp_path: Path) -> None:
    other = copy_replica(replica, tmp_path / "other", [ALICE])
    entries = revoke(other, "/", b"alice", ALICE)
    assert all(entry.action is not Action.GOSSIP_KEY for entry in entries)
    other.close()


def test_a_key_below_the_root_makes_none(replica: Replica, tmp_path: Path) -> None:
    other = copy_replica(replica, tmp_path / "other", [BOB])
    with pytest.raises(NotPermitted, match="-k"):
        other.commit(lambda author: author.key_holder.renew_gossip_key())
    other.close()


def test_another_root_key_makes_another_gossip_key(replica: Replica) -> None:
    (root,) = (entry for entry in map(Entry.decode, replica.walk(())) if entry.is_root)
    recovery = recovery_of(root, 1, HEIR)
    applied = replica.commit(lambda author: author.key_holder.recover(b"root", recovery).draft, key=HEIR)
    assert applied.entries[-1].action is Action.GOSSIP_KEY
    assert replica.gossip_key() is not None


def test_nothing_hangs_behind_a_secret(replica: Replica) -> None:
    (last,) = secrets(replica)
    for action, content in ((Action(200), b""), (Action.GOSSIP_KEY, bytes(32)), (Action.GRANT, BOB.public)):
        assert replica.apply([ROOT_KEY.sign(last.hash, 1, action, b"", content)], []).rejected
