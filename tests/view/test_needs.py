"""What is not needed does not travel, and nobody can see that: the view is as if it had."""

from __future__ import annotations

import contextlib
import pathlib
import random
import tempfile
from functools import partial

import pytest
from hypothesis import given

from basefs.log import codecs
from basefs.log.blocks import Encoded
from basefs.log.entries import Action, Entry
from basefs.log.extensions import Extensions
from basefs.log.hashes import BlockHash, EntryHash
from basefs.replica.replica import Replica
from tests.support.cost import calls
from tests.support.helpers import ALICE, BOB, ROOT_KEY, fetch, in_blocks, make_key, make_replica, noise, parcels, path
from tests.view.histories import SEEDS, memory
from tests.view.hostile import Deed, Hostile, deeds, seen

#: Granted by a key that was revoked before.
FRESH = make_key("fresh")
LARGE = noise(1, 200_000)


@given(deeds(), SEEDS)
def test_the_view_is_as_if_everything_had_come(history: list[Deed], seed: int) -> None:
    hostile = Hostile(history)
    blocks = {block.hash: block for block in hostile.blocks.values()}
    with tempfile.TemporaryDirectory(dir=memory()) as directory, contextlib.ExitStack() as stack:
        everything = make_replica(pathlib.Path(directory, "all"), born=[], identity=hostile.entries[0].hash)
        stack.callback(everything.close)
        everything._is_soon_needed = lambda write: True  # type: ignore[method-assign]
        everything.apply(hostile.entries, list(blocks.values()))
        chance = random.Random(seed)
        needed = make_replica(pathlib.Path(directory, "needed"), born=[], identity=hostile.entries[0].hash)
        stack.callback(needed.close)
        for parcel in parcels(hostile.entries, (), chance):
            needed.apply(parcel.entries, ())
            if chance.random() < 0.3:
                fetch(needed, blocks)
        needed.apply(hostile.entries, ())
        fetch(needed, blocks)
        assert needed.check_view() == []
        assert seen(needed) == seen(everything)
        assert needed.digest() == everything.digest()


class Story:
    """A revoked key, and what it writes afterwards."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.replica = make_replica(directory, (ROOT_KEY,))
        self.commit = self.replica.commit
        self.commit(lambda author: author.make_directory(path("/web")))
        self.commit(lambda author: author.key_holder.grant(path("/web"), b"alice", ALICE.public).draft)
        self.named, self.blocks = in_blocks(LARGE)
        self.web = self.replica.attributes(path("/web")).origin

    def revoke(self) -> None:
        """Alice's key ends."""
        fingerprint = ALICE.fingerprint
        self.commit(lambda author: author.key_holder.revoke(path("/web"), b"alice", fingerprint).draft)

    def write(self, name: bytes = b"f", parent: EntryHash | None = None) -> Entry:
        """A large file by Alice, of which only the entry comes."""
        at = parent or self.web
        assert at is not None
        entry = ALICE.sign(at, 1, Action.WRITE, name, self.named, Extensions(len(LARGE)))
        assert self.replica.apply([entry], []).entries == (entry,)
        return entry

    def asked(self) -> int:
        """How many blocks travel now."""
        return fetch(self.replica, {block.hash: block for block in self.blocks})


@pytest.fixture
def story(tmp_path: pathlib.Path) -> Story:
    return Story(tmp_path)


def test_a_revoked_key_sends_no_contents(story: Story) -> None:
    story.revoke()
    entry = story.write()
    assert not story.replica.missing_blocks(10), "at once"
    assert story.asked() == 0
    # Nor does it help to build on it, to name it, to send it with its blocks, or to name the same blocks elsewhere.
    behind = ALICE.sign(entry.hash, 2, Action.MODE, b"f", (0o600).to_bytes(2, "big"))
    revert = ALICE.sign(behind.hash, 3, Action.REVERT, b"f", bytes(entry.hash))
    assert story.web is not None
    link = ALICE.sign(story.web, 4, Action.LINK, b"l", bytes(entry.hash))
    story.replica.apply([behind, revert, link], [])
    again = ALICE.sign(story.web, 5, Action.WRITE, b"g", story.named, Extensions(len(LARGE)))
    before = story.replica.totals()["blocks"]
    story.replica.apply([again], story.blocks)
    story.replica.apply([], story.blocks)
    assert story.asked() == 0 and story.replica.totals()["blocks"] == before
    assert story.replica.names_in(path("/web")) == {}


