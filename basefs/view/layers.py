"""Layers: mappings that share what they have in common with the ones that they were made from.

A key holder can have thousands of keys granted on a directory, and on each of thousands of directories in it one more.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")

#: Items up to which a mapping is copied: plain dicts are found in faster, and most directories have a few keys.
_COPIED = 64


class Layers(Mapping[Key, Value]):
    """A mapping made of several that have no key in common.  Immutable."""

    __slots__ = ("_count", "maps")

    def __init__(self, *maps: Mapping[Key, Value]) -> None:
        self.maps = maps

    def __getitem__(self, key: Key) -> Value:
        for each in self.maps:
            if key in each:
                return each[key]
        raise KeyError(key)

    def __iter__(self) -> Iterator[Key]:
        return itertools.chain(*self.maps)

    def __len__(self) -> int:
        return sum(map(len, self.maps))


def extended(base: Mapping[Key, Value], more: Mapping[Key, Value]) -> Mapping[Key, Value]:
    """A mapping with more items, of which it has none yet.  The cost is that of these."""
    if not more:
        return base
    if len(base) <= _COPIED:
        return {**base, **more}
    maps = base.maps if isinstance(base, Layers) else (base,)
    if len(maps) > 1 and len(maps[0]) <= _COPIED:
        return Layers({**maps[0], **more}, *maps[1:])
    return Layers(more, *maps)
