"""Differences of versions: what `basefs diff`, `log -p` and `conflicts --diff` print."""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, overload

from basefs.daemon.api.messages import ContentPiece, PathVersions, ReadContents, Version, encode
from basefs.daemon.config import Home
from basefs.errors import UnreadableContent
from basefs.management.output import SHORT, coloured, printable, size
from basefs.management.session import ask

#: Bytes of a file up to which its lines are compared: a diff takes long for more.
MOST_COMPARED = 1024 * 1024
#: Steps of comparing two contents, about two seconds: the writer of a file decides how many it takes.
_MOST_STEPS = 10_000_000
#: Contents that are fetched at a time, twice this many versions of `MOST_COMPARED` bytes at the most.
_BATCH = 8
_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


@dataclass(frozen=True, slots=True)
class PathDifference:
    """How two versions of a path differ.

    Attributes:
        versions: the two.
        diff: the lines of a unified diff, without the names; empty where the contents are equal.
        lines: whether the contents were compared by lines: they are text, can be read here, and it does not take long.
        incomplete: whether blocks of a content have not arrived yet.
    """

    versions: PathVersions
    diff: Sequence[str]
    lines: bool
    incomplete: bool = False

    @property
    def what(self) -> str:
        """What became of the path."""
        return became(self.versions)

    @property
    def differs(self) -> bool:
        """Whether anything but the entry is another one."""
        before, after = self.versions.before, self.versions.after
        if before is None or after is None:
            return before is not after
        return bool(self.diff) or not self.lines or any(self.attributes())

    def attributes(self) -> Iterator[tuple[str, str, str]]:
        """The attributes that differ, as `changed_attributes` lists them."""
        before, after = self.versions.before, self.versions.after
        if before is not None and after is not None:
            yield from changed_attributes(before, after, is_same_content=self.lines and not self.diff)

    def encoded(self) -> dict[str, Any]:
        """As JSON; `diff`: `None` where the contents were not compared."""
        return {
            **encode(self.versions),
            "became": self.what,
            "diff": "".join(self.diff) if self.lines else None,
            "contents_missing": self.incomplete,
        }


def changed_attributes(before: Version, after: Version, *, is_same_content: bool) -> Iterator[tuple[str, str, str]]:
    """The attributes that differ, with their values; the time of modification only of what has the same content."""
    for title in ("kind", "mode", "owner", "target", "device"):
        old, new = getattr(before, title), getattr(after, title)
        if old != new:
            yield title, "-" if old is None else old, "-" if new is None else new
    if before.xattrs != after.xattrs:
        yield "xattrs", ", ".join(before.xattrs) or "-", ", ".join(after.xattrs) or "-"
    if before.mtime != after.mtime and is_same_content and (before.kind, before.target) == (after.kind, after.target):
        precision = "seconds" if int(before.mtime) != int(after.mtime) else "microseconds"
        old, new = (datetime.fromtimestamp(at).isoformat(" ", precision) for at in (before.mtime, after.mtime))
        yield "mtime", old, new


def became(change: PathVersions) -> str:
    """What became of a path: created, changed or deleted."""
    return "created" if change.before is None else "deleted" if change.after is None else "changed"


def described(change: PathVersions) -> str:
    """What a change changes: `mode 0644 -> 0600`, `other content of 5 B`; what is created or deleted: `file of 5 B`."""
    before, after = change.before, change.after
    if before is None or after is None or before.kind != after.kind:
        return " -> ".join(_object(side) for side in (before, after) if side is not None)
    is_same_content = before.content == after.content
    found = [
        f"{title} {old} -> {new}"
        for title, old, new in changed_attributes(before, after, is_same_content=is_same_content)
    ]
    if not is_same_content:
        sizes = [size(side.size) for side in (before, after)]
        found.append(
            f"content of {' -> '.join(sizes)}" if before.size != after.size else f"other content of {sizes[0]}"
        )
    return ", ".join(found) or f"another {after.kind}"


def _object(side: Version) -> str:
    return f"{side.kind} of {size(side.size)}" if side.kind == "file" else side.kind


def differences(home: Home, name: str, found: Sequence[PathVersions]) -> Iterator[PathDifference]:
    """Compare the contents of versions; those are fetched as the result is read."""
    for start in range(0, len(found), _BATCH):
        some = found[start : start + _BATCH]
        pieces = list({piece for versions in some for piece in _pieces(versions)})
        fetched = _fetch(home, name, pieces)
        yield from (_compare(versions, fetched) for versions in some)


def _fetch(home: Home, name: str, pieces: list[ContentPiece]) -> dict[ContentPiece, bytes | None]:
    """Contents, `None` where blocks have not arrived yet; without those that cannot be read."""
    try:
        return dict(zip(pieces, ask(home, name, ReadContents(pieces)), strict=True)) if pieces else {}
    except UnreadableContent:
        # One such file must not hide what has become of the others.
        alone = [_fetch(home, name, [piece]) for piece in pieces] if len(pieces) > 1 else []
        return {piece: content for fetched in alone for piece, content in fetched.items()}