def test_a_revoke_stops_a_content_on_its_way(story: Story) -> None:
    story.write()
    for block in story.blocks[:3]:
        story.replica.apply([], [block])
    assert [hash for _, hash in story.replica.missing_blocks(10)] == [block.hash for block in story.blocks[3:]]
    story.commit(lambda author: author.key_holder.revoke(path("/web"), b"alice", ALICE.fingerprint, discard=True).draft)
    assert story.asked() == 0


def test_a_key_that_wrote_before_sends_no_contents_with_its_revoke(story: Story, tmp_path: pathlib.Path) -> None:
    story.replica.close()
    replica = Replica(tmp_path, (ROOT_KEY,))
    assert story.web is not None
    early, late = (
        ALICE.sign(story.web, made, Action.WRITE, b"%d" % made, make_name(made), Extensions(1000)) for made in (1, 3)
    )
    revoke = ROOT_KEY.sign(story.web, 2, Action.REVOKE, b"alice", ALICE.fingerprint)
    replica.apply([early, revoke, late], [])
    assert [hash for _, hash in replica.missing_blocks(10)] == [BlockHash((1).to_bytes(28, "big"))]
    replica.close()


def test_a_later_grant_brings_what_was_withheld(story: Story) -> None:
    story.revoke()
    story.write()
    assert story.asked() == 0
    story.commit(lambda author: author.key_holder.grant(path("/web"), b"alice", ALICE.public).draft)
    assert story.asked() == len(story.blocks)
    assert story.replica.read(path("/web/f")) == LARGE


def test_a_later_grant_takes_what_waits_in_memory(story: Story) -> None:
    """The node that has sent it may be gone for good."""
    story.revoke()
    story.write()
    story.replica.apply([], story.blocks)
    assert story.replica.totals()["blocks"] == 0
    story.commit(lambda author: author.key_holder.grant(path("/web"), b"alice", ALICE.public).draft)
    story.replica.review_needs(at_once=True)
    assert not story.replica.missing_blocks(10)
    assert story.replica.read(path("/web/f")) == LARGE
    assert story.replica.check_view() == []


@pytest.mark.parametrize("how", ["ack", "revert", "link"])
def test_another_key_makes_it_count(story: Story, how: str) -> None:
    story.commit(lambda author: author.write(path("/web/f"), b"first"))
    first = story.replica.attributes(path("/web/f")).content
    story.revoke()
    entry = story.write(parent=first)
    assert story.asked() == 0
    if how == "ack":
        made = ROOT_KEY.sign(entry.hash, 2, Action.ACK, b"f")
    elif how == "revert":
        assert first is not None
        made = ROOT_KEY.sign(first, 2, Action.REVERT, b"f", bytes(entry.hash))
    else:
        made = ROOT_KEY.sign(EntryHash(story.replica.identity), 2, Action.LINK, b"l", bytes(entry.hash))
    story.replica.apply([made], [])
    assert story.asked() == len(story.blocks)
    assert story.replica.read(path("/l" if how == "link" else "/web/f")) == LARGE


def test_a_key_that_never_counted_there(story: Story) -> None:
    """Granted on another path: the log takes its entries below that one only, so on a file of its own."""
    story.commit(lambda author: author.key_holder.grant(path("/web"), b"bob", BOB.public).draft)
    story.revoke()
    assert story.web is not None
    fresh = ALICE.sign(story.web, 1, Action.GRANT, b"fresh", FRESH.public)
    story.replica.apply([fresh], [])
    entry = FRESH.sign(story.web, 1, Action.WRITE, b"f", story.named, Extensions(len(LARGE)))
    assert story.replica.apply([entry], []).entries == (entry,)
    assert story.asked() == 0


