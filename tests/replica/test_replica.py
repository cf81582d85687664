"""The replica: what it accepts, from whom, in which order (docs/formats.md, section 4), and what it tells others."""

from __future__ import annotations

import itertools
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basefs.errors import DamagedLog, IsADirectory, LocalProtocolError, NotADirectory, NotFound, ReadOnly, StoreError
from basefs.log.blocks import GOSSIP_BLOCK_DATA, Block
from basefs.log.entries import Action, Entry
from basefs.log.extensions import NO_EXTENSIONS, Extensions
from basefs.log.hashes import ZERO_HASH, BlockHash, EntryHash, addend, sum_hash
from basefs.log.keys import SigningKey
from basefs.log.orphans import MAX_ENTRIES_PER_PEER
from basefs.replica.replica import LOG_FILE, Applied, Replica
from basefs.view.author import Author
from basefs.view.draft import Draft
from basefs.view.states import Kind
from tests.support.helpers import (
    ALICE,
    BIRTH,
    BOB,
    ROOT_KEY,
    STRANGER,
    Node,
    genesis,
    in_blocks,
    make_key,
    make_replica,
    noise,
    path,
    tree_of,
)
from tests.support.names import make_symlink, rename
from tests.support.patience import DEADLINE

ROOT = genesis()[0]
DIRECTORY = ROOT_KEY.sign(ROOT.hash, 1, Action.MKDIR, b"d")


@pytest.fixture
def replica(tmp_path: Path) -> Replica:
    """A replica with the directory `/d`."""
    replica = make_replica(tmp_path / "replica")
    replica.apply([DIRECTORY], [])
    return replica


def entries_of(replica: Replica) -> set[bytes]:
    """The hashes of all entries."""
    return {Entry.decode(raw).hash for raw in replica.walk(())}


# -- what waits -------------------------------------------------------------------------------------------------------


def test_an_unknown_parent_is_asked_for_and_waited_for(replica: Replica) -> None:
    first = ROOT_KEY.sign(DIRECTORY.hash, 1, Action.WRITE, b"f")
    second = ROOT_KEY.sign(first.hash, 1, Action.MODE, b"f", b"\x01\x80")
    applied = replica.apply([second], [])
    assert (applied.entries, applied.missing_parents, applied.rejected) == ((), (first.hash,), ())
    assert replica.totals()["orphans"] == 1
    assert replica.apply([first], []).entries == (first, second)
    assert replica.totals()["orphans"] == 0
    assert replica.attributes(path("/d/f")).mode == 0o600


def test_a_parent_that_comes_in_the_same_batch_is_not_asked_for(replica: Replica) -> None:
    first = ROOT_KEY.sign(DIRECTORY.hash, 1, Action.WRITE, b"f")
    second = ROOT_KEY.sign(first.hash, 1, Action.ACK, b"f")
    applied = replica.apply([second, first], [])
    assert applied.missing_parents == ()
    assert set(applied.entries) == {first, second}


def test_an_unknown_key_waits_for_its_grant(replica: Replica) -> None:
    theirs = BOB.sign(DIRECTORY.hash, 1, Action.WRITE, b"f")
    applied = replica.apply([theirs], [])
    assert applied.entries == ()
    assert "granted nowhere" in applied.rejected[0]
    assert applied.ungranted == 1
    again = replica.add([theirs.encode(), b"no entry"], [])
    assert (again.ungranted, len(again.rejected)) == (1, 2)
    elsewhere = ROOT_KEY.sign(ROOT.hash, 1, Action.MKDIR, b"e")
    assert replica.apply([elsewhere, ROOT_KEY.sign(elsewhere.hash, 1, Action.GRANT, b"bob", BOB.public)], []).rejected
    assert theirs.hash not in entries_of(replica)
    grant = ROOT_KEY.sign(DIRECTORY.hash, 1, Action.GRANT, b"bob", BOB.public)
    assert set(replica.apply([grant], []).entries) == {grant, theirs}


