"""A network of nodes on one machine: a network namespace each, joined by a bridge in a namespace of its own.

Nothing outside these namespaces is touched, and no packet leaves them.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Address
from pathlib import Path

from tests.support.netem import Netem
from tests.support.node import Node
from tests.support.shaping import Condition, Shaper

#: Addresses of the nodes: 10.77.x.y, which exist in the namespaces only.
_NETWORK = "10.77.{}.{}"
_PREFIX_LENGTH = 16
#: Addresses behind a router: the node's and the router's.
_PRIVATE = "192.168.{}.{}"
#: All nodes are joined by the first; the second is for those who were split off.
_BRIDGES = ("br0", "br1")
#: Where ip-netns(8) keeps those that have a name.
_NAMESPACES = Path("/run/netns")
_CLONE_NEWNET = 0x40000000  # setns(2)
#: Of the networks that this process makes.
_numbers = itertools.count()


def run_ip(*arguments: str) -> None:
    """Run ip(8).  Raises OSError with what it says.

    What a signal raises (eval/ending.py) waits for the command's end: raised between the fork and the wait, it would
    leave a command behind that makes its namespace after everything was cleaned up.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if done.returncode != 0:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


def _run_batch(namespace: str, lines: Iterable[str]) -> None:
    """Run many commands of ip(8) in a namespace.  Raises OSError with what it says."""
    command = ["ip", "-n", namespace, "-batch", "-"]
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


@contextlib.contextmanager
def in_namespace(name: str) -> Iterator[None]:
    """Let this thread make its sockets in a network namespace; they stay there."""
    with Path("/proc/thread-self/ns/net").open() as here:
        enter_namespace(name)
        try:
            yield
        finally:
            _set_namespace(here.fileno(), "cannot return to the network namespace")


def enter_namespace(name: str) -> None:
    """Have this thread live in a network namespace from now on.  Raises OSError."""
    with Path(_NAMESPACES, name).open() as there:
        _set_namespace(there.fileno(), f"cannot enter the network namespace {name}")


def _set_namespace(descriptor: int, failure: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), failure)


