"""The one way to replace a file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from basefs.durable import write_file


def test_the_file_is_replaced_with_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "f"
    write_file(file, b"one")
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (b"one", 0o600)
    write_file(file, b"two", mode=0o644)
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (b"two", 0o644)
    assert os.listdir(tmp_path) == ["f"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "in").touch()
    with pytest.raises(OSError):
        write_file(tmp_path / "d", b"data")
    assert sorted(os.listdir(tmp_path)) == ["d"]
    with pytest.raises(OSError):
        write_file(tmp_path / "none" / "f", b"data")
