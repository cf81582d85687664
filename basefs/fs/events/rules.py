"""Rules: which command runs for which path (paper, section 4.1; docs/reacting.md)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from basefs.errors import UsageError
from basefs.path import Path


@dataclass(frozen=True, slots=True)
class Rule:
    """One `--handler`.

    Attributes:
        command: for the shell.
        glob: as the user wrote it; `None` for all paths.
    """

    command: str
    glob: str | None = None

    @classmethod
    def parse(cls, text: str) -> Rule:
        """`CMD` or `GLOB=CMD`.

        What stands before the first `=` is a glob if it begins with `/` or `*` and holds no space; so `FOO=1 run` and
        `/bin/run --level=1` are commands.  Raises `UsageError`, also for what looks like another glob.
        """
        glob, equals, command = text.partition("=")
        if equals and not glob:
            raise UsageError(f"the handler {text!r} has an empty glob: write {command!r} for all changes")
        if equals and re.match(r"[^/*\s][^\s]*[/*?]", glob):
            raise UsageError(f"a glob begins with '/' or '*': write {f'/{text}'!r}")
        if not (equals and glob.startswith(("/", "*")) and not re.search(r"\s", glob)):
            glob, command = "", text
        if not glob and re.fullmatch(r"/\S*[*?\[]\S*|\*\S*|/(\S*/)?", command):
            raise UsageError(f"the handler {text!r} is a glob without a command: write {f'{text}=CMD'!r}")
        if not command.strip():
            raise UsageError(f"the handler {text!r} has no command: write 'CMD' or 'GLOB=CMD'")
        return cls(command, glob or None)

    def __str__(self) -> str:
        """As `parse` takes it."""
        return self.command if self.glob is None else f"{self.glob}={self.command}"

    def matches(self, path: Path) -> bool:
        """Whether it is about a path.  A glob that begins with `*` is held against the last name alone."""
        if self.glob is None:
            return True
        if self.glob.startswith("/"):
            return _compile(self.glob).fullmatch(b"/" + b"/".join(path)) is not None
        return _compile(self.glob).fullmatch(path[-1] if path else b"") is not None


def matching(rules: Sequence[Rule], path: Path) -> list[Rule]:
    """The rules for a path, in the order in which they were given."""
    return [rule for rule in rules if rule.matches(path)]


def _compile(glob: str) -> re.Pattern[bytes]:
    """A glob as a regular expression; `re` keeps the last few hundred.

    `*` and `?` stand for anything but `/`, `**` for anything, `[...]` for one byte of a set, `[!...]` for one that is
    not in it.
    """
    raw = glob.encode("utf-8", "surrogateescape")
    pieces = re.split(rb"(\*\*|\*|\?|\[!?\]?[^\]/]*\])", raw)
    return re.compile(b"".join(_TOKENS.get(piece) or _literal_or_set(piece) for piece in pieces), re.DOTALL)


_TOKENS = {b"**": rb".*", b"*": rb"[^/]*", b"?": rb"[^/]"}


def _literal_or_set(piece: bytes) -> bytes:
    if not (len(piece) > 2 and piece.startswith(b"[") and piece.endswith(b"]")):
        return re.escape(piece)
    # Characters that mean something to `re` in a set, or may one day.
    body = re.sub(rb"([\\\[&~|])|(?<=-)(-)", rb"\\\1\2", piece[1:-1])
    negated = body.startswith(b"!")
    body = body[1:] if negated else body
    body = (rb"\]" + body[1:]) if body.startswith(b"]") else body
    body = (rb"\^" + body[1:]) if body.startswith(b"^") else body
    pattern = b"[" + (b"^/" if negated else b"") + body + b"]"
    try:
        re.compile(pattern)
    except re.error:
        # Such as [b-a]: a shell takes it as it stands, too.
        return re.escape(piece)
    return pattern
