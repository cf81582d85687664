"""What the tests of the filesystem need: an empty directory, or a replica without a mount."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fs.local import Local
from tests.support.mounts import temporary_directory


@pytest.fixture
def scratch() -> Iterator[Path]:
    """An empty directory."""
    with temporary_directory() as directory:
        yield directory


@pytest.fixture
def local(scratch: Path) -> Iterator[Local]:
    """An empty filesystem without a mount, whose disk and view must be equal when the test ends."""
    made = Local.bootstrap(scratch / "log")
    yield made
    assert made.replica.check_view() == []
    made.close()


@pytest.fixture
def source(scratch: Path) -> Path:
    """A tree like a configuration: modes, times, links, and names that nobody expects."""
    root = scratch / "source"
    (root / "conf.d" / "deep" / "er").mkdir(parents=True)
    (root / "empty.d").mkdir()
    (root / "main.conf").write_text("include conf.d/*\n")
    (root / "conf.d" / "one.conf").write_text("one = 1\n" * 100)
    (root / "conf.d" / "secret").write_bytes(os.urandom(5000))
    (root / "conf.d" / "deep" / "er" / "run.sh").write_text("#!/bin/sh\nexit 0\n")
    (root / "empty").touch()
    Path(os.fsdecode(os.fsencode(root) + b"/odd \xff\n'name'")).write_text("odd")
    (root / "link").symlink_to("conf.d/one.conf")
    (root / "conf.d" / "dangling").symlink_to("/nowhere/at all")
    (root / "hard").hardlink_to(root / "main.conf")
    (root / "conf.d" / "secret").chmod(0o600)
    (root / "conf.d" / "deep" / "er" / "run.sh").chmod(0o755)
    (root / "main.conf").chmod(0o444)
    (root / "empty.d").chmod(0o700)
    for number, path in enumerate(sorted(root.rglob("*"), reverse=True)):
        os.utime(path, (1_500_000_000 + number,) * 2, follow_symlinks=False)
    return root
