"""What the tests of the filesystem need: a replica without a mount, or the certainty that mounting works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fs.local import Local
from tests.mounts import require_fuse, temporary_directory


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before any fixture, so that a missing /dev/fuse is told as such."""
    if item.get_closest_marker("fuse") is not None:
        require_fuse()


@pytest.fixture
def scratch() -> Iterator[Path]:
    """An empty directory."""
    with temporary_directory() as directory:
        yield directory


@pytest.fixture
def local(scratch: Path) -> Iterator[Local]:
    """An empty filesystem without a mount, whose view must equal a rebuild when the test ends."""
    made = Local.bootstrap(scratch / "log")
    yield made
    assert made.replica.check_view() == []
    made.replica.close()
