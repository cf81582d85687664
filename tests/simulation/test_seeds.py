"""Some seeds; `make simulate` plays any number of others."""

from __future__ import annotations

import pytest

from tests.simulation.run import play

#: Seeds of one test.
CHUNK = 4


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 20, CHUNK))
def test_nodes_agree_whatever_goes_wrong(first: int) -> None:
    failures = {seed: outcome.failure for seed in range(first, first + CHUNK) if (outcome := play(seed)).failure}
    assert not failures, "again: make simulate SEEDS=1 FROM=(the seed) TRACE=--trace"
