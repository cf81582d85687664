"""What state a filesystem is in on this node, and what it tells of itself."""

from __future__ import annotations

from typing import Any

from basefs.daemon.api.runfile import RunFile
from basefs.daemon.config import Home
from basefs.errors import BaseFSError, DaemonError, DamagedLog, NotRunning, OtherVersion
from basefs.management.session import ask, ask_within

#: Seconds that one daemon may take where others are to be asked as well.
PATIENCE = 10.0


def look(home: Home, name: str, command: str) -> dict[str, Any]:
    """The answer to a command without arguments, with `name`, `state`, `mountpoint` and `pid`.

    The state is mounted; running, without a mount; stopped; dead, which has not ended cleanly; or, without an answer
    but with an `error`: silent, whose daemon does not answer, damaged, unreadable, other version.
    """
    row: dict[str, Any] = {"name": name, "mountpoint": None, "pid": None}
    facts = RunFile(home, name).read()
    try:
        try:
            row.update(ask_within(PATIENCE, home, name, command), state="running")
            if facts is not None:
                row["pid"] = facts[0]
            if facts is not None and facts[1] is not None:
                row.update(state="mounted", mountpoint=str(facts[1]))
        except OtherVersion as error:
            row.update(state="other version", error=str(error))
        except NotRunning:
            row.update(ask(home, name, command), state="stopped" if facts is None else "dead")
    except DaemonError as error:
        row.update(state="silent", error=str(error))
    except DamagedLog as error:
        row.update(state="damaged", error=str(error))
    except BaseFSError as error:
        row.update(state="unreadable", error=str(error))
    return row
