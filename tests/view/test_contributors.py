"""Sets of contributors that share what they have in common are what plain sets would be."""

from __future__ import annotations

import random

import pytest

from basefs.log.hashes import Fingerprint
from basefs.view.contributors import NOBODY, Contributors
from tests.support.cost import calls

KEYS = [Fingerprint(bytes((number >> 8, number & 255)) * 14) for number in range(2000)]


@pytest.mark.parametrize("seed", range(20))
def test_unions_are_those_of_sets(seed: int) -> None:
    chance = random.Random(seed)
    known: list[tuple[Contributors, dict[Fingerprint, int]]] = [(NOBODY, {})]
    for _ in range(300):
        if chance.random() < 0.4:
            key, depth = chance.choice(KEYS[:60]), chance.randrange(5)
            known.append((Contributors.of(key, depth), {key: depth}))
            continue
        some = chance.choices(known[-12:], k=chance.randrange(4))
        united: dict[Fingerprint, int] = {}
        for _, depths in some:
            for key, depth in depths.items():
                united[key] = min(depth, united.get(key, depth))
        known.append((Contributors.united(found for found, _ in some), united))
    # What was made of them later has changed none.
    for found, depths in known:
        assert set(found) == depths.keys() and len(found) == len(depths)
        assert all((key in found) == (key in depths) for key in KEYS[:60])
        assert found.best == min(depths.values(), default=NOBODY.best)
        for other, others in known[-20:]:
            same = found.best == other.best and depths.keys() == others.keys()
            assert (found == other) == same


def test_each_key_of_a_branch_costs_a_step() -> None:
    def grow(count: int) -> None:
        found = NOBODY
        for key in KEYS[:count]:
            found = Contributors.united([Contributors.of(key, 1), found])

    assert calls(lambda: grow(2000)) <= 2.3 * calls(lambda: grow(1000))
