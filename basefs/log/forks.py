"""Forks: the paths on which two entries build on the same thing, read from the file of a log.

Only there can a revision have lost to another one.  One look at the whole table, over a connection of its own, so that
no other user of the log waits for it.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from basefs.errors import StoreError
from basefs.log.check import open_log
from basefs.log.placement import EntryKind

#: Children of one path compete with each other, successors with those of the same parent; grants with none.
_QUERY = f"""
    SELECT DISTINCT path FROM (
        SELECT path FROM entries WHERE kind != {EntryKind.KEY.value}
        GROUP BY path, CASE kind WHEN {EntryKind.CHILD.value} THEN x'' ELSE parent END HAVING count(*) > 1
    )
"""


def forked_paths(log: Path) -> list[int]:
    """The numbers of the paths with a fork.  Raises `StoreError` if the file cannot be read."""
    with contextlib.closing(open_log(log)) as source:
        try:
            return [int(path_id) for (path_id,) in source.execute(_QUERY)]
        except sqlite3.DatabaseError as error:
            raise StoreError(f"cannot read the log {log}: {error}") from None
