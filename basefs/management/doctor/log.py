"""Whether a log can be used, by a look that takes no longer than reading its file."""

from __future__ import annotations

from collections.abc import Container

from basefs.daemon.api.inspection import LogFile
from basefs.management.doctor.finding import Diagnosis, note, problem


def examine(name: str, log: LogFile) -> list[Diagnosis]:
    """Whether SQLite can read the file, and whether it has our format; rows and hashes are `basefs check`'s."""
    other = log.other_format()
    if other is not None:
        what = f"the log of {name} has format {other[0]}, this version reads {other[1]}"
        return [problem("log", what, "upgrade BaseFS" if other[0] > other[1] else "basefs get NAME ADDRESS")]
    damage = log.damage()
    if damage is None:
        return []
    return [
        problem(
            "log", f"the log of {name} {damage}", f"basefs check --repair {name}, or fetch it again with 'basefs get'"
        )
    ]


def examine_times(name: str, log: LogFile, own: Container[str]) -> list[Diagnosis]:
    """Whether entries came before the time that they carry; those of this node's own keys say nothing of clocks.

    `own`: fingerprints in hex.
    """
    found = []
    for fingerprint, ahead in log.entries_ahead().items():
        if fingerprint not in own:
            what = (
                f"entries of the key {fingerprint[:12]} in {name} carry times up to {ahead:.0f} s after their arrival"
            )
            remedy = "compare 'date' here with 'date' there; files may also have such times"
            found.append(note("clock", what, remedy))
    return found