def _compare(versions: PathVersions, fetched: Mapping[ContentPiece, bytes | None]) -> PathDifference:
    if not _files(versions):
        return PathDifference(versions, (), lines=True)
    before, after = _lines(versions.before, fetched), _lines(versions.after, fetched)
    if before is None or after is None:
        incomplete = any(fetched.get(piece, b"") is None for piece in _pieces(versions))
        return PathDifference(versions, (), lines=False, incomplete=incomplete)
    try:
        lines = list(difflib.unified_diff(_Metered(before, after), after))[2:]
    except _TooLongToCompare:
        return PathDifference(versions, (), lines=False)
    return PathDifference(versions, [ended for line in lines for ended in _ended(line)], lines=True)


class _TooLongToCompare(Exception):
    """Comparing two contents takes more than `_MOST_STEPS`."""


class _Metered(Sequence[str]):
    """The lines of a content as difflib looks them up, again and again: 30 kB can keep it busy for minutes."""

    def __init__(self, lines: Sequence[str], others: Sequence[str]) -> None:
        """`others`: the lines that they are compared with."""
        self._lines = lines
        self._left = _MOST_STEPS
        # For each line difflib passes all that equal it, unless it finds them too many.
        many = len(others) if len(others) < 200 else len(others) // 100 + 1
        self._steps = {line: count for line, count in Counter(others).items() if count <= many}

    def __len__(self) -> int:
        return len(self._lines)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[str]: ...
    def __getitem__(self, at: int | slice) -> str | Sequence[str]:
        found = self._lines[at]
        if isinstance(found, str):
            self._left -= 1 + self._steps.get(found, 0)
            if self._left < 0:
                raise _TooLongToCompare
        return found


def _files(versions: PathVersions) -> list[Version]:
    """The versions that are files, if their contents differ."""
    before, after = versions.before, versions.after
    if before is not None and after is not None and before.content == after.content:
        return []
    return [side for side in (before, after) if side is not None and side.content is not None]


def _pieces(versions: PathVersions) -> Iterator[ContentPiece]:
    """The contents that are to be compared."""
    files = _files(versions)
    if all(file.size <= MOST_COMPARED for file in files):
        yield from map(_piece, files)


def _piece(file: Version) -> ContentPiece:
    assert file.content is not None
    return ContentPiece(file.content, 0, file.size)


def _lines(version: Version | None, fetched: Mapping[ContentPiece, bytes | None]) -> list[str] | None:
    """The lines of a file, none of anything else; `None` if it is no text, too large, not here yet or unreadable."""
    if version is None or version.content is None:
        return []
    content = fetched.get(_piece(version))
    if content is None or b"\0" in content:
        return None
    # Not `str.splitlines`, which also breaks lines at form feeds and the like.
    return re.findall(r"[^\n]*\n|[^\n]+", content.decode("utf-8", "surrogateescape"))


def _ended(line: str) -> list[str]:
    return [line] if line.endswith("\n") else [f"{line}\n", "\\ No newline at end of file\n"]


def print_difference(difference: PathDifference) -> None:
    """Print what became of a path, and the difference of its contents as `patch -p1` takes it."""
    before, after = difference.versions.before, difference.versions.after
    side = after or before
    assert side is not None, "something was there"
    path = printable(difference.versions.path)
    _write(f"{difference.what} {side.kind} {path}{_mode(side) if before is None or after is None else ''}\n", bold=True)
    if before is not None and after is not None:
        for title, old, new in difference.attributes():
            _write(f"{title} {printable(old)} -> {printable(new)}\n")
    elif side.target is not None:
        _write(f"target {printable(side.target)}\n")
    if not difference.lines:
        sizes = " -> ".join(size(one.size) for one in (before, after) if one is not None)
        _write(f"the contents are not {'here yet' if difference.incomplete else 'compared by lines'}: {sizes}\n")
    elif difference.diff:
        _write(f"--- {_name('a', difference.versions.path, before)}\n", bold=True)
        _write(f"+++ {_name('b', difference.versions.path, after)}\n", bold=True)
        for line in difference.diff:
            _write(line, fg=_COLOURS.get(line[0]))


def _mode(version: Version) -> str:
    return "" if version.mode is None else f" ({version.mode})"


def _name(side: str, path: str, version: Version | None) -> str:
    """The name of a file as `patch` takes it; nothing else than a file has one."""
    if version is None or version.content is None:
        return "/dev/null"
    return f"{_quoted(side + path)}\t{version.entry[:SHORT]}"


def _quoted(name: str) -> str:
    """A name with special characters in double quotes, its bytes as C writes them, as diff and git do."""
    if printable(name) == name and not set(name) & {'"', "\\"}:
        return name
    plain = (chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03o}" for byte in os.fsencode(name))
    return f'"{"".join(plain)}"'


def _write(text: str, **style: Any) -> None:
    """Write a line: to a terminal with a style and without control characters, elsewhere as it is."""
    if sys.stdout.isatty():
        text = coloured(printable(text.rstrip("\n").expandtabs()), **style) + "\n"
    sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
