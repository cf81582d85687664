"""Paths as commands write them: UTF-8 with surrogate escapes."""

from __future__ import annotations

from collections.abc import Sequence

from basefs.path import Names


def to_names(path: str) -> Names:
    """The names in `/a/b`."""
    return tuple(part for part in path.encode("utf-8", "surrogateescape").split(b"/") if part)


def to_text(names: Sequence[bytes]) -> str:
    """The inverse of `to_names`."""
    return "/" + "/".join(name.decode("utf-8", "surrogateescape") for name in names)
