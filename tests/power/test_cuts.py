"""A cut of the power at any moment: a filesystem starts on whatever the disk has kept, and keeps what was promised.

What programs and a filesystem did to a directory is cut off at random, and what was not synced is lost at random.
HYPOTHESIS_PROFILE says how often, see `tests/conftest.py`.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from hypothesis import settings

from tests.power.disk import any_fate
from tests.power.recording import Recorder, Version, require_strace
from tests.power.recovery import Recovered, recover, write_tree
from tests.support.mounts import temporary_directory

pytestmark = pytest.mark.process

#: What programs do in each process.
STEPS = 25
#: Cuts of one recording.
CUTS = 300
#: How many of them; what happens meanwhile, and when, is never the same.
RECORDINGS = max(1, settings().max_examples // CUTS)


def record(base: Path, seed: int) -> Recorder:
    """Programs on a filesystem, in three processes of which two are killed."""
    recorder = Recorder(base)
    for number, ending in enumerate(("kill", "close", "kill")):
        recorder.record(10 * seed + number, STEPS, ending)
    return recorder


def broken(versions: list[Version], found: Recovered) -> list[str]:
    """What is not as programs were promised; `versions`: what names were before the cut."""
    problems = list(found.problems)
    for path in sorted({version.path for version in versions}):
        if path.endswith("~"):
            continue
        mine = [version for version in versions if version.path == path]
        contents = [version.content for version in mine]
        least = _last(contents, found.published.get(path)) if path in found.published else -1
        promised = [number for number, version in enumerate(mine) if version.promised is not None]
        shown = found.shown.get(path)
        at = _last(contents, shown)
        if shown is None and at < 0:
            # It was not there before the first version.
            at = -1 if least < 0 else at - 1
        what = f"{path} is {shown}, was {contents}, published {found.published.get(path)}, kept {found.disk.get(path)}"
        if shown is not None and shown not in contents:
            # Torn, or what a file had that was renamed later: it must be what was closed last, and not published.
            if least >= len(mine) - 1 or promised[-1:] == [len(mine) - 1]:
                problems.append(f"torn: {what}")
        elif at < least:
            problems.append(f"published and lost: {what}")
        elif promised and path in found.disk and at < promised[-1] <= _last(contents, found.disk[path]):
            # What is not on the disk was renamed or removed: that is not promised, and undone if it was not published.
            problems.append(f"synced and lost: {what}")
    return problems


def _last(contents: list[str | None], content: str | None) -> int:
    """The last version that is this one, -1 if none is."""
    return max((number for number, each in enumerate(contents) if each == content), default=-1)


@pytest.mark.logs("after a power cut", "a power cut has taken")
@pytest.mark.parametrize("recording", range(RECORDINGS))
def test_what_was_promised_survives(recording: int, tmp_path: Path) -> None:
    require_strace()
    seed = recording if settings().derandomize else random.randrange(1_000_000)
    with temporary_directory() as base:
        recorder = record(base, seed)
        disk, chance = recorder.disk, random.Random(seed)
        interesting, kinds = disk.interesting(), disk.kinds()
        assert sum(version.promised is not None for version in recorder.versions) > STEPS / 2
        for number in range(min(CUTS, settings().max_examples)):
            cut, fate = chance.choice(interesting), any_fate(chance, kinds)
            tree = disk.after(cut, fate)
            write_tree(base / "cut", tree)
            end = disk.ends[cut] if cut < len(disk) else float("inf")
            # A call that was cut off may have happened.
            before = [
                each._replace(promised=each.promised if each.promised is not None and each.promised < end else None)
                for each in recorder.versions
                if each.began < end
            ]
            problems = broken(before, recover(base / "cut", before))
            shutil.rmtree(base / "cut")
            if problems:
                write_tree(tmp_path / "cut", tree)
                pytest.fail(f"seed {seed}, cut {number} at {cut}, {fate}, in {tmp_path}: {problems}")
