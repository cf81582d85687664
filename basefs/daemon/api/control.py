"""The control socket: how commands talk to a running daemon (docs/commands.md).

A UNIX socket (0600) that carries one JSON object a line each way: `{"command": ..., "arguments": {...}}` and
`{"result": ...}` or `{"error": CLASS, "message": ...}`.  A command that answers with a stream sends any number of lines
`{"item": ...}` before that, no faster than they are read.  Bytes travel as text with surrogate escapes.

All of them say the version of BaseFS (`"version"`).  A daemon outlives an upgrade, and what another version says may
mean something else.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import select
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from basefs import __version__, errors
from basefs.errors import BaseFSError, DaemonError, DaemonGone, NotRunning, OtherVersion

log = logging.getLogger(__name__)

#: Longest line either way, bytes.  A listing of 100 000 paths is about 20 MB; more would be a mistake.
MAX_LINE = 64 * 1024 * 1024
#: Seconds that a command waits for its answer.
TIMEOUT = 120.0

#: Seconds without an answer after which `waiting` is called.
WORD = 2.0

#: Commands that a daemon of any version is asked: it must be possible to end it.
ANY_VERSION = frozenset({"stop"})

#: What answers a command: a JSON value, or an asynchronous generator of them for a stream.
Handler = Callable[[str, dict[str, Any]], Awaitable[Any]]


class ControlServer:
    """Answers commands on a UNIX socket."""

    def __init__(self, path: Path, handle: Handler) -> None:
        self._path = path
        self._handle = handle
        self._server: asyncio.Server | None = None
        self._streams: set[asyncio.Task[Any]] = set()

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
        """Stop listening, and end the streams."""
        if self._server is not None:
            self._server.close()
        streams = list(self._streams)
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(ConnectionError, asyncio.LimitOverrunError, ValueError):
                line = await reader.readline()
                if line:
                    answer = await self._answer(line, reader, writer)
                    writer.write(_encode(answer))
                    await writer.drain()
        finally:
            writer.close()

    async def _answer(self, line: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> dict[str, Any]:
        try:
            request = json.loads(line)
            result = await self._handle(str(request["command"]), dict(request["arguments"]))
            if isinstance(result, AsyncIterator):
                task = asyncio.ensure_future(_stream(result, reader, writer))
                self._streams.add(task)
                task.add_done_callback(self._streams.discard)
                await asyncio.wait([task])
                if task.cancelled():
                    raise ConnectionAbortedError("the server ends")
                result = task.result()
            return {"result": result}
        except BaseFSError as error:
            return {"error": type(error).__name__, "message": str(error)}
        except ConnectionError:
            raise
        except Exception:
            log.exception("command failed unexpectedly")
            return {"error": "DaemonError", "message": "a bug in the daemon: its log has the details"}


async def _stream(items: AsyncIterator[Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send items until there are no more, or the reader hangs up."""
    # The client sends nothing more, so its end of file is a hang-up.
    gone = asyncio.ensure_future(reader.read())
    step: asyncio.Future[list[Any]] | None = None
    try:
        while True:
            step = asyncio.ensure_future(_next(items))
            await asyncio.wait([step, gone], return_when=asyncio.FIRST_COMPLETED)
            found = step.result() if step.done() else []
            if not found:
                return
            writer.write(_encode({"item": found[0]}))
            await writer.drain()
    finally:
        waiting = [future for future in (gone, step) if future is not None]
        for future in waiting:
            future.cancel()
        # A generator that still runs cannot be closed.
        await asyncio.gather(*waiting, return_exceptions=True)
        if isinstance(items, AsyncGenerator):
            await items.aclose()


async def _next(items: AsyncIterator[Any]) -> list[Any]:
    """The next item, in a list that is empty where there is none."""
    try:
        return [await items.__anext__()]
    except StopAsyncIteration:
        return []


def _encode(message: dict[str, Any]) -> bytes:
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
    connection.sendall(_encode({"command": command, "arguments": arguments}), socket.MSG_NOSIGNAL)


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
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(os.fspath(path))
    except OSError:
        connection.close()
        raise NotRunning(f"{path.stem} is not running: start it with 'basefs mount' or 'basefs run'") from None
    return connection


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
