"""Some seeds, and those that have failed once; `make simulate` plays any number of others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.run import play

#: What nodes warn of, as they should.
NOTED = (
    "disk full",
    "cannot publish",
    "cannot store gossiped entries",
    "after a power cut",
    "a power cut has taken",
    "stays on this node: no key of this node may write",
    "which never leaves this node",
)
#: Seeds of one test.
CHUNK = 4
FAILED = [
    int(line.split()[0])
    for line in Path(__file__).with_name("failed.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]


@pytest.mark.slow
@pytest.mark.logs(*NOTED)
@pytest.mark.parametrize("first", range(0, 20, CHUNK))
def test_nodes_agree_whatever_goes_wrong(first: int) -> None:
    failures = {seed: outcome.failure for seed in range(first, first + CHUNK) if (outcome := play(seed)).failure}
    assert not failures, "again: make simulate SEEDS=1 FROM=(the seed) TRACE=--trace"


@pytest.mark.slow
@pytest.mark.logs(*NOTED)
@pytest.mark.parametrize("seed", FAILED)
def test_what_has_failed_once_does_not_fail_again(seed: int) -> None:
    assert play(seed).failure == ""
