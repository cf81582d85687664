"""What the archive of a path must hold, so that whoever has nothing else can verify it and see the same tree there.

By path, since an entry's parent is on its own path or the one above (docs/formats.md, section 3):
- all entries at the path and below it;
- the entries of each directory above it, but not of what else these hold: their mkdir entries, which the path hangs on,
  and their grants and revokes, which say whose signatures count;
- the same for the other names of hard links, since a file's content may be written under any of them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

from basefs.errors import NotFound
from basefs.log.placement import ROOT_PATH_ID
from basefs.path import display


class Numbers:
    """A set of row numbers from 0 to `most`, one bit for each: 16 MB for the rows of a log of 4 TB."""

    def __init__(self, most: int) -> None:
        self._bits = bytearray((most >> 3) + 1)

    def add(self, number: int) -> bool:
        """Put a number in; returns whether it is new."""
        byte, bit = number >> 3, 1 << (number & 7)
        is_new = not self._bits[byte] & bit
        self._bits[byte] |= bit
        return is_new

    def __contains__(self, number: int) -> bool:
        return bool(self._bits[number >> 3] & (1 << (number & 7)))


def select_paths(source: sqlite3.Connection, top: Sequence[bytes]) -> Numbers:
    """The ids of the paths whose entries belong to the archive of a path.  Raises `NotFound` where nothing ever was."""
    (most,) = source.execute("SELECT max(id) FROM paths").fetchone()
    chosen = Numbers(most)
    path_id = _find(source, top)
    _add_with_above(source, chosen, path_id)
    for below in _below(source, path_id):
        chosen.add(below)
    while _follow_links(source, chosen):
        pass
    return chosen


def _find(source: sqlite3.Connection, path: Sequence[bytes]) -> int:
    path_id = ROOT_PATH_ID
    for name in path:
        row = source.execute("SELECT id FROM paths WHERE parent = ? AND name = ?", (path_id, name)).fetchone()
        if row is None:
            raise NotFound(f"the log has nothing at {display(path)}")
        path_id = row[0]
    return path_id


def _add_with_above(source: sqlite3.Connection, chosen: Numbers, path: int) -> bool:
    """Choose a path and those above it; returns whether the path itself is new."""
    is_new = chosen.add(path)
    while path != ROOT_PATH_ID:
        (path,) = source.execute("SELECT parent FROM paths WHERE id = ?", (path,)).fetchone()
        chosen.add(path)
    return is_new


def _below(source: sqlite3.Connection, path: int) -> Iterator[int]:
    query = (
        "WITH RECURSIVE below (id) AS (SELECT id FROM paths WHERE parent = ? "
        "UNION ALL SELECT p.id FROM below b JOIN paths p ON p.parent = b.id) SELECT id FROM below"
    )
    return (id for (id,) in source.execute(query, (path,)))


def _follow_links(source: sqlite3.Connection, chosen: Numbers) -> bool:
    """Choose the other ends of the links of which one end is chosen; returns whether there was any."""
    grown = False
    query = "SELECT e.path, l.path FROM links l JOIN entries e ON e.hash = l.entry WHERE l.path NOT NULL"
    for ends in source.execute(query):
        if (ends[0] in chosen) != (ends[1] in chosen):
            for end in ends:
                grown |= _add_with_above(source, chosen, end)
    return grown
