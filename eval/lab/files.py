"""A tree copied over itself again and again, changed each time: BaseFS, ext4, a FUSE passthrough (paper, 5.2)."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path

from eval import origin
from eval.lab.plan import Experiment, Plan
from eval.places import PLACES, settle
from eval.rows import Rows

_TREE = Path("/etc")
_KEYS = ("fs", "operation", "round")


def _run(plan: Plan, rows: dict[str, Rows]) -> None:
    rounds = plan.some(3, 10, 30)
    for place in PLACES:
        if plan.over or rows["files"].has(fs=place, operation="read-cached", round=rounds):
            continue
        # What ends the rounds early is a row of the last one.
        with (
            rows["files"].recording(fs=place, operation="read-cached", round=rounds),
            tempfile.TemporaryDirectory(prefix="basefs-files-") as text,
        ):
            source = Path(text, "source")
            subprocess.run(["cp", "-a", _TREE, source], check=True)
            with PLACES[place](Path(text, "place")) as root:
                for number in range(1, rounds + 1):
                    measured = _round(source, root)
                    common = origin.versions()
                    rows["files"].add_all(
                        {"fs": place, "operation": operation, "round": number, "seconds": round(seconds, 4), **common}
                        for operation, seconds in measured.items()
                    )
                    _change(source, number)
        print(f"{place}: {rounds} rounds, the last: {measured}", flush=True)


def _round(source: Path, root: Path) -> dict[str, float]:
    target = root / "copy"
    found = {"write": _seconds("cp", "-aT", str(source), str(target))}
    settle(root)
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")
    # To a pipe: tar does not read what goes to /dev/null.
    found["read"] = _seconds("tar", "-cf", "-", "-C", str(target), ".")
    found["read-cached"] = _seconds("tar", "-cf", "-", "-C", str(target), ".")
    return found


def _seconds(*command: str) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def _change(source: Path, number: int) -> None:
    """Let every file grow by a line."""
    for base, _, names in os.walk(source):
        for path in (Path(base, name) for name in names):
            if path.is_file() and not path.is_symlink():
                with path.open("ab") as file:
                    file.write(b"\n# round %d" % number)


FILES = Experiment("copies of /etc over itself, beside ext4 and a FUSE passthrough", {"files": _KEYS}, _run)
