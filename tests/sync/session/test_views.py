"""Nodes with equal logs that show something else find out where."""

from __future__ import annotations

import contextlib
import pathlib
import random
import sqlite3
from collections.abc import Callable, Iterator

import pytest

from basefs.errors import RemoteProtocolError
from basefs.log.blocks import Encoded
from basefs.log.entries import Action
from basefs.log.extensions import Extensions
from basefs.log.hashes import BlockHash
from basefs.path import display
from basefs.replica.audit import OutcomeHashes
from basefs.replica.replica import LOG_FILE, Replica
from basefs.sync.session.views import ViewComparison
from basefs.sync.wire.codec import parse
from basefs.sync.wire.messages import View, ViewReq
from basefs.view.walk import Outcome
from tests.support.helpers import ALICE, BOB, ROOT_KEY, copy_replica, in_blocks, make_replica, path
from tests.sync.helpers import Pair

#: What a node says of a peer that it cannot name.
ERROR = "shows something else at"


def write(replica: Replica, name: str, text: str) -> None:
    replica.commit(lambda author: author.write(path(name), text.encode()))


def make_directory(replica: Replica, name: str) -> None:
    replica.commit(lambda author: author.make_directory(path(name)))


def grant(replica: Replica, name: str) -> None:
    """A grant of another name for the same key, each time."""
    replica.commit(lambda author: author.key_holder.grant((), name.encode(), BOB.public).draft)


def fill(replica: Replica) -> None:
    """Directories, files, links, and keys for some of them."""
    for name in ("/d", "/d/e", "/d/e/f", "/empty", "/many"):
        make_directory(replica, name)
    for name in ("/top", "/d/one", "/d/two", "/d/e/f/deep", *(f"/many/{number}" for number in range(120))):
        write(replica, name, name)
    replica.commit(lambda author: author.make_link(path("/d/e/link"), path("/d/one")))
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


def compare(one: Replica, other: Replica) -> tuple[list[str], list[str]]:
    """The paths at which each says that the other one shows something else, after a session that each began."""
    Pair(one, other).run()
    assert places(other) == [], "who was asked believes nothing"
    Pair(other, one).run()
    return places(one), places(other)


def places(replica: Replica) -> list[str]:
    return [display(found.path) for found in replica.audit.differences]


@pytest.mark.logs(ERROR)
@pytest.mark.parametrize(
    ("statement", "where"),
    [
        (LOST + at("/top"), "/top"),
        (LOST + at("/d/e/f/deep"), "/d/e/f/deep"),
        (LOST + at("/many/77"), "/many/77"),
        (LOST + at("/d"), "/d"),
        # What is below shows it, and the first name counts.
        (LOST + at("/d/two") + " OR " + at("/d/e/f/deep"), "/d/e/f/deep"),
        # A grant that is no entry about a key any more: who may write here.
        ("UPDATE entries SET kind = 3 WHERE kind = 2 AND " + at("/d/e"), "/d/e"),
    ],
)
def test_both_sides_name_the_path_that_differs(one: Replica, other: Damaged, statement: str, where: str) -> None:
    damaged = other(statement)
    assert one.root_hash() == damaged.root_hash()
    for replica in (one, damaged):
        assert replica.audit.update()
    assert compare(one, damaged) == ([where], [where])


@pytest.mark.logs(ERROR)
def test_a_content_that_nobody_has_hides_no_difference(one: Replica, other: Damaged) -> None:
    content, _ = in_blocks(b"text")
    assert one.apply([ROOT_KEY.sign(one.identity, 1, Action.WRITE, b"lost", content, Extensions(4))], []).entries
    damaged = other(LOST + at("/d/two"))
    assert one.digest() == damaged.digest() and one.digest().missing == 1
    for replica in (one, damaged):
        assert replica.audit.update()
    assert compare(one, damaged) == (["/d/two"], ["/d/two"])


def test_nodes_that_show_the_same_find_nothing(one: Replica, other: Damaged) -> None:
    same = other("")
    for replica in (one, same):
        assert replica.audit.update()
    pair = Pair(one, same)
    pair.run()
    assert (places(one), places(same)) == ([], [])
    first = sum(map(len, pair.sent.values()))
    assert b"VIEW_REQ" in pair.sent[pair.left]
    # Once for each log and peer: nothing is said of it any more.
    again = Pair(one, same)
    again.run()
    assert b"VIEW" not in b"".join(again.sent.values())
    assert first - sum(map(len, again.sent.values())) < 400


@pytest.mark.logs(ERROR)
def test_what_is_repaired_is_no_difference_any_more(one: Replica, other: Damaged, tmp_path: pathlib.Path) -> None:
    damaged = other(LOST + at("/top"))
    for replica in (one, damaged):
        assert replica.audit.update()
    assert compare(one, damaged) == (["/top"], ["/top"])
    one.sync_to_disk()
    repaired = copy_replica(one, tmp_path / "repaired")
    for replica in (one, repaired):
        assert replica.audit.update()
    assert compare(one, repaired) == ([], [])
    repaired.close()


def test_a_log_that_only_one_has_hashed_is_not_compared_until_the_other_has(one: Replica, other: Damaged) -> None:
    same = other("")
    assert one.audit.update()
    assert not same.audit.is_due(0.0)
    Pair(one, same).run()
    # It is asked for, so it need not wait for a quiet time.
    assert same.audit.is_due(0.1)
    assert same.audit.update()
    pair = Pair(one, same)
    pair.run()
    assert b"VIEW " in pair.sent[pair.right]


