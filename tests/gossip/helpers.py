"""What the gossip tests share: free ports, waiting for conditions, nodes that are always cleaned up."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from basefs.gossip.agent import Agent
from basefs.gossip.config import AgentConfig
from basefs.gossip.events import GossipEvent
from basefs.gossip.members import Peer
from basefs.gossip.service import Gossip
from tests.support.patience import DEADLINE
from tests.support.ports import free_port

FSID = bytes(range(28))
OTHER_FSID = bytes(range(100, 128))

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a test's coroutine with a limit on the whole of it."""

    async def limited() -> T:
        return await asyncio.wait_for(coroutine, 3 * DEADLINE)

    return asyncio.run(limited())


async def until(condition: Callable[[], Any], what: str = "the condition") -> None:
    """Wait until `condition()` is true; fails after DEADLINE seconds."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + DEADLINE
    while not condition():
        assert loop.time() < deadline, f"waited {DEADLINE} s in vain for {what}"
        await asyncio.sleep(0.01)


def config_for(path: Path, name: str, **changes: Any) -> AgentConfig:
    """An agent on loopback with the fastest timing."""
    values: dict[str, Any] = {
        "node_name": name,
        "bind": f"127.0.0.1:{free_port()}",
        "profile": "local",
        "tags": {"sync": "4711"},
        "snapshot_path": path / name / "snapshot",
    }
    return AgentConfig(**{**values, **changes})


@asynccontextmanager
async def agent(path: Path, name: str = "a", **changes: Any) -> AsyncIterator[Agent]:
    """A real agent; killed at the end."""
    started = await Agent.start(config_for(path, name, **changes), path / name)
    try:
        yield started
    finally:
        await started.kill()


class Node:
    """A Gossip service that remembers what it was told."""

    def __init__(
        self,
        path: Path,
        name: str,
        fsid: bytes = FSID,
        on_event: Callable[[GossipEvent], None] | None = None,
        met_at: Callable[[Peer], float | None] = lambda peer: time.time(),
        view_hash: Callable[[bytes], bytes] = lambda state: b"",
        **changes: Any,
    ) -> None:
        self.events: list[GossipEvent] = []
        self.peers: list[Peer] = []
        self.overflows = 0
        self.gossip = Gossip(
            config_for(path, name, **changes),
            rundir=path / name / "run",
            fsid=fsid,
            on_event=on_event or self.events.append,
            on_members=self._on_members,
            on_overflow=self._on_overflow,
            met_at=met_at,
            view_hash=view_hash,
        )

    @property
    def address(self) -> str:
        """Where others join this node."""
        return self.gossip.config.bind

    def sees(self, *names: str, status: str = "alive") -> bool:
        """Whether exactly these peers have this status."""
        return {peer.node_name for peer in self.peers if peer.status == status} == set(names)

    def has_entry(self, entry: bytes) -> bool:
        """Whether an event with this entry has arrived."""
        return any(entry in event.entries for event in self.events)

    def _on_members(self, peers: list[Peer]) -> None:
        self.peers = peers

    def _on_overflow(self) -> None:
        self.overflows += 1


@asynccontextmanager
async def nodes(*started: Node) -> AsyncIterator[None]:
    """Start the nodes; stop them all, whatever happens."""
    try:
        for node in started:
            await node.gossip.start(timeout=DEADLINE)
        yield
    finally:
        await asyncio.gather(*(node.gossip.stop() for node in started))


def alive(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def random_entry(size: int) -> bytes:
    """Bytes that look like an entry to the event codec."""
    return b"\x03" + os.urandom(size - 1)
