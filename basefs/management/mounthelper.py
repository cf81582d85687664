"""`mount -t fuse.basefs basefs:NAME DIRECTORY`, and lines of fstab(5): what mount(8) runs as /sbin/mount.fuse.basefs.

mount(8), "EXTERNAL HELPERS": it is called with `SPEC DIR [-sfnv] [-N namespace] [-o options] [-t type.subtype]`.  Its
options become those of `basefs mount`: a flag `single-node` is `--single-node`, `bind=IP:PORT` is `--bind IP:PORT`.
"""

from __future__ import annotations

import getopt
import os
import sys
from collections.abc import Iterator

import click

from basefs.daemon.config import command_line
from basefs.errors import BaseFSError, UsageError
from basefs.management.errors import exit_code_of
from basefs.management.output import note

USAGE = "mount -t fuse.basefs basefs:NAME DIRECTORY [-o OPTION[=VALUE],...]"
#: For mount(8) itself, or what is the default anyway.
_IGNORED = frozenset(
    ["defaults", "_netdev", "nofail", "auto", "noauto", "user", "users", "nouser", "owner", "group", "rw"]
)
_IGNORED_PREFIXES = ("x-", "X-", "comment=")


def main() -> None:
    """Become `basefs mount`."""
    try:
        command, home = translate(sys.argv[1:], _options_of_mount())
    except BaseFSError as error:
        note(f"mount.fuse.basefs: {error}")
        sys.exit(exit_code_of(error))
    if home is not None:
        os.environ["BASEFS_HOME"] = home
    if command:
        os.execv(sys.executable, command_line(command))


def _options_of_mount() -> dict[str, bool]:
    from basefs.management.mount import mount

    known = {}
    for parameter in mount.params:
        if isinstance(parameter, click.Option):
            for name in (*parameter.opts, *parameter.secondary_opts):
                known[name.lstrip("-")] = parameter.is_flag
    return known


def translate(arguments: list[str], known: dict[str, bool]) -> tuple[list[str], str | None]:
    """What mount(8) says, as arguments of `basefs`, and the home that it names if any.

    `known` has the options of `basefs mount`, and whether each is a flag.  No arguments: there is nothing to do.
    Raises `UsageError`.
    """
    try:
        flags, rest = getopt.gnu_getopt(arguments, "sfnvN:o:t:")
    except getopt.GetoptError as error:
        raise UsageError(f"{error}: {USAGE}") from None
    if len(rest) != 2:
        raise UsageError(f"a name and a directory are needed: {USAGE}")
    if any(flag == "-f" for flag, _ in flags):
        # "Fake": everything but the mount.
        return [], None
    source, directory = rest
    words: list[str] = []
    home = None
    for text in _each(value for flag, value in flags if flag == "-o"):
        option, given, value = text.partition("=")
        if option == "home" and given:
            home = value
        else:
            words.extend(_translate(option, value if given else None, known))
    return ["mount", source.removeprefix("basefs:"), directory, *words], home


def _each(lists: Iterator[str]) -> Iterator[str]:
    for text in ",".join(lists).split(","):
        if text and text not in _IGNORED and not text.startswith(_IGNORED_PREFIXES):
            yield text


def _translate(option: str, value: str | None, known: dict[str, bool]) -> list[str]:
    if option not in known:
        return ["-o", option if value is None else f"{option}={value}"]
    if known[option] != (value is None):
        raise UsageError(f"the option {option} takes {'no' if known[option] else 'a'} value")
    name = f"-{option}" if len(option) == 1 else f"--{option}"
    return [name] if value is None else [name, value]
