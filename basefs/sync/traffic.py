"""What all sessions of a node have moved, those that are still open included."""

from __future__ import annotations

from dataclasses import fields

from basefs.sync.result import Counters

_SUMS = tuple(field.name for field in fields(Counters) if field.type == "int")


class Traffic:
    """Adds up the counters of sessions."""

    def __init__(self) -> None:
        self._past = Counters()
        # By identity: two sessions may have counted the same.
        self._open: dict[int, Counters] = {}

    def began(self, counters: Counters) -> None:
        """A session counts with these from now on."""
        self._open[id(counters)] = counters

    def ended(self, counters: Counters) -> None:
        """It counts no more."""
        del self._open[id(counters)]
        _add(self._past, counters)

    def total(self) -> Counters:
        """The sum so far; `refusal` is empty."""
        total = Counters()
        for counters in (self._past, *self._open.values()):
            _add(total, counters)
        return total


def _add(total: Counters, counters: Counters) -> None:
    for name in _SUMS:
        setattr(total, name, getattr(total, name) + getattr(counters, name))
