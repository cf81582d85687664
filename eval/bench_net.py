"""`make bench-net`: how soon a change is on all nodes, and in how many bytes, beside a raw Serf event in the same run.

Real nodes in network namespaces, each with a Serf agent and a mount, on a perfect network or on a bad one
(`--condition`).  Compare the ratios, not the seconds: all nodes share the cores of one machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import queue
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from basefs.gossip.client import Client
from eval.cluster import NAME, Cluster
from eval.namespaces import NamespaceNetwork, in_namespace
from eval.node import Node
from eval.shaping import Condition
from eval.tables import print_table, write_csv

#: Blocks of the files, each of incompressible bytes; 0 is an empty file, a single entry.
BLOCKS = (0, 1, 2, 4, 16, 64, 254)
#: Bytes of content in a block that can be gossiped (design, section 3.3).
BLOCK_BYTES = 480
#: Seconds on 30 nodes until the last one had the file, median, by condition and blocks: the paper's gossip and sync
#: together where it has measured that, else its gossip alone (its evaluation, data of the convergence experiments; it
#: counts gossip messages, of which 3, 15 and 63 stand here for 4, 16 and 64).
PAPER = {
    "none": {0: 1.242, 1: 0.856, 4: 1.399, 16: 6.616, 64: 25.973, 254: 80.809},
    "loss-30": {0: 33.583, 1: 21.88, 16: 78.293, 64: 192.617},
    "loss-50": {0: 75.718, 1: 64.225, 16: 955.558, 64: 5339.768},
    "loss-70": {0: 322.497, 1: 1023.986, 16: 9608.415, 64: 20021.345},
    "bw-256": {0: 0.72, 1: 0.951, 16: 40.188, 64: 73.633},
    "bw-32": {0: 0.79, 1: 0.923, 16: 84.017, 64: 4612.756},
}
#: Seconds for a change to arrive everywhere, after which the run is given up.
PATIENCE = 300.0
#: Seconds of silence between two measurements, so that no safety net of the one falls into the next.
PAUSE = 6.0

Row = dict[str, Any]


def main() -> None:
    """Measure, print a table, write it as CSV."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=30, help="default: 30")
    parser.add_argument("--repeat", type=int, default=5, help="measurements of which the median counts (default: 5)")
    parser.add_argument("--profile", choices=["wan", "lan", "local"], action="append", help="default: wan and lan")
    parser.add_argument(
        "--condition",
        action="append",
        type=_condition,
        help="none, loss-PERCENT or bw-KBITS (what each node can send); default: none",
    )
    parser.add_argument("--blocks", type=int, action="append", help=f"sizes of files, default: {BLOCKS}")
    parser.add_argument("--no-gossip", action="store_true", help="leave out the runs without sessions that stay open")
    parser.add_argument("--csv", type=Path, default=Path("eval/results/bench_net.csv"))
    arguments = parser.parse_args()
    rows: list[Row] = []
    modes = ((),) if arguments.no_gossip else ((), ("--no-push",))
    try:
        for profile, options in itertools.product(arguments.profile or ("wan", "lan"), modes):
            conditions, sizes = arguments.condition or ["none"], arguments.blocks or BLOCKS
            with tempfile.TemporaryDirectory(prefix="basefs-net-") as text:
                for row in _measure(Path(text), arguments.nodes, profile, options, arguments.repeat, conditions, sizes):
                    print(" ".join(f"{key}={value}" for key, value in row.items()), flush=True)
                    rows.append(row)
    finally:
        # What was measured counts, also where a bad network made an end of it.
        if rows:
            print()
            print_table(rows)
            write_csv(arguments.csv, rows)
            print(f"\nwritten to {arguments.csv}")


def _condition(text: str) -> str:
    Condition.parse(text)
    return text


