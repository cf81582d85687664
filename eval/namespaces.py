"""A network of nodes on one machine: a network namespace each, joined by a bridge in a namespace of its own.

Nothing outside these namespaces is touched, and no packet leaves them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from eval.netem import Netem
from eval.node import Node
from eval.shaping import Condition, Shaper

#: Addresses of the nodes: 10.77.x.y, which exist in the namespaces only.
_NETWORK = "10.77.{}.{}"
_PREFIX_LENGTH = 16
#: All nodes are joined by the first; the second is for those who were split off.
_BRIDGES = ("br0", "br1")
_CLONE_NEWNET = 0x40000000  # setns(2)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


@contextlib.contextmanager
def in_namespace(name: str) -> Iterator[None]:
    """Let this thread make its sockets in a network namespace; they stay there."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/proc/thread-self/ns/net").open() as here, Path("/run/netns", name).open() as there:
        if libc.setns(there.fileno(), _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {name}")
        try:
            yield
        finally:
            if libc.setns(here.fileno(), _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "cannot return to the network namespace")


class NamespaceNetwork:
    """Nodes with addresses of their own; a context manager that leaves nothing behind."""

    def __init__(self, directory: Path, count: int) -> None:
        """`count` nodes, each with a directory of its own below `directory`.  Needs root."""
        self._tag = f"bfs{os.getpid()}"
        self._switch = f"{self._tag}-sw"
        self._directory = directory
        self._count = count
        self._shapers: dict[str, Shaper] = {}
        self.nodes: list[Node] = []

    def __enter__(self) -> NamespaceNetwork:
        try:
            _ip("netns", "add", self._switch)
            for bridge in _BRIDGES:
                # Without snooping it sends nothing of its own.
                _ip("-n", self._switch, "link", "add", bridge, "type", "bridge", "mcast_snooping", "0")
                _ip("-n", self._switch, "link", "set", bridge, "up")
            for index in range(self._count):
                self._add_node(index)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _add_node(self, index: int) -> None:
        namespace = f"{self._tag}-{index}"
        address = _NETWORK.format(index // 250, index % 250 + 1)
        _ip("netns", "add", namespace)
        node = Node(self._directory / f"node{index}", address, namespace=namespace)
        self.nodes.append(node)
        self._shapers[address] = Shaper(node)
        _ip("-n", namespace, "link", "set", "lo", "up")
        _ip(
            "link",
            "add",
            "eth0",
            "netns",
            namespace,
            "type",
            "veth",
            "peer",
            "name",
            f"p{index}",
            "netns",
            self._switch,
        )
        _ip("-n", self._switch, "link", "set", f"p{index}", "master", _BRIDGES[0], "up")
        _ip("-n", namespace, "address", "add", f"{address}/{_PREFIX_LENGTH}", "dev", "eth0")
        _ip("-n", namespace, "link", "set", "eth0", "up")

    def unplug(self, node: Node) -> None:
        """Cut a node off: its interface goes down."""
        _ip("-n", str(node.namespace), "link", "set", "eth0", "down")

    def plug_in(self, node: Node) -> None:
        """Join it again."""
        _ip("-n", str(node.namespace), "link", "set", "eth0", "up")

    def split(self, nodes: Sequence[Node]) -> None:
        """Cut some nodes off from all others; they still reach each other, and nobody is told."""
        for node in nodes:
            self._attach(node, _BRIDGES[1])

    def join(self) -> None:
        """Undo `split`."""
        for node in self.nodes:
            self._attach(node, _BRIDGES[0])

    def _attach(self, node: Node, bridge: str) -> None:
        _ip("-n", self._switch, "link", "set", f"p{self.nodes.index(node)}", "master", bridge)

    def shape(self, condition: Condition, *, seed: int = 0) -> None:
        """From now on the network of every node is like this.  Raises `OSError`."""
        for number, shaper in enumerate(self._shapers.values()):
            shaper.impose(condition, seed=seed * self._count + number)

    def shape_links(self, node: Node, links: Mapping[str, Netem], *, seed: int = 0) -> None:
        """The ways to a node differ by the address that they come from.  Raises `OSError`."""
        self._shapers[str(node.address)].impose(Condition(), seed=seed, links=links)

    def in_force(self) -> list[dict[str, float | str]]:
        """What was really done to the packets of each node since its condition was imposed."""
        return [shaper.in_force() for shaper in self._shapers.values()]

    def __exit__(self, *_: object) -> None:
        for shaper in self._shapers.values():
            with contextlib.suppress(OSError):
                shaper.close()
        for node in self.nodes:
            with contextlib.suppress(OSError):
                node.clean_up()
        for namespace in [*(str(node.namespace) for node in self.nodes), self._switch]:
            for pid in _pids(namespace):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(OSError):
                _ip("netns", "delete", namespace)


def _pids(namespace: str) -> Iterable[int]:
    done = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, check=False)
    return [int(line) for line in done.stdout.split()]
