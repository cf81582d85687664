"""Asking a filesystem of this node, whether its daemon runs or not."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from basefs.daemon.api.control import TIMEOUT, call, stream
from basefs.daemon.api.runfile import RunFile
from basefs.daemon.config import Home
from basefs.daemon.keyfiles import default_keys
from basefs.daemon.lock import exclusive
from basefs.errors import AlreadyRunning, BaseFSError, DaemonError, DamagedLog, NotRunning, OtherVersion

#: Seconds that a command waits for a daemon that holds the log but does not answer yet.
START_PATIENCE = 15.0
#: Seconds that one daemon may take where others are to be asked as well.
_LOOK_SECONDS = 10.0


class Client:
    """One filesystem of this node."""

    def __init__(self, home: Home, name: str, notify: Callable[[str], None] = lambda text: None) -> None:
        """`notify` gets a line where an answer takes long.  Raises `NotFound`, `UsageError` for a bad name."""
        self._directory = home.existing(name)
        self._home = home
        self._name = name
        self._notify = notify
        self._socket = home.socket_path(name)

    def ask(self, command: str, arguments: dict[str, Any]) -> Any:
        """The answer of the daemon if it runs, else of the log itself, which is locked meanwhile.

        Raises `AlreadyRunning` if a daemon that starts or stops does not answer, and what the command raises.
        """
        deadline = time.monotonic() + START_PATIENCE
        while True:
            try:
                return self.ask_daemon(command, arguments)
            except NotRunning:
                try:
                    with exclusive(self._directory, self._name):
                        return self._ask_log(command, arguments)
                except AlreadyRunning:
                    # It is just starting or stopping, so its socket is not there.
                    if time.monotonic() > deadline:
                        raise
            time.sleep(0.05)

    def ask_daemon(self, command: str, arguments: dict[str, Any], timeout: float = TIMEOUT) -> Any:
        """The answer of a running daemon within `timeout` seconds.

        Raises `NotRunning`, `DaemonError` if there is no answer, and what the command raises.
        """
        return call(self._socket, command, arguments, timeout, lambda: self.warn_waiting(", which is busy"))

    def follow(self, command: str, arguments: dict[str, Any]) -> Iterator[Any]:
        """The items of a running daemon's stream.  Raises `NotRunning`, `DaemonGone`, and what the command raises."""
        return stream(self._socket, command, arguments)

    def look(self, command: str) -> dict[str, Any]:
        """The answer to a command without arguments, with `name`, `state`, `mountpoint` and `pid`.

        The state is mounted; running, without a mount; stopped; dead, which has not ended cleanly; or, without an
        answer but with an `error`: silent, whose daemon does not answer, damaged, unreadable, other version.
        """
        row: dict[str, Any] = {"name": self._name, "mountpoint": None, "pid": None}
        facts = RunFile(self._home, self._name).read()
        try:
            try:
                row.update(self.ask_daemon(command, {}, _LOOK_SECONDS), state="running")
                if facts is not None:
                    row["pid"] = facts[0]
                if facts is not None and facts[1] is not None:
                    row.update(state="mounted", mountpoint=str(facts[1]))
            except OtherVersion as error:
                row.update(state="other version", error=str(error))
            except NotRunning:
                row.update(self.ask(command, {}), state="stopped" if facts is None else "dead")
        except DaemonError as error:
            row.update(state="silent", error=str(error))
        except DamagedLog as error:
            row.update(state="damaged", error=str(error))
        except BaseFSError as error:
            row.update(state="unreadable", error=str(error))
        return row

    def warn_waiting(self, why: str) -> None:
        """Notify that the daemon takes long.  Raises `DaemonError` where it would take for ever."""
        self.refuse_stopped()
        self._notify(f"waiting for the daemon of {self._name}{why} ...")

    def refuse_stopped(self) -> None:
        """Raise `DaemonError` where the daemon will not answer because a signal has stopped its process."""
        facts = RunFile(self._home, self._name).read()
        if facts is not None and _is_stopped(facts[0]):
            raise DaemonError(
                f"the daemon of {self._name} is stopped by a signal: 'kill -CONT {facts[0]}' lets it go on"
            )

    def _ask_log(self, command: str, arguments: dict[str, Any]) -> Any:
        # Imported here: commands on a running daemon do without the whole of the log and view.
        from basefs.daemon.api.services import LogServices
        from basefs.replica.replica import Replica

        with contextlib.closing(Replica(self._directory, default_keys(self._home))) as replica:
            return LogServices(replica).call(command, arguments)


def _is_stopped(pid: int) -> bool:
    """By a signal or a debugger, see proc(5)."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2][:1] in b"Tt"
    return False
