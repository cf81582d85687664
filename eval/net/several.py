"""A large file for one node that was away, from several peers, each behind a narrow link."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from eval.net.large import PATIENCE
from eval.net.scenario import Options, Scenario, peak_mib, running, say, settled_root, wait_for_root
from eval.rows import Row, Rows
from eval.traffic import Meter
from tests.support.cluster import NAME, Cluster
from tests.support.shaping import Condition
from tests.support.wait import wait_until

#: Megabytes of the file, how many nodes have it, and what each of them can send.
_SIZE = 30
_PEERS = 3
_CONDITION = "bw-8000"
_PIECE = 1_000_000
#: Bytes that the peers have sent when the file is certainly on its way.
_BEGUN = 200_000


def _run(options: Options, rows: Rows) -> None:
    size = options.size or _SIZE
    for count in options.nodes or (_PEERS + 1,):
        for condition in options.conditions or (_CONDITION,):
            key = {"peers": count - 1, "condition": condition, "megabytes": size}
            if not rows.has(**key):
                with rows.recording(**key), running(count) as cluster:
                    rows.add({**key, **_measure(cluster, condition, size, options)})


def _measure(cluster: Cluster, condition: str, size: int, options: Options) -> Row:
    *peers, away = cluster.nodes
    wait_for_root(cluster.nodes, settled_root(peers[0]), PATIENCE)
    away.basefs("unmount", NAME)
    say(f"writing {size} MB")
    chance = options.chance("large")
    with (peers[0].mountpoint / "large").open("wb") as file:
        for _ in range(size):
            file.write(chance.randbytes(_PIECE))
    root = settled_root(peers[0])
    wait_for_root(peers, root, PATIENCE)
    shape = Condition.parse(condition)
    cluster.network.shape(shape)
    meter = Meter(peers)
    say("fetching it")
    with ThreadPoolExecutor(1) as pool:
        mounting = pool.submit(away.mount, NAME)
        # How long a daemon takes to start is not the question.
        wait_until(lambda: meter.total().sync > _BEGUN, PATIENCE, "it comes")
        start = time.monotonic()
        mounting.result()
    wait_for_root([away], root, PATIENCE)
    seconds = time.monotonic() - start
    sent = sorted((traffic.sync for traffic in meter.read()), reverse=True)
    # Base64 alone makes 4 bytes of 3.
    least = size * _PIECE * 8 * 4 / 3 / (1000 * shape.rate) if shape.rate else 0.0
    return {
        "complete s": seconds,
        "over one link s": least,
        "over all links s": least / len(peers),
        "sent x the file": sum(sent) / size / _PIECE,
        **{f"peer {number} x": each / size / _PIECE for number, each in enumerate(sent, start=1)},
        "peak MiB": peak_mib(away.daemon(NAME)),
    }


SCENARIO = Scenario(
    "a file of 30 MB for a node that was away, from 3 peers with 8 Mbit/s each",
    ("peers", "condition", "megabytes"),
    _run,
)
