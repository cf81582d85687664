"""Events of Serf itself, sent and heard beside BaseFS through the same agents: what BaseFS is compared with."""

from __future__ import annotations

import asyncio
import contextlib
import json
import queue
import random
import threading
import time
from collections.abc import Sequence

from basefs.gossip.client import Client
from tests.support.cluster import NAME
from tests.support.namespaces import in_namespace
from tests.support.node import Node

#: Bytes of an event: as many as an entry takes with a block of 100 bytes.
PAYLOAD = 320
#: The prefix of the names of such events, so that BaseFS ignores them.
_PREFIX = "raw"


class Listeners:
    """Tells when the agents of some nodes deliver a raw event; a context manager.

    One thread a node, in the node's network namespace.
    """

    def __init__(self, nodes: Sequence[Node], patience: float) -> None:
        """`patience`: seconds after which an event counts as lost."""
        self._nodes = nodes
        self._patience = patience
        self._arrivals: queue.Queue[float] = queue.Queue()
        self._stop = threading.Event()
        self._ready = threading.Barrier(len(nodes) + 1)
        self._threads = [threading.Thread(target=self._run, args=(node,), daemon=True) for node in nodes]

    def __enter__(self) -> Listeners:
        for thread in self._threads:
            thread.start()
        self._ready.wait(self._patience)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def send(self, number: int) -> float:
        """Send an event from the first node; seconds until the last agent has told it.  Raises `TimeoutError`."""
        payload = random.Random(number).randbytes(PAYLOAD)
        start = time.monotonic()
        with in_namespace(str(self._nodes[0].namespace)):
            asyncio.run(_send(self._nodes[0], f"{_PREFIX}{number}", payload))
        try:
            return max([self._arrivals.get(timeout=self._patience) for _ in self._nodes]) - start
        except queue.Empty:
            raise TimeoutError(f"a raw event is not everywhere after {self._patience:g} s") from None

    def _run(self, node: Node) -> None:
        with in_namespace(str(node.namespace)):
            asyncio.run(self._listen(node))

    async def _listen(self, node: Node) -> None:
        async with await connect(node) as client:
            stream = await client.subscribe("user")
            self._ready.wait()
            while not self._stop.is_set():
                with contextlib.suppress(asyncio.TimeoutError):
                    record = await asyncio.wait_for(stream.__anext__(), 0.5)
                    if str(record.get("Name", "")).startswith(_PREFIX):
                        self._arrivals.put(time.monotonic())


async def _send(node: Node, name: str, payload: bytes) -> None:
    async with await connect(node) as client:
        await client.call("event", {"Name": name, "Payload": payload, "Coalesce": False})


async def connect(node: Node) -> Client:
    """A client of a node's Serf agent; to be used in the node's network namespace.  Raises as `Client.connect`."""
    config = json.loads((node.home / "run" / NAME / "serf.json").read_text())
    host, _, port = config["rpc_addr"].rpartition(":")
    return await Client.connect(host, int(port), config["rpc_auth"])
