"""The control socket: how commands talk to a running daemon (docs/commands.md).

A UNIX socket (0600) that carries one JSON object a line each way: `{"command": ..., "arguments": {...}}` and
`{"result": ...}` or `{"error": CLASS, "message": ...}`.  A command that answers with a stream sends any number of lines
`{"item": ...}` before that, no faster than they are read.  Bytes travel as text with surrogate escapes.

All of them say the version of BaseFS (`"version"`).  A daemon outlives an upgrade, and what another version says may
mean something else.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from basefs import __version__, errors
from basefs.errors import DaemonError, DaemonGone, NotRunning, OtherVersion
from basefs.fs.sockets import connect

#: Longest line either way, bytes.  A listing of 100 000 paths is about 20 MB; more would be a mistake.
MAX_LINE = 64 * 1024 * 1024
#: Seconds that a command waits for its answer.
TIMEOUT = 120.0

#: Seconds without an answer after which `waiting` is called.
WORD = 2.0

#: Commands that a daemon of any version is asked: it must be possible to end it.
ANY_VERSION = frozenset({"stop"})


def encode_line(message: dict[str, Any]) -> bytes:
    """A line of the protocol, with the version of BaseFS."""
    return json.dumps({"version": __version__, **message}).encode() + b"\n"


def call(
    path: Path,
    command: str,
    arguments: dict[str, Any],
    timeout: float = TIMEOUT,
    waiting: Callable[[], None] | None = None,
) -> Any:
    """Send one command to the daemon behind a socket and return its result, within `timeout` seconds.

    `waiting` is called where the answer takes longer than `WORD` seconds.  Raises `NotRunning` if no daemon listens,
    `DaemonError` if there is no answer, and what `waiting` or the daemon raised.
    """
    with _connection(path) as connection:
        connection.settimeout(timeout)
        try:
            _send(connection, command, arguments)
            if waiting is not None and not _answers(connection, WORD):
                waiting()
            with connection.makefile("rb") as stream:
                answer = json.loads(stream.readline(MAX_LINE))
        except (OSError, ValueError) as error:
            raise DaemonError(f"the daemon of {path.stem} did not answer: {error}; see its log") from None
    return _result(path, command, answer)


def _send(connection: socket.socket, command: str, arguments: dict[str, Any]) -> None:
    # A daemon that ends closes its socket.  That is an error of the connection, and no signal that ends a command.
    connection.sendall(encode_line({"command": command, "arguments": arguments}), socket.MSG_NOSIGNAL)


def _answers(connection: socket.socket, seconds: float) -> bool:
    """Whether there is something to read within so many seconds."""
    # Not select(2): a program that uses this may have more files open than that can tell apart.
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(1000 * seconds))


def stream(path: Path, command: str, arguments: dict[str, Any]) -> Iterator[Any]:
    """Send one command to the daemon behind a socket and yield what it sends, until it ends the stream.

    Raises `NotRunning` if no daemon listens, `DaemonGone` if the daemon ends first, and what the daemon raised.
    """
    with _connection(path) as connection, contextlib.suppress(OSError, ValueError):
        _send(connection, command, arguments)
        with connection.makefile("rb") as lines:
            while True:
                answer = json.loads(lines.readline(MAX_LINE))
                if "item" not in answer:
                    break
                _check_version(path, command, answer)
                yield answer["item"]
        _result(path, command, answer)
        return
    raise DaemonGone(f"the daemon of {path.stem} has ended")


def _connection(path: Path) -> socket.socket:
    try:
        return connect(path)
    except OSError:
        raise NotRunning(f"{path.stem} is not running: start it with 'basefs mount' or 'basefs run'") from None


def _result(path: Path, command: str, answer: dict[str, Any]) -> Any:
    _check_version(path, command, answer)
    if "error" in answer:
        raise getattr(errors, answer["error"], DaemonError)(answer["message"])
    return answer["result"]


def _check_version(path: Path, command: str, answer: dict[str, Any]) -> None:
    """Raise `OtherVersion` for what another version says: it may mean something else, or lack something."""
    version = answer.get("version", "an older version")
    if version != __version__ and command not in ANY_VERSION:
        raise OtherVersion(
            f"the daemon of {path.stem} runs BaseFS {version} and this command is {__version__}: "
            f"restart it, by 'basefs unmount {path.stem}' and mounting it again"
        )
