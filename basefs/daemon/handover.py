"""What other nodes had when this one stopped: recorded beside the log, for `unmount` and `remove`."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from basefs.durable import write_file
from basefs.errors import counted

if TYPE_CHECKING:
    from basefs.sync.net.peers import Lag

log = logging.getLogger(__name__)

_FILE = "handover.json"


@dataclass(frozen=True, slots=True)
class HandOver:
    """Who has a log.

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

    @classmethod
    def take(cls, directory: Path) -> HandOver | None:
        """What was recorded last, which is forgotten: the log is used from now on.  Raises OSError."""
        found = cls.load(directory)
        (directory / _FILE).unlink(missing_ok=True)
        return found

    @staticmethod
    def holder_before(before: HandOver | None, root: str) -> str:
        """Who had all of the log when it was used before, '' where nobody had or where it has changed since."""
        return "" if before is None or before.root != root else before.holder

    @classmethod
    def warning(cls, directory: Path, name: str, root: str | None = None) -> str:
        """What is to be said of a filesystem that other machines have had, '' if one of them has all of it.

        `root`: the root hash of its log now, in hex; `None`: it has just stopped.
        """
        text = f"no other machine has confirmed that it has all of {name}"
        found = cls.load(directory)
        if found is None or root not in (None, found.root):
            return f"{text} since it was used last"
        if found.holder:
            return ""
        return f"{text}: {'; '.join(found.lacking)}" if found.lacking else text


def lack_of(name: str, lag: Lag | None, *, answers: bool, refuses: bool = False, left: bool = False) -> str:
    """Why a member is not known to have everything, as far as it has told.

    `answers`: whether it does; `refuses`: it has turned this node away; `left`: it has stopped, as it should.
    """
    lacks = []
    if lag is not None and lag.behind:
        lacks.append(counted(lag.behind, "entry"))
    if lag is not None and lag.missing:
        room = ", for which it has no room" if lag.waiting else ""
        lacks.append(f"{counted(lag.missing, 'content')}{room}")
    what = " and ".join(lacks)
    if lag is None or not answers or refuses:
        how = "has left" if left else "turned this node away" if refuses else "does not answer"
        # What has come from the member itself since is among these.
        return f"{name} {how}" + (f", and has not confirmed {what}" if lacks else "")
    return f"{name} lacks {what}" if lacks else f"{name} has another log"
