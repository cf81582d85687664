"""How long to wait for a save to be over: entries and seconds until it is in the log, by the quiet window.

Each program of `eval/saves.py` saves on one node with each window.  Too short a window publishes names and contents
that are about to go, too long a one is seen as latency.
"""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path

from basefs.daemon.config import QUIET_SECONDS
from eval import origin
from eval.lab.plan import Experiment, Plan
from eval.rows import Rows
from eval.saves import PROGRAMS, Program, prepare
from tests.support.cluster import NAME, ask
from tests.support.namespaces import NamespaceNetwork
from tests.support.node import Node
from tests.support.wait import wait_until

#: Seconds of quiet before a save is published.
WINDOWS = (0.0, 0.003, 0.01, QUIET_SECONDS, 0.2, 1.0)
#: Seconds between looks at the log, which cost the daemon less than a millisecond.
_LOOK = 0.005
_PATIENCE = 60.0
_KEYS = ("window s", "program")


def _run(plan: Plan, rows: dict[str, Rows]) -> None:
    for window in plan.some((0.0, QUIET_SECONDS), WINDOWS, WINDOWS):
        missing = [p for p in PROGRAMS if not rows["quiet"].has(**{"window s": window, "program": p.name})]
        if not missing or plan.over:
            continue
        with (
            tempfile.TemporaryDirectory(prefix="basefs-quiet-") as text,
            NamespaceNetwork(Path(text), 1) as network,
        ):
            (node,) = network.nodes
            node.home.mkdir(parents=True, mode=0o700)
            (node.home / "config").write_text(f"[basefs]\nquiet_window = {window}\n")
            node.basefs("genkey")
            node.basefs("bootstrap", NAME, "-i", node.endpoint)
            node.mount(NAME)
            entries = 0
            for number, program in enumerate(missing):
                with rows["quiet"].recording(**{"window s": window, "program": program.name}):
                    found, seconds = _save(node, program, Path(text, f"scratch{number}"), f"directory{number}")
                entries += found
                rows["quiet"].add(
                    {
                        "window s": window,
                        "program": program.name,
                        "files": program.files,
                        "entries": found,
                        "seconds": round(seconds, 4),
                        **origin.versions(),
                    },
                    quiet=True,
                )
        saved = sum(program.files for program in missing)
        print(f"quiet for {1000 * window:g} ms: {entries} entries for {saved} changed files", flush=True)


def _save(node: Node, program: Program, scratch: Path, name: str) -> tuple[int, float]:
    """Entries of one save, and seconds from its end until the last of them was in the log."""
    here = node.mountpoint / name
    scratch.mkdir()
    prepare(here, program)
    before = node.entries(NAME)
    seen: list[tuple[float, int]] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            count = int(ask(node, "summary")["entries"])
            if not seen or count != seen[-1][1]:
                seen.append((time.monotonic(), count))
            time.sleep(_LOOK)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        program.save(here, scratch)
        end = time.monotonic()
        after = node.entries(NAME)
        wait_until(lambda: bool(seen) and seen[-1][1] == after, _PATIENCE, "the last entry is seen")
    finally:
        done.set()
        looking.join()
    return after - before, max(0.0, seen[-1][0] - end)


QUIET = Experiment("entries and seconds of a save by the time to wait for its end", {"quiet": _KEYS}, _run)
