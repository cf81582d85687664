"""Where a filesystem comes into being: beside its place, so that what is there under its name is whole."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from basefs.durable import sync_directory


@contextlib.contextmanager
def new_place(directory: Path) -> Iterator[Path]:
    """A fresh directory that takes the place of `directory`, and of what is there, unless the body raises.

    Raises OSError.
    """
    directory.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=directory.parent))
    try:
        yield fresh
        if directory.exists():
            shutil.rmtree(directory)
        fresh.rename(directory)
        sync_directory(directory.parent)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
