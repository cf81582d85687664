"""Run files: what a daemon tells about itself."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from basefs.daemon.api.runfile import RunFile
from basefs.daemon.config import Home


@pytest.fixture
def home(base: Path) -> Home:
    return Home.from_environment()


@pytest.mark.parametrize("point", [None, Path("/mnt/\udcff\n")])
def test_there_and_back(home: Home, point: Path | None) -> None:
    run_file = RunFile(home, "conf")
    assert run_file.read() is None
    run_file.write(point)
    assert run_file.read() == (os.getpid(), point)
    assert stat.S_IMODE((home.run_directory() / "conf.json").stat().st_mode) == 0o600
    run_file.remove()
    assert run_file.read() is None
    run_file.remove()


@pytest.mark.parametrize("content", [b"", b"no json", b"[]", b"{}", b'{"pid": "x", "mountpoint": null}', b"\xff"])
def test_rubbish_is_as_good_as_nothing(home: Home, content: bytes) -> None:
    (home.run_directory() / "conf.json").write_bytes(content)
    assert RunFile(home, "conf").read() is None
