"""Commands on a terminal, as a person sees them."""

from __future__ import annotations

import os
import pty
import subprocess

from tests.support.node import COMMAND, Node


def on_a_terminal(node: Node, *arguments: str, code: int | None = 0, **environment: str) -> str:
    """What a command writes to a terminal, which never is a traceback; it ends with `code`, `None` for any."""
    master, slave = pty.openpty()
    variables = {**node.environment, "TERM": "xterm-256color", "COLUMNS": "200", **environment}
    with subprocess.Popen([COMMAND, *arguments], env=variables, stdout=slave, stderr=slave) as process:
        os.close(slave)
        shown = b""
        try:
            while chunk := os.read(master, 65536):
                shown += chunk
        except OSError:
            pass  # how the end of a terminal reads
    os.close(master)
    assert "Traceback" not in shown.decode()
    assert code is None or process.returncode == code
    return shown.decode()
