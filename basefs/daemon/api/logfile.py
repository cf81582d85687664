"""The log of a filesystem as a file, without its daemon: whether it is whole, and its repair."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from basefs.daemon.config import Home
from basefs.daemon.lock import exclusive
from basefs.errors import BaseFSError
from basefs.log.check import check, count_rows, open_log
from basefs.log.entries import Entry
from basefs.log.rebuild import Damage
from basefs.log.repair import repair
from basefs.log.schema import FORMAT, LOG_FILE


@dataclass(frozen=True, slots=True)
class LogCheck:
    """What a check of a log found, and where the damaged log is since a repair."""

    findings: list[Damage]
    aside: Path | None = None


class LogFile:
    """The log of one filesystem, without its daemon."""

    def __init__(self, home: Home, name: str) -> None:
        """Raises `NotFound`."""
        self._name = name
        self._path = home.existing(name) / LOG_FILE

    def count_rows(self) -> int | None:
        """How many rows a check looks at, `None` where SQLite cannot tell."""
        with closing(open_log(self._path)) as source:
            return count_rows(source)

    def check(self, progress: Callable[[int], None]) -> LogCheck:
        """Verify every row.  `progress` is called with how many rows were done since the last call."""
        return LogCheck(check(self._path, progress))

    def repair(self, progress: Callable[[int], None]) -> LogCheck:
        """Drop the damaged rows.  Raises `AlreadyRunning`, `DamagedLog` if nothing can be saved, `StoreError`."""
        with exclusive(self._path.parent, self._name):
            return LogCheck(*repair(self._path, progress))

    def damage(self) -> str | None:
        """Why this file cannot be used, by a look that takes no longer than reading it; `None` if it can.

        Rows and hashes are `check`'s.  A log of another format is none of this, see `format`.
        """
        try:
            with closing(open_log(self._path)) as source:
                told = [str(row[0], "utf-8", "replace") for row in source.execute("PRAGMA quick_check(3)")]
        except (BaseFSError, sqlite3.DatabaseError) as error:
            return f"cannot be read: {error}"
        return None if told == ["ok"] else f"is damaged: {told[0].splitlines()[-1]}"

    def other_format(self) -> tuple[int, int] | None:
        """The format of this log and the one that is read here, where they differ and the file can be read."""
        with (
            contextlib.suppress(BaseFSError, sqlite3.DatabaseError),
            closing(open_log(self._path)) as source,
        ):
            (version,) = source.execute("PRAGMA user_version").fetchone()
            if version != FORMAT:
                return version, FORMAT
        return None

    def entries_ahead(self) -> dict[str, float]:
        """By how many seconds, at the most, the times in a key's newest entries lie after their arrival here.

        By fingerprint in hex; only keys with more than a minute.  Raises `StoreError`; damaged rows are left out.
        """
        found: dict[str, float] = {}
        with closing(open_log(self._path)) as source:
            rows = source.execute(
                "SELECT data, (SELECT time FROM arrivals WHERE arrivals.seq >= entries.seq ORDER BY seq LIMIT 1) "
                "FROM entries ORDER BY seq DESC LIMIT ?",
                (1000,),
            )
            for data, arrived in rows:
                with contextlib.suppress(BaseFSError, TypeError):
                    entry = Entry.decode(data)
                    ahead = entry.made / 10**9 - arrived
                    # Clocks that nobody sets drift by a second a day.
                    if ahead > 60:
                        key = entry.fingerprint.hex()
                        found[key] = max(ahead, found.get(key, 0.0))
        return found