class NamespaceNetwork:
    """Nodes with addresses of their own; a context manager that leaves nothing behind.

    Attributes:
        switch: the namespace of the bridge, which all packets between nodes pass.
        nodes: the nodes.
    """

    def __init__(self, directory: Path, count: int, *, behind_nat: int = 0) -> None:
        """`count` nodes, each with a directory of its own below `directory`.  Needs root.

        `behind_nat`: how many of them, the last ones, have a private address behind a router of their own that
        translates addresses: they reach the others, and nobody reaches them.
        """
        self._tag = f"bfs{os.getpid()}-{next(_numbers)}"
        self.switch = f"{self._tag}-sw"
        self._directory = directory
        self._count = count
        self._behind_nat = behind_nat
        self._seen_as: dict[str, str] = {}
        #: What is plugged into the switch: namespace, interface, address.
        self._plugged: list[tuple[str, str, str]] = []
        self._shapers: dict[str, Shaper] = {}
        self.nodes: list[Node] = []

    def __enter__(self) -> NamespaceNetwork:
        try:
            run_ip("netns", "add", self.switch)
            for bridge in _BRIDGES:
                # Without snooping it sends nothing of its own.
                run_ip("-n", self.switch, "link", "add", bridge, "type", "bridge", "mcast_snooping", "0")
                run_ip("-n", self.switch, "link", "set", bridge, "up")
            for index in range(self._count):
                self._add_node(index)
            self._introduce()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _add_node(self, index: int) -> None:
        namespace, address = f"{self._tag}-{index}", _NETWORK.format(index // 250, index % 250 + 1)
        if index < self._count - self._behind_nat:
            own, length, plug = address, _PREFIX_LENGTH, (self.switch, f"p{index}")
        else:
            own, length, plug = _PRIVATE.format(index % 250 + 1, 2), 24, self._add_router(index, address)
        node = self._make_node(self._directory / f"node{index}", own, namespace)
        self.nodes.append(node)
        self._shapers[own] = Shaper(node)
        self._seen_as[own] = address
        run_ip("-n", namespace, "link", "set", "lo", "up")
        _cable((namespace, "eth0"), plug)
        if plug[0] == self.switch:
            self._attach(node, _BRIDGES[0])
            self._plugged.append((namespace, "eth0", address))
        _address(namespace, "eth0", f"{own}/{length}")
        if plug[0] != self.switch:
            _address(plug[0], plug[1], f"{_PRIVATE.format(index % 250 + 1, 1)}/{length}")
            run_ip("-n", namespace, "route", "add", "default", "via", _PRIVATE.format(index % 250 + 1, 1))

    def _make_node(self, base: Path, address: str, namespace: str) -> Node:
        """A node whose network namespace is there, with nothing in it."""
        run_ip("netns", "add", namespace)
        return Node(base, address, namespace=namespace)

    def _add_router(self, index: int, address: str) -> tuple[str, str]:
        """A namespace that translates the addresses of what goes out; returns it and where a node is plugged in."""
        router = f"{self._tag}-r{index}"
        run_ip("netns", "add", router)
        _cable((router, "out"), (self.switch, f"p{index}"))
        run_ip("-n", self.switch, "link", "set", f"p{index}", "master", _BRIDGES[0], "up")
        self._plugged.append((router, "out", address))
        _address(router, "out", f"{address}/{_PREFIX_LENGTH}")
        inside = ["nsenter", f"--net={_NAMESPACES / router}"]
        subprocess.run([*inside, "tee", "/proc/sys/net/ipv4/ip_forward"], input=b"1", capture_output=True, check=True)
        rule = ["-t", "nat", "-A", "POSTROUTING", "-o", "out", "-j", "MASQUERADE"]
        subprocess.run([*inside, "iptables", *rule], capture_output=True, check=True)
        return router, "in"

    def _introduce(self) -> None:
        """Tell everybody the hardware addresses of the others.

        What the kernel learns by ARP it keeps in one table for all namespaces, of 1024 rows (`gc_thresh3`, arp(7)), too
        few for 34 nodes that all talk to each other; what it was told is not counted.
        """
        for namespace, interface, own in self._plugged:
            run_ip("-n", namespace, "link", "set", interface, "address", _hardware_address(own))
        for namespace, interface, own in self._plugged:
            others = [address for _, _, address in self._plugged if address != own]
            _run_batch(
                namespace,
                [f"neigh add {other} lladdr {_hardware_address(other)} dev {interface}" for other in others],
            )

    def unplug(self, node: Node) -> None:
        """Cut a node off: its interface goes down."""
        run_ip("-n", str(node.namespace), "link", "set", "eth0", "down")

    def plug_in(self, node: Node) -> None:
        """Join it again."""
        run_ip("-n", str(node.namespace), "link", "set", "eth0", "up")

    def split(self, nodes: Sequence[Node]) -> None:
        """Cut some nodes off from all others, without notice; they still reach each other."""
        for node in nodes:
            self._attach(node, _BRIDGES[1])

    def join(self) -> None:
        """Undo `split`."""
        for node in self.nodes:
            self._attach(node, _BRIDGES[0])

    def _attach(self, node: Node, bridge: str) -> None:
        run_ip("-n", self.switch, "link", "set", f"p{self.nodes.index(node)}", "master", bridge, "up")

    def shape(self, condition: Condition, *, seed: int = 0) -> None:
        """From now on the network of every node is like this.  Raises `OSError`."""
        for number, shaper in enumerate(self._shapers.values()):
            shaper.impose(condition, seed=seed * self._count + number)

    def shape_links(self, node: Node, links: Mapping[str, Netem], *, seed: int = 0) -> None:
        """The ways to a node differ by the address that they come from.  Raises `OSError`."""
        self._shapers[str(node.address)].impose(Condition(), seed=seed, links=links)

    def seen_as(self, node: Node) -> str:
        """The address from which others hear a node: its own, or that of the router before it."""
        return self._seen_as[str(node.address)]

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
        # Those that are there, and not those that were noted: it may have been stopped between the two.
        for namespace in [path.name for path in _NAMESPACES.glob(f"{self._tag}-*")]:
            for pid in _pids(namespace):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(OSError):
                run_ip("netns", "delete", namespace)


def _cable(one: tuple[str, str], other: tuple[str, str]) -> None:
    """A virtual cable between two interfaces that it makes, each (namespace, name)."""
    ends = (one[1], "netns", one[0], "type", "veth", "peer", "name", other[1], "netns", other[0])
    run_ip("link", "add", *ends)


def _address(namespace: str, interface: str, address: str) -> None:
    run_ip("-n", namespace, "address", "add", address, "dev", interface)
    run_ip("-n", namespace, "link", "set", interface, "up")


def _hardware_address(address: str) -> str:
    """One that is administered locally (RFC 9542, section 2.1), made of an IPv4 address."""
    return ":".join(f"{byte:02x}" for byte in (2, 0, *IPv4Address(address).packed))


def _pids(namespace: str) -> Iterable[int]:
    done = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, check=False)
    return [int(line) for line in done.stdout.split()]
