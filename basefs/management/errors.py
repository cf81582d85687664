"""The exit code of every error of ours: the only place where one becomes the other (docs/commands.md)."""

from __future__ import annotations

from basefs import errors

DONE = 0
FAILED = 1
WRONG_USAGE = 2
#: After Ctrl-C, as a shell reports it.
INTERRUPTED = 130

#: Nearest class in the method resolution order decides.
EXIT_CODES: dict[type[errors.BaseFSError], int] = {
    errors.BaseFSError: FAILED,
    errors.UsageError: WRONG_USAGE,
}


def exit_code_of(error: errors.BaseFSError) -> int:
    """The code with which a command ends."""
    return next(EXIT_CODES[cls] for cls in type(error).__mro__ if cls in EXIT_CODES)
