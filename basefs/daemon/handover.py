"""What other nodes had when this one stopped, or fetched its log: recorded beside it, for `unmount` and `remove`."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path

from basefs.durable import write_file
from basefs.sync.net.peers import Lag

log = logging.getLogger(__name__)

_FILE = "handover.json"


@dataclass(frozen=True, slots=True)
class HandOver:
    """The record of a hand-over: who has everything in a log.

    Attributes:
        root: the root hash of the log, in hex.
        holder: a member that has confirmed that it has all of it, contents included; '' if none has.
        lacking: what the others lack, a text each, if none has.
    """

    root: str
    holder: str
    lacking: tuple[str, ...] = ()

    def save(self, directory: Path) -> None:
        """Record it beside the log in a directory.  A full disk keeps no record."""
        try:
            write_file(directory / _FILE, json.dumps(asdict(self)).encode())
        except OSError as error:
            log.warning("cannot record what other nodes have: %s", error)

    @classmethod
    def load(cls, directory: Path) -> HandOver | None:
        """What was recorded last; `None` if nothing was, or since a daemon was killed."""
        try:
            found = json.loads((directory / _FILE).read_bytes())
            return cls(str(found["root"]), str(found["holder"]), tuple(map(str, found["lacking"])))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @staticmethod
    def forget(directory: Path) -> None:
        """The log is used from now on.  Raises OSError."""
        (directory / _FILE).unlink(missing_ok=True)

    @classmethod
    def warning(cls, directory: Path, name: str, root: str | None = None) -> str:
        """What is to be said of a filesystem of which others are known, '' if one of them has all of it.

        `root`: the root hash of its log now, in hex; `None`: it has just stopped.
        """
        text = f"no other machine has confirmed that it has all of {name}"
        found = cls.load(directory)
        if found is None or root not in (None, found.root):
            return f"{text} since it was used last"
        # Where no other one was seen since the start, nothing is known of what they lack.
        return "" if found.holder else ": ".join(filter(None, (text, "; ".join(found.lacking))))


def lack_of(name: str, lag: Lag | None, *, answers: bool) -> str:
    """Why a member is not known to have everything, as far as it has told."""
    if lag is None or not answers:
        return f"{name} does not answer"
    lacks = []
    if lag.behind:
        lacks.append("1 entry" if lag.behind == 1 else f"{lag.behind} entries")
    if lag.waiting:
        lacks.append(("1 content" if lag.waiting == 1 else f"{lag.waiting} contents") + ", for which it has no room")
    return f"{name} lacks {' and '.join(lacks)}" if lacks else f"{name} has another log"
