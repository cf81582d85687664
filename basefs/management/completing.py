"""The answers to a shell that completes a command line; the scripts that ask are in `completion`.

A word that may go on, a directory or a filesystem whose path follows, is of the kind `open`: no space comes behind it.
"""

from __future__ import annotations

import os
import re
from typing import Any

import click
from click.shell_completion import CompletionItem, ShellComplete, add_completion_class, split_arg_string

from basefs.daemon.api.messages import ListNames
from basefs.daemon.config import Home
from basefs.errors import BaseFSError
from basefs.management.completion import SCRIPTS
from basefs.management.session import ask

#: Commands whose NAME must be a new one.
_NEW_NAMES = frozenset({"bootstrap", "get", "join"})
#: What bash would not take as part of a word.
_SPECIAL = re.compile(r"([^\w@%+=:,./~-])")

Items = list[CompletionItem[Any]]


def prepare(command: click.Command) -> None:
    """Have the arguments of a command complete what its help calls them: NAME, or NAME:/PATH."""
    for parameter in command.params:
        if not isinstance(parameter, click.Argument) or parameter.type is not click.STRING:
            continue
        shown = parameter.metavar or ""
        if "NAME:/PATH" in shown or "NAME[:/PATH]" in shown:
            parameter.type = _Target(alone="[:" in shown)
        elif parameter.name in ("name", "target") and command.name not in _NEW_NAMES:
            parameter.type = _Name()


class _Name(click.types.StringParamType):
    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
        """The filesystems of this node."""
        return [CompletionItem(name) for name in _names(incomplete)]


class _Target(click.types.StringParamType):
    """`alone`: whether the name of a filesystem alone is a target too."""

    def __init__(self, *, alone: bool) -> None:
        self._alone = alone

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
        """The filesystems of this node, then the names in a directory; files for what may be a path of a mount."""
        name, colon, path = incomplete.partition(":")
        if colon:
            return _paths(name, path)
        if "/" in incomplete or incomplete.startswith("."):
            return [CompletionItem(incomplete, type="file")]
        names = _names(incomplete)
        items = [CompletionItem(f"{name}:/", type="open") for name in names]
        return [CompletionItem(name) for name in names if self._alone] + items


def _names(incomplete: str) -> list[str]:
    return [name for name in Home.from_environment().names() if name.startswith(incomplete)]


def _paths(name: str, path: str) -> Items:
    directory, _, _ = path.rpartition("/")
    try:
        found = ask(Home.from_environment(), name, ListNames(directory or "/"))
    except BaseFSError:
        return []
    items: Items = []
    for child in found:
        whole = f"{name}:{directory}/{child.name}" + ("/" if child.is_directory else "")
        # A name that is not UTF-8 or has line breaks in it cannot go through these lines.
        if whole.startswith(f"{name}:{path}") and whole.isprintable():
            items.append(CompletionItem(whole, type="open" if child.is_directory else "plain"))
    return items


class _Complete(ShellComplete):
    def source(self) -> str:
        """The script."""
        return SCRIPTS[self.name]

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words behind the command, and the one that is being typed."""
        line = os.environ.get("COMP_LINE", "")
        words = split_arg_string(line)
        while words and os.path.basename(words[0]) != "basefs":
            words.pop(0)
        incomplete = "" if line[-1:].isspace() or len(words) < 2 else words.pop()
        return words[1:], incomplete

    def format_completion(self, item: CompletionItem[Any]) -> str:
        """A line of the answer."""
        return f"{item.type},{item.value}"


class _Bash(_Complete):
    name = "bash"

    def format_completion(self, item: CompletionItem[Any]) -> str:
        """Bash takes words as they stand, and only what is behind the last colon, which divides words for it."""
        value = _SPECIAL.sub(r"\\\1", item.value)
        if ":" in os.environ.get("BREAKS", ""):
            typed = self.get_completion_args()[1]
            value = value[len(_SPECIAL.sub(r"\\\1", typed[: typed.rfind(":") + 1])) :]
        return f"{item.type},{value}"


class _Zsh(_Complete):
    name = "zsh"


class _Fish(_Complete):
    name = "fish"


for _class in (_Bash, _Zsh, _Fish):
    add_completion_class(_class)
