"""Names: a path as the components from the root down."""

from __future__ import annotations

from collections.abc import Sequence

#: Components of a path from the root down; () is the root.
Names = tuple[bytes, ...]


def display(names: Sequence[bytes]) -> str:
    """A path as people read it; what would break a line or is not UTF-8 shows as an escape."""
    return escaped("/" + "/".join(name.decode("utf-8", "backslashreplace") for name in names))


def escaped(text: str) -> str:
    """A text of which a name is part, on one line of a terminal or a log: names can hold any byte but NUL and `/`."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)