def test_a_net_of_links_costs_each_link_once(story: Story) -> None:
    """Every path of a chain has some links to the one before: there are 3^16 ways through them."""
    story.revoke()
    assert story.web is not None
    target = story.write(b"0")
    costs = []
    for layer in range(1, 17):
        links = [ALICE.sign(story.web, 10 * layer + n, Action.LINK, b"%d" % layer, target.hash) for n in range(3)]
        assert len(story.replica.apply(links, []).entries) == 3
        target = links[0]
        story.replica.review_needs(at_once=True)
        if layer % 8 == 0:
            story.commit(lambda author, layer=layer: author.make_directory(path(f"/other{layer}")))  # type: ignore[misc]
            costs.append(calls(lambda: story.replica.review_needs(at_once=True)))
    assert costs[1] <= 3 * costs[0]


def test_a_revert_to_a_link_needs_what_it_names(story: Story) -> None:
    """A file that was renamed by a key that is revoked, and is restored under its new name."""
    story.commit(lambda author: author.write(path("/web/new"), b"first"))
    first = story.replica.attributes(path("/web/new")).content
    assert first is not None
    story.revoke()
    old = story.write(b"old")
    gone = ALICE.sign(first, 2, Action.DELETE, b"new")
    link = ALICE.sign(gone.hash, 3, Action.LINK, b"new", old.hash)
    story.replica.apply([gone, link], [])
    assert story.asked() == 0
    story.commit(lambda author: author.reverter.path(path("/web/new"), link.hash))
    assert story.asked() == len(story.blocks)
    assert story.replica.read(path("/web/new")) == LARGE


def test_a_delta_on_a_withheld_content_can_be_restored(story: Story) -> None:
    """Its own blocks are here, since they came before the revoke."""
    story.commit(lambda author: author.write(path("/web/f"), b"first"))
    first = story.replica.attributes(path("/web/f")).content
    entry = story.write(parent=first)
    changed = LARGE[:1000] + b"changed" + LARGE[1007:]
    tag, encoded = codecs.encode(changed, LARGE, keyframe=False)
    named, delta = in_blocks(encoded, tag)
    second = ALICE.sign(entry.hash, 2, Action.WRITE, b"f", named, Extensions(len(changed)))
    story.replica.apply([second], delta)
    story.commit(lambda author: author.key_holder.revoke(path("/web"), b"alice", ALICE.fingerprint, discard=True).draft)
    assert story.asked() == 0
    story.commit(lambda author: author.reverter.path(path("/web/f"), second.hash))
    assert story.asked() == len(story.blocks)
    assert story.replica.read(path("/web/f")) == changed


@pytest.mark.parametrize("is_here", [False, True])
def test_what_is_in_a_directory_that_only_it_keeps(tmp_path: pathlib.Path, is_here: bool) -> None:
    """The key is valid in the merged directory, of which the inner one shows only because of this very file."""
    replica = make_replica(tmp_path)
    top = EntryHash(replica.identity)
    one, two = (ROOT_KEY.sign(top, made, Action.MKDIR, b"a") for made in (10, 20))
    bob = ROOT_KEY.sign(one.hash, 30, Action.GRANT, b"bob", BOB.public)
    alice = ROOT_KEY.sign(two.hash, 30, Action.GRANT, b"alice", ALICE.public)
    inner = ALICE.sign(two.hash, 40, Action.MKDIR, b"s")
    named, blocks = in_blocks(LARGE)
    file = BOB.sign(inner.hash, 50, Action.WRITE, b"x", named, Extensions(len(LARGE)))
    end = ROOT_KEY.sign(two.hash, 60, Action.REVOKE, b"alice", ALICE.fingerprint)
    entries = [entry.encode() for entry in (one, two, bob, alice, inner, end, file)]
    assert replica.add(entries, [block.encode() for block in blocks if is_here], everything=is_here).accepted
    fetch(replica, {block.hash: block for block in blocks})
    assert replica.read(path("/a/s/x")) == LARGE


