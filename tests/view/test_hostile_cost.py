"""What a key holder can make others do: counted in calls, twice as many entries cost twice as much."""

from __future__ import annotations

import pathlib

import pytest

from eval.bench_hostile import BESIDE, ELSEWHERE, SHAPES, Victim
from tests.support.cost import calls
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
    for _ in range(400):
        made = story.mkdir(ROOT_KEY, parent, "d")
        story.write(ROOT_KEY, parent, b"", "d")
        parent = made
    replica = make_replica(tmp_path / "other", born=[])
    applied = replica.apply(story.entries, [])
    assert len(applied.entries) == len(story.entries)
    assert replica.live_paths()
    assert replica.check_view() == []
    replica.close()
