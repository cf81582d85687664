"""Programs that want a terminal, driven through one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Sequence
from pathlib import Path

#: Seconds of silence after which a program counts as waiting for a key.
_QUIET = 0.3
#: Seconds for a program to begin to draw, and to end after the last key.
_TIMEOUT = 120.0


def type_into(command: Sequence[str | Path], keys: Sequence[str], where: Path) -> int:
    """Run a program in a terminal of 80 x 24, give it keys whenever it is quiet, and return its exit code.

    Raises `TimeoutError` if it does not end.
    """
    pid, terminal = pty.fork()
    if pid == 0:
        try:
            os.chdir(where)
            environment = {**os.environ, "TERM": "xterm", "HOME": str(where.parent), "LC_ALL": "C.UTF-8"}
            os.execvpe(str(command[0]), [str(word) for word in command], environment)
        finally:
            os._exit(127)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    try:
        # What is typed before it has the terminal to itself might be thrown away.
        select.select([terminal], [], [], _TIMEOUT)
        for text in keys:
            _read_until_quiet(terminal)
            os.write(terminal, text.encode())
        deadline = time.monotonic() + _TIMEOUT
        while time.monotonic() < deadline:
            _read_until_quiet(terminal)
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise TimeoutError(f"{command[0]} did not end")
    finally:
        os.close(terminal)


def _read_until_quiet(terminal: int) -> None:
    # Linux reports the end of the other side as EIO.
    with contextlib.suppress(OSError):
        while select.select([terminal], [], [], _QUIET)[0]:
            if not os.read(terminal, 65536):
                return
