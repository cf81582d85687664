"""All errors of BaseFS."""

from __future__ import annotations

from collections.abc import Iterator

from basefs import errors


def subclasses(cls: type[errors.BaseFSError]) -> Iterator[type[errors.BaseFSError]]:
    """A class of the tree in `basefs/errors.py` and all below it."""
    yield cls
    for below in cls.__subclasses__():
        yield from subclasses(below)


ALL = sorted((cls for cls in subclasses(errors.BaseFSError) if cls.__module__ == errors.__name__), key=str)