def test_when_it_is_due(one: Replica) -> None:
    audit = one.audit
    assert not audit.is_due(0.0)
    assert not audit.is_due(9.0)
    assert audit.is_due(11.0)
    assert audit.update()
    assert not audit.is_due(10_000.0), "the log is the same"
    one.commit(lambda author: author.write(path("/news"), b"text"))
    assert not audit.is_due(10_000.0)
    assert audit.is_due(10_011.0)
    one.commit(lambda author: author.write(path("/news"), b"more"))
    assert not audit.is_due(10_020.0)
    assert not audit.is_due(10_100.0), "not so soon after the last time"
    audit.wanted(one.root_hash())
    assert audit.is_due(10_101.0), "a peer has hashed this log"


def test_a_content_that_never_comes_does_not_end_the_comparison(one: Replica) -> None:
    """The holder of any key can name blocks that nobody has."""
    audit = one.audit
    parent = one.attributes(path("/d/e")).origin
    assert parent is not None
    lost = ALICE.sign(
        parent, 1, Action.WRITE, b"lost", Encoded(BlockHash(bytes(range(28))), 0, 10).encode(), Extensions(10)
    )
    assert one.apply([lost], []).entries == (lost,)
    assert not audit.is_due(0.0)
    assert audit.is_due(11.0)


def test_a_content_that_may_turn_out_to_be_needed_is_waited_for(one: Replica) -> None:
    """Another node has it, as it came there before the revoke, and has the same root hash."""
    directory = one.attributes(path("/d/e")).origin
    assert directory is not None
    one.commit(lambda author: author.key_holder.revoke(path("/d/e"), b"alice", ALICE.fingerprint).draft)
    content, blocks = in_blocks(b"text")
    write = ALICE.sign(directory, 1, Action.WRITE, b"late", content, Extensions(4))
    assert one.apply([write], []).entries == (write,)
    ack = ROOT_KEY.sign(write.hash, 2, Action.ACK, b"late")
    one.apply([ack], [])
    assert not one.missing_blocks(1) and one.digest().missing
    audit = one.audit
    assert not audit.is_due(0.0)
    assert not audit.is_due(11.0), "nobody has looked whether it is needed"
    assert one.review_needs(at_once=True) == 1
    assert one.digest().missing and one.missing_blocks(1)
    assert not audit.is_due(12.0), "it shows what it showed, with another log to compare"
    one.apply([], blocks)
    assert not one.digest().missing and one.read(path("/d/e/late")) == b"text"
    assert not audit.is_due(13.0)
    assert audit.is_due(24.0)


def test_a_change_while_the_tree_is_hashed_ends_that(one: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    hash_of, hashed = OutcomeHashes.of, []

    def change(hashes: OutcomeHashes, outcome: Outcome) -> bytes:
        hashed.append(outcome)
        if len(hashed) == 3:
            write(one, "/top", "changed")
        return hash_of(hashes, outcome)

    monkeypatch.setattr(OutcomeHashes, "of", change)
    assert not one.audit.update()
    assert one.audit.begin("peer") is None


def test_while_changes_flow_equal_nodes_raise_no_alarm(tmp_path: pathlib.Path) -> None:
    chance = random.Random(1)
    nodes = [make_replica(tmp_path / name, [key]) for name, key in (("one", ROOT_KEY), ("two", ROOT_KEY))]
    fill(nodes[0])
    compared = 0
    for turn in range(60):
        node = chance.choice(nodes)
        name = chance.choice(["/a", "/b", "/d/x", "/d/e/f/y"])
        if turn % 3:
            write(node, name, str(turn))
        elif turn % 2:
            grant(node, f"bob{turn}")
        if chance.random() < 0.7:
            Pair(*chance.sample(nodes, 2)).run()
        for each in nodes:
            if chance.random() < 0.7:
                each.audit.update()
        pair = Pair(*chance.sample(nodes, 2))
        pair.run()
        compared += b"VIEW " in pair.sent[pair.right]
        assert [places(node) for node in nodes] == [[], []]
    assert compared > 3
    for node in nodes:
        node.close()


def test_nothing_is_kept_of_what_nobody_has_looked_at(one: Replica, other: Damaged) -> None:
    fresh = other("")
    assert fresh.audit.update()
    assert fresh._view.tree.root.children is None
    fresh.observe()
    hashed = fresh.audit.shown(one.root_hash(), ())
    assert fresh.audit.update()
    assert fresh.audit.shown(one.root_hash(), ()) == hashed


def test_a_peer_that_says_anything_leads_nowhere(one: Replica) -> None:
    assert one.audit.update()
    root = one.root_hash()
    comparison = ViewComparison(one.audit, lambda: "peer")
    (request,) = comparison.begin()
    # It answers nothing at all, and asks for a log that is not hashed here, and for paths that are not there.
    assert comparison.answered(request) == []
    assert places(one) == []
    with pytest.raises(RemoteProtocolError):
        comparison.heard(None, View(bytes(28), bytes(28)))
    assert list(comparison.answer(ViewReq(bytes(28), (), bytes(28)))) == []
    (line,) = comparison.answer(ViewReq(root, path("/none/there"), b"x" * 28))
    assert parse(line.rstrip()) == View(bytes(28), bytes(28))