def test_a_revoked_key_is_still_known(replica: Replica) -> None:
    grant = ROOT_KEY.sign(DIRECTORY.hash, 1, Action.GRANT, b"bob", BOB.public)
    revoke = ROOT_KEY.sign(grant.hash, 1, Action.REVOKE, b"bob", BOB.fingerprint)
    late = BOB.sign(DIRECTORY.hash, 1, Action.WRITE, b"f")
    assert replica.apply([grant, revoke, late], []).entries == (grant, revoke, late)
    assert replica.names_in(path("/d")) == {}


def test_what_waited_is_verified_even_if_this_node_brings_what_it_waited_for(replica: Replica) -> None:
    forged = Entry(DIRECTORY.hash, 1, Action.WRITE, b"forged", b"", NO_EXTENSIONS, BOB.fingerprint, bytes(64))
    outside = BOB.sign(ROOT.hash, 1, Action.WRITE, b"outside")
    honest = BOB.sign(DIRECTORY.hash, 1, Action.WRITE, b"honest")
    replica.apply([forged, outside, honest], [])
    applied = replica.commit(lambda author: author.grant(path("/d"), b"bob", BOB.public))
    assert [entry.action for entry in applied.entries] == [Action.GRANT, Action.WRITE]
    assert len(applied.rejected) == 2
    assert set(replica.names_in(path("/d"))) == {b"honest"}
    assert set(replica.names_in(())) == {b"d"}


def test_what_one_peer_has_sent_is_no_fault_of_another_that_brings_what_it_waited_for(replica: Replica) -> None:
    """Otherwise anybody who gossips could have honest nodes ban each other."""
    first = ROOT_KEY.sign(DIRECTORY.hash, 1, Action.WRITE, b"f")
    second = ROOT_KEY.sign(first.hash, 1, Action.WRITE, b"f")
    unknown = STRANGER.sign(first.hash, 1, Action.WRITE, b"f")
    misplaced = ROOT_KEY.sign(second.hash, 1, Action.REVERT, b"g", bytes(28))
    forged = Entry(second.hash, 1, Action.WRITE, b"f", b"", NO_EXTENSIONS, ROOT_KEY.fingerprint, bytes(64))
    told = replica.add([entry.encode() for entry in (unknown, misplaced)], [], peer="gossip")
    assert (told.rejected, told.ungranted) == ((), 0)
    assert len(replica.add([forged.encode()], [], peer="gossip").rejected) == 1
    brought = replica.add([first.encode(), second.encode()], [], peer="10.0.0.2")
    assert (brought.accepted, brought.rejected, brought.ungranted) == (2, (), 0)
    assert {first.hash, second.hash} < entries_of(replica)
    assert not {unknown.hash, misplaced.hash, forged.hash} & entries_of(replica)


def test_what_a_peer_has_sent_is_its_own_fault_also_later(replica: Replica) -> None:
    first = ROOT_KEY.sign(DIRECTORY.hash, 1, Action.WRITE, b"f")
    unknown = STRANGER.sign(first.hash, 1, Action.WRITE, b"f")
    assert not replica.add([unknown.encode()], [], peer="10.0.0.2").rejected
    brought = replica.add([first.encode()], [], peer="10.0.0.2")
    assert (len(brought.rejected), brought.ungranted) == (1, 1)


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
@pytest.mark.parametrize("at_once", [True, False])
def test_a_newcomer_takes_any_order(tmp_path: Path, order: tuple[int, ...], at_once: bool) -> None:
    born = [*genesis((ROOT_KEY, ALICE)), ALICE.sign(ROOT.hash, 1, Action.MKDIR, b"alice")]
    replica = Replica.create(tmp_path, ROOT.hash)
    arriving = [born[index] for index in order]
    for batch in [arriving] if at_once else [[entry] for entry in arriving]:
        replica.apply(batch, [])
    assert entries_of(replica) == {entry.hash for entry in born}
    assert set(replica.names_in(())) == {b"alice"}
    replica.close()


