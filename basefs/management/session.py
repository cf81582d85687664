"""One way to ask a filesystem, whether its daemon runs or not."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import Any

import click

from basefs.daemon.api.control import TIMEOUT, call
from basefs.daemon.api.runfile import RunFile
from basefs.daemon.config import Home
from basefs.daemon.lock import exclusive
from basefs.errors import AlreadyRunning, DaemonError, NotRunning
from basefs.log.keys import SigningKey

#: Seconds that a command waits for a daemon that holds the log but does not answer yet.
START_PATIENCE = 15.0
_BUSY = ", which is busy"


def socket_path(home: Home, name: str) -> Path:
    """The control socket of a filesystem's daemon."""
    return home.run_directory() / f"{name}.sock"


def ask_daemon(home: Home, name: str, command: str, /, **arguments: Any) -> Any:
    """The answer of a running daemon.

    Raises `NotFound`, `NotRunning`, `DaemonError` if there is no answer, and what the command raises.
    """
    return ask_within(TIMEOUT, home, name, command, **arguments)


def ask_within(timeout: float, home: Home, name: str, command: str, /, **arguments: Any) -> Any:
    """See `ask_daemon`; `timeout` in seconds."""
    home.existing(name)
    return call(socket_path(home, name), command, arguments, timeout, lambda: tell_waiting(home, name, _BUSY))


def tell_waiting(home: Home, name: str, why: str) -> None:
    """Say on a terminal what takes so long.  Raises `DaemonError` where it would take for ever."""
    refuse_stopped(home, name)
    if sys.stderr.isatty():
        click.echo(f"waiting for the daemon of {name}{why} ...", err=True)


def refuse_stopped(home: Home, name: str) -> None:
    """Raise `DaemonError` where the daemon will not answer because a signal has stopped its process."""
    facts = RunFile(home, name).read()
    if facts is not None and _is_stopped(facts[0]):
        raise DaemonError(f"the daemon of {name} is stopped by a signal: 'kill -CONT {facts[0]}' lets it go on")


def _is_stopped(pid: int) -> bool:
    """By a signal or a debugger, see proc(5)."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2][:1] in b"Tt"
    return False


def ask(home: Home, name: str, command: str, /, **arguments: Any) -> Any:
    """The answer of the daemon if it runs, else of the log itself, which is locked meanwhile.

    Raises `NotFound`, `AlreadyRunning` if a daemon that starts or stops does not answer, and what the command raises.
    """
    directory = home.existing(name)
    deadline = time.monotonic() + START_PATIENCE
    while True:
        try:
            return call(socket_path(home, name), command, arguments, waiting=lambda: tell_waiting(home, name, _BUSY))
        except NotRunning:
            try:
                with exclusive(directory, name):
                    return _ask_log(home, directory, command, arguments)
            except AlreadyRunning:
                # It is just starting or stopping, so its socket is not there.
                if time.monotonic() > deadline:
                    raise
        time.sleep(0.05)


def _ask_log(home: Home, directory: Path, command: str, arguments: dict[str, Any]) -> Any:
    # Imported here: commands on a running daemon do without the whole of the log and view.
    from basefs.daemon.api.services import LogServices
    from basefs.replica.replica import Replica

    replica = Replica(directory, default_keys(home))
    try:
        return LogServices(replica).call(command, arguments)
    finally:
        replica.close()


def default_keys(home: Home) -> list[SigningKey]:
    """The default key, if there is one."""
    return [SigningKey.load(home.default_key)] if home.default_key.exists() else []