def test_a_content_that_comes_can_make_another_one_needed(tmp_path: pathlib.Path) -> None:
    """A removed directory is there again, and merged with another one, once a file in it is whole."""
    replica = make_replica(tmp_path)
    top = EntryHash(replica.identity)
    one, two = (ROOT_KEY.sign(top, made, Action.MKDIR, b"a") for made in (10, 20))
    bob = ROOT_KEY.sign(one.hash, 30, Action.GRANT, b"bob", BOB.public)
    removal = ROOT_KEY.sign(two.hash, 40, Action.DELETE, b"a")
    (first, pieces), (second, others) = in_blocks(noise(3, 100_000)), in_blocks(LARGE)
    keeper = ROOT_KEY.sign(two.hash, 50, Action.WRITE, b"keeper", first, Extensions(100_000))
    file = BOB.sign(two.hash, 50, Action.WRITE, b"x", second, Extensions(len(LARGE)))
    replica.apply([one, two, bob, removal, keeper, file], [])
    fetch(replica, {block.hash: block for block in pieces})
    fetch(replica, {block.hash: block for block in others})
    assert replica.read(path("/a/keeper")) == noise(3, 100_000)
    assert replica.read(path("/a/x")) == LARGE


def test_what_counts_for_nothing_at_one_path_is_looked_at_once(story: Story) -> None:
    """Each of many contents, all at one path and withheld."""
    story.revoke()
    assert story.web is not None

    def review(count: int) -> int:
        writes = [
            ALICE.sign(story.web, made, Action.WRITE, b"f", make_name(made), Extensions(1000))
            for made in range(story.replica.totals()["entries"], count)
        ]
        story.replica.apply(writes, [])
        return calls(lambda: story.replica.review_needs(at_once=True))

    one, two = review(500), review(1000)
    assert two <= 2.3 * one


def make_name(number: int) -> bytes:
    """How an entry names a content that is nowhere."""
    return Encoded(BlockHash(number.to_bytes(28, "big")), 0, 1000).encode()


def test_an_archive_brings_what_is_withheld(story: Story) -> None:
    """An administrator who imports a backup wants all of it, also what this log has not fetched."""
    story.revoke()
    entry = story.write()
    assert story.asked() == 0
    blocks = [block.encode() for block in story.blocks]
    story.replica.add([entry.encode()], [], everything=True)
    for start in range(0, len(blocks), 10):
        story.replica.add([], blocks[start : start + 10], everything=True)
        story.replica.review_needs(at_once=True)
    assert story.replica.content_at(entry.hash) == LARGE


def test_grants_between_the_writes_of_a_revoked_key_cost_each_entry_the_same(
    story: Story, tmp_path: pathlib.Path
) -> None:
    """Each grant changes which keys may be valid for the next write."""
    story.revoke()
    assert story.web is not None
    story.replica.close()
    # On a slow machine more time passes, in which quick looks would be allowed again.
    replica = Replica(tmp_path, (ROOT_KEY,), steady=lambda: 0.0)
    entries = []
    for made in range(600):
        entries.append(ALICE.sign(story.web, made, Action.GRANT, b"%d" % made, BOB.public))
        entries.append(ALICE.sign(story.web, made, Action.WRITE, b"%d" % made, make_name(made), Extensions(1000)))
    costs = [calls(partial(replica.apply, part, [])) for part in (entries[:400], entries[400:])]
    assert replica.totals()["entries"] > len(entries)
    assert not replica.missing_blocks(1)
    replica.close()
    assert costs[1] <= 2.3 * 2 * costs[0]


def test_a_merged_directory_takes_contents_at_once(tmp_path: pathlib.Path) -> None:
    """A key that was granted on one of the directories writes into the other one, and a message brings it all."""
    replica = make_replica(tmp_path)
    top = EntryHash(replica.identity)
    one, two = (ROOT_KEY.sign(top, made, Action.MKDIR, b"a") for made in (10, 20))
    bob = ROOT_KEY.sign(one.hash, 30, Action.GRANT, b"bob", BOB.public)
    replica.apply([one, two, bob], [])
    assert replica.names_in(path("/a")) == {}
    for number, directory in enumerate((one, two)):
        name = b"%d" % number
        named, blocks = in_blocks(name)
        file = BOB.sign(directory.hash, 40, Action.WRITE, name, named, Extensions(1))
        replica.apply([file], blocks)
        assert replica.read((b"a", name)) == name
