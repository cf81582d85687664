"""What a later version may write: annotations and odd extensions are kept and synced, the rest waits for an upgrade."""

from __future__ import annotations

from pathlib import Path

import pytest

from basefs.log.entries import Action, Entry
from basefs.log.extensions import Extensions
from basefs.log.hashes import EntryHash
from basefs.replica.replica import Replica
from tests.support.helpers import ROOT_KEY, STRANGER, make_replica, path, tree_of

LATER = Extensions(unknown=((255, b"of a later version"),))


@pytest.fixture
def replicas(tmp_path: Path):
    """Two nodes with one file, which the first one has written."""
    one, two = make_replica(tmp_path / "one"), make_replica(tmp_path / "two", [])
    one.commit(lambda author: author.write(path("/f"), b"text"))
    yield one, two
    for replica in (one, two):
        assert replica.check_view() == []
        replica.close()


def carry(source: Replica, target: Replica) -> None:
    """Bring every entry and the blocks that it needs."""
    for raw in source.walk(()):
        target.add([raw], [])
    while wanted := target.missing_blocks(100):
        target.add([], [source.block(hash) for _, hash in wanted])


def later(one: Replica) -> list[Entry]:
    """Annotations behind a state, behind a grant and behind each other, and an entry with an unknown odd extension."""
    tip = one.attributes(path("/f")).entry
    grant = one.grants(())[0].entry
    found = [
        ROOT_KEY.sign(tip, 1, Action(64), b"", b"anything"),
        ROOT_KEY.sign(grant.hash, 1, Action(255), b"seal", extensions=LATER),
        ROOT_KEY.sign(tip, 1, Action.MODE, b"f", b"\x01\x80", LATER),
    ]
    return [*found, ROOT_KEY.sign(found[0].hash, 1, Action(66), b"")]


def test_annotations_and_odd_extensions_are_stored_and_synced(replicas) -> None:
    one, two = replicas
    shown = one.attributes(path("/f"))
    entries = later(one)
    for entry in entries:
        assert not one.add([entry.encode()], []).rejected
    carry(one, two)
    assert one.root_hash() == two.root_hash()
    assert [two.entry(entry.hash) for entry in entries] == [entry.encode() for entry in entries]
    assert tree_of(one) == tree_of(two)
    # The mode counts, and nothing else has an effect.
    after = two.attributes(path("/f"))
    assert (after.entry, after.mode, after.mtime) == (entries[2].hash, 0o600, shown.mtime)


def test_an_annotation_needs_a_key_and_nothing_else_may_follow_it(replicas) -> None:
    one, _ = replicas
    annotation = later(one)[0]
    refused = [
        STRANGER.sign(annotation.parent, 1, Action(64), b""),
        ROOT_KEY.sign(annotation.hash, 1, Action.ACK, b"f"),
        ROOT_KEY.sign(annotation.hash, 1, Action.GRANT, b"key", STRANGER.public),
    ]
    assert not one.apply([annotation], []).rejected
    for entry in refused:
        assert one.apply([entry], []).rejected


@pytest.mark.parametrize("extensions", [Extensions(unknown=((12, b""),)), Extensions(unknown=((254, b"x"),))])
def test_an_unknown_even_extension_says_what_to_upgrade(replicas, extensions: Extensions) -> None:
    one, _ = replicas
    entry = ROOT_KEY.sign(EntryHash(one.identity), 1, Action.MKDIR, b"d", extensions=extensions)
    result = one.add([entry.encode()], [])
    assert result.accepted == 0 and result.unsupported == 1
    assert "upgrade the package basefs on this node" in result.rejected[0]


def test_an_admit_is_stored_and_synced_and_shows_nothing(replicas) -> None:
    one, two = replicas
    before = tree_of(one)
    entry = ROOT_KEY.sign(EntryHash(one.identity), 1, Action.ADMIT, b"name", STRANGER.public)
    assert not one.apply([entry], []).rejected
    carry(one, two)
    assert two.entry(entry.hash) == entry.encode()
    assert one.root_hash() == two.root_hash()
    shown = tree_of(two)
    assert shown.keys() == before.keys()
    assert [shown[names].content for names in shown] == [before[names].content for names in before]
    # An admit gives a name to its key, which reads and does not write.
    assert two.key_names().get(STRANGER.fingerprint) == "name"
