"""Commands on a terminal, as a person sees them."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Iterator

from tests.support.node import COMMAND, Node


def on_a_terminal(
    node: Node,
    *arguments: str,
    code: int | None = 0,
    typed: str | Iterator[str] | None = None,
    prompt: str = "[y/N]: ",
    **environment: str,
) -> str:
    """What a command writes to a terminal, which never is a traceback; it ends with `code`, `None` for any.

    `typed`: what a person types there, or the answer to each question, which ends with `prompt`; without it the command
    does not read from the terminal.
    """
    master, slave = pty.openpty()
    variables = {**node.environment, "TERM": "xterm-256color", "COLUMNS": "200", **environment}
    given = None if typed is None else slave
    with subprocess.Popen([COMMAND, *arguments], env=variables, stdin=given, stdout=slave, stderr=slave) as process:
        os.close(slave)
        if isinstance(typed, str):
            os.write(master, typed.encode())
        shown = b""
        asked = 0
        try:
            while chunk := os.read(master, 65536):
                shown += chunk
                if typed is not None and not isinstance(typed, str) and shown.count(prompt.encode()) > asked:
                    asked += 1
                    os.write(master, next(typed).encode())
        except OSError:
            pass  # how the end of a terminal reads
    os.close(master)
    assert "Traceback" not in shown.decode()
    assert code is None or process.returncode == code
    return shown.decode()
