"""The `basefs` command."""

from __future__ import annotations

import errno
import importlib
import keyword
import os
import re
import signal
import sys
from collections.abc import Iterable, Sequence
from typing import NoReturn

import click

from basefs import __version__
from basefs.errors import BaseFSError, UsageError, suggestion
from basefs.management.completion import VARIABLE
from basefs.management.errors import ExitCode, exit_code_of
from basefs.management.output import note

#: The commands as `basefs --help` lists them.  Each has a module of its own, with a click command of its name.
GROUPS = {
    "Set up and run": ("genkey", "bootstrap", "join", "get", "mount", "unmount", "run", "remove"),
    "Look": ("list", "status", "doctor", "members", "resources", "blocks"),
    "Changes and history": ("show", "log", "diff", "cat", "revert", "conflicts", "watch"),
    "Permission to write": ("keys", "invite", "grant", "revoke", "expel", "rekey", "recover"),
    "Check and back up": ("check", "export", "import"),
    "Other tools": ("serf", "installserf", "completion"),
}
COMMANDS = tuple(name for names in GROUPS.values() for name in names)
#: What people type for a command -> its name.
_ALIASES = {"umount": "unmount"}
#: What people type after other tools -> what to type here; suggestions by likeness would mislead.
_INSTEAD = {
    "rm": "'basefs remove NAME' deletes a filesystem, and rm in its mount a file",
    "delete": "'basefs remove NAME' deletes a filesystem, and rm in its mount a file",
    "init": "'basefs bootstrap NAME' makes a filesystem",
    "create": "'basefs bootstrap NAME' makes a filesystem",
    "clone": "'basefs get NAME ADDR' fetches a filesystem",
    "start": "'basefs mount NAME DIR' starts a filesystem, 'basefs run NAME' one without a mount",
    "stop": "'basefs unmount NAME' stops a filesystem",
    "ls": "'basefs list' lists the filesystems, and ls in a mount its files",
    "history": "'basefs log NAME:/PATH' lists the revisions of a path",
    "undo": "'basefs revert NAME:/PATH' brings back what was",
    "restore": "'basefs revert NAME:/PATH' brings back what was",
    "config": "the settings are in the file config of $BASEFS_HOME, by default ~/.basefs",
}
#: What works as a command, and has no module.
_WORDS = ("help", "version")

#: Commands whose module lies in a package with what else they need, and where.
_MODULES = {
    "doctor": "doctor.command",
    "import": "import_",
}


def load(command: str) -> click.Command:
    """The click command of that name.

    Its function has the same name, but for `import_`: nothing in Python may be called `import`.
    """
    module = importlib.import_module(f"basefs.management.{_MODULES.get(command, command)}")
    found: click.Command = getattr(module, f"{command}_" if keyword.iskeyword(command) else command)
    found.context_class = _Context
    return found


class _Formatter(click.HelpFormatter):
    """Breaks the lines of help between words alone: half of an option is another option."""

    #: Stands for a hyphen while click, which takes one for a place to break, wraps the lines.
    _HYPHEN = "\N{NON-BREAKING HYPHEN}"

    def write_text(self, text: str) -> None:
        super().write_text(text.replace("-", self._HYPHEN))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        super().write_dl([(first, text.replace("-", self._HYPHEN)) for first, text in rows], col_max, col_spacing)

    def write(self, string: str) -> None:
        super().write(string.replace(self._HYPHEN, "-"))


class _Context(click.Context):
    formatter_class = _Formatter


class _Commands(click.Group):
    """Imports a command's module when it is needed, so that none waits for what the others import."""

    context_class = _Context

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = _ALIASES.get(cmd_name, cmd_name)
        if name not in COMMANDS:
            return None
        command = load(name)
        if VARIABLE in os.environ:
            importlib.import_module("basefs.management.completing").prepare(command)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """`help [COMMAND]` and `--help [COMMAND]` are `[COMMAND] --help`, and `version` is `--version`."""
        if args and args[0] in ("help", *ctx.help_option_names):
            if len(args) > 2:
                raise UsageError(f"help describes one command: write 'basefs help {args[1]}'")
            args = [*(word for word in args[1:] if word not in _WORDS), "--help"]
        elif args == ["version"]:
            args = ["--version"]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            instead = _INSTEAD.get(name)
            if instead is not None:
                raise UsageError(f"there is no command {name}: {instead}")
            raise UsageError(f"there is no command {name}{suggestion(name, COMMANDS)}: 'basefs help' lists them")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Each command with what it does, in as many lines as that needs: click would cut it off with dots."""
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name, summary(self.get_command(ctx, name))) for name in names])


def summary(command: click.Command | None) -> str:
    """What a command does: the beginning of its help text, up to the first stop."""
    paragraph = " ".join((command.help if command is not None and command.help else "").split("\n\n")[0].split())
    return re.split(r"(?<=[.:;]) ", paragraph)[0].rstrip(".:;")


@click.command(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="'basefs help COMMAND' describes a command, and 'man basefs' all of them.",
)
@click.version_option(__version__, "-v", "--version", prog_name="basefs", message="%(prog)s %(version)s")
def basefs() -> None:
    """One configuration tree that every machine mounts, and that any machine may write at any time.

    State is kept in $BASEFS_HOME, by default ~/.basefs (for root /var/lib/basefs, if only that exists).
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; a user's mistake is one line on stderr and an exit code, never a traceback."""
    # A reader that goes away, as in `basefs show NAME | head`, is no error.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    _open_standard_streams()
    if VARIABLE in os.environ:
        # It says how to answer the shells.
        importlib.import_module("basefs.management.completing")
    words = sys.argv[1:] if arguments is None else arguments
    try:
        sys.exit(basefs.main(args=words or ["--help"], prog_name="basefs", standalone_mode=False) or ExitCode.DONE)
    except click.UsageError as error:
        _fail(_explained(error, words), ExitCode.WRONG_USAGE)
    except click.Abort:
        sys.exit(ExitCode.INTERRUPTED)
    except BaseFSError as error:
        _fail(str(error), exit_code_of(error))
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        if not where and error.errno == errno.ENOSPC:
            where = ": standard output"
        _fail(f"{error.strerror or error}{where}", ExitCode.FAILED)


def _open_standard_streams() -> None:
    """Of those that the caller has closed: what is opened next, a log for example, must not take their place."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(descriptor, "r" if name == "stdin" else "w", closefd=False))


def _explained(error: click.UsageError, words: Sequence[str]) -> str:
    """A message of click's about a command line in the form of ours: one sentence, and what to type."""
    message = error.format_message().rstrip(".")
    # An option without its value has no context.
    command = " ".join(["basefs", *(name for name in words[:1] if name in COMMANDS)])
    if error.ctx is not None:
        command = error.ctx.command_path
    word = error.option_name.lstrip("-") if isinstance(error, click.NoSuchOption) else ""
    if word in COMMANDS:
        # Not an option that is spelt like it: it is a command of its own.
        message = f"{error.message.rstrip('.')} (did you mean 'basefs {word}'?)"
    message = re.sub(r"\.? \(?Did you mean (.+?)\?\)?$", r" (did you mean \1?)", message)
    return f"{message[:1].lower()}{message[1:]}: see '{command} --help'"


def _fail(message: str, code: int) -> NoReturn:
    note(f"basefs: {' '.join(message.split())}")
    sys.exit(code)
