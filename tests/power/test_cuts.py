"""A cut of the power at any moment: a daemon starts on whatever the disk has kept, and keeps what was promised.

What a real daemon did to the disk while programs worked on its mount is cut off at random, and what was not synced is
lost at random.  HYPOTHESIS_PROFILE says how often, see `tests/conftest.py`.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest
from hypothesis import settings

from basefs.log.keys import SigningKey
from tests.power.disk import Fate, Left, any_fate
from tests.power.history import History
from tests.power.programs import Programs
from tests.power.recording import Recorder, require_strace
from tests.power.recovery import recover, write_tree
from tests.support.helpers import noise
from tests.support.mounts import temporary_directory
from tests.support.node import Node

pytestmark = pytest.mark.fuse

NAME = "conf"
#: What programs do before each daemon is killed or stopped.
STEPS = 25
#: Cuts of one recording.
CUTS = 300


#: How many of them; what a daemon does meanwhile, and when, is never the same.
RECORDINGS = max(1, settings().max_examples // CUTS)


def record(base: Path, seed: int) -> tuple[Recorder, History, SigningKey]:
    """Programs on three mounts of a filesystem, of which two end by a kill -9."""
    with Node.temporary(base) as node:
        node.basefs("genkey")
        node.basefs("bootstrap", NAME)
        recorder, history = Recorder(node, NAME), History()
        for number in range(3):
            with recorder.mounted() as point:
                Programs(point, history, 10 * seed + number).run(STEPS)
                if number == 1:
                    node.basefs("unmount", NAME)
                    history.synced_all()
                else:
                    node.kill(NAME)
        assert "Traceback" not in recorder.printed()
        return recorder, history, SigningKey.load(node.home / "key")


@pytest.mark.logs("lost the last save of")
@pytest.mark.parametrize("recording", range(RECORDINGS))
def test_what_was_promised_survives(recording: int, tmp_path: Path) -> None:
    require_strace()
    seed = recording if settings().derandomize else random.randrange(1_000_000)
    with temporary_directory() as base:
        recorder, history, key = record(base, seed)
        disk = recorder.disk
        chance = random.Random(seed)
        interesting, kinds = disk.interesting(), disk.kinds()
        assert len(history.promised()) > STEPS
        for number in range(min(CUTS, settings().max_examples)):
            cut, fate = chance.choice(interesting), any_fate(chance, kinds)
            tree = disk.after(cut, fate)
            write_tree(base / "cut", tree)
            found, problems = recover(base / "cut" / NAME, key)
            problems += history.broken(found, disk.ends[cut] if cut < len(disk) else float("inf"))
            shutil.rmtree(base / "cut")
            if problems:
                write_tree(tmp_path / "cut", tree)
                pytest.fail(f"seed {seed}, cut {number} at {cut}, {fate}, in {tmp_path}: {problems}")


@pytest.mark.logs("lost the last save of")
def test_what_one_daemon_kept_survives_the_start_of_the_next(tmp_path: Path) -> None:
    """What was published right before a kill is in a log that nobody has synced, and what a clean end promised may be
    in files beside the journal alone: the next start forgets neither."""
    require_strace()
    with temporary_directory() as base, Node.temporary(base) as node:
        node.basefs("genkey")
        node.basefs("bootstrap", NAME)
        recorder, history = Recorder(node, NAME), History()

        def save(path: str, number: int, *, sync: bool) -> None:
            began, content = history.now(), noise(number, 9000)
            descriptor = os.open(point / path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.write(descriptor, content)
            if sync:
                os.fsync(descriptor)
            os.close(descriptor)
            history.set(path, content, began)
            if sync:
                history.synced(path)

        with recorder.mounted() as point:
            for number, path in enumerate("abc"):
                save(path, number, sync=True)
            node.settle(NAME)
            for number, path in enumerate("abc"):
                save(path, 10 + number, sync=True)
                save(path, 20 + number, sync=False)
            node.settle(NAME)
            node.kill(NAME)
        with recorder.mounted() as point:
            save("d~", 30, sync=False)
            node.basefs("unmount", NAME)
            history.synced_all()
        with recorder.mounted() as point:
            node.kill(NAME)
        disk, key = recorder.disk, SigningKey.load(node.home / "key")
        for cut in disk.interesting():
            for left in (Left.NOTHING, Left.ALL):
                write_tree(base / "cut", disk.after(cut, Fate(0, left, dict.fromkeys(disk.kinds(), left))))
                found, problems = recover(base / "cut" / NAME, key)
                problems += history.broken(found, disk.ends[cut] if cut < len(disk) else float("inf"))
                shutil.rmtree(base / "cut")
                assert not problems, f"cut at {cut}, {left}"