def test_a_newcomer_of_any_filesystem_takes_the_first_one(tmp_path: Path) -> None:
    replica = Replica.create(tmp_path, None)
    assert replica.identity == ZERO_HASH
    with pytest.raises(NotFound):
        replica.names_in(())
    replica.apply(genesis(), [])
    assert replica.identity == ROOT.hash
    other = genesis(nonce=bytes(28))
    assert "another filesystem" in replica.apply(other, []).rejected[0]
    assert replica.identity == ROOT.hash
    replica.close()


def test_a_newcomer_is_not_fooled_by_a_grant_of_another_key(tmp_path: Path) -> None:
    replica = Replica.create(tmp_path, ROOT.hash)
    fake = STRANGER.sign(ROOT.hash, 1, Action.GRANT, b"s", STRANGER.public)
    lie = Entry(ROOT.hash, 1, Action.GRANT, b"s", ROOT_KEY.public, NO_EXTENSIONS, ROOT_KEY.fingerprint, bytes(64))
    assert replica.apply([ROOT, fake, lie], []).rejected
    assert replica.totals()["entries"] == 0
    assert replica.apply(genesis(), []).entries == tuple(genesis())
    assert entries_of(replica) == {entry.hash for entry in genesis()}
    replica.close()


# -- what is refused --------------------------------------------------------------------------------------------------


def test_a_stranger_never_makes_the_log_grow(replica: Replica) -> None:
    before = replica.totals()
    replica.sync_to_disk()
    for number in range(200):
        named, blocks = in_blocks(noise(number, 1000))
        write = STRANGER.sign(DIRECTORY.hash, number, Action.WRITE, b"f", named, Extensions(1000))
        entries = [
            write,
            STRANGER.sign(DIRECTORY.hash, number, Action.GRANT, b"s", STRANGER.public),
            STRANGER.sign(DIRECTORY.hash, number, Action.REVOKE, b"r", ROOT_KEY.fingerprint),
            STRANGER.sign(DIRECTORY.hash, number, Action.DELETE, b"d"),
            STRANGER.sign(number.to_bytes(28, "big"), number, Action.MKDIR, b"x"),
            Entry(DIRECTORY.hash, number, Action.DELETE, b"d", b"", NO_EXTENSIONS, ROOT_KEY.fingerprint, bytes(64)),
        ]
        assert replica.apply(entries, blocks, peer=f"peer{number}").entries == ()
    after = replica.totals()
    assert (after["entries"], after["blocks"], after["bytes"]) == (before["entries"], before["blocks"], before["bytes"])
    assert set(replica.names_in(())) == {b"d"}


def test_orphans_are_bounded_per_peer(replica: Replica) -> None:
    parent = ROOT_KEY.sign(ROOT.hash, 1, Action.MKDIR, b"parent")
    honest = ROOT_KEY.sign(parent.hash, 1, Action.WRITE, b"f")
    replica.apply([honest], [], peer="honest")
    count = MAX_ENTRIES_PER_PEER + 100
    flood = [STRANGER.sign(number.to_bytes(28, "big"), 1, Action.MKDIR, b"x") for number in range(count)]
    replica.apply(flood, [], peer="flood")
    assert replica.totals()["orphans"] == 1 + MAX_ENTRIES_PER_PEER
    assert replica.apply([parent], [], peer="third").entries == (parent, honest)


@pytest.mark.parametrize(
    "entry",
    [
        Entry(DIRECTORY.hash, 1, Action.WRITE, b"f", b"", NO_EXTENSIONS, ROOT_KEY.fingerprint, bytes(64)),
        Entry(DIRECTORY.hash, 1, Action.WRITE, b"f", b"", NO_EXTENSIONS, ROOT_KEY.fingerprint, ALICE.sign(
            DIRECTORY.hash, 1, Action.WRITE, b"f").signature),
    ],
    ids=["zero", "of another key"],
)  # fmt: skip
def test_a_wrong_signature(replica: Replica, entry: Entry) -> None:
    (reason,) = replica.apply([entry], []).rejected
    assert "signature" in reason
    assert replica.names_in(path("/d")) == {}
    assert replica.totals()["orphans"] == 0


