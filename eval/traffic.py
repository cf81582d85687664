"""Bytes that a node sends, by protocol: rules of iptables that count and let pass, in a chain of their own.

Counted are IP packets with their headers, also those that are lost later and those that are sent again.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from basefs.daemon.config import SYNC_PORT_OFFSET
from tests.support.node import Node

_CHAIN = "BASEFS-TRAFFIC"
_COUNTER = re.compile(rf"^\[\d+:(\d+)\] -A {_CHAIN} .*--comment (\w+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes of IP packets that left a node.

    Attributes:
        serf_udp: gossip and probes, over the Serf port.
        serf_tcp: Serf's exchanges of its whole state, over the same port.
        sync: the sync protocol, sessions that stand included.
    """

    serf_udp: int = 0
    serf_tcp: int = 0
    sync: int = 0

    @property
    def total(self) -> int:
        """Bytes of all three."""
        return self.serf_udp + self.serf_tcp + self.sync

    @property
    def serf(self) -> int:
        """Bytes of the Serf agent."""
        return self.serf_udp + self.serf_tcp

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.serf_udp + other.serf_udp, self.serf_tcp + other.serf_tcp, self.sync + other.sync)

    def __sub__(self, other: Traffic) -> Traffic:
        return Traffic(self.serf_udp - other.serf_udp, self.serf_tcp - other.serf_tcp, self.sync - other.sync)


class Meter:
    """Counts what some nodes send, from now on."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        """The nodes have network namespaces of their own.  Raises `OSError` if the kernel has no such counters."""
        self._nodes = list(nodes)
        for node in self._nodes:
            _count(node)

    def read(self) -> list[Traffic]:
        """What each node has sent so far.  Raises `OSError`."""
        return [_read(node) for node in self._nodes]

    def total(self) -> Traffic:
        """What all of them have sent so far.  Raises `OSError`."""
        return sum(self.read(), Traffic())


def _count(node: Node) -> None:
    # Both ways of a connection have the port at one end or the other.
    protocols = (
        ("serf_udp", "udp", node.port),
        ("serf_tcp", "tcp", node.port),
        ("sync", "tcp", node.port + SYNC_PORT_OFFSET),
    )
    rules = [
        f"-A {_CHAIN} -p {protocol} -m multiport --ports {port} -m comment --comment {name} -j RETURN"
        for name, protocol, port in protocols
    ]
    table = ["*filter", f":{_CHAIN} - [0:0]", f"-A OUTPUT -o eth0 -j {_CHAIN}", *rules, "COMMIT", ""]
    _run(node, "iptables-restore", "--noflush", given="\n".join(table))


def _read(node: Node) -> Traffic:
    counters = {name: int(count) for count, name in _COUNTER.findall(_run(node, "iptables-save", "-c", "-t", "filter"))}
    return Traffic(**counters)


def _run(node: Node, *command: str, given: str | None = None) -> str:
    done = subprocess.run([*node.prefix(), *command], input=given, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)} in {node.namespace}: {done.stderr.strip()}")
    return done.stdout
