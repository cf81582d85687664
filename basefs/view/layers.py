"""Layers: mappings that share what they have in common with the ones that they were made from.

A key holder can have thousands of keys granted on a directory, and on each of thousands of directories in it one more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")

#: Items up to which a mapping is copied: plain dicts are found in faster, and most directories have a few keys.
_COPIED = 64


class Layers(Mapping[Key, Value]):
    """A mapping made of several.  Immutable."""

    __slots__ = ("_count", "maps")

    def __init__(self, maps: tuple[Mapping[Key, Value | None], ...], count: int) -> None:
        """`maps`: an earlier one hides items of later ones, `None` removes them; `count`: items that are left."""
        self.maps = maps
        self._count = count

    def __getitem__(self, key: Key) -> Value:
        for each in self.maps:
            if key in each:
                found = each[key]
                if found is not None:
                    return found
                break
        raise KeyError(key)

    def __iter__(self) -> Iterator[Key]:
        seen: set[Key] = set()
        for each in self.maps:
            for key, value in each.items():
                if key not in seen:
                    seen.add(key)
                    if value is not None:
                        yield key

    def __len__(self) -> int:
        return self._count


def changed(base: Mapping[Key, Value], changes: Mapping[Key, Value | None]) -> Mapping[Key, Value]:
    """A mapping with some items of its own; `None` removes one that is there.  The cost is that of the changes."""
    if not changes:
        return base
    if len(base) <= _COPIED:
        return {key: value for key, value in {**base, **changes}.items() if value is not None}
    maps: tuple[Mapping[Key, Value | None], ...] = base.maps if isinstance(base, Layers) else (base,)
    count = len(base)
    for key, value in changes.items():
        count += (value is not None) - (key in base)
    if len(maps) > 1 and len(maps[0]) <= _COPIED:
        return Layers(({**maps[0], **changes}, *maps[1:]), count)
    return Layers((changes, *maps), count)
