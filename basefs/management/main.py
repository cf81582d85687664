"""The `basefs` command."""

from __future__ import annotations

import importlib
import keyword
import os
import re
import signal
import sys
from typing import NoReturn

import click

from basefs import __version__
from basefs.errors import BaseFSError
from basefs.management.completion import VARIABLE
from basefs.management.errors import FAILED, exit_code_of

#: Every command has a module of its own, with its click command under the same name.
COMMANDS = (
    "genkey",
    "bootstrap",
    "get",
    "mount",
    "unmount",
    "run",
    "list",
    "status",
    "doctor",
    "show",
    "watch",
    "log",
    "revert",
    "conflicts",
    "blocks",
    "check",
    "export",
    "import",
    "members",
    "resources",
    "serf",
    "installserf",
    "keys",
    "grant",
    "revoke",
    "completion",
)


#: Commands whose module lies in a room with what else they need, and where.
_ROOMS = {
    "doctor": "doctor.command",
    "import": "import_",
    "resources": "resources.command",
}


def load(command: str) -> click.Command:
    """The click command of that name.

    Its function has the same name, but for `import_`: nothing in Python may be called `import`.
    """
    module = importlib.import_module(f"basefs.management.{_ROOMS.get(command, command)}")
    found: click.Command = getattr(module, f"{command}_" if keyword.iskeyword(command) else command)
    return found


class _Commands(click.Group):
    """Imports a command's module when it is needed, so that none waits for what the others import."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = load(cmd_name)
        if VARIABLE in os.environ:
            importlib.import_module("basefs.management.completing").prepare(command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Each command with what it does, in as many lines as that needs: click would cut it off with dots."""
        rows = [(name, summary(self.get_command(ctx, name))) for name in COMMANDS]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def summary(command: click.Command | None) -> str:
    """What a command does: the beginning of its help text, up to the first stop."""
    paragraph = " ".join((command.help if command is not None and command.help else "").split("\n\n")[0].split())
    return re.split(r"(?<=[.:;]) ", paragraph)[0].rstrip(".:;")


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="basefs")
def basefs() -> None:
    """One configuration tree that every machine mounts, and that any machine may write at any time.

    State is kept in $BASEFS_HOME, by default ~/.basefs.
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; a user's mistake is one line on stderr and an exit code, never a traceback."""
    # A reader that goes away, as in `basefs show NAME | head`, is no error.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if VARIABLE in os.environ:
        # It says how to answer the shells.
        importlib.import_module("basefs.management.completing")
    try:
        basefs.main(args=arguments, prog_name="basefs")
    except BaseFSError as error:
        _fail(str(error), exit_code_of(error))
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        _fail(f"{error.strerror or error}{where}", FAILED)


def _fail(message: str, code: int) -> NoReturn:
    click.echo(f"basefs: {' '.join(message.split())}", err=True)
    sys.exit(code)
