"""What was asked for lately."""

from __future__ import annotations

import pytest

from basefs.log.remembered import Remembered


@pytest.mark.parametrize("most", [1, 2, 5])
def test_the_latest_are_kept_and_the_first_half_is_forgotten_where_there_is_no_room(most: int) -> None:
    remembered: Remembered[int, str] = Remembered(most)
    for number in range(20):
        remembered.keep(number, str(number))
        assert len(remembered) <= most
        assert list(remembered) == list(range(number + 1))[-len(remembered) :]
        assert len(remembered) >= min(number + 1, most // 2)
    assert remembered.get(19) == "19"
    assert remembered.get(0) is None
