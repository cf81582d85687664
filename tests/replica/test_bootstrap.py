"""Birth of a filesystem."""

from __future__ import annotations

from pathlib import Path

import pytest

from basefs.errors import StoreError
from basefs.log.entries import Action, Entry
from basefs.replica.bootstrap import CLUSTER_FILE, bootstrap
from basefs.replica.replica import Replica
from tests.support.helpers import ALICE, ROOT_KEY, keys_at

KEYS = [(b"root", ROOT_KEY), (b"alice", ALICE)]


def test_what_a_new_filesystem_holds(tmp_path: Path) -> None:
    replica = bootstrap(tmp_path, KEYS, ["10.0.0.1:18374", "[fd00::1]:18374"])
    assert replica.read((CLUSTER_FILE,)) == b"10.0.0.1:18374\n[fd00::1]:18374\n"
    assert keys_at(replica, ()) == (("alice", 0), ("root", 0))
    assert [grant.entry.name for grant in replica.grants(())] == [b"root", b"alice"]
    assert replica.is_root_key(ROOT_KEY.fingerprint)
    entries = [Entry.decode(raw) for raw in replica.walk(())]
    assert [entry.action for entry in entries] == [Action.MKDIR, Action.GRANT, Action.GRANT, Action.WRITE]
    assert entries[0].hash == replica.identity
    assert {entry.fingerprint for entry in entries} == {ROOT_KEY.fingerprint}
    replica.close()


def test_it_is_there_after_a_restart(tmp_path: Path) -> None:
    replica = bootstrap(tmp_path, KEYS, [])
    identity = replica.identity
    replica.close()
    again = Replica(tmp_path, [ALICE])
    assert again.identity == identity
    assert again.read((CLUSTER_FILE,)) == b""
    assert again.attributes(()).writable
    again.close()


def test_two_filesystems_of_the_same_keys_differ(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = bootstrap(tmp_path / "a", KEYS, []), bootstrap(tmp_path / "b", KEYS, [])
    assert first.identity != second.identity
    entries = [Entry.decode(raw) for raw in second.walk(())]
    assert first.apply(entries, []).entries == ()
    first.close()
    second.close()


@pytest.mark.parametrize("is_open", [False, True])
def test_the_identity_tells_who_may_read(tmp_path: Path, *, is_open: bool) -> None:
    replica = bootstrap(tmp_path, KEYS, [], is_open=is_open)
    assert replica.is_open == is_open
    root = Entry.decode(next(replica.walk(())))
    assert root.hash == replica.identity
    assert root.extensions.is_open == is_open
    assert replica.members() == {ROOT_KEY.public, ALICE.public}
    replica.close()
    again = Replica(tmp_path)
    assert again.is_open == is_open
    again.close()


def test_of_an_empty_log_nobody_knows_that_it_is_open(tmp_path: Path) -> None:
    replica = Replica.create(tmp_path, None)
    assert not replica.is_open
    replica.close()


def test_a_filesystem_is_never_replaced(tmp_path: Path) -> None:
    bootstrap(tmp_path, KEYS, []).close()
    with pytest.raises(StoreError):
        bootstrap(tmp_path, KEYS, [])
