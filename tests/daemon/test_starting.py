"""The arguments of a daemon's parts at their start, and the events meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from basefs.daemon.network import Network
from basefs.daemon.settings import Settings
from basefs.gossip.events import Address, Announcement, GossipEvent
from basefs.gossip.members import Peer
from basefs.gossip.service import Gossip
from basefs.replica.bootstrap import CLUSTER_FILE, bootstrap
from basefs.replication.propagation import Propagation
from basefs.replication.puller import Puller
from basefs.sync.net.service import SyncService
from tests.support.helpers import ROOT_KEY
from tests.support.ports import free_port

PEER = Peer("other", "127.0.0.2", 18374, 18375, "alive")


async def nothing(gossip: Gossip) -> None:
    """A Serf agent that needs none."""


def start_network(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    start: Callable[[Any], Any] = nothing,
    cluster: bytes = b"",
    **changes: Any,
) -> tuple[Gossip, SyncService]:
    """Start the parts that talk to others, with `start` instead of Serf's, and stop them; returns what they were."""
    monkeypatch.setattr(Gossip, "start", start)
    monkeypatch.setattr(Gossip, "stop", nothing)
    directory = path / "fs" / "conf"
    directory.mkdir(parents=True)
    replica = bootstrap(directory, [(b"root", ROOT_KEY)], [], is_open=True)
    if cluster:
        replica.commit(lambda author: author.write((CLUSTER_FILE,), cluster))
    values: dict[str, Any] = {
        "name": "conf",
        "bind": ("127.0.0.1", free_port()),
        "interface": None,
        "settings": Settings(full_sync_interval=0, push_sessions=0),
        "join": [],
        "node_name": "here",
        "encrypt_key": None,
        "keys": replica.keys,
        **changes,
    }
    options: Any = SimpleNamespace(**values)

    async def main() -> Network:
        network = Network(options, replica, path)
        async with contextlib.AsyncExitStack() as departure, network.running(departure):
            return network

    network = asyncio.run(main())
    replica.close()
    return network.gossip, network.sync


def test_what_serf_tells_while_it_starts_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It replays what a node has missed before `start` returns."""
    asked: list[tuple[Address, str]] = []

    async def start(gossip: Any) -> None:
        gossip._on_members([PEER])
        gossip._on_event(GossipEvent(announcements=(Announcement(bytes(28), PEER.sync_address, ()),)))

    monkeypatch.setattr(
        Puller, "request", lambda puller, address, reason, *, jitter=0.0: asked.append((address, reason))
    )
    start_network(tmp_path, monkeypatch, start)
    assert asked == [(PEER.sync_address, "it joined"), (PEER.sync_address, "an announcement")]


@pytest.mark.logs("is not an address")
def test_nodes_to_join_are_those_of_the_command_line_and_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is no address in it is left out; so is this node."""
    port = free_port()
    cluster = b"10.0.0.1:18374\n10.0.0.2\nhost:port\n[fd00::1]:7\n127.0.0.1:%d\n" % port
    gossip, _ = start_network(
        tmp_path, monkeypatch, cluster=cluster, bind=("127.0.0.1", port), join=[("10.0.0.9", 1), ("10.0.0.2", 18374)]
    )
    assert gossip.config.join == ("10.0.0.9:1", "10.0.0.2:18374", "10.0.0.1:18374", "[fd00::1]:7")


def test_the_settings_reach_what_they_are_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, Any] = {}
    init, service = Propagation.__init__, SyncService.__init__

    def propagation(self: Propagation, *arguments: Any, **options: Any) -> None:
        made.update(dataclasses.asdict(arguments[5]))
        init(self, *arguments, **options)

    def sync(self: SyncService, *arguments: Any, **options: Any) -> None:
        made.update(options)
        service(self, *arguments, **options)

    monkeypatch.setattr(Propagation, "__init__", propagation)
    monkeypatch.setattr(SyncService, "__init__", sync)
    gossip, _ = start_network(
        tmp_path,
        monkeypatch,
        settings=Settings("lan", 7, 11.0, 2, 33, gossip=False, pull_jitter=0.25),
        encrypt_key="cg8StVXbQJ0gPvMd9o7yrg==",
    )
    assert gossip.config.profile == "lan" and gossip.config.encrypt_key == "cg8StVXbQJ0gPvMd9o7yrg=="
    assert (made["max_block_messages"], made["pull_jitter"], made["gossips"]) == (7, 0.25, False)
    assert (made["interval"], made["degree"], made["max_sessions"]) == (11.0, 2, 33)
