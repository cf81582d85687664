"""What a key holder can make others do: counted in calls, twice as many entries cost twice as much."""

from __future__ import annotations

import pathlib
import statistics
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from basefs.log.blocks import SYNC_BLOCK_DATA, Encoded, split
from basefs.log.entries import Action
from basefs.log.extensions import Extensions
from basefs.path import MAX_DEPTH
from basefs.replica.replica import Replica
from eval.bench_hostile import ALICE, BESIDE, ELSEWHERE, SHAPES, Victim
from tests.support.cost import calls, calls_held
from tests.support.helpers import ROOT_KEY, make_replica
from tests.view.stories import Story

#: As many entries, and twice as many.
COUNT = 120
#: Calls that any number of entries costs.
FIXED = 500


def costs(shape: str, count: int, directory: pathlib.Path) -> dict[str, int]:
    """The calls of each kind of access."""
    victim = Victim(directory)
    entries = SHAPES[shape](victim, count)
    last = entries.pop()
    found = {"take": calls(lambda: victim.take(entries)), "alone": calls(lambda: victim.take([last]))}
    assert victim.replica.check_view() == []
    victim.write(ELSEWHERE, b"first")
    found["elsewhere"] = calls(lambda: victim.write(ELSEWHERE, b"second"))
    assert victim.replica.read(ELSEWHERE) == b"second"
    found["look"] = calls(victim.look)
    assert victim.replica.read(BESIDE) == b"0"
    victim.replica.close()
    return found


@pytest.mark.parametrize("shape", SHAPES)
def test_cost_is_linear_in_the_entries_concerned(shape: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "few").mkdir()
    (tmp_path / "many").mkdir()
    few, many = costs(shape, COUNT, tmp_path / "few"), costs(shape, 2 * COUNT, tmp_path / "many")
    assert many["take"] <= 2.3 * few["take"]
    assert many["look"] <= 2.3 * few["look"] + FIXED
    assert many["alone"] <= 2.3 * few["alone"] + FIXED
    # Nothing of it concerns a file of another directory.
    if shape == "directories of a revoked key":
        # Nor each other.
        assert abs(many["alone"] - few["alone"]) <= 20
    assert abs(many["elsewhere"] - few["elsewhere"]) <= 20


def memory(shape: str, count: int, directory: pathlib.Path) -> int:
    """Bytes that a node keeps of a shape, its caches included."""
    directory.mkdir()
    victim = Victim(directory)
    entries = SHAPES[shape](victim, count)
    tracemalloc.start()
    try:
        victim.take(entries)
        victim.replica.live_paths()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
        victim.replica.close()


def test_keys_and_directories_take_no_memory_for_each_pair_of_them(tmp_path: pathlib.Path) -> None:
    shape = "directories where many keys are valid"
    few, many = (memory(shape, count, tmp_path / str(count)) for count in (4 * COUNT, 8 * COUNT))
    assert many <= 2.3 * few


#: The shapes of which each entry costs what it would cost alone.
FLAT = [
    "annotations",
    "annotations of a revoked key",
    "reverts to reverts of a revoked key",
    "branches of a revoked key",
    "modes of a revoked key",
    "links to a file of others",
    "links to links",
    "directories of a revoked key",
]
#: Entries that come one by one.
MORE = 9


@contextmanager
def reading(replica: Replica) -> Iterator[None]:
    """A reader of another path beside what is done."""
    began, end = threading.Event(), threading.Event()

    def read() -> None:
        while not end.is_set():
            assert replica.names_in(()) and replica.attributes(ELSEWHERE)
            began.set()
            end.wait(0.001)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        assert began.wait(60)
        yield
    finally:
        end.set()
        reader.join()


def one_by_one(shape: str, count: int, directory: pathlib.Path) -> dict[str, float]:
    """Calls of many entries that come one by one, and of one more behind so many, while the log is read."""
    directory.mkdir()
    victim = Victim(directory)
    entries = SHAPES[shape](victim, count + MORE + 1)
    entries, last = entries[: -MORE - 1], entries[-MORE - 1 : -1]
    with reading(victim.replica):
        found: dict[str, float] = {"all": calls(lambda: [victim.take([entry]) for entry in entries])}
        found["held"] = statistics.median(calls_held(lambda entry=entry: victim.take([entry])) for entry in last)  # type: ignore[misc]
    assert victim.replica.check_view() == []
    victim.replica.close()
    return found


@pytest.mark.parametrize("shape", FLAT)
def test_one_more_entry_costs_the_same_behind_twice_as_many(shape: str, tmp_path: pathlib.Path) -> None:
    few, many = one_by_one(shape, COUNT, tmp_path / "few"), one_by_one(shape, 2 * COUNT, tmp_path / "many")
    assert many["all"] <= 2.3 * few["all"]
    # No reader waits longer.
    assert abs(many["held"] - few["held"]) <= 20


def shared_parts(count: int, directory: pathlib.Path) -> int:
    """Calls of the blocks of one content, each of which is that of an entry that came before."""
    directory.mkdir()
    victim = Victim(directory)
    data = b"".join(b"%d" % number * SYNC_BLOCK_DATA for number in range(count))
    root, blocks = split(data[: count * SYNC_BLOCK_DATA])
    names = [Encoded(root, 0, count * SYNC_BLOCK_DATA), *(Encoded(part.hash, 0, len(part.data)) for part in blocks[1:])]
    victim.take(
        [
            ALICE.sign(victim.web, 1, Action.WRITE, b"c%d" % number, name.encode(), Extensions(name.length))
            for number, name in enumerate(names)
        ]
    )
    found = calls(lambda: [victim.replica.apply([], [block]) for block in blocks])
    assert victim.replica.incomplete() == [] and victim.replica.missing_blocks(1) == []
    assert victim.replica.check_view() == []
    victim.replica.close()
    return found


def test_entries_that_name_each_block_of_a_content_cost_each_block_a_step(tmp_path: pathlib.Path) -> None:
    few, many = (shared_parts(count, tmp_path / str(count)) for count in (COUNT, 2 * COUNT))
    assert many <= 2.3 * few


def test_directories_in_one_another_with_files_in_their_places_cost_no_more_than_their_depth(
    tmp_path: pathlib.Path,
) -> None:
    found = []
    for depth in (12, 24):
        story = Story(tmp_path / str(depth))
        parent = story.root
        for _ in range(depth):
            made = story.mkdir(ROOT_KEY, parent, "d")
            # Whether the directory wins depends on all that is below it.
            story.write(ROOT_KEY, parent, b"", "d")
            parent = made
        replica = make_replica(tmp_path / str(depth), born=[])
        found.append(calls(lambda replica=replica, story=story: replica.apply(story.entries, [])))  # type: ignore[misc]
        found.append(calls(replica.live_paths))
        replica.close()
    # Each entry takes a step for each directory above it.
    assert found[2] <= 4.6 * found[0] and found[3] <= 4.6 * found[1]


def test_no_depth_of_such_directories_exhausts_the_stack(tmp_path: pathlib.Path) -> None:
    story = Story(tmp_path / "story")
    parent = story.root
    for _ in range(MAX_DEPTH):
        made = story.mkdir(ROOT_KEY, parent, "d")
        story.write(ROOT_KEY, parent, b"", "d")
        parent = made
    replica = make_replica(tmp_path / "other", born=[])
    applied = replica.apply(story.entries, [])
    assert len(applied.entries) == len(story.entries)
    assert replica.live_paths()
    assert replica.check_view() == []
    replica.close()
