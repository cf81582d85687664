"""Repair: replace a damaged log by its intact part; peers send the rest (docs/formats.md, section 8).

The new log is built beside the old one and replaces it atomically, so a crash leaves one of the two.  The old one stays
under another name.  Intact entries whose parent or grant is lost wait in the new log (`detached`) until that returns.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

from basefs.durable import replace_file
from basefs.errors import DamagedLog, StoreError
from basefs.log.check import examine
from basefs.log.rebuild import Damage
from basefs.log.store import Store

_SIDE_FILES = ("-wal", "-shm")


def repair(path: Path, progress: Callable[[int], None] = lambda rows: None) -> tuple[list[Damage], Path | None]:
    """Repair the log at `path`, which must not be in use.

    Returns the findings and the new path of the damaged log; no findings and `None` if it was intact.  Needs space for
    a second log.  Raises `DamagedLog` if nothing can be saved, `NoSpace`, `StoreError`.
    """
    fresh = path.with_name(path.name + ".repair")
    _remove(fresh)
    try:
        store = Store(fresh, create=True)
        try:
            findings = examine(path, store, keep_blocks=True, progress=progress)
            if not findings:
                return [], None
            if store.database.meta("identity") is None:
                raise DamagedLog(
                    f"the root entry in {path} is lost, and all other entries build on it: fetch the filesystem under "
                    "another name with 'basefs get'; the log is left as it is"
                )
        finally:
            store.close()
        aside = _free_name(path)
        _replace(path, fresh, aside)
        return findings, aside
    finally:
        _remove(fresh)


def _replace(path: Path, fresh: Path, aside: Path) -> None:
    try:
        with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(path)) as old:
            # The write-ahead log must not meet another database, and its contents belong to the old one.
            old.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        os.link(path, aside)
        for suffix in _SIDE_FILES:
            with contextlib.suppress(FileNotFoundError):
                os.rename(f"{path}{suffix}", f"{aside}{suffix}")
        replace_file(fresh, path)
    except OSError as error:
        raise StoreError(f"cannot replace {path}: {error.strerror}") from None


def _free_name(path: Path) -> Path:
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    return aside


def _remove(path: Path) -> None:
    for suffix in ("", *_SIDE_FILES):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
