"""What live paths look like, whatever changes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from basefs.errors import NotFound
from basefs.replica.replica import Replica
from tests.support.helpers import ALICE, genesis, make_replica, path

FILE, DIRECTORY, BELOW = path("/f"), path("/d"), path("/d/e")


@pytest.fixture
def replica(tmp_path: Path) -> Replica:
    """A replica in which everything has been looked at."""
    made = make_replica(tmp_path / "replica", born=genesis())
    for names in (DIRECTORY, BELOW):
        made.commit(lambda author, names=names: author.make_directory(names))  # type: ignore[misc]
    made.commit(lambda author: author.write(FILE, b"one"))
    for names in ((), FILE, DIRECTORY, BELOW):
        made.attributes(names)
    return made


def test_what_changes_shows(replica: Replica) -> None:
    assert replica.attributes(FILE).size == 3
    replica.commit(lambda author: author.write(FILE, b"longer"))
    assert replica.attributes(FILE).size == 6
    replica.commit(lambda author: author.remove(FILE, directory=False))
    with pytest.raises(NotFound):
        replica.attributes(FILE)
    assert replica.check_view() == []


def test_a_directory_shows_when_a_name_in_it_came(replica: Replica) -> None:
    before = replica.attributes(DIRECTORY).mtime
    replica.commit(lambda author: author.write(path("/d/new"), b""))
    assert replica.attributes(DIRECTORY).mtime > before
    assert replica.check_view() == []


def test_a_grant_and_a_revoke_are_seen_below(replica: Replica, tmp_path: Path) -> None:
    other = make_replica(tmp_path / "other", [ALICE])

    def deliver() -> bool:
        other.add(list(replica.walk(())), [])
        assert other.check_view() == []
        return other.attributes(BELOW).writable

    assert not deliver()
    replica.commit(lambda author: author.grant(DIRECTORY, b"alice", ALICE.public))
    assert deliver()
    replica.commit(lambda author: author.revoke(DIRECTORY, b"alice", ALICE.fingerprint))
    assert not deliver()


def test_a_transaction_that_fails_leaves_nothing(replica: Replica) -> None:
    def make(author):  # type: ignore[no-untyped-def]
        yield author.write(FILE, b"never")
        yield author.remove(path("/missing"), directory=False)

    before = replica.attributes(FILE)
    with pytest.raises(NotFound):
        replica.commit(make)
    assert replica.attributes(FILE) == before
    assert replica.check_view() == []
