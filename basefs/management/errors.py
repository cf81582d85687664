"""Exit codes: the only place where an error becomes one (docs/commands.md)."""

from __future__ import annotations

import enum
from typing import NoReturn

import click

from basefs import errors
from basefs.management.output import note


class ExitCode(enum.IntEnum):
    """With what a command ends."""

    #: Also where there was nothing to do, or nothing to list.
    DONE = 0
    #: It could not be done here and now; or, of `check` and `doctor`, something is wrong.
    FAILED = 1
    #: The command line itself has to be changed.
    WRONG_USAGE = 2
    #: A question was answered with no.  As apt and dnf do, not 0: what a script has behind `&&` is not meant then.
    DECLINED = 3
    #: After Ctrl-C, as a shell reports it.
    INTERRUPTED = 130


#: Nearest class in the method resolution order decides.
EXIT_CODES: dict[type[errors.BaseFSError], ExitCode] = {
    errors.BaseFSError: ExitCode.FAILED,
    errors.UsageError: ExitCode.WRONG_USAGE,
}


def exit_code_of(error: errors.BaseFSError) -> ExitCode:
    """The code with which a command ends."""
    return next(EXIT_CODES[cls] for cls in type(error).__mro__ if cls in EXIT_CODES)


def decline(message: str) -> NoReturn:
    """End a command whose question was answered with no: that is no error, and nothing was done."""
    note(message)
    raise click.exceptions.Exit(ExitCode.DECLINED)
