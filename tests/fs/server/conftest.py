"""Mounts for the tests of the mount server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fs.server.mounted import Daemon, Mounted, mounted
from tests.support.mounts import require_fuse, temporary_directory


@pytest.fixture(scope="module")
def shared() -> Iterator[Mounted]:
    """A mount that all tests of a module share, with owners, reachable for other users."""
    require_fuse()
    with temporary_directory() as base:
        base.chmod(0o755)
        with mounted(base, "--keep-owners") as made:
            made.point.chmod(0o755)
            yield made


@pytest.fixture
def here(shared: Mounted, request: pytest.FixtureRequest) -> Path:
    """An empty directory in the shared mount."""
    directory = shared.point / request.node.name[:200].replace("/", "_")
    directory.mkdir()
    return directory


@pytest.fixture
def mount(scratch: Path) -> Iterator[Mounted]:
    """A mount of its own, with owners."""
    require_fuse()
    with mounted(scratch, "--keep-owners") as made:
        made.point.chmod(0o755)
        yield made


@pytest.fixture
def daemon(mount: Mounted) -> Daemon:
    """The daemon of `mount`."""
    return mount.daemon()