def test_a_wrong_signature_does_not_keep_the_right_one_out(replica: Replica) -> None:
    right = ROOT_KEY.sign(DIRECTORY.hash, 1, Action.WRITE, b"f")
    wrong = Entry(DIRECTORY.hash, 1, Action.WRITE, b"f", b"", NO_EXTENSIONS, ROOT_KEY.fingerprint, bytes(64))
    assert wrong.hash == right.hash
    assert replica.apply([wrong, right], []).entries == (right,)


GRANT = ROOT_KEY.sign(DIRECTORY.hash, 2, Action.GRANT, b"bob", BOB.public)
FILE = ROOT_KEY.sign(DIRECTORY.hash, 2, Action.WRITE, b"f")
LINK = ROOT_KEY.sign(DIRECTORY.hash, 2, Action.SLINK, b"s", b"target")
GONE = ROOT_KEY.sign(FILE.hash, 2, Action.DELETE, b"f")

MISPLACED = {
    "successor with another name": (FILE, Action.WRITE, b"g", b""),
    "directory behind a grant": (GRANT, Action.MKDIR, b"d", b""),
    "write behind a grant": (GRANT, Action.WRITE, b"bob", b""),
    "ack behind a grant": (GRANT, Action.ACK, b"bob", b""),
    "grant behind a symbolic link": (LINK, Action.GRANT, b"key", BOB.public),
    "grant behind a delete": (GONE, Action.GRANT, b"key", BOB.public),
    "revoke behind a delete": (GONE, Action.REVOKE, b"key", BOB.fingerprint),
    "delete of the root": (ROOT, Action.DELETE, b"/", b""),
    "revert of the root": (ROOT, Action.REVERT, b"/", ROOT.hash),
    "file named as the root": (ROOT, Action.WRITE, b"/", b""),
    "link named as the root": (DIRECTORY, Action.LINK, b"/", FILE.hash),
    "symbolic link named as the root": (DIRECTORY, Action.SLINK, b"/", b"x"),
    "second root": (DIRECTORY, Action.MKDIR, b"/", b""),
}


@pytest.mark.parametrize(("parent", "action", "name", "content"), MISPLACED.values(), ids=MISPLACED.keys())
def test_a_wrong_position(replica: Replica, parent: Entry, action: Action, name: bytes, content: bytes) -> None:
    replica.apply([GRANT, FILE, LINK, GONE], [])
    before = replica.totals()["entries"]
    applied = replica.apply([ROOT_KEY.sign(parent.hash, 3, action, name, content)], [])
    assert applied.entries == ()
    assert len(applied.rejected) == 1
    assert (replica.totals()["entries"], replica.totals()["orphans"]) == (before, 0)


WELL_PLACED = {
    "file again behind a delete": (GONE, Action.WRITE, b"f", b""),
    "directory behind a delete": (GONE, Action.MKDIR, b"f", b""),
    "mode of the root": (ROOT, Action.MODE, b"/", b"\x01\xc0"),
    "ack of the root": (ROOT, Action.ACK, b"/", b""),
    "grant behind a grant": (GRANT, Action.GRANT, b"key", ALICE.public),
    "revoke behind a grant": (GRANT, Action.REVOKE, b"key", BOB.fingerprint),
    "grant on a file": (FILE, Action.GRANT, b"key", BOB.public),
    "link over a file": (FILE, Action.LINK, b"f", FILE.hash),
    "key without a name": (DIRECTORY, Action.GRANT, b"", BOB.public),
}


@pytest.mark.parametrize(("parent", "action", "name", "content"), WELL_PLACED.values(), ids=WELL_PLACED.keys())
def test_a_right_position(replica: Replica, parent: Entry, action: Action, name: bytes, content: bytes) -> None:
    replica.apply([GRANT, FILE, LINK, GONE], [])
    entry = ROOT_KEY.sign(parent.hash, 3, action, name, content)
    assert replica.apply([entry], []).entries == (entry,)


def test_the_root_of_another_filesystem(replica: Replica) -> None:
    other = genesis(nonce=bytes(28))
    applied = replica.apply(other, [])
    assert applied.entries == ()
    assert "another filesystem" in applied.rejected[0]


