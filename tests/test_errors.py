"""The tree of errors in the docstring is the real one."""

from __future__ import annotations

import re

import pytest

from basefs import errors
from basefs.errors import BaseFSError, LocalProtocolError, ProtocolError, RemoteProtocolError


def printed() -> list[tuple[str, str | None]]:
    """(class, base) of each line of the tree in the docstring."""
    found: list[tuple[str, str | None]] = []
    above: dict[int, str] = {}
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"    ((?:[|`] {3}| {4})*)(?:[|`]-- )?(\w+)(?:  |$| \()", line)
        if match is None:
            continue
        depth = len(match[1]) // 4 + ("-- " in line)
        above[depth] = match[2]
        found.append((match[2], above[depth - 1] if depth else None))
    return found


def real() -> list[tuple[str, str | None]]:
    """(class, base) of each class."""
    return [
        (name, None if value is BaseFSError else value.__bases__[0].__name__)
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, BaseFSError)
    ]


def test_the_docstring_prints_the_tree() -> None:
    assert printed() == real()
    assert len(printed()) > 25


def test_a_protocol_error_names_a_culprit() -> None:
    with pytest.raises(TypeError):
        ProtocolError("somebody broke the rules")
    assert isinstance(RemoteProtocolError("they"), ProtocolError)
    assert isinstance(LocalProtocolError("we"), ProtocolError)
