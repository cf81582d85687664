"""The command line that starts this very program again."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path


def command_line(arguments: Sequence[str]) -> list[str]:
    """This interpreter and this installation with other arguments.

    Not by `-m`, which would let a module in the working directory take the place of one of ours.
    """
    return [sys.executable, str(Path(__file__).parent.parent / "__main__.py"), *arguments]
