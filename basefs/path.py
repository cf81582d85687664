"""Paths: parsed, checked and displayed in one place.

A path is the tuple of its components, bytes, from the root down.  Names can hold any byte but NUL and `/`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from basefs.errors import InvalidName, NameTooLong

#: Components of a path from the root down; () is the root.
Path: TypeAlias = tuple[bytes, ...]

#: Bytes of the longest name.
MAX_NAME = 255
#: Bytes of the longest path, a '/' before each name counted: Linux' PATH_MAX, the longest that a program can name.
MAX_PATH = 4096
#: Names of the longest path: each entry of a path costs a row for each directory above.
MAX_DEPTH = 256


def parse(text: str) -> Path:
    """The path that a text like `/a/b` stands for, UTF-8 with surrogate escapes, so that every byte survives.

    Raises `NameTooLong`.
    """
    path = tuple(name for name in text.encode("utf-8", "surrogateescape").split(b"/") if name)
    if any(len(name) > MAX_NAME for name in path):
        raise NameTooLong(f"a name has up to {MAX_NAME} bytes")
    return path


def to_text(path: Sequence[bytes]) -> str:
    """The inverse of `parse`, for programs; people read what `display` returns."""
    return "/" + b"/".join(path).decode("utf-8", "surrogateescape")


def check_name(name: bytes) -> None:
    """Raise `NameTooLong` or `InvalidName` unless the name can be a component of a path."""
    if len(name) > MAX_NAME:
        raise NameTooLong(f"a name has up to {MAX_NAME} bytes")
    if name in (b"", b".", b"..") or b"/" in name or b"\x00" in name:
        raise InvalidName("a name cannot be empty, '.' or '..', or hold '/' or NUL")


def path_size(path: Sequence[bytes]) -> int:
    """Bytes of a path as '/a/b'."""
    return sum(map(len, path)) + max(len(path), 1)


def check_length(path: Sequence[bytes]) -> None:
    """Raise `NameTooLong` for a path that no entry may have."""
    if len(path) > MAX_DEPTH or path_size(path) > MAX_PATH:
        raise NameTooLong(f"a path has up to {MAX_PATH} bytes and {MAX_DEPTH} names")


def display(path: Sequence[bytes]) -> str:
    """A path as people read it; line breaks and bytes that are not UTF-8 show as escapes."""
    return escaped("/" + "/".join(name.decode("utf-8", "backslashreplace") for name in path))


def escaped(text: str) -> str:
    """A text with a name in it, on one line of a terminal or a log."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)
