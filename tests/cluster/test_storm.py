"""Readers on one node while another one delivers changes; `make storm` is the same at full size."""

from __future__ import annotations

from pathlib import Path

import pytest

from eval.storm import is_whole, make_content, storm

pytestmark = [pytest.mark.cluster, pytest.mark.fuse, pytest.mark.serf]


def test_readers_meet_no_error_and_no_torn_file(tmp_path: Path) -> None:
    read, figures = storm(tmp_path, readers=4, changes=300, files=60, places=["disk"], quiet=0.5)
    assert [row["place"] for row in read] == ["disk", "BaseFS at rest", "BaseFS, changes arriving"]
    for row in read:
        assert (row["errors"], row["torn"]) == (0, 0), row
        assert row["reads"] >= 60, row
    assert {row["what"]: row["value"] for row in figures}["changes"] == 300


def test_a_torn_content_is_recognised() -> None:
    one, two = make_content("f", 1), make_content("f", 2)
    assert len(one) == len(two)
    assert is_whole(one)
    assert not is_whole(one[:1000] + two[1000:])
    assert not is_whole(one[:-1])