def test_duplicates_are_nothing(replica: Replica) -> None:
    assert replica.apply([*genesis(), DIRECTORY], []) == Applied((), (), (), False)


def test_our_own_mistakes_are_loud(replica: Replica) -> None:
    before = replica.totals()["entries"]
    for entry in (
        ROOT_KEY.sign(bytes(28), 1, Action.WRITE, b"f"),
        STRANGER.sign(DIRECTORY.hash, 1, Action.WRITE, b"f"),
        ROOT_KEY.sign(DIRECTORY.hash, 1, Action.ACK, b"wrong name"),
    ):
        with pytest.raises(LocalProtocolError):
            replica.commit(lambda author, entry=entry: Draft([entry]))  # type: ignore[misc]
    assert (replica.totals()["entries"], replica.totals()["orphans"]) == (before, 0)


# -- blocks -----------------------------------------------------------------------------------------------------------


def file_of(content: bytes, name: bytes = b"f") -> tuple[Entry, list[Block]]:
    """A write of stored content and its blocks."""
    named, blocks = in_blocks(content)
    return ROOT_KEY.sign(DIRECTORY.hash, 1, Action.WRITE, name, named, Extensions(len(content))), blocks


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_blocks_in_any_order(replica: Replica, order: tuple[int, ...]) -> None:
    write, blocks = file_of(noise(1, 1000))
    things: list[Entry | Block] = [write, *blocks]
    shown: list[bool] = []
    for index in order:
        thing = things[index]
        applied = replica.apply([thing], []) if isinstance(thing, Entry) else replica.apply([], [thing])
        shown.append(b"f" in replica.names_in(path("/d")))
        assert replica.missing_blocks(1) or not applied.lacks_blocks
        assert {hash for _, hash in replica.missing_blocks(9)} <= {block.hash for block in blocks}
    assert shown == [False, False, False, True]
    assert replica.read(path("/d/f")) == noise(1, 1000)


def test_completed_tells_of_entries_that_came_earlier(replica: Replica) -> None:
    write, blocks = file_of(noise(1, 1000))
    assert replica.apply([write], blocks[:1]).lacks_blocks
    assert replica.apply([], blocks[1:2]).completed == ()
    applied = replica.apply([], blocks[2:])
    assert applied.completed == (write.hash,) and not applied.lacks_blocks
    other, _ = file_of(noise(1, 1000), b"g")
    assert replica.apply([other], []).completed == (), "accepted and complete at once"
    assert replica.read(path("/d/g")) == noise(1, 1000)


def test_contents_that_share_a_block(replica: Replica) -> None:
    end = noise(9, GOSSIP_BLOCK_DATA)
    files = [file_of(noise(number, GOSSIP_BLOCK_DATA) + end, b"%d" % number) for number in range(2)]
    (shared,) = in_blocks(end)[1]
    replica.apply([write for write, _ in files], [block for _, blocks in files for block in blocks[:2]])
    assert {hash for _, hash in replica.missing_blocks(10)} == {shared.hash}
    assert set(replica.apply([], [shared]).completed) == {write.hash for write, _ in files}


def test_a_block_that_nobody_names_costs_no_disk(replica: Replica) -> None:
    replica.apply([], in_blocks(noise(1, 5000))[1])
    assert replica.totals()["blocks"] == 0


def test_local_content_that_is_arriving_from_somebody_else(replica: Replica) -> None:
    other = make_replica(replica.directory.with_name("other"), (ALICE,), born=genesis((ROOT_KEY, ALICE)))
    theirs = other.commit(lambda author: author.write(path("/theirs"), noise(1, 1200)))
    replica.apply(genesis((ROOT_KEY, ALICE)), [])
    replica.apply(theirs.entries, theirs.blocks[:1])
    applied = replica.commit(lambda author: author.write(path("/ours"), noise(1, 1200)))
    assert replica.read(path("/ours")) == noise(1, 1200)
    assert replica.read(path("/theirs")) == noise(1, 1200)
    assert applied.completed == (theirs.entries[0].hash,)
    assert replica.missing_blocks(1) == []


