"""A network of nodes on one machine: a network namespace each, joined by a bridge in a namespace of its own.

Nothing outside these namespaces is touched, and no packet leaves them.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from eval.node import Node

#: Addresses of the nodes: 10.77.x.y, which exist in the namespaces only.
_NETWORK = "10.77.{}.{}"
_PREFIX_LENGTH = 16
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
        self.nodes: list[Node] = []

    def __enter__(self) -> NamespaceNetwork:
        try:
            _ip("netns", "add", self._switch)
            _ip("-n", self._switch, "link", "add", "br0", "type", "bridge")
            _ip("-n", self._switch, "link", "set", "br0", "up")
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
        _ip("-n", self._switch, "link", "set", f"p{index}", "master", "br0", "up")
        _ip("-n", namespace, "address", "add", f"{address}/{_PREFIX_LENGTH}", "dev", "eth0")
        _ip("-n", namespace, "link", "set", "eth0", "up")

    def unplug(self, node: Node) -> None:
        """Cut a node off: its interface goes down."""
        _ip("-n", str(node.namespace), "link", "set", "eth0", "down")

    def plug_in(self, node: Node) -> None:
        """Join it again."""
        _ip("-n", str(node.namespace), "link", "set", "eth0", "up")

    def bytes_sent(self) -> int:
        """Bytes that all nodes together have sent to the network, headers included."""
        done = subprocess.run(
            ["ip", "-n", self._switch, "-j", "-s", "link"], capture_output=True, text=True, check=True
        )
        links = {link["ifname"]: link for link in json.loads(done.stdout)}
        return sum(int(links[f"p{index}"]["stats64"]["rx"]["bytes"]) for index in range(self._count))

    def __exit__(self, *_: object) -> None:
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
