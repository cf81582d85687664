"""`python -m tests.simulation.undone`: takes mends back in a copy of the code, and looks for a seed that notices.

A mend that no seed notices shows what the simulation does not play.  The results are in docs/simulation.md.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import click

from tests.support.project import ROOT

_IS_SET_WITHIN = """\
    if seconds is None:
        return await event.wait()
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait([waiting], timeout=seconds)
    finally:
        waiting.cancel()
    return event.is_set()
"""
_WAIT_FOR = """\
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except asyncio.TimeoutError:
        pass
    return event.is_set()
"""


@dataclass(frozen=True, slots=True)
class Mend:
    """What was mended, in one place.

    Attributes:
        name: in a word or two.
        file: below `basefs`.
        now: the code.
        before: the code as it was, or as it would be without the mend.
        first: the seed that noticed it last, which is played first.
    """

    name: str
    file: str
    now: str
    before: str
    first: int = 0


MENDS = (
    Mend(
        "told to wait when settled",
        "sync/session/states.py",
        "            SessionEvent.WAIT: SessionState.SETTLED,  # the initiator asks later\n",
        "",
        12,
    ),
    Mend("waited for a parent", "log/intake.py", "is_theirs = sender == self._peer", "is_theirs = True"),
    Mend(
        "overtakes its grant",
        "sync/session/result.py",
        "return self.rejected > self.ungranted or self.ungranted > MAX_UNGRANTED",
        "return self.rejected > 0",
    ),
    Mend(
        "overtaken peer",
        "sync/session/protocol.py",
        "return (Refusal.ENOUGH, Reason.ENOUGH, text) if overtaken else",
        "return (Refusal.ENOUGH, Reason.ENOUGH, text) if False else",
    ),
    Mend(
        "read after the end",
        "replication/propagation.py",
        "if not self._stopped and self._replica.missing_blocks(1)",
        "if self._replica.missing_blocks(1)",
    ),
    Mend("lost cancellation", "tasks.py", _IS_SET_WITHIN, _WAIT_FOR),
    Mend(
        "link that rests on nothing",
        "view/walk.py",
        "if authority.may_grant(entry.fingerprint) and self.states[entry.hash].complete:",
        "if authority.may_grant(entry.fingerprint):",
    ),
    Mend(
        "branch that a revert shows",
        "view/walk.py",
        "        self.decided_below.add(directory.mkdir)\n",
        "        if directory.unlimited:\n            self.decided_below.add(directory.mkdir)\n",
        45,
    ),
    Mend("moved directory", "view/author.py", "self._tree.nearest(path[:-1])", "self._directory(path[:-1])"),
    Mend(
        "own idle time",
        "sync/session/protocol.py",
        "min(now - self._looked_at, self._longest)",
        "now - self._looked_at",
    ),
    Mend(
        "commits of a killed process",
        "log/database.py",
        "        self._unsynced = True\n        with contextlib",
        "        self._unsynced = False\n        with contextlib",
    ),
)


@click.command()
@click.option("--seeds", default=50, show_default=True, help="Seeds to play for each mend at the most.")
@click.argument("names", nargs=-1)
def main(seeds: int, names: tuple[str, ...]) -> None:
    """Take each mend back, or those with these NAMES, and play seeds until one fails."""
    for mend in MENDS:
        if not names or mend.name in names:
            click.echo(f"{mend.name}: {_hunt(mend, seeds)}")


def _hunt(mend: Mend, seeds: int) -> str:
    with tempfile.TemporaryDirectory(prefix="undone-") as directory:
        for part in ("basefs", "tests"):
            shutil.copytree(ROOT / part, Path(directory, part), ignore=shutil.ignore_patterns("__pycache__"))
        file = Path(directory, "basefs", mend.file)
        text = file.read_text(encoding="utf-8")
        assert text.count(mend.now) == 1, f"{mend.name}: {mend.file} is not what it was"
        file.write_text(text.replace(mend.now, mend.before), encoding="utf-8")
        order = [mend.first, *(seed for seed in range(seeds) if seed != mend.first)][:seeds]
        for played, seed in enumerate(order, 1):
            command = [sys.executable, "-m", "tests.simulation", "--seeds", "1", "--from", str(seed)]
            done = subprocess.run(command, cwd=directory, capture_output=True, text=True)
            if done.returncode:
                found = done.stdout.partition("\n")[0]
                assert found.startswith("seed "), done.stderr
                return f"{found} ({played} played)"
    return f"none of {len(order)} seeds"


if __name__ == "__main__":
    main()
