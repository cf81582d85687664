"""The one way to replace a file: a crash leaves the old content or the new one, never a mixture and never nothing."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


def write_file(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Replace `path` with `data`, atomically and durably.  Raises OSError."""
    with replacement(path, mode=mode) as file:
        file.write(data)


@contextlib.contextmanager
def replacement(path: Path, *, mode: int = 0o600) -> Iterator[BinaryIO]:
    """A file that takes the place of `path`, atomically and durably, unless the body raises.  Raises OSError."""
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        # The caller does not know the temporary name.
        error.filename = os.fspath(path)
        raise
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fchmod(descriptor, mode)
            # Without this the rename may reach the disk before the data: an empty file after a power cut.
            os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException as error:
        if isinstance(error, OSError) and error.filename is None:
            # The system does not name the file of a failed write.
            error.filename = os.fspath(path)
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    sync_directory(path.parent)


def replace_file(fresh: Path, path: Path) -> None:
    """Put a file that was written under another name in the same directory in the place of `path`, durably.

    Raises OSError.
    """
    # Without this the rename may reach the disk before the data: an empty file after a power cut.
    sync_file(fresh)
    os.replace(fresh, path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable.  Raises OSError."""
    _sync(path, os.O_DIRECTORY)


def sync_file(path: Path) -> None:
    """Make the bytes of a file durable, whoever has written them.  Raises OSError."""
    _sync(path, 0)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, os.O_RDONLY | flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
