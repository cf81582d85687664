"""Timers of an event loop, in a time of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any


class Loop:
    """Timers of an event loop, in a time of its own."""

    def __init__(self) -> None:
        self.now = 100.0
        self._timers: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, due: float, call: Callable[..., None], *arguments: object) -> Any:
        timer = (due, functools.partial(call, *arguments))
        self._timers.append(timer)
        return SimpleNamespace(cancel=lambda: self._timers.remove(timer))

    def call_later(self, delay: float, call: Callable[..., None], *arguments: object) -> Any:
        return self.call_at(self.now + delay, call, *arguments)

    def pass_time(self, seconds: float) -> None:
        """Let time pass; what is due happens at its moment."""
        end = self.now + seconds
        while due := [timer for timer in self._timers if timer[0] <= end]:
            timer = min(due, key=lambda timer: timer[0])
            self._timers.remove(timer)
            self.now = max(timer[0], self.now)
            timer[1]()
        self.now = end
