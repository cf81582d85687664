"""What it costs that only members read: a closed filesystem beside an open one, by turns."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from basefs.log.keys import SigningKey
from basefs.sync.net.connection import Connection
from basefs.sync.net.tls import Credentials
from eval.net.scenario import (
    Options,
    Scenario,
    network_of,
    say,
    seconds_to_all,
    settled_root,
    wait_for_root,
)
from eval.rows import Row, Rows
from tests.support.cluster import NAME, Cluster
from tests.support.node import COMMAND, Node

#: Nodes that news and a copy go to.
NODES = 10
#: Handshakes of one round, of which the median counts, and the keys that each side trusts.
_HANDSHAKES = 300
_TRUSTED = 30
#: Changes in a cluster, bytes of one, and seconds between two.
_CHANGES = 30
_SMALL = 100
_PAUSE = 0.3
PATIENCE = 300.0
_SOURCE = Path("/etc")
_HANDSHAKE = "handshake, processor ms of both ends"
_NEWS, _COPY, _JOIN, _MOUNT = "small change, s", "/etc, s", "join, s", "join and mount, s"


def _run(options: Options, rows: Rows) -> None:
    if not rows.has(nodes=2, what=_HANDSHAKE):
        with rows.recording(nodes=2, what=_HANDSHAKE):
            pairs = [(_plain(), _under_tls()) for _ in range(options.repeat)]
            plain, under_tls = ([1000 * seconds for seconds in each] for each in zip(*pairs, strict=True))
            rows.add({"nodes": 2, "what": _HANDSHAKE, **_compared(plain, under_tls)})
    for count in options.nodes or (NODES,):
        if all(rows.has(nodes=count, what=what) for what in (_NEWS, _COPY, _JOIN, _MOUNT)):
            continue
        found: dict[str, tuple[list[float], list[float]]] = {what: ([], []) for what in (_NEWS, _COPY, _JOIN, _MOUNT)}
        with rows.recording(nodes=count, what=_NEWS):
            for _ in range(options.repeat):
                for closed in (False, True):
                    for what, seconds in _measure(count, options, closed=closed).items():
                        found[what][closed].append(seconds)
        for what, (plain, under_tls) in found.items():
            rows.add({"nodes": count, "what": what, **_compared(plain, under_tls)})


def _compared(plain: list[float], closed: list[float]) -> Row:
    """Medians of the rounds, and their ratios; nobody joins an open filesystem."""
    row: Row = {
        "rounds": len(closed),
        "closed": statistics.median(closed),
        "closed least": min(closed),
        "closed most": max(closed),
    }
    if plain:
        ratios = [mine / other for mine, other in zip(closed, plain, strict=True)]
        row |= {
            "open": statistics.median(plain),
            "closed / open": statistics.median(ratios),
            "closed / open least": min(ratios),
            "closed / open most": max(ratios),
        }
    return row


def _measure(count: int, options: Options, *, closed: bool) -> dict[str, float]:
    say(f"starting {count} nodes, {'closed' if closed else 'open'}")
    found = {}
    with network_of(count + 1) as network:
        *nodes, new = network.nodes
        cluster = Cluster.start(network, nodes, closed=closed)
        cluster.wait_for_sessions()
        say("small changes")
        seconds, chance = [], options.chance("small")
        for number in range(_CHANGES):
            time.sleep(_PAUSE)
            seconds.append(seconds_to_all(nodes, f"small{number}", chance.randbytes(_SMALL), PATIENCE))
        found[_NEWS] = statistics.median(seconds)
        say("a copy of /etc")
        found[_COPY] = _copy(nodes)
        if closed:
            say("a machine joins")
            found[_JOIN], found[_MOUNT] = _join(nodes[0], new)
    return found


def _copy(nodes: list[Node]) -> float:
    first, *others = nodes
    with tempfile.TemporaryDirectory(prefix="basefs-etc-") as text:
        # Copied once first, so that it is on the same disk and nothing changes it meanwhile.
        source = Path(text) / "etc"
        subprocess.run(["cp", "-a", _SOURCE, source], check=True)
        start = time.monotonic()
        subprocess.run(["cp", "-a", source, first.mountpoint / "copy"], check=True)
        wait_for_root(others, settled_root(first), PATIENCE)
        return time.monotonic() - start


def _join(member: Node, new: Node) -> tuple[float, float]:
    """Seconds from the paste of an invitation until the machine has all, and until it is mounted."""
    token = member.base / "invitation"
    token.write_text(member.basefs("invite", NAME))
    start = time.monotonic()
    subprocess.run(
        [*new.prefix(), COMMAND, "join", NAME],
        env=new.environment,
        stdin=token.open(),
        stdout=subprocess.DEVNULL,
        check=True,
        timeout=PATIENCE,
    )
    joined = time.monotonic() - start
    new.mount(NAME, "--owners")
    assert (new.mountpoint / "small0").exists()
    return joined, time.monotonic() - start


def _plain() -> float:
    return asyncio.run(_median(None))


def _under_tls() -> float:
    keys = [SigningKey.generate() for _ in range(_TRUSTED)]
    public = [key.public for key in keys]
    return asyncio.run(_median((Credentials(keys[0], public), Credentials(keys[1], public))))


async def _median(credentials: tuple[Credentials, Credentials] | None) -> float:
    """Processor seconds of a connection on the loopback address, both ends in this process."""
    accepted: asyncio.Queue[None] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(reader, writer)
        if credentials is not None:
            await connection.accept(credentials[1])
        accepted.put_nowait(None)
        await connection.read()
        connection.close()
        accepted.put_nowait(None)

    server = await asyncio.start_server(serve, "127.0.0.1")
    port = server.sockets[0].getsockname()[1]
    taken = []
    async with server:
        for _ in range(_HANDSHAKES):
            start = time.process_time()
            connection = await Connection.open("127.0.0.1", port, credentials[0] if credentials else None)
            await accepted.get()
            taken.append(time.process_time() - start)
            connection.close()
            await accepted.get()
    return statistics.median(taken)


SCENARIO = Scenario(
    "a closed filesystem beside an open one: a handshake, a small change, /etc, and joining", ("nodes", "what"), _run
)
