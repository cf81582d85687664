"""Peers that are lost, and those that are back: real sessions, with members as Serf would tell of them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from basefs.daemon.config import SYNC_PORT_OFFSET
from basefs.gossip.connect import probe
from basefs.gossip.events import Address
from basefs.gossip.members import Peer
from basefs.replication.propagation import Propagation, PropagationSettings
from basefs.replication.scheduler import PullLimits
from basefs.sync.net.service import SyncService
from basefs.sync.net.transport import DEFAULT_TIMING, SessionContext, SessionTiming
from basefs.sync.session.result import Reason, Result
from basefs.sync.session.states import Phase
from tests.support.asynchronous import run, until
from tests.support.helpers import copy_replica, make_replica
from tests.support.patience import DEADLINE

PULLS = PullLimits()

HOST = "127.0.0.1"


class Node:
    """A replica with sync and propagation; `members` are what a Serf agent would list.

    Attributes:
        ends: how its sessions have ended.
        calls: what it has told Serf.
        probed: the lost peers that it has looked for.
    """

    def __init__(self, directory: Path, timing: SessionTiming = DEFAULT_TIMING) -> None:
        self._timing = timing
        self.ends: list[tuple[tuple[str, int], Reason]] = []
        self.calls: list[tuple[str, Any]] = []
        self.probed: list[Address] = []
        self.replica = make_replica(directory)

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        shared = SessionContext(timing=self._timing)
        self.sync = SyncService(self.replica, (HOST, 0), peers=list, max_sessions=16, shared=shared)
        await self.sync.start(self)
        gossip: Any = SimpleNamespace(call=self._call, send=lambda events: None, peers=[], met=lambda address: None)
        address, settings = (lambda: Address(HOST, self.sync.port)), PropagationSettings(4, 0.0)
        self.propagation = Propagation(self.replica, gossip, self.sync, address, loop, settings, probe=self._probe)
        self.propagation.start()

    async def stop(self) -> None:
        await self.propagation.stop()
        await self.sync.stop()
        self.replica.close()

    def lose(self, addresses: list[Address]) -> None:
        """Nodes that were met before have failed."""
        for address in addresses:
            self.sync.meet(address)
        self.lost(addresses)

    def lost(self, addresses: list[Address]) -> None:
        """Members have failed."""
        self.propagation.on_members(
            [Peer(str(port), host, port - SYNC_PORT_OFFSET, port, "failed") for host, port in addresses]
        )

    def sees(self, *addresses: Address) -> None:
        self.propagation.on_members(
            [Peer(str(port), host, port - SYNC_PORT_OFFSET, port, "alive") for host, port in addresses]
        )

    async def _probe(self, host: str, port: int, timeout: float) -> object:
        self.probed.append(Address(host, port))
        return await probe(host, port, timeout)

    async def _call(self, *call: Any) -> None:
        self.calls.append(call)

    def on_gap(self, address: tuple[str, int]) -> None:
        self.propagation.on_gap(address)

    def on_progress(self, address: tuple[str, int], phase: Phase) -> None:
        self.propagation.on_progress(address, phase)

    def on_result(self, address: tuple[str, int], result: Result) -> None:
        self.ends.append((address, result.reason))
        self.propagation.on_result(address, result)


@contextlib.asynccontextmanager
async def peers(directory: Path, timing: SessionTiming = DEFAULT_TIMING) -> AsyncIterator[tuple[Node, Address]]:
    """A node, and where another one with the same log answers."""
    node = Node(directory / "node", timing)
    await node.start()
    other = SyncService(copy_replica(node.replica, directory / "other"), (HOST, 0), peers=list, max_sessions=16)
    await other.start()
    try:
        yield node, Address(HOST, other.port)
    finally:
        await node.stop()
        await other.stop()


@pytest.fixture
def silent() -> Iterator[list[Address]]:
    """Where nobody answers and nobody refuses, as behind a cut: the kernel drops what a full queue cannot take."""
    with contextlib.ExitStack() as stack:
        addresses = []
        for _ in range(2 * PULLS.sessions):
            listening = stack.enter_context(socket.socket())
            listening.bind((HOST, 0))
            listening.listen(0)
            addresses.append(Address(*listening.getsockname()))
            for _ in range(3):
                caller = stack.enter_context(socket.socket())
                caller.setblocking(False)
                caller.connect_ex(listening.getsockname())
        yield addresses


def test_lost_peers_take_no_places_of_sessions(tmp_path: Path, silent: list[Address]) -> None:
    """They take seconds to fail, and with half of a cluster cut off there are always some."""

    async def main() -> None:
        async with peers(tmp_path) as (node, other):
            node.lose(silent)
            await until(lambda: len(node.probed) == len(silent))
            node.sees(other)
            await until(lambda: node.ends)
            assert node.ends == [(other, Reason.COMPLETE)]

    run(main())


def test_an_address_at_which_nobody_has_answered_is_called_now_and_then(
    tmp_path: Path,
) -> None:
    """A member may name any address as its own, so that each node connects to it."""
    called: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        called.append(await reader.readline())
        writer.close()

    async def main() -> None:
        async with peers(tmp_path, SessionTiming(unmet=(DEADLINE, DEADLINE))) as (node, other):
            elsewhere = await asyncio.start_server(answer, HOST, 0)
            victim = Address(*elsewhere.sockets[0].getsockname())
            node.sees(victim, other)
            await until(lambda: {victim, other} <= {address for address, _ in node.ends})
            assert len(called) == 1
            assert node.sync.avoids(victim) and not node.sync.avoids(other)
            # Nor does it count as lost, although its member comes and goes.
            for _ in range(5):
                node.lost([victim])
                node.sees(victim, other)
            assert victim not in node.probed
            node.sync.meet(victim)
            assert not node.sync.avoids(victim)
            elsewhere.close()
            await elsewhere.wait_closed()

    run(main())


def test_a_peer_that_takes_connections_again_is_compared_with_and_serf_hears_of_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with peers(tmp_path) as (node, other):
            node.lose([other])
            await until(lambda: node.calls)
            assert node.ends == [(other, Reason.COMPLETE)]
            gossip = f"{HOST}:{other.port - SYNC_PORT_OFFSET}"
            assert node.calls == [("join", {"Existing": [gossip], "Replay": False})]

    run(main())


def test_a_node_that_stops_while_it_probes_leaves_nothing_behind(
    tmp_path: Path, silent: list[Address], caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    """No task, no connection that is being made, and nothing in the log about a loop that is closed."""

    async def main() -> None:
        node = Node(tmp_path / "node")
        await node.start()
        node.lose(silent)
        await until(lambda: len(asyncio.all_tasks()) > len(silent))
        await node.stop()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    caplog.set_level("WARNING")
    asyncio.run(main())
    gc.collect()
    assert not caplog.records
    assert not [warning for warning in recwarn if issubclass(warning.category, ResourceWarning)]
