"""What all sessions of a node have moved, those that are still open included."""

from __future__ import annotations

from dataclasses import fields
from typing import Protocol

from basefs.sync.net.schedule import Address
from basefs.sync.session.result import Counters

_SUMS = tuple(field.name for field in fields(Counters) if field.type == "int")


class Moving(Protocol):
    """A session, as far as its bytes are counted.

    Attributes:
        address: of the peer, as far as it is known.
    """

    address: Address

    @property
    def counters(self) -> Counters:
        """What it has moved so far."""


class Traffic:
    """Adds up the counters of sessions."""

    def __init__(self) -> None:
        self._past = Counters()
        self._open: set[Moving] = set()

    def began(self, session: Moving) -> None:
        """A session counts from now on."""
        self._open.add(session)

    def ended(self, session: Moving) -> None:
        """It will not count any more than it has by now."""
        self._open.remove(session)
        _add(self._past, session.counters)

    def open_with(self, address: Address) -> Counters:
        """What the open sessions with a peer have moved; `refusal` is empty."""
        total = Counters()
        for session in self._open:
            if session.address == address:
                _add(total, session.counters)
        return total

    def total(self) -> Counters:
        """The sum so far; `refusal` is empty."""
        total = Counters()
        for counters in (self._past, *(session.counters for session in self._open)):
            _add(total, counters)
        return total


def _add(total: Counters, counters: Counters) -> None:
    for name in _SUMS:
        setattr(total, name, getattr(total, name) + getattr(counters, name))
