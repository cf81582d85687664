"""A running cluster, for tests and evaluation, and comparing its trees."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from basefs.daemon.api.control import call
from tests.support.namespaces import NamespaceNetwork
from tests.support.node import Node
from tests.support.patience import DEADLINE
from tests.support.wait import wait_until

NAME = "cluster"
#: More of them for each node, where a condition is about all: they share the cores of one machine.
PATIENCE_PER_NODE = 10.0

#: kind, permission bits, content or target
Snapshot = dict[bytes, tuple[str, int, bytes]]


def snapshot(root: Path) -> Snapshot:
    """Everything below a directory: type, permission bits (0 for symbolic links), content or target; by path."""
    found: Snapshot = {}
    top = os.fsencode(root)
    for base, directories, files in os.walk(top):
        for name in directories + files:
            path = os.path.join(base, name)
            mode = os.lstat(path).st_mode
            bits = mode & 0o777
            relative = os.path.relpath(path, top)
            if stat.S_ISLNK(mode):
                found[relative] = ("link", 0, os.readlink(path))
            elif stat.S_ISDIR(mode):
                found[relative] = ("directory", bits, b"")
            elif stat.S_ISREG(mode):
                found[relative] = ("file", bits, Path(os.fsdecode(path)).read_bytes())
    return found


def differences(expected: Snapshot, actual: Snapshot) -> list[bytes]:
    """The paths that are not the same in both."""
    return sorted(path for path in expected.keys() | actual.keys() if expected.get(path) != actual.get(path))


@dataclass
class Cluster:
    """Running nodes with one filesystem.

    Attributes:
        network: what connects them.
        nodes: those that run it, the one that made it first.
    """

    network: NamespaceNetwork
    nodes: list[Node]

    @classmethod
    def start(
        cls,
        network: NamespaceNetwork,
        nodes: list[Node] | None = None,
        *,
        grant_at: str = "/",
        writers: int | None = None,
        profile: str = "wan",
        options: Sequence[str] = (),
        closed: bool = False,
    ) -> Cluster:
        """Make a filesystem on the first node; the others get a key on `grant_at`, fetch it and mount it.

        `writers`: how many nodes have a key, the first ones (default: all); `options`: more options of `basefs mount`,
        for all nodes; `closed`: only members read it.
        """
        cluster = cls(network, network.nodes if nodes is None else nodes)
        first, *others = cluster.nodes
        first.basefs("genkey")
        first.basefs("bootstrap", NAME, "-i", first.endpoint, *([] if closed else ["--open"]))
        first.mount(NAME, "--owners", "--profile", profile, *options)
        if grant_at != "/":
            (first.mountpoint / grant_at.lstrip("/")).mkdir()
        for number, node in enumerate(cluster.nodes[1:writers], start=2):
            node.basefs("genkey")
            first.basefs("grant", f"{NAME}:{grant_at}", f"node{number}", node.home / "key.pub")
        for node in others:
            node.basefs("get", NAME, first.endpoint)
            node.mount(NAME, "--owners", "--profile", profile, *options)
        cluster.wait_for_members()
        return cluster

    @property
    def mountpoints(self) -> list[Path]:
        """Where each node has mounted it."""
        return [node.mountpoint for node in self.nodes]

    @property
    def patience(self) -> float:
        """Seconds after which something that all nodes should do counts as never happening."""
        return DEADLINE + PATIENCE_PER_NODE * len(self.nodes)

    def wait_for_members(self) -> None:
        """Until every node sees all nodes alive."""
        for node in self.nodes:
            wait_until(lambda node=node: self.alive(node) == len(self.nodes), self.patience, f"{node.address} sees all")  # type: ignore[misc]

    def wait_for_sessions(self) -> None:
        """Until every node takes part in a session that stays open."""
        for node in self.nodes:
            wait_until(lambda node=node: bool(ask(node, "network")["standing"]), self.patience, "sessions stand")  # type: ignore[misc]

    @staticmethod
    def alive(node: Node) -> int:
        """How many members a node sees alive."""
        return sum(member["status"] == "alive" for member in ask(node, "members"))

    def root_hashes(self) -> set[str]:
        """The Merkle root hashes of all nodes, once everything that was saved is in their logs."""
        for node in self.nodes:
            node.settle(NAME)
        return {ask(node, "summary")["root_hash"] for node in self.nodes}

    def _is_equal(self) -> bool:
        hashes = self.root_hashes()
        if len(hashes) > 1 or not all(map(whole_root, self.nodes)):
            return False
        for node in self.nodes:
            # Brings what the log has to the directory.
            ask(node, "publish")
        return self.root_hashes() == hashes

    def empty(self) -> None:
        """Remove all files, until no node has one and each sees all nodes alive.  Raises OSError, `BaseFSError`."""
        for node in self.nodes:
            ask(node, "ping")
        for path in self.nodes[0].mountpoint.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        for node in self.nodes:
            wait_until(lambda n=node: not os.listdir(n.mountpoint), self.patience, "no file is left")  # type: ignore[misc]
        self.wait_until_equal(self.patience)
        everybody = {node.endpoint for node in self.nodes}
        for node in self.nodes:
            # Strangers may count as alive for a while after they have gone.
            wait_until(lambda n=node: everybody <= _alive_at(n), self.patience, f"{node.address} sees all")  # type: ignore[misc]

    def wait_until_equal(self, deadline: float) -> float:
        """Until all nodes have the same root hash and all contents, and show them; returns the seconds that it took."""
        return wait_until(self._is_equal, deadline, "all root hashes are equal, and no content is missing")


def _alive_at(node: Node) -> set[str]:
    """The addresses at which a node sees a member alive."""
    return {member["address"] for member in ask(node, "members") if member["status"] == "alive"}


def whole_root(node: Node) -> str:
    """The Merkle root hash of a node in hex; '' while contents of its log are missing there."""
    summary = ask(node, "summary")
    return "" if summary["incomplete"] else str(summary["root_hash"])


def ask(node: Node, command: str, **arguments: Any) -> Any:
    """What a node's daemon answers on its control socket."""
    return call(node.home / "run" / f"{NAME}.sock", command, arguments)
