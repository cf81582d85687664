"""Mappings that share what they have in common are what copies would be."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from basefs.view.layers import extended


@pytest.mark.parametrize("seed", range(20))
def test_what_is_extended_is_what_an_extended_copy_is(seed: int) -> None:
    chance = random.Random(seed)
    start = dict.fromkeys(range(chance.choice((0, 60, 70, 500))), 0)
    known: list[tuple[Mapping[int, int], dict[int, int]]] = [(start, dict(start))]
    for _ in range(60):
        base, copy = chance.choice(known[-4:])
        more = {chance.randrange(600): chance.choice((1, 2)) for _ in range(chance.choice((0, 1, 5, 100)))}
        more = {key: value for key, value in more.items() if key not in copy}
        known.append((extended(base, more), {**copy, **more}))
    for found, expected in known:
        assert found == expected and dict(found) == expected and len(found) == len(expected)
        assert found.keys() == expected.keys() and bool(found) == bool(expected)
        assert all(found.get(key) == expected.get(key) for key in range(600))
        assert all((key in found) == (key in expected) for key in range(600))


def test_more_items_copy_no_others() -> None:
    base = dict.fromkeys(range(10_000), 0)
    first = extended(base, {-1: 1})
    second = extended(first, {-2: 1})
    assert len(first) == 10_001 and len(second) == 10_002
    base[20_000] = 0
    assert 20_000 in first and 20_000 in second
