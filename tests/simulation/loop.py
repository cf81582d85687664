"""An event loop whose clock jumps to what is due next, and the processes that run on it.

Worker threads are played in the loop's own: a job runs as a whole, a random moment after it was given.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import random
import selectors
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")

#: Seconds of the loop's clock at the beginning of a run.
BEGINNING = 1000.0


@dataclass(eq=False)
class Process:
    """One run of a node's daemon.

    Attributes:
        host: its IP address.
        rng: of everything that the process itself leaves to chance.
        disk: seconds that a job of a worker thread takes at the most.
        alive: whether it was not killed; what a killed one does reaches nobody.
        hostile: whether it is no program of ours.
    """

    host: str
    rng: random.Random
    disk: float = 0.003
    alive: bool = True
    hostile: bool = False


#: The process on whose behalf code runs.
PROCESS: contextvars.ContextVar[Process] = contextvars.ContextVar("process")


class Trace:
    """What happened, one line for each event."""

    def __init__(self, loop: Loop, *, keeps: bool = True, without: str = "") -> None:
        """`keeps`: whether the lines are wanted; `without`: what is left out of them, as it is by chance."""
        self._loop = loop
        self._keeps = keeps
        self._without = without
        self.lines: list[str] = []

    def __call__(self, who: str, what: str) -> None:
        """Note an event; `who`: the host or the hosts."""
        if self._keeps:
            if self._without:
                what = what.replace(self._without, "")
            self.lines.append(f"{self._loop.time() - BEGINNING:11.6f}  {who:<19}  {what}")

    @property
    def digest(self) -> str:
        """Equal for equal runs alone."""
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()[:16]


class _Selector(selectors.BaseSelector):
    """Waits for no file; instead of that, time passes."""

    def __init__(self) -> None:
        self.now = BEGINNING
        self.rounds = 0
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        self._keys[fileobj] = key = selectors.SelectorKey(fileobj, 0, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "nothing is due any more"
        self.now += max(timeout, 0.0)
        self.rounds += 1
        return []

    def get_map(self) -> Any:
        return self._keys


class Loop(asyncio.SelectorEventLoop):
    """The loop; `network` makes connections and servers (`tests/simulation/network.py`)."""

    network: Any

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now

    @property
    def rounds(self) -> int:
        """How often it has looked for what is due."""
        return self._virtual.rounds

    def run_in_executor(self, executor: Any, func: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:  # type: ignore[override]
        future: asyncio.Future[T] = self.create_future()
        process = PROCESS.get()

        def run() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*arguments))
            except Exception as error:
                future.set_exception(error)

        self.call_later(process.rng.uniform(0.0, process.disk), run)
        return future

    def remove_reader(self, fd: Any) -> bool:
        # A simulated server has no descriptor.
        return fd != -1 and super().remove_reader(fd)

    async def create_server(self, factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:  # type: ignore[override]
        return self.network.listen(factory, host, port)

    async def create_connection(self, factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:  # type: ignore[override]
        return await self.network.connect(factory, host, port)