# -- what others are told ---------------------------------------------------------------------------------------------


def test_the_tree_does_not_tell_of_contents_but_the_digest_does(replica: Replica) -> None:
    write, blocks = file_of(noise(1, 1200))
    replica.apply([write], [])
    listing = replica.listing(path("/d/f"))
    assert listing is not None and listing.entries == (write.hash,)
    before = replica.root_hash()
    assert replica.path_hash(path("/d/f")) == sum_hash(addend(write.hash))
    assert replica.digest().missing == 1
    replica.apply([], blocks)
    assert replica.root_hash() == before and replica.digest().missing == 0


def test_a_content_of_which_nothing_comes_is_asked_for_again_now_and_then(tmp_path: Path) -> None:
    now = [BIRTH]
    make_replica(tmp_path).close()
    replica = Replica(tmp_path, clock=lambda: now[0])
    named, blocks = in_blocks(noise(1, 1200))
    write = ROOT_KEY.sign(EntryHash(replica.identity), 1, Action.WRITE, b"f", named, Extensions(1200))
    replica.apply([write], [])
    assert replica.look_again(5) == 0
    now[0] += 6
    assert replica.look_again(5) == 1 and replica.look_again(5) == 0
    now[0] += 4
    replica.apply([], blocks[:1])
    now[0] += 4
    assert replica.look_again(5) == 0, "something has come"
    now[0] += 2
    assert replica.look_again(5) == 1
    replica.apply([], blocks)
    now[0] += 100
    assert replica.look_again(5) == 0
    replica.close()


def test_listing_and_hashes_of_unknown_paths(replica: Replica) -> None:
    assert replica.listing(path("/none")) is None
    assert replica.path_hash(path("/none")) == ZERO_HASH
    assert list(replica.walk(path("/none"))) == []
    assert replica.entry(EntryHash(bytes(28))) is None
    assert replica.block(BlockHash(bytes(28))) is None


def test_a_walk_can_be_accepted_in_its_order(tmp_path: Path, replica: Replica) -> None:
    replica.commit(lambda author: author.make_directory(path("/d/e")))
    replica.commit(lambda author: author.grant(path("/d/e"), b"bob", BOB.public))
    made = replica.commit(lambda author: author.write(path("/d/e/f"), noise(1, 900)))
    replica.commit(lambda author: rename(author, path("/d/e/f"), path("/g")))
    other = Replica.create(tmp_path, ROOT.hash)
    for raw in replica.walk(()):
        result = other.add([raw], [])
        assert (result.rejected, result.missing_parents) == ((), ())
    blocks = [replica.block(block.hash) for block in made.blocks]
    assert made.blocks[0].hash in [hash for _, hash in other.missing_blocks(10)]
    assert other.add([], [block for block in blocks if block is not None]).rejected == ()
    assert other.root_hash() == replica.root_hash()
    assert tree_of(other) == tree_of(replica)


@given(st.lists(st.binary(max_size=300), max_size=5), st.lists(st.binary(max_size=100), max_size=5))
def test_rubbish_is_counted_not_raised(tmp_path: Path, entries: list[bytes], blocks: list[bytes]) -> None:
    directory = tmp_path / "rubbish"
    replica = Replica(directory) if directory.exists() else make_replica(directory)
    before = replica.totals()["entries"]
    result = replica.add(entries, blocks)
    assert result.accepted == 0
    assert len(result.rejected) >= len(entries)
    assert replica.totals()["entries"] == before
    replica.close()


# -- the rest ---------------------------------------------------------------------------------------------------------


def test_subscribers_hear_of_changes_only(replica: Replica) -> None:
    heard: list[Applied] = []
    replica.subscribe(heard.append)
    replica.apply([DIRECTORY], [])
    assert heard == []
    ours = replica.commit(lambda author: author.write(path("/f"), noise(1, 900)))
    theirs = replica.apply([FILE], [])
    replica.commit(lambda author: author.write(path("/f"), noise(1, 900)))
    assert heard == [ours, theirs]
    assert (ours.local, len(ours.blocks)) == (True, 3)
    assert (theirs.local, theirs.blocks) == (False, ())


