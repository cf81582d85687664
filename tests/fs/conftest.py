"""What the tests of the filesystem need: an empty directory, or a replica without a mount."""

from __future__ import annotations

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
