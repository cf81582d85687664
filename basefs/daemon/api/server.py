"""The daemon's end of the control socket; what it carries is in `basefs/daemon/api/control.py`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from basefs.daemon.api.control import MAX_LINE, encode_line
from basefs.errors import BaseFSError, DaemonError
from basefs.fs.sockets import listen
from basefs.tasks import cancel

log = logging.getLogger(__name__)

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
        try:
            self._server = await asyncio.start_unix_server(self._serve, sock=listen(self._path), limit=MAX_LINE)
        except OSError as error:
            raise DaemonError(f"cannot open the control socket {self._path}: {error.strerror or error}") from None

    async def stop(self) -> None:
        """Stop listening, and end the streams."""
        if self._server is not None:
            self._server.close()
        await cancel(list(self._streams))
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(ConnectionError, asyncio.LimitOverrunError, ValueError):
                line = await reader.readline()
                if line:
                    answer = await self._answer(line, reader, writer)
                    writer.write(encode_line(answer))
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
            writer.write(encode_line({"item": found[0]}))
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
