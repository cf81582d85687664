"""etcd: three servers, and on every node a client that watches a key."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import queue
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.support.namespaces import in_namespace
from tests.support.node import Node
from tests.support.wait import wait_until

#: Servers of the cluster, on the first nodes.
SERVERS = 3
_CLIENT_PORT, _PEER_PORT = 2379, 2380


class Etcd:
    """A cluster of servers with a watch on each node; use `started`."""

    def __init__(self, nodes: Sequence[Node], patience: float) -> None:
        self._nodes = list(nodes)
        self._patience = patience
        self._arrivals: queue.Queue[float] = queue.Queue()
        self._connections: list[http.client.HTTPConnection] = []

    @classmethod
    @contextlib.contextmanager
    def started(cls, nodes: Sequence[Node], directory: Path, patience: float) -> Iterator[Etcd]:
        """Servers that answer, and clients that watch, until the end.

        Args:
            nodes: at least three, each with a network namespace.
            directory: for what the servers store.
            patience: seconds for them to answer, and for a change to arrive.
        """
        etcd = cls(nodes, patience)
        with contextlib.ExitStack() as stack:
            for command in _commands(nodes[:SERVERS], directory):
                server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                stack.callback(_end, server)
            stack.callback(etcd._close)
            for index, node in enumerate(nodes):
                etcd._watch(node, nodes[index % SERVERS])
            yield etcd

    def send(self, number: int) -> list[float]:
        """Put a value on the first node; seconds until each watch has told of it.  Raises `TimeoutError`."""
        body = {"key": _text("basefs"), "value": _text(f"{number} " + "x" * 100)}
        start = time.monotonic()
        with in_namespace(str(self._nodes[0].namespace)):
            connection = http.client.HTTPConnection(str(self._nodes[0].address), _CLIENT_PORT, timeout=self._patience)
            connection.request("POST", "/v3/kv/put", json.dumps(body))
            connection.getresponse().read()
            connection.close()
        try:
            return [self._arrivals.get(timeout=self._patience) - start for _ in self._nodes]
        except queue.Empty:
            raise TimeoutError(f"a value is not at all watchers after {self._patience:g} s") from None

    def _watch(self, node: Node, server: Node) -> None:
        connection = http.client.HTTPConnection(str(server.address), _CLIENT_PORT, timeout=None)
        with in_namespace(str(node.namespace)):
            # The first server answers only when the others are there.
            wait_until(lambda: _connects(connection), self._patience, "etcd answers")
        self._connections.append(connection)
        connection.request("POST", "/v3/watch", json.dumps({"create_request": {"key": _text("basefs")}}))
        response = connection.getresponse()
        threading.Thread(target=self._listen, args=(response,), daemon=True).start()

    def _listen(self, response: http.client.HTTPResponse) -> None:
        # The connection is closed under this thread at the end.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            while line := response.readline():
                if json.loads(line).get("result", {}).get("events"):
                    self._arrivals.put(time.monotonic())

    def _close(self) -> None:
        for connection in self._connections:
            if connection.sock is not None:
                connection.sock.close()


def _commands(servers: Sequence[Node], directory: Path) -> Iterator[list[str]]:
    cluster = ",".join(f"server{index}=http://{node.address}:{_PEER_PORT}" for index, node in enumerate(servers))
    for index, node in enumerate(servers):
        peer, client = f"http://{node.address}:{_PEER_PORT}", f"http://{node.address}:{_CLIENT_PORT}"
        options = {
            "name": f"server{index}",
            "data-dir": str(directory / f"etcd{index}"),
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "initial-cluster": cluster,
        }
        yield [*node.prefix(), "etcd", *(f"--{name}={value}" for name, value in options.items())]


def _connects(connection: http.client.HTTPConnection) -> bool:
    connection.close()
    connection.request("GET", "/health")
    answer: Any = json.loads(connection.getresponse().read())
    return bool(answer.get("health") == "true")


def _text(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait()
