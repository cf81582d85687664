"""What the parts of a daemon hear while they start."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from basefs.config import Home
from basefs.gossip.events import Address, Announcement, Event
from basefs.gossip.members import Peer
from basefs.gossip.service import Gossip
from basefs.parts import Parts
from basefs.settings import Settings
from basefs.sync.service import SyncService

from .gossip.helpers import free_port
from .helpers import make_replica

PEER = Peer("other", "127.0.0.2", 18374, 18375, "alive")


def test_what_serf_tells_while_it_starts_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It replays what a node has missed before `start` returns."""
    asked: list[tuple[Address, str]] = []

    async def start(gossip: Any) -> None:
        gossip._on_members([PEER])
        gossip._on_event(Event(announcements=(Announcement(bytes(28), PEER.sync_address, ()),)))

    async def stop(gossip: Any) -> None:
        pass

    monkeypatch.setattr(Gossip, "start", start)
    monkeypatch.setattr(Gossip, "stop", stop)
    monkeypatch.setattr(
        SyncService, "request", lambda sync, address, reason, *, jitter=0.0: asked.append((address, reason))
    )
    replica = make_replica(tmp_path / "fs" / "conf")
    options: Any = SimpleNamespace(
        bind=("127.0.0.1", free_port()),
        interface=None,
        settings=Settings(full_sync_interval=0, push_sessions=0),
        join=[],
        node_name="here",
        encrypt_key=None,
        name="conf",
    )
    unused: Any = None

    async def main() -> None:
        parts = Parts(Home(tmp_path), options, replica, unused, lambda: None, unused)
        async with contextlib.AsyncExitStack() as stack:
            await parts._start_network(stack)

    asyncio.run(main())
    replica.close()
    assert asked == [(PEER.sync_address, "it joined"), (PEER.sync_address, "an announcement")]
