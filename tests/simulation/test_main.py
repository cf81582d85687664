"""The command that plays seeds."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.project import ROOT


@pytest.mark.process
def test_several_processes_play_the_seeds_of_the_command() -> None:
    command = [sys.executable, "-m", "tests.simulation", "--seeds", "2", "--jobs", "2"]
    played = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert (played.returncode, played.stderr) == (0, "")
    assert played.stdout.startswith("2 of 2 seeds passed, ")
