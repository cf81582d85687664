"""Whether a log can be used, by a look that takes no longer than reading its file."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from basefs.errors import BaseFSError
from basefs.log.check import open_log
from basefs.log.entries import Entry
from basefs.log.hashes import Fingerprint
from basefs.log.schema import FORMAT
from basefs.management.doctor.finding import Finding, note, problem

#: Entries whose times are looked at, the newest ones.
_RECENT = 1000
#: Seconds by which a time may be ahead: clocks that nobody sets drift by a second a day.
_AHEAD = 60


def examine(name: str, path: Path) -> list[Finding]:
    """Whether SQLite can read the file, and whether it has our format; rows and hashes are `basefs check`'s."""
    repair = f"basefs check --repair {name}, or fetch it again with 'basefs get'"
    try:
        with contextlib.closing(open_log(path)) as source:
            (version,) = source.execute("PRAGMA user_version").fetchone()
            if version != FORMAT:
                what = f"the log of {name} has format {version}, this version reads {FORMAT}"
                return [problem("log", what, "upgrade BaseFS" if version > FORMAT else "basefs get NAME ADDRESS")]
            told = [str(row[0], "utf-8", "replace") for row in source.execute("PRAGMA quick_check(3)")]
    except (BaseFSError, sqlite3.DatabaseError) as error:
        return [problem("log", f"the log of {name} cannot be read: {error}", repair)]
    if told != ["ok"]:
        return [problem("log", f"the log of {name} is damaged: {told[0].splitlines()[-1]}", repair)]
    return []


def entries_ahead(path: Path) -> dict[Fingerprint, float]:
    """By how many seconds, at the most, the times in a key's newest entries lie after their arrival here.

    Only keys with more than a minute.  Raises `StoreError`; damaged rows are left out.
    """
    found: dict[Fingerprint, float] = {}
    with contextlib.closing(open_log(path)) as source:
        rows = source.execute(
            "SELECT data, (SELECT time FROM arrivals WHERE arrivals.seq >= entries.seq ORDER BY seq LIMIT 1) "
            "FROM entries ORDER BY seq DESC LIMIT ?",
            (_RECENT,),
        )
        for data, arrived in rows:
            with contextlib.suppress(BaseFSError, TypeError):
                entry = Entry.decode(data)
                ahead = entry.timestamp - arrived
                if ahead > _AHEAD:
                    found[entry.fingerprint] = max(ahead, found.get(entry.fingerprint, 0.0))
    return found


def examine_times(name: str, path: Path, own: frozenset[Fingerprint]) -> list[Finding]:
    """Whether entries came before the time that they carry; those of this node's own keys say nothing of clocks."""
    found = []
    for fingerprint, ahead in entries_ahead(path).items():
        if fingerprint not in own:
            key = fingerprint.hex()[:12]
            what = f"entries of the key {key} in {name} carry times up to {ahead:.0f} s after their arrival"
            remedy = "compare 'date' here with 'date' there; files may also have such times"
            found.append(note("clock", what, remedy))
    return found
