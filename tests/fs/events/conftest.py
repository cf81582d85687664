"""Handlers are driven by a replica alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from basefs.replica.replica import Replica
from basefs.view.author import Author
from basefs.view.draft import Draft
from tests.support.helpers import make_replica, path
from tests.support.mounts import temporary_directory


class Local:
    """A replica, and short words for what happens on it."""

    def __init__(self, directory: Path) -> None:
        self.replica: Replica = make_replica(directory)

    def do(self, make: Callable[[Author], Draft]) -> None:
        """One change."""
        self.replica.commit(make)

    def save(self, text: str, content: bytes) -> None:
        """Write a file."""
        self.do(lambda author: author.write(path(text), content))


@pytest.fixture
def local() -> Iterator[Local]:
    """An empty filesystem."""
    with temporary_directory() as directory:
        made = Local(directory / "log")
        yield made
        made.replica.close()
