"""What tests with real mounts need: /dev/fuse, a directory that disappears, and waiting."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.patience import DEADLINE


def require_fuse() -> None:
    """Skip the test where nothing can be mounted; fail it in CI, where everything must run."""
    reason = None
    if not Path("/dev/fuse").exists():
        reason = "there is no /dev/fuse"
    elif os.geteuid() != 0:
        reason = "only root can mount for all users"
    if reason is not None and os.environ.get("CI"):
        pytest.fail(f"{reason}, and in CI no test may be skipped")
    if reason is not None:
        pytest.skip(reason)


@contextlib.contextmanager
def temporary_directory() -> Iterator[Path]:
    """A directory that disappears, with a path short enough for sockets, in memory if that can be.

    On a disk most of the time of these tests would go into the syncing of new databases.
    """
    memory = Path("/dev/shm")
    base = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="basefs-", dir=base) as text:
        yield Path(text)


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Return as soon as the condition holds; fail when it does not come true."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"after {DEADLINE:.0f} s still waiting for: {what}"
        time.sleep(0.01)
