"""Readers on one node while another one delivers changes; `make storm` is the same at full size."""

from __future__ import annotations

from pathlib import Path

import pytest

from eval.storm import is_whole, make_content, storm

pytestmark = [pytest.mark.cluster, pytest.mark.fuse, pytest.mark.serf]


def test_readers_meet_no_error_and_no_torn_file(tmp_path: Path) -> None:
    figures = {row["what"]: row["value"] for row in storm(tmp_path, readers=4, changes=300, files=60)}
    assert figures["errors"] == figures["torn reads"] == 0
    assert figures["reads"] >= 60


def test_a_torn_content_is_recognised() -> None:
    one, two = make_content("f", 1), make_content("f", 2)
    assert len(one) == len(two)
    assert is_whole(one)
    assert not is_whole(one[:1000] + two[1000:])
    assert not is_whole(one[:-1])
