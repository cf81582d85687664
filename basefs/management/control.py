"""The control socket: how commands talk to a running daemon (design, section 8).

A UNIX socket (0600) that carries one JSON object a line each way: `{"command": ..., "arguments": {...}}` and
`{"result": ...}` or `{"error": CLASS, "message": ...}`.  Bytes travel as text with surrogate escapes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from basefs import errors
from basefs.errors import BaseFSError, DaemonError, NotRunning

log = logging.getLogger(__name__)

#: Longest line either way, bytes.  A listing of 100 000 paths is about 20 MB; more would be a mistake.
MAX_LINE = 64 * 1024 * 1024
#: Seconds that a command waits for its answer.
TIMEOUT = 120.0

Handler = Callable[[str, dict[str, Any]], Awaitable[Any]]


class ControlServer:
    """Answers commands on a UNIX socket."""

    def __init__(self, path: Path, handle: Handler) -> None:
        self._path = path
        self._handle = handle
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen.  A socket left by a daemon that was killed is replaced.  Raises `DaemonError`."""
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
        # The directory is 0700, so nobody can connect before the mode is set.
        try:
            self._server = await asyncio.start_unix_server(self._serve, self._path, limit=MAX_LINE)
        except OSError as error:
            raise DaemonError(f"cannot open the control socket {self._path}: {error.strerror or error}") from None
        self._path.chmod(0o600)

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.LimitOverrunError, ValueError):
            line = await reader.readline()
            if line:
                writer.write(json.dumps(await self._answer(line)).encode() + b"\n")
                await writer.drain()
        writer.close()

    async def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            return {"result": await self._handle(str(request["command"]), dict(request["arguments"]))}
        except BaseFSError as error:
            return {"error": type(error).__name__, "message": str(error)}
        except Exception:
            log.exception("a bug in a command")
            return {"error": "DaemonError", "message": "a bug in the daemon: its log has the details"}


def call(path: Path, command: str, arguments: dict[str, Any]) -> Any:
    """Send one command to the daemon behind a socket and return its result.

    Raises `NotRunning` if nobody listens, and what the daemon raised.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(TIMEOUT)
        try:
            connection.connect(os.fspath(path))
        except OSError:
            raise NotRunning(f"{path.stem} is not running: start it with 'basefs mount' or 'basefs run'") from None
        try:
            connection.sendall(json.dumps({"command": command, "arguments": arguments}).encode() + b"\n")
            with connection.makefile("rb") as stream:
                line = stream.readline(MAX_LINE)
            answer = json.loads(line)
        except (OSError, ValueError) as error:
            raise DaemonError(f"the daemon of {path.stem} did not answer: {error}; see its log") from None
    if "error" in answer:
        raise getattr(errors, answer["error"], DaemonError)(answer["message"])
    return answer["result"]
