"""Clusters that experiments run on: nodes of a backend, with the settings of a mode."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from eval.docker.network import DockerNetwork
from eval.lab.plan import Plan
from eval.profile import Profile, profiled
from eval.tables import write_csv
from tests.support.cluster import NAME, Cluster
from tests.support.namespaces import NamespaceNetwork
from tests.support.node import Node

#: MAX_BLOCK_MESSAGES, and seconds of jitter before a pull, among which the defaults were chosen.
LIMITS = (0, 1, 4, 16, 64)
JITTERS = (0.0, 0.05, 0.2, 0.8, 3.2)
#: Modes by name: what of BaseFS carries changes, as settings of each node (`basefs/daemon/settings.py`).
#: gossip: events for everything; what is known to be missing is still fetched.
#: sync-S: sessions with a random peer every S seconds, and nothing else.
#: events-N: as paper, but bursts that take more than N events are announced and pulled.
#: jitter-S: as paper, but each node waits a random part of S seconds before it pulls.
#: paper: gossip, a periodic sync, and pulls of what is missing; no sessions that stay.
#: push: BaseFS as it is.
MODES: dict[str, dict[str, object]] = {
    "gossip": {"full_sync_interval": 0, "push_sessions": 0, "max_block_messages": 1000},
    **{
        f"sync-{seconds}": {"gossip": "no", "push_sessions": 0, "full_sync_interval": seconds}
        for seconds in (1, 2, 4, 8, 16, 32, 64, 128)
    },
    **{f"events-{most}": {"push_sessions": 0, "max_block_messages": most} for most in LIMITS},
    **{f"jitter-{seconds:g}": {"push_sessions": 0, "pull_jitter": seconds} for seconds in JITTERS},
    "paper": {"push_sessions": 0},
    "push": {},
}
#: Backends by name.
BACKENDS: dict[str, type[NamespaceNetwork]] = {"namespaces": NamespaceNetwork, "docker": DockerNetwork}
#: Daemons of which a profile is kept: the one that writes, and one that receives.
_PROFILED = 2


@contextlib.contextmanager
def running(plan: Plan, mode: str, *, count: int = 0, behind_nat: int = 0) -> Iterator[Cluster]:
    """A cluster in which all nodes see each other; the first node has the only key.

    Args:
        plan: which backend, and how many nodes.
        mode: of `MODES`.
        count: of nodes, instead of the plan's.
        behind_nat: the number of nodes, the last ones, that cannot be reached, so that Serf believes them failed.
    """
    count = count or plan.count
    settings = MODES[mode]
    print(f"starting {count} nodes ({plan.backend}, {mode})", flush=True)
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="basefs-lab-")))
        network = stack.enter_context(BACKENDS[plan.backend](directory, count, behind_nat=behind_nat))
        lines = "".join(f"{name} = {value}\n" for name, value in settings.items())
        for node in network.nodes:
            node.home.mkdir(parents=True, mode=0o700)
            (node.home / "config").write_text(f"[basefs]\n{lines}")
        public = network.nodes[: count - behind_nat]
        cluster = Cluster.start(network, list(public), writers=1)
        if settings.get("push_sessions") != 0:
            cluster.wait_for_sessions()
        for node in network.nodes[len(public) :]:
            _join(cluster, node)
        if plan.profiles is not None:
            stack.enter_context(_profiles(cluster, plan.profiles / f"{mode}-{count}"))
        yield cluster


def _join(cluster: Cluster, node: Node) -> None:
    """A node that the others cannot reach fetches and mounts, without waiting until they see it."""
    node.basefs("get", NAME, cluster.nodes[0].endpoint)
    node.mount(NAME, "--owners", "--profile", "wan")
    cluster.nodes.append(node)


@contextlib.contextmanager
def _profiles(cluster: Cluster, directory: Path) -> Iterator[None]:
    """Keep what some daemons do meanwhile, as CSV files."""
    kept: list[Profile] = []
    try:
        with contextlib.ExitStack() as stack:
            for node in cluster.nodes[:_PROFILED]:
                kept.append(stack.enter_context(profiled(node.daemon(NAME))))
            yield
    finally:
        for number, profile in enumerate(kept):
            for name, rows in (("self", profile.by_self()), ("total", profile.by_total())):
                if rows:
                    write_csv(directory / f"node{number}-{name}.csv", rows)
