"""One handler as a process: a shell command in a session of its own, whose end and output are awaited.

Not asyncio's own subprocesses: those hold their pipe for as long as anything that the command left behind has it, and
a task that is cancelled while one starts may lose it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping

from basefs.tasks import is_set_within

#: Bytes of output that are kept.
MAX_OUTPUT = 16 * 1024
#: Seconds for output to end after its process has: something that was left behind may keep the pipe open.
OUTPUT_PATIENCE = 0.5
#: Seconds for a killed process to be gone; one that waits for a disk or a dead server may not be, for a while.
KILL_PATIENCE = 2.0


async def run(command: str, environment: Mapping[str, str], timeout: float, umask: int = -1) -> tuple[int | None, str]:
    """Run a command to its end, in the event loop; `umask`: its own, or -1 for that of this process.

    After `timeout` seconds, and when the task is cancelled, it is killed with all processes of its group.  Returns the
    exit code (negative: the signal; `None`: its time was over) and the beginning of what it printed on both streams.
    Raises OSError where it cannot be started.
    """
    loop = asyncio.get_running_loop()
    output = _Output()
    reading, writing = os.pipe()
    try:
        process = subprocess.Popen(
            command,
            shell=True,
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=writing,
            # In a mount it would keep the filesystem from being unmounted.
            cwd="/",
            start_new_session=True,
            umask=umask,
            env={**os.environ, **environment},
        )
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    transport = None
    try:
        transport, _ = await loop.connect_read_pipe(lambda: output, os.fdopen(reading, "rb", 0))
        if not await _ends(process, timeout):
            return None, output.text()
        await asyncio.wait([output.end], timeout=OUTPUT_PATIENCE)
        return process.returncode, output.text()
    finally:
        if transport is not None:
            transport.close()
        if process.returncode is None:
            # Its session is its own, so its group has its number.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.shield(_ends(process, KILL_PATIENCE))


async def _ends(process: subprocess.Popen[bytes], timeout: float) -> bool:
    """Wait for the end of a process; returns whether it came within `timeout` seconds."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    descriptor = os.pidfd_open(process.pid)
    loop.add_reader(descriptor, ended.set)
    try:
        await is_set_within(ended, timeout)
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    return process.poll() is not None


class _Output(asyncio.Protocol):
    """The first bytes of a pipe; the rest is read and forgotten, so that the writer goes on."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self.end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def text(self) -> str:
        """What was printed; bytes that are not UTF-8 as escapes."""
        return self._kept.decode("utf-8", "backslashreplace")

    def data_received(self, data: bytes) -> None:
        self._kept += data[: MAX_OUTPUT - len(self._kept)]

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.end.done():
            self.end.set_result(None)
