"""A network of containers: they are joined like namespaces, by a bridge in a namespace of its own.

Each has a filesystem of its own, /dev/fuse, and the right to mount.  The node's directory is the same inside and
outside, and what is mounted inside is seen outside, so that experiments look at containers as at any node.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker.types import Mount

from eval.docker.engine import engine
from eval.docker.image import ensure_image
from tests.support.namespaces import NamespaceNetwork, run_ip
from tests.support.node import COMMAND, Node, detach

_SOURCES = Path(__file__).parent.parent.parent


@dataclass
class DockerNode(Node):
    """A node whose commands run in a container.

    Attributes:
        container: of the Docker SDK.
    """

    container: Any = None

    def spawn(self, *arguments: str | bytes | Path) -> subprocess.CompletedProcess[str]:
        """Run the real command in the container and wait for it; whatever comes of it is in the result."""
        words = [str(COMMAND), *map(os.fsdecode, arguments)]
        environment = {"BASEFS_HOME": str(self.home), "PYTHONPATH": str(_SOURCES)}
        code, (output, errors) = self.container.exec_run(words, environment=environment, demux=True)
        texts = [(part or b"").decode(errors="surrogateescape") for part in (output, errors)]
        return subprocess.CompletedProcess(words, code, *texts)


class DockerNetwork(NamespaceNetwork):
    """Containers with addresses of their own; a context manager that leaves an image behind and nothing else."""

    def __init__(self, directory: Path, count: int, *, behind_nat: int = 0) -> None:
        """`count` nodes, each with a directory below `directory`; see `NamespaceNetwork`."""
        super().__init__(directory, count, behind_nat=behind_nat)
        self._stack = contextlib.ExitStack()
        self._containers: list[Any] = []

    def __enter__(self) -> DockerNetwork:
        with contextlib.ExitStack() as stack:
            self._client = stack.enter_context(engine())
            self._image = ensure_image(self._client)
            # Mounts pass between inside and outside only below a mount that is shared.
            subprocess.run(["mount", "--bind", self._directory, self._directory], check=True)
            stack.callback(detach, self._directory)
            subprocess.run(["mount", "--make-shared", self._directory], check=True)
            stack.callback(self._remove_containers)
            self._stack = stack.pop_all()
        super().__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        self._stack.close()

    def _make_node(self, base: Path, address: str, namespace: str) -> Node:
        base.mkdir(parents=True)
        container = self._client.containers.run(
            self._image,
            ["sleep", "infinity"],
            detach=True,
            network_mode="none",
            # So that a process has one number, inside and outside.
            pid_mode="host",
            devices=["/dev/fuse"],
            cap_add=["SYS_ADMIN"],
            security_opt=["apparmor=unconfined"],
            mounts=[Mount(str(base), str(base), "bind", propagation="rshared"), *_installation()],
        )
        self._containers.append(container)
        container.reload()
        run_ip("netns", "attach", namespace, str(container.attrs["State"]["Pid"]))
        return DockerNode(base, address, namespace=namespace, container=container)

    def _remove_containers(self) -> None:
        for container in self._containers:
            container.remove(force=True)


def _installation() -> list[Mount]:
    """The sources, the virtual environment, and an interpreter that is not the release's own; all read-only."""
    places = {str(_SOURCES), sys.prefix, *({sys.base_prefix} - {"/usr"})}
    return [Mount(place, place, "bind", read_only=True) for place in sorted(places)]
