"""How revisions and times look to people."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from basefs.errors import UsageError

#: Digits of a hash that people see; commands take any number of them that is not ambiguous.
SHORT = 12

_AGO = re.compile(r"(\d+)([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def readable(row: Mapping[str, Any]) -> dict[str, Any]:
    """A revision with `short`, `when` and `by` beside what a service told."""
    return {
        **row,
        "short": row["entry"][:SHORT],
        "when": moment(row["time"]),
        "by": row["key"] or row["fingerprint"][:SHORT],
    }


def moment(seconds: float) -> str:
    """UNIX seconds as a local time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def parse_moment(text: str) -> float:
    """UNIX seconds of `2026-01-31 12:00[:00]` (local time, or with an offset), or of `15m` ago (s, m, h, d, w).

    Raises `UsageError`.
    """
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return time.time() - int(ago[1]) * _SECONDS[ago[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"{text!r} is no time: write '2026-01-31 12:00', or 15m, 2h, 3d for that long ago") from None
