"""The hash of all that a node shows: equal where equal logs are whole, whatever brought them about."""

from __future__ import annotations

import contextlib
import pathlib
import sqlite3
from collections.abc import Callable, Iterator

import pytest

from basefs.log.entries import Action
from basefs.log.extensions import MAX_TIME, MIN_TIME, Extensions
from basefs.log.hashes import ZERO_HASH, sha224
from basefs.replica.replica import LOG_FILE, Replica
from tests.support.helpers import ALICE, ROOT_KEY, copy_replica, in_blocks, make_replica, path
from tests.support.names import make_link


def write(replica: Replica, name: str, text: str) -> None:
    replica.commit(lambda author: author.write(path(name), text.encode()))


def make_directory(replica: Replica, name: str) -> None:
    replica.commit(lambda author: author.make_directory(path(name)))


def fill(replica: Replica) -> None:
    """Directories, files, links, and keys for some of them."""
    for name in ("/d", "/d/e", "/d/e/f", "/empty", "/many"):
        make_directory(replica, name)
    for name in ("/top", "/d/one", "/d/two", "/d/e/f/deep", *(f"/many/{number}" for number in range(120))):
        write(replica, name, name)
    replica.commit(lambda author: make_link(author, path("/d/e/link"), path("/d/one")))
    replica.commit(lambda author: author.key_holder.grant(path("/d/e"), b"alice", ALICE.public).draft)


@pytest.fixture
def one(tmp_path: pathlib.Path) -> Iterator[Replica]:
    replica = make_replica(tmp_path / "one", [ROOT_KEY])
    fill(replica)
    replica.sync_to_disk()
    yield replica
    replica.close()


Damaged = Callable[[str], Replica]


@pytest.fixture
def other(one: Replica, tmp_path: pathlib.Path) -> Iterator[Damaged]:
    """Another node with the same log, of which a statement has damaged what is derived from the entries."""
    with contextlib.ExitStack() as stack:

        def make(statement: str) -> Replica:
            copy_replica(one, tmp_path / "other").close()
            with contextlib.closing(sqlite3.connect(tmp_path / "other" / LOG_FILE)) as database, database:
                database.execute("DROP TRIGGER entries_no_update")
                assert not statement or database.execute(statement).rowcount > 0
            replica = Replica(tmp_path / "other")
            stack.callback(replica.close)
            return replica

        yield make


def at(name: str) -> str:
    """The entries of a path, for SQL."""
    found = "1"
    for part in path(name):
        found = f"(SELECT id FROM paths WHERE parent = {found} AND name = x'{part.hex()}')"
    return f"path = {found}"


#: The entries of this path belong to no incarnation of its directory, so they show nothing.
LOST = "UPDATE entries SET directory = zeroblob(28) WHERE "


def hashed(replica: Replica) -> bytes:
    _, found = replica.view_hash()
    assert found != ZERO_HASH
    return found


@pytest.mark.parametrize(
    "statement",
    [
        LOST + at("/top"),
        LOST + at("/d/e/f/deep"),
        LOST + at("/many/77"),
        LOST + at("/d"),
        # A grant that is no entry about a key any more: who may write here.
        "UPDATE entries SET kind = 3 WHERE kind = 2 AND " + at("/d/e"),
    ],
)
def test_a_damaged_table_changes_it(one: Replica, other: Damaged, statement: str) -> None:
    damaged = other(statement)
    assert one.root_hash() == damaged.root_hash()
    assert hashed(one) != hashed(damaged)


def test_nodes_that_show_the_same_have_the_same_one(one: Replica, other: Damaged) -> None:
    same = other("")
    assert one.view_hash() == same.view_hash()
    same.observe()
    write(one, "/top", "changed")
    assert hashed(one) != hashed(same)
    state, _ = one.view_hash()
    assert same.view_hash(state) == (same.root_hash(), ZERO_HASH), "it has another log"
    same.add([data for data in one.walk(()) if data not in set(same.walk(()))], [], everything=True)
    same.add([], [one.block(hash) or b"" for _, hash in same.missing_blocks(10)], everything=True)
    assert same.view_hash(state) == one.view_hash()


@pytest.mark.parametrize("mtime", [MIN_TIME, MAX_TIME])
def test_any_time_that_an_entry_can_hold_is_hashed(one: Replica, mtime: int) -> None:
    before = hashed(one)
    content, blocks = in_blocks(b"text")
    one.apply([ROOT_KEY.sign(one.identity, 1, Action.WRITE, b"late", content, Extensions(4, mtime=mtime))], blocks)
    assert hashed(one) != before


def test_a_content_that_nobody_has_hides_no_difference(one: Replica, other: Damaged) -> None:
    content, _ = in_blocks(b"text")
    assert one.apply([ROOT_KEY.sign(one.identity, 1, Action.WRITE, b"lost", content, Extensions(4))], []).entries
    damaged = other(LOST + at("/d/two"))
    assert one.digest() == damaged.digest() and one.digest().missing == 1
    assert hashed(one) != hashed(damaged)


def test_a_content_that_may_turn_out_to_be_needed_is_waited_for(one: Replica) -> None:
    """Another node has it, as it came there before the revoke, and has the same root hash."""
    directory = one.attributes(path("/d/e")).origin
    assert directory is not None
    one.commit(lambda author: author.key_holder.revoke(path("/d/e"), b"alice", ALICE.fingerprint).draft)
    content, blocks = in_blocks(b"text")
    write = ALICE.sign(directory, 1, Action.WRITE, b"late", content, Extensions(4))
    assert one.apply([write], []).entries == (write,)
    one.apply([ROOT_KEY.sign(write.hash, 2, Action.ACK, b"late")], [])
    assert not one.missing_blocks(1) and one.digest().missing
    assert one.view_hash()[1] == ZERO_HASH, "nobody has looked whether it is needed"
    assert one.review_needs(at_once=True) == 1
    before, _ = one.view_hash()
    one.apply([], blocks)
    assert not one.digest().missing and one.read(path("/d/e/late")) == b"text"
    assert before != one.view_hash()[0] == one.root_hash(), "without the content it shows something else"
    assert hashed(one)


def test_a_change_while_the_tree_is_hashed_ends_that(one: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def change(data: bytes) -> bytes:
        nonlocal calls
        calls += 1
        if calls == 3:
            write(one, "/top", "changed")
        return sha224(data)

    monkeypatch.setattr("basefs.replica.viewhash.sha224", change)
    assert one.view_hash()[1] == ZERO_HASH
    assert hashed(one)
