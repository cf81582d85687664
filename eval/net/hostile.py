"""Honest nodes under attack: the delay of a change, and the memory and processor time of a daemon.

In an open filesystem the attacker is anybody; in a closed one it is a member that may write in a directory of its own,
with a key for each attack.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from basefs.log.keys import SigningKey
from eval.net.attacker import KINDS, PROCESSOR
from eval.net.scenario import (
    Options,
    Scenario,
    cpu_seconds,
    network_of,
    peak_mib,
    reset_peak,
    say,
    seconds_to_all,
    serf_pid,
)
from eval.rows import Row, Rows
from tests.support.cluster import NAME, Cluster
from tests.support.namespaces import run_ip
from tests.support.node import Node

#: Honest nodes, and seconds that each attack lasts.
NODES = 3
ATTACK = 15.0
#: Changes before an attack, which those in it are compared with.
_CHANGES = 15
#: Seconds between two changes, for a change to arrive, and of an attack before the first change.
_PAUSE = 0.3
PATIENCE = 120.0
_START = 1.0
#: Bytes of a change.
_SMALL = 100
#: Files that the filesystem has, which an attacker sends or asks for.
_FILES = 300
#: Who may read the filesystem.
READABLE = ("open", "closed")
#: The directory of a closed filesystem in which an attacker may write.
_THEIRS = "theirs"


def _run(options: Options, rows: Rows) -> None:
    for count, readable in itertools.product(options.nodes or (NODES,), READABLE):
        where = {"nodes": count, "filesystem": readable}
        missing = [kind for kind in options.attacks or KINDS if not rows.has(**where, attack=kind)]
        found: dict[str, list[_Round]] = {kind: [] for kind in missing}
        try:
            for number in range(options.repeat if missing else 0):
                _attack_all(options, rows, where, found, number)
        finally:
            for kind, rounds in found.items():
                if rounds:
                    rows.add({**where, "attack": kind, **_row(rounds)})


def _attack_all(options: Options, rows: Rows, where: Row, found: dict[str, list[_Round]], number: int) -> None:
    """One round of all attacks, on a cluster of its own: in the one before attackers have been banned."""
    kinds, closed = list(found), where["filesystem"] == "closed"
    options.chance(f"order {number}").shuffle(kinds)
    chance = options.chance(f"files {number}")
    say(f"round {number + 1} of {options.repeat}: {where['nodes']} nodes and an attacker, {where['filesystem']}")
    with contextlib.ExitStack() as stack:
        # What keeps a cluster from starting is a row of the first attack.
        with rows.recording(**where, attack=kinds[0]):
            network = stack.enter_context(network_of(where["nodes"] + 1))
            *honest, bad = network.nodes
            cluster = Cluster.start(network, honest, closed=closed)
            cluster.wait_for_sessions()
            for file in range(_FILES):
                (honest[0].mountpoint / f"file{file}").write_bytes(chance.randbytes(_SMALL))
            prepare(cluster, bad, kinds, closed=closed)
        for kind in kinds:
            with rows.recording(**where, attack=kind):
                # Figures without the round that fails would be those of the rounds that did not.
                before = found.pop(kind)
                found[kind] = [*before, _measure(cluster, bad, kind, options.seconds or ATTACK, chance)]


def prepare(cluster: Cluster, bad: Node, kinds: Sequence[str], *, closed: bool) -> None:
    """Have an attacker fetch the filesystem; a closed one makes it a member with a key for each kind of attack."""
    first = cluster.nodes[0]
    if closed:
        bad.basefs("genkey")
        (first.mountpoint / _THEIRS).mkdir()
        first.basefs("grant", f"{NAME}:/{_THEIRS}", "attacker", bad.home / "key.pub")
        for number, kind in enumerate(kinds):
            SigningKey.generate().save(_key_of(bad, kind))
            first.basefs("grant", f"{NAME}:/{_THEIRS}", f"attacker{number}", f"{_key_of(bad, kind)}.pub")
    cluster.wait_until_equal(PATIENCE)
    bad.basefs("get", NAME, first.endpoint)


def _key_of(bad: Node, kind: str) -> Path:
    return bad.base / f"{KINDS.index(kind)}.key"


@dataclass(frozen=True)
class _Used:
    """What some nodes have used: processor seconds of the daemons and of the Serf agents."""

    daemon: float
    serf: float
    at: float

    @classmethod
    def by(cls, nodes: Sequence[Node]) -> _Used:
        daemons = sum(cpu_seconds(node.daemon(NAME)) for node in nodes)
        return cls(daemons, sum(cpu_seconds(serf_pid(node)) for node in nodes), time.monotonic())

    def until(self, later: _Used, nodes: int) -> tuple[float, float]:
        """Cores that a daemon, and an agent, has kept busy since."""
        share = 1 / nodes / (later.at - self.at)
        return (later.daemon - self.daemon) * share, (later.serf - self.serf) * share


@dataclass(frozen=True)
class _Found:
    """The seconds of some changes, cores of a daemon and an agent meanwhile, and the most memory of a daemon, MiB."""

    seconds: list[float]
    daemon: float
    serf: float
    peak: float

    @classmethod
    def during(cls, nodes: Sequence[Node], name: str, chance: random.Random, least: int, until: float = 0.0) -> _Found:
        """Write `least` changes, and more until that time."""
        pids = [node.daemon(NAME) for node in nodes]
        for pid in pids:
            reset_peak(pid)
        before = _Used.by(nodes)
        seconds: list[float] = []
        while len(seconds) < least or time.monotonic() < until:
            seconds.append(seconds_to_all(nodes, f"{name}-{len(seconds)}", chance.randbytes(_SMALL), PATIENCE))
            time.sleep(_PAUSE)
        daemon, serf = before.until(_Used.by(nodes), len(nodes))
        return cls(seconds, daemon, serf, max(map(peak_mib, pids)))


@dataclass(frozen=True)
class _Round:
    """One attack, and right before it the same nodes without it.

    Attributes:
        quiet, attacked: what was found without it and in it.
        cores: that the attacker was given.
        attempts: a second, that it managed.
    """

    quiet: _Found
    attacked: _Found
    cores: float
    attempts: float

    @property
    def slower(self) -> float:
        """How many times as long a change took, by the medians."""
        return statistics.median(self.attacked.seconds) / statistics.median(self.quiet.seconds)


def _measure(cluster: Cluster, bad: Node, kind: str, seconds: float, chance: random.Random) -> _Round:
    say(kind)
    word = kind.replace(" ", "-")
    quiet = _Found.during(cluster.nodes, f"{word}-before", chance, _CHANGES)
    with attacking(cluster.nodes, bad, kind, seconds, "--yield-cores") as attack:
        time.sleep(_START)
        attacked = _Found.during(cluster.nodes, f"{word}-during", chance, 1, time.monotonic() + seconds - 2 * _START)
        done = attack()
    given = done.pop(PROCESSOR, 0.0)
    return _Round(quiet, attacked, given / seconds, sum(done.values()) / seconds)


def _row(rounds: Sequence[_Round]) -> Row:
    """Medians of the rounds, with the least and the most of the ratio."""

    def median(of: Callable[[_Round], float]) -> float:
        return statistics.median(map(of, rounds))

    slower = [each.slower for each in rounds]
    return {
        "rounds": len(rounds),
        "changes in attacks": sum(len(each.attacked.seconds) for each in rounds),
        "quiet s": median(lambda each: statistics.median(each.quiet.seconds)),
        "attacked s": median(lambda each: statistics.median(each.attacked.seconds)),
        "x quiet": statistics.median(slower),
        "x quiet least": min(slower),
        "x quiet most": max(slower),
        "longest s": max(max(each.attacked.seconds) for each in rounds),
        "daemon MiB": median(lambda each: each.quiet.peak),
        "MiB more": max(each.attacked.peak - each.quiet.peak for each in rounds),
        "daemon cores": median(lambda each: each.attacked.daemon),
        "quiet cores": median(lambda each: each.quiet.daemon),
        "serf cores": median(lambda each: each.attacked.serf),
        "attacker cores": median(lambda each: each.cores),
        "attempts a second": median(lambda each: each.attempts),
    }


@contextlib.contextmanager
def attacking(
    nodes: Sequence[Node], bad: Node, kind: str, seconds: float, *options: str
) -> Iterator[Callable[[], dict[str, float]]]:
    """Attack some nodes from another one, which is prepared for it; yields what waits for the end of it.

    Each attack comes from an address of its own, since those of earlier ones may be banned.  `options` of the attacker:
    in reality it has cores of its own, so a measurement lets it use only what the nodes leave of theirs.
    """
    source = f"10.77.100.{KINDS.index(kind) + 1}"
    with contextlib.suppress(OSError):  # it may have it already
        run_ip("-n", str(bad.namespace), "address", "add", f"{source}/16", "dev", "eth0")
    program = [sys.executable, "-m", "eval.net.attacker", kind, "--seconds", str(seconds), *options]
    where = ["--source", source, "--log", str(bad.home / "fs" / NAME), "--directory", str(bad.base / "agent")]
    if _key_of(bad, kind).exists():
        where += ["--key", str(_key_of(bad, kind))]
    ports = ["--sync-port", str(bad.port + 1), *(str(node.address) for node in nodes)]
    command = [*bad.prefix(), *program, *where, *ports]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    try:
        if process.stdout.readline() != "ready\n":
            raise OSError(f"the attacker did not begin: {kind}")
        yield lambda: json.loads(process.communicate(timeout=seconds + PATIENCE)[0] or "{}")
    finally:
        process.terminate()
        process.wait()


SCENARIO = Scenario(
    "an attacker of many kinds: a change from one honest node to all, memory and CPU, beside the same without it",
    ("nodes", "filesystem", "attack"),
    _run,
)
