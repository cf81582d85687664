"""Whether a mount answers."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from basefs.management.doctor.finding import Diagnosis, problem

#: Seconds within which a mount answers, however busy the machine is.
PATIENCE = 5.0


def examine(name: str, point: Path, daemon: int, patience: float = PATIENCE) -> list[Diagnosis]:
    """One mount of this node; `daemon` is the process that should serve it."""
    answer: list[OSError | None] = []

    def ask() -> None:
        try:
            os.statvfs(point)
            answer.append(None)
        except OSError as error:
            answer.append(error)

    # What waits for a mount that hangs cannot be called back; the thread ends with this process.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(patience)
    if not answer:
        what = f"{name} on {point} does not answer within {patience:g} s: its daemon {daemon} is stopped or hangs"
        return [problem("mount", what, f"kill -CONT {daemon}, or kill -KILL {daemon}")]
    if answer[0] is not None:
        what = f"the daemon of {name} on {point} is dead: {answer[0].strerror}"
        return [problem("mount", what, f"basefs mount {name} {point}, or basefs unmount {point}")]
    return []