def test_reading_what_is_something_else(replica: Replica) -> None:
    replica.commit(lambda author: author.write(path("/f"), b"x"))
    replica.commit(lambda author: make_symlink(author, path("/s"), b"target"))
    with pytest.raises(IsADirectory):
        replica.read(path("/d"))
    with pytest.raises(NotADirectory):
        replica.names_in(path("/f"))
    with pytest.raises(NotADirectory):
        replica.read(path("/f/g"))
    with pytest.raises(NotFound):
        replica.attributes(path("/none"))
    assert replica.names_in(()) == {b"d": Kind.DIRECTORY, b"f": Kind.FILE, b"s": Kind.SYMLINK}


def test_keys_and_where_they_are_granted(replica: Replica) -> None:
    replica.commit(lambda author: author.grant(path("/d"), b"bob", BOB.public))
    replica.commit(lambda author: author.make_directory(path("/d/e")))
    assert [grant.fingerprint for grant in replica.grants(path("/d"))] == [BOB.fingerprint]
    assert replica.grants(path("/d/e")) == replica.grants(path("/none")) == []
    assert replica.is_root_key(ROOT_KEY.fingerprint)
    assert not replica.is_root_key(BOB.fingerprint)


def test_a_second_replica_of_one_log_in_one_directory_is_refused(tmp_path: Path) -> None:
    make_replica(tmp_path).close()
    with pytest.raises(StoreError):
        Replica.create(tmp_path, ROOT.hash)


def test_a_series_of_drafts_builds_on_itself_and_is_one_change(replica: Replica) -> None:
    heard: list[Applied] = []
    replica.subscribe(heard.append)

    def make(author: Author) -> Iterator[Draft]:
        yield author.make_directory(path("/d/e"))
        yield author.write(path("/d/e/f"), b"below what was made just now")
        with pytest.raises(NotFound):
            author.write(path("/d/nothing/f"), b"")
        yield author.write(path("/d/e/g"), noise(1, 3000))

    replica.commit(make)
    assert [entry.action for entry in heard[0].entries] == [Action.MKDIR, Action.WRITE, Action.WRITE]
    assert len(heard) == 1
    assert heard[0].blocks
    assert replica.read(path("/d/e/g")) == noise(1, 3000)
    assert replica.check_view() == []


def test_a_series_that_fails_changes_nothing(replica: Replica) -> None:
    before, root_hash = tree_of(replica), replica.root_hash()

    def make(author: Author) -> Iterator[Draft]:
        yield author.make_directory(path("/d/e"))
        yield author.write(path("/d/e/f"), b"never there")
        raise StoreError("the disk went away")

    with pytest.raises(StoreError):
        replica.commit(make)
    assert (tree_of(replica), replica.root_hash()) == (before, root_hash)
    assert replica.check_view() == []
    replica.commit(lambda author: author.write(path("/d/e"), b"a file now"))


def malformed(*_: object) -> None:
    """What SQLite says of a page that it cannot read."""
    error = sqlite3.DatabaseError("database disk image is malformed")
    error.sqlite_errorname = "SQLITE_CORRUPT"  # type: ignore[attr-defined]
    raise error


