"""What all scenarios of `make bench-net` share: their options, a cluster that runs, and waiting until it is equal."""

from __future__ import annotations

import contextlib
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from eval.rows import Rows
from eval.traffic import Meter, Traffic
from tests.support.cluster import NAME, Cluster, ask, whole_root
from tests.support.namespaces import NamespaceNetwork
from tests.support.node import Node

#: Seconds between two looks at one node, which cost its daemon time as well.
_LOOK = 0.02
#: The same of a look at a path, which costs less.
_SHORT_LOOK = 0.005


@dataclass(frozen=True)
class Options:
    """What the command line asks for; empty: the scenario's own choice.

    Attributes:
        seed: of contents and pauses.
        nodes: of each cluster; several numbers where a scenario compares them.
        repeat: measurements of which the median counts.
        profiles: Serf's timing.
        modes: "push" (sessions that stay open) and "gossip" (none).
        conditions: of the network, as `Condition.parse` takes them.
        blocks: sizes of files.
        size: megabytes, of the large file.
        entries: of a newcomer's or a returner's history.
        seconds: of a partition.
        changes: on each side of it.
        attacks: of a hostile peer, by name.
    """

    seed: int = 1
    nodes: Sequence[int] = ()
    repeat: int = 3
    profiles: Sequence[str] = ()
    modes: Sequence[str] = ()
    conditions: Sequence[str] = ()
    blocks: Sequence[int] = ()
    size: int = 0
    entries: int = 0
    seconds: float = 0.0
    changes: int = 0
    attacks: Sequence[str] = ()

    def chance(self, what: str) -> random.Random:
        """The contents, or pauses, of something by name: the same in each run with this seed."""
        return random.Random(f"{self.seed} {what}")


@dataclass(frozen=True)
class Scenario:
    """One kind of measurement.

    Attributes:
        about: what it measures, a sentence.
        keys: the columns that tell its rows apart.
        run: measures what is not there yet, and adds rows.
    """

    about: str
    keys: tuple[str, ...]
    run: Callable[[Options, Rows], None]


@contextlib.contextmanager
def network_of(count: int) -> Iterator[NamespaceNetwork]:
    """Nodes on which nothing runs yet."""
    with tempfile.TemporaryDirectory(prefix="basefs-net-") as text, NamespaceNetwork(Path(text), count) as network:
        yield network


@contextlib.contextmanager
def running(count: int, *, mode: str = "push", profile: str = "wan", writers: int = 1) -> Iterator[Cluster]:
    """A cluster in which all nodes see each other, and in mode "push" have push sessions."""
    options = () if mode == "push" else ("--no-push",)
    say(f"starting {count} nodes, {profile}, {mode}")
    with network_of(count) as network:
        cluster = Cluster.start(network, writers=writers, profile=profile, options=options)
        if mode == "push":
            cluster.wait_for_sessions()
        yield cluster


def say(text: str) -> None:
    """A line of progress."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def wait_for_root(nodes: Sequence[Node], root: str, deadline: float) -> float:
    """Until all nodes have the log of this Merkle root hash, in hex, and all contents; returns the seconds.

    Raises `TimeoutError`.
    """
    start = time.monotonic()
    missing = list(nodes)
    while missing:
        if whole_root(missing[-1]) == root:
            missing.pop()
            continue
        if time.monotonic() - start > deadline:
            raise TimeoutError(f"{len(missing)} of {len(nodes)} nodes have not got everything in {deadline:g} s")
        time.sleep(_LOOK)
    return time.monotonic() - start


def seconds_to_all(nodes: Sequence[Node], name: str, content: bytes, deadline: float) -> float:
    """Write a file on the first node; seconds until it is complete on all.  A path shows only what is complete.

    Raises `TimeoutError`.
    """
    missing = [node.mountpoint / name for node in nodes]
    start = time.monotonic()
    missing[0].write_bytes(content)
    # One node at a time: looking at all of them keeps a core busy that they need.
    while missing:
        if _is_there(missing[-1], len(content)):
            missing.pop()
            continue
        if time.monotonic() - start > deadline:
            raise TimeoutError(f"{name} is still missing on {len(missing)} nodes")
        time.sleep(_SHORT_LOOK)
    return time.monotonic() - start


def _is_there(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except FileNotFoundError:
        return False


def settled_root(node: Node) -> str:
    """The Merkle root hash of a node once everything that was saved on it is in its log, in hex."""
    node.settle(NAME)
    return str(ask(node, "summary")["root_hash"])


@dataclass(frozen=True)
class Rate:
    """What an idle cluster sends: bytes of all nodes a second."""

    serf: float
    sync: float

    @classmethod
    def measure(cls, meter: Meter, seconds: float) -> Rate:
        """Look for some seconds, in which nothing should be going on."""
        before, start = meter.total(), time.monotonic()
        time.sleep(seconds)
        sent, passed = meter.total() - before, time.monotonic() - start
        return cls(sent.serf / passed, sent.sync / passed)

    def beyond(self, sent: Traffic, seconds: float, nodes: int) -> dict[str, int]:
        """Columns: what was sent a node beyond that."""
        serf, sync = (sent.serf - self.serf * seconds) / nodes, (sent.sync - self.sync * seconds) / nodes
        return {"bytes a node": round(serf + sync), "of them serf": round(serf), "of them sync": round(sync)}


def peak_mib(pid: int) -> float:
    """The most memory that a process has had resident, in MiB.  Raises `OSError`."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


def reset_peak(pid: int) -> None:
    """Let `peak_mib` begin anew (proc(5), clear_refs).  Raises `OSError`."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def cpu_of_all(nodes: Sequence[Node]) -> float:
    """Processor time that the daemons and Serf agents of some nodes have used."""
    return sum(cpu_seconds(node.daemon(NAME)) + cpu_seconds(serf_pid(node)) for node in nodes)


def serf_pid(node: Node) -> int:
    """The process id of a node's Serf agent."""
    return int(ask(node, "network")["serf_pid"])
