"""What a node does that grows with the number of members: the real code, fed with tables of members."""

from __future__ import annotations

import asyncio
import itertools
import random
import statistics
import time
import tracemalloc
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

from basefs.gossip.events import Address
from basefs.gossip.members import TAG_FS, TAG_KEY, TAG_SYNC, Member, Peer, PeerFilter, parse_member
from basefs.gossip.service import Gossip
from basefs.log.keys import SigningKey
from basefs.replica.replica import Replica
from basefs.replication.propagation import Propagation, PropagationSettings
from basefs.replication.scheduler import PullScheduler
from basefs.sync.net.service import SyncService
from basefs.sync.net.tls import Credentials
from eval.rows import Row
from eval.scale.cluster import host_of
from tests.simulation.bus import GOSSIP_PORT, SYNC_PORT
from tests.support.memory import MemoryLog

_FSID = bytes(28)
_OWN = "node-0@10.255.0.1:18374"
#: Seconds of the clock between two periodic sessions; any number would do.
_INTERVAL = 5.0
#: Members beyond which trust anchors are not made: it takes a millisecond for each.
_MOST_ANCHORS = 3000


def grow(nodes: int, repeat: int) -> Row:
    """Processor milliseconds of one look at the members, of one choice of a peer and of trusting all keys; memory."""
    row = asyncio.run(_tables(nodes, repeat))
    if nodes <= _MOST_ANCHORS:
        keys = [SigningKey.from_seed(number.to_bytes(32, "big")) for number in range(nodes)]
        row["trust ms"] = _ms(lambda: Credentials(keys[0], [key.public for key in keys]), 1)
    return row


async def _tables(nodes: int, repeat: int) -> Row:
    records = [_record(number) for number in range(1, nodes + 1)]
    look = PeerFilter(_FSID)

    def read() -> tuple[list[Member], list[Peer]]:
        members = [parse_member(record) for record in records]
        return members, look.peers(members, _OWN)

    tracemalloc.start()
    _, peers = kept = read()
    propagation, sync = await _parts(peers)
    table = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del kept
    turns = itertools.cycle(range(nodes))

    def told() -> None:
        # Another member has failed than the last time.
        number = next(turns)
        propagation.on_members([_failed(peer) if index == number else peer for index, peer in enumerate(peers)])

    def alive() -> list[Address]:
        return [peer.sync_address for peer in peers if peer.status == "alive"]

    scheduler, moments = (
        PullScheduler(alive, random.Random(1), interval=_INTERVAL),
        itertools.count(_INTERVAL, _INTERVAL),
    )
    scheduler.start(0.0)

    def choose() -> None:
        now = next(moments)
        pull = scheduler.next(now, sync)
        assert pull is not None
        scheduler.ended(pull, now, sync)

    return {
        "look ms": _ms(read, repeat),
        "told ms": _ms(told, repeat),
        "choice ms": _ms(choose, repeat),
        "table KiB": table / 1024,
    }


def _ms(work: Callable[[], object], repeat: int) -> float:
    spent = []
    for _ in range(repeat):
        began = time.process_time()
        work()
        spent.append(1000 * (time.process_time() - began))
    return statistics.median(spent)


def _record(number: int) -> dict[str, Any]:
    """A member as Serf's RPC tells of it."""
    host = host_of(number)
    tags = {TAG_SYNC: str(SYNC_PORT), TAG_FS: _FSID.hex(), TAG_KEY: f"{number:024x}"}
    packed = bytes(10) + b"\xff\xff" + bytes(map(int, host.split(".")))
    name = f"node-{number}@{host}:{GOSSIP_PORT}"
    return {"Name": name, "Addr": packed, "Port": GOSSIP_PORT, "Tags": tags, "Status": "alive"}


def _failed(peer: Peer) -> Peer:
    return Peer(peer.name, peer.host, peer.gossip_port, peer.sync_port, "failed")


async def _parts(peers: Sequence[Peer]) -> tuple[Propagation, SyncService]:
    """Replication and sync of a node that has been told of these members, and does nothing with them."""
    log = MemoryLog(_FSID)
    loop = asyncio.get_running_loop()
    gossip = SimpleNamespace(peers=list(peers), send=lambda payloads: None)
    alive = [peer.sync_address for peer in peers]
    sync = SyncService(log, (_OWN, SYNC_PORT), peers=lambda: alive, max_sessions=1)
    # Nothing is announced or fetched: what is measured is the table alone.
    settings = PropagationSettings(0, 0.0, gossips=False)
    here = Address("10.255.0.1", SYNC_PORT)
    propagation = Propagation(cast(Replica, log), cast(Gossip, gossip), sync, lambda: here, loop, settings)
    propagation.start()
    propagation.on_members(list(peers))
    await propagation.stop()
    return propagation, sync