@pytest.mark.parametrize("is_observed", [False, True])
@pytest.mark.parametrize(("where", "parent"), [("/d", DIRECTORY), ("/", ROOT)])
def test_what_was_committed_is_told_though_the_log_cannot_be_read_afterwards(
    replica: Replica,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    where: str,
    parent: Entry,
    is_observed: bool,
) -> None:
    if is_observed:
        replica.observe()
    replica.commit(lambda author: author.write(path("/d/f"), b"1"))
    assert list(replica.names_in(path("/d"))) == [b"f"]
    heard: list[Applied] = []
    replica.subscribe(heard.append)
    # Who may write in a directory has changed, so what is in it is looked at again.
    for name in ("entries_at", "entries_under"):
        monkeypatch.setattr(replica._store, name, malformed)
    grant = ROOT_KEY.sign(parent.hash, 2, Action.GRANT, b"alice", ALICE.public)
    applied = replica.apply([grant], [])
    assert applied.entries == (grant,)
    assert heard == [applied], "others must hear of it"
    assert replica.damaged == 1
    with pytest.raises(DamagedLog):
        replica.names_in(path("/d"))
    with pytest.raises(ReadOnly):
        replica.commit(lambda author: author.write(path("/d/f"), b"2"))
    assert replica.apply([], []).entries == ()
    # As if that page could be read again: nothing of the view is wrong.
    monkeypatch.undo()
    assert list(replica.names_in(path("/d"))) == [b"f"]
    assert b"alice" in [grant.entry.name for grant in replica.grants(path(where))]
    assert replica.check_view() == []
    below = ROOT_KEY.sign(DIRECTORY.hash, 3, Action.MKDIR, b"e")
    assert [change.path for change in replica.apply([below], []).changes] == [path("/d/e")]
    caplog.clear()


def test_a_series_that_fails_because_the_log_cannot_be_read_changes_nothing(
    replica: Replica, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = tree_of(replica)

    def drafts(author: Author) -> Iterator[Draft]:
        yield author.write(path("/d/f"), b"1")
        # Of what the transaction has made, and of what there was before it.
        monkeypatch.setattr(replica._store, "entries_at", malformed)
        monkeypatch.setattr(replica._store.paths, "find", malformed)
        malformed()

    with pytest.raises(DamagedLog):
        replica.commit(drafts)
    monkeypatch.undo()
    assert tree_of(replica) == before
    assert replica.check_view() == []
    caplog.clear()


def test_two_threads_write_at_once(replica: Replica) -> None:
    def work(name: str) -> None:
        for number in range(50):
            replica.commit(lambda author, n=number: author.write(path(f"/{name}{n}"), b"x"))  # type: ignore[misc]

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(replica.names_in(())) == 101
    assert replica.check_view() == []


def test_many_keys_on_many_nodes_converge(tmp_path: Path) -> None:
    keys = [make_key(str(number)) for number in range(4)]
    born = genesis((ROOT_KEY, *keys))
    nodes = [Node(make_replica(tmp_path / f"node{number}", (key,), born=[])) for number, key in enumerate(keys)]

    def put(author: Author, key: SigningKey) -> Draft:
        return author.write(path("/same"), key.public)

    for node, key in zip(nodes, keys, strict=True):
        node.receive(born, [])
        node.replica.commit(lambda author, key=key: put(author, key))  # type: ignore[misc]
    for node in nodes:
        for other in nodes:
            node.receive(list(other.entries.values()), list(other.blocks.values()))
    assert len({node.replica.read(path("/same")) for node in nodes}) == 1
    assert len({node.replica.root_hash() for node in nodes}) == 1


# -- durability -------------------------------------------------------------------------------------------------------


def test_a_sync_waits_for_the_one_that_took_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replica = make_replica(tmp_path / "log")
    started, go_on, order = threading.Event(), threading.Event(), []

    def slow_sync() -> None:
        started.set()
        assert go_on.wait(DEADLINE)
        order.append("synced")

    monkeypatch.setattr(replica._store.database, "sync", slow_sync)
    timer = threading.Thread(target=replica.sync_to_disk)
    timer.start()
    assert started.wait(DEADLINE)
    user = threading.Thread(target=lambda: (replica.sync_to_disk(), order.append("returned")))
    user.start()
    go_on.set()
    timer.join(DEADLINE)
    user.join(DEADLINE)
    assert order == ["synced", "returned"]


def test_a_sync_that_failed_is_made_again(tmp_path: Path) -> None:
    replica = make_replica(tmp_path / "log")
    wal = tmp_path / "log" / f"{LOG_FILE}-wal"
    # Nobody can open what is under its name now.
    wal.rename(tmp_path / "away")
    wal.symlink_to(wal)
    for _ in range(2):
        with pytest.raises(StoreError, match="durable"):
            replica.sync_to_disk()
        assert not replica.is_durable
    (tmp_path / "away").rename(wal)
    replica.sync_to_disk()
    assert replica.is_durable
