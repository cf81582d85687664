"""Names: a path as the components from the root down."""

from __future__ import annotations

from collections.abc import Sequence

#: Components of a path from the root down; () is the root.
Names = tuple[bytes, ...]


def display(names: Sequence[bytes]) -> str:
    """A path as people read it; bytes that are not UTF-8 show as escapes."""
    return "/" + "/".join(name.decode("utf-8", "backslashreplace") for name in names)