def _measure(
    directory: Path,
    count: int,
    profile: str,
    options: tuple[str, ...],
    repeat: int,
    conditions: Sequence[str],
    sizes: Sequence[int],
) -> Iterator[Row]:
    """One cluster, under one condition after the other."""
    with NamespaceNetwork(directory, count) as network:
        cluster = Cluster.start(network, writers=1, profile=profile, options=options)
        if not options:
            cluster.wait_for_sessions()
        for condition in conditions:
            for node in network.nodes:
                Condition.parse(condition).apply(node)
            common = {"profile": profile, "mode": "gossip" if options else "push", "condition": condition}
            idle = _idle_bytes(network)
            serf = None
            if condition == "none":
                # A bad network loses such an event, and then nothing brings it.
                with _listening(network.nodes) as events:
                    serf = _times(network, idle, repeat, lambda number: _raw_event(network.nodes, events, number))
                yield {**common, "change": "raw Serf event", **serf, "x serf": 1.0, "paper": ""}
            for blocks in sizes:
                content = os.urandom(blocks * BLOCK_BYTES)
                times = _times(
                    network,
                    idle,
                    repeat if blocks <= 4 else max(1, repeat // 2),
                    lambda number: _change(network.nodes, f"{condition}-{len(content)}-{number}", content),  # noqa: B023
                )
                yield {
                    **common,
                    "change": f"file of {blocks} blocks",
                    **times,
                    "x serf": "" if serf is None else times["seconds"] / serf["seconds"],
                    "paper": PAPER.get(condition, {}).get(blocks, ""),
                }


def _times(network: NamespaceNetwork, idle: float, repeat: int, measure: Any) -> Row:
    """Seconds until the last node has it, and bytes per node beyond what an idle cluster sends."""
    seconds, sent = [], []
    for number in range(repeat):
        time.sleep(PAUSE)
        before, start = network.bytes_sent(), time.monotonic()
        seconds.append(measure(number))
        time.sleep(PAUSE)
        passed = time.monotonic() - start
        sent.append((network.bytes_sent() - before - idle * passed) / len(network.nodes))
    return {
        "seconds": statistics.median(seconds),
        "most": max(seconds),
        "bytes per node": round(statistics.median(sent)),
    }


def _idle_bytes(network: NamespaceNetwork) -> float:
    """Bytes a second that an idle cluster sends: Serf's probes, heartbeats, periodic sessions."""
    time.sleep(PAUSE)
    before, start = network.bytes_sent(), time.monotonic()
    time.sleep(3 * PAUSE)
    return (network.bytes_sent() - before) / (time.monotonic() - start)


def _change(nodes: list[Node], name: str, content: bytes) -> float:
    """Write a file on the first node; seconds until it is complete on all.  A path shows only what is complete."""
    missing = [node.mountpoint / name for node in nodes]
    start = time.monotonic()
    (nodes[0].mountpoint / name).write_bytes(content)
    while missing:
        missing = [path for path in missing if not (path.exists() and path.stat().st_size == len(content))]
        if time.monotonic() - start > PATIENCE:
            raise TimeoutError(f"{name} is still missing on {len(missing)} nodes")
        time.sleep(0.002)
    return time.monotonic() - start


# A raw event


def _raw_event(nodes: list[Node], events: queue.Queue[float], number: int) -> float:
    """Send an event of as many bytes as a small change takes; seconds until the last agent has told it."""
    payload = os.urandom(200)
    start = time.monotonic()
    _ask_serf(nodes[0], f"raw{number}", payload)
    return max(events.get(timeout=PATIENCE) for _ in nodes) - start


def _ask_serf(node: Node, name: str, payload: bytes) -> None:
    async def send() -> None:
        async with await _connect(node) as client:
            await client.call("event", {"Name": name, "Payload": payload, "Coalesce": False})

    with in_namespace(str(node.namespace)):
        asyncio.run(send())


async def _connect(node: Node) -> Client:
    config = json.loads((node.home / "run" / NAME / "serf.json").read_text())
    host, _, port = config["rpc_addr"].rpartition(":")
    return await Client.connect(host, int(port), config["rpc_auth"])


@contextlib.contextmanager
def _listening(nodes: list[Node]) -> Iterator[queue.Queue[float]]:
    """One thread a node, in the node's namespace, that tells when its agent delivers an event that is not ours."""
    arrivals: queue.Queue[float] = queue.Queue()
    ready = threading.Barrier(len(nodes) + 1)
    stop = threading.Event()

    async def listen(node: Node) -> None:
        async with await _connect(node) as client:
            stream = await client.subscribe("user")
            ready.wait()
            while not stop.is_set():
                with contextlib.suppress(asyncio.TimeoutError):
                    record = await asyncio.wait_for(stream.__anext__(), 0.5)
                    if str(record.get("Name", "")).startswith("raw"):
                        arrivals.put(time.monotonic())

    def run(node: Node) -> None:
        with in_namespace(str(node.namespace)):
            asyncio.run(listen(node))

    threads = [threading.Thread(target=run, args=(node,), daemon=True) for node in nodes]
    for thread in threads:
        thread.start()
    ready.wait(PATIENCE)
    try:
        yield arrivals
    finally:
        stop.set()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main()
