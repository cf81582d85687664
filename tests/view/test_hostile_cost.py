"""What a key holder can make others do: counted in calls, twice as many entries cost twice as much."""

from __future__ import annotations

import pathlib

import pytest

from eval.bench_hostile import BESIDE, ELSEWHERE, SHAPES, Victim
from tests.support.cost import calls

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
