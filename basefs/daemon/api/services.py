"""What commands can ask of a filesystem, whether a daemon runs or not.

`LogServices` needs the log alone, so a command can use it directly on a filesystem that is not running.  `Services`
adds what only a running node can tell.  Results are plain JSON values.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from base64 import b64decode
from collections.abc import AsyncIterator, Callable
from typing import Any

from basefs.daemon.api.history import PastServices
from basefs.daemon.api.keys import KeyServices
from basefs.daemon.api.status import StatusServices
from basefs.errors import BaseFSError, Unsupported, UsageError
from basefs.fs.events.feed import Feed
from basefs.fs.events.runner import Runner as HandlerRunner
from basefs.fs.filesystem import Filesystem
from basefs.gossip.members import join_host_port
from basefs.gossip.service import Gossip
from basefs.path import parse, to_text
from basefs.replica.replica import Replica
from basefs.sync.net.service import SyncService
from basefs.view.states import Kind

Json = Any

#: Commands that ask about the node, and must answer whatever the disk and the log are doing.
_WITHOUT_PUBLISHING = frozenset({"ping", "summary", "stop", "members", "network", "resources"})


class LogServices(KeyServices, PastServices, StatusServices):
    """Commands on the log and the view."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    def call(self, command: str, arguments: dict[str, Json]) -> Json:
        """Run a command.  Raises `UsageError` for an unknown one, and what the command raises."""
        method = getattr(self, f"do_{command}", None)
        if method is None:
            raise UsageError(f"the daemon does not know the command {command!r}: is it of another version?")
        return method(**arguments)

    def do_show(self, path: str) -> Json:
        """The live paths at and below a path."""
        start = parse(path)
        listed = []
        for at, kind in self._replica.live_paths():
            if at[: len(start)] == start:
                attributes = self._replica.attributes(at)
                listed.append(
                    {
                        "path": to_text(at),
                        "kind": kind.value,
                        "mode": f"{attributes.mode:04o}",
                        "size": attributes.size,
                        "mtime": attributes.mtime,
                        "entry": attributes.entry.hex(),
                        "writable": attributes.writable,
                    }
                )
        if not listed:
            self._replica.attributes(start)
        return sorted(listed, key=lambda row: str(row["path"]))

    def do_names(self, path: str) -> Json:
        """The names in a directory, each with whether it is a directory itself."""
        found = self._replica.names_in(parse(path))
        return sorted([to_text((name,))[1:], kind is Kind.DIRECTORY] for name, kind in found.items())

    def do_blocks(self) -> Json:
        """The contents that are not complete, and how many blocks there are in all."""
        now = time.time()
        return {
            "blocks": self._replica.totals()["blocks"],
            "incomplete": [
                {
                    "path": to_text(path),
                    "entry": entry.hash.hex(),
                    "state": "stalled" if incomplete.stalled else "receiving",
                    "blocks": incomplete.blocks,
                    "bytes": incomplete.held,
                    "size": entry.size,
                    "since": max(now - incomplete.changed, 0.0),
                }
                for path, entry, incomplete in self._replica.incomplete()
            ],
        }

    def do_import(self, entries: list[str], blocks: list[str]) -> Json:
        """Take in encoded entries and blocks (base64) as from a peer; the fields of an `AddResult`, hashes in hex."""
        result = self._replica.add([b64decode(data) for data in entries], [b64decode(data) for data in blocks])
        return {
            "accepted": result.accepted,
            "missing_parents": [hash.hex() for hash in result.missing_parents],
            "missing_blocks": [hash.hex() for hash in result.missing_blocks],
            "rejected": result.rejected,
        }

    def do_check_view(self) -> Json:
        """The paths where the live view differs from one made from scratch."""
        return [to_text(path) for path in self._replica.check_view()]


class Services(LogServices):
    """Commands on a running node."""

    def __init__(
        self,
        replica: Replica,
        filesystem: Filesystem,
        gossip: Gossip | None,
        sync: SyncService | None,
        handlers: HandlerRunner | None,
        feed: Feed,
        stop: Callable[[], None],
    ) -> None:
        super().__init__(replica)
        self._filesystem = filesystem
        self._handlers = handlers
        self._feed = feed
        self._gossip = gossip
        self._sync = sync
        self._stop = stop
        self._started = time.time()

    async def handle(self, command: str, arguments: dict[str, Json]) -> Json:
        """Run a command that came through the control socket."""
        if command == "serf":
            return await self._serf(**arguments)
        if command == "clocks":
            return await self._clocks(**arguments)
        if command == "watch":
            return self._watch(**arguments)
        if command == "import":
            # Signatures are verified without the event loop.
            return await asyncio.to_thread(self.call, command, arguments)
        if command == "status":
            # In a worker thread: it looks at the whole log.
            return {**await asyncio.to_thread(self._status), **self._node()}
        if command not in _WITHOUT_PUBLISHING:
            # Who saves a file and asks about it wants to hear of it.
            await asyncio.to_thread(self._filesystem.publish)
        return self.call(command, arguments)

    async def _watch(self, path: str, since: str | None) -> AsyncIterator[Json]:
        """The changes at and below a path, each with the token from which to go on, and tokens alone."""
        async for token, record in self._feed.follow(since, parse(path)):
            item: dict[str, Json] = {"token": token}
            if record is not None:
                item.update(
                    type=record.type.value,
                    path=to_text(record.path),
                    kind=record.kind.value,
                    time=record.time,
                    entry=record.entry.hex() or None,
                )
            yield item

    def do_ping(self) -> Json:
        """Answer at once; returns the seconds that it had to wait for the replica's lock."""
        return self._replica.wait()

    def do_summary(self) -> Json:
        """Identity, Merkle hash and sizes, how many names wait for being published, and what handlers do if any."""
        return {
            **super().do_summary(),
            "unpublished": self._filesystem.unpublished(),
            "handlers": None if self._handlers is None else self._handlers.status(),
        }

    def do_publish(self) -> Json:
        """How many names wait for being published, after another try; see `handle`."""
        return self._filesystem.unpublished()

    def _status(self) -> dict[str, Json]:
        # What cannot be published, on a full disk for example, must not keep anybody from being told of it.
        # Whoever looks every second must not make others see what a program has not finished.
        with contextlib.suppress(BaseFSError):
            self._filesystem.publish(patient=True)
        found: dict[str, Json] = self.do_status()
        return found

    def _node(self) -> dict[str, Json]:
        """What belongs to the event loop's thread: since when this runs (UNIX seconds), and who else is there."""
        return {"since": self._started, "members": None if self._gossip is None else self.do_members()}

    def do_stop(self) -> Json:
        """End a daemon without a mount."""
        self._stop()
        return None

    def do_members(self) -> Json:
        """The members of the Serf cluster, this node included, and what the sessions with them have told."""
        gossip = self._running_gossip()
        assert self._sync is not None, "gossip and sync start together"
        now = asyncio.get_running_loop().time()
        standing = set(self._sync.standing)
        found = []
        for member in gossip.members():
            port = member.tags.get("sync")
            is_ours = member.tags.get("fs") == self._replica.identity.hex()
            # Of a stranger nothing is known, though a node of ours may have been at its address.
            address = (member.addr, int(port)) if is_ours and port and port.isdecimal() else ("", 0)
            contact = self._sync.contact(address)
            lag = self._sync.lag(address, away=member.status != "alive")
            found.append(
                {
                    "name": member.name,
                    "address": member.gossip_address,
                    "status": member.status,
                    "own": member.name == gossip.config.node_name,
                    "same_filesystem": is_ours,
                    "sync_port": port,
                    "standing": address in standing,
                    "compared": None if contact.compared_at is None else now - contact.compared_at,
                    "equal": None if contact.compared_at is None else contact.equal,
                    "equal_since": None if contact.equal_at is None else now - contact.equal_at,
                    "lag": None if lag is None else dataclasses.asdict(lag),
                    "differs": address in standing and self._sync.neighbours.differs(address),
                    "sent": contact.sent,
                    "received": contact.received,
                    "reachable": not contact.away,
                    "banned": self._sync.banned_for(address[0]),
                    "trouble": contact.trouble,
                }
            )
        return found

    def do_network(self) -> Json:
        """Counters of gossip and sync."""
        gossip = self._running_gossip()
        return {
            **dataclasses.asdict(gossip.counters),
            "queued": gossip.queue_depth,
            "sync_rejected": 0 if self._sync is None else self._sync.traffic.total().rejected,
            "encrypted": gossip.config.encrypt_key is not None,
            "serf_pid": gossip.agent_pid,
            "serf_connected": gossip.connected,
            "serf_trouble": gossip.trouble,
            "serf_restarts": gossip.restarts,
            "standing": [join_host_port(*peer) for peer in self._sync.standing] if self._sync else [],
        }

    def do_resources(self) -> Json:
        """What `basefs resources` reads again and again: levels, and totals since the start."""
        totals = self._replica.totals()
        handlers = None if self._handlers is None else self._handlers.status()
        found = {
            "entries": totals["entries"],
            "blocks": totals["blocks"],
            "unpublished": self._filesystem.unpublished(),
            "handlers_queued": None if handlers is None else handlers["queued"],
        }
        if self._gossip is not None and self._sync is not None:
            serf, sync = self._gossip.traffic, self._sync.traffic.total()
            found.update(
                serf_pid=self._gossip.agent_pid,
                queued=self._gossip.queue_depth,
                serf_queued=self._gossip.serf_queue_depth,
                serf_udp_sent=serf.udp_sent,
                serf_udp_received=serf.udp_received,
                serf_tcp_sent=serf.tcp_sent,
                sync_sent=sync.bytes_sent,
                sync_received=sync.bytes_received,
            )
        return found

    async def _clocks(self, timeout: float) -> Json:
        """By how many seconds the clocks of the other nodes are ahead, as far as they answer in time."""
        return [dataclasses.asdict(reading) for reading in await self._running_gossip().clocks(timeout)]

    async def _serf(self, command: str, body: dict[str, Json] | None = None) -> Json:
        answer = await self._running_gossip().call(command, body)
        return _jsonable(answer)

    def _running_gossip(self) -> Gossip:
        if self._gossip is None:
            raise Unsupported("this node runs with --single-node: it has no cluster")
        return self._gossip


def _jsonable(value: Json) -> Json:
    if isinstance(value, dict):
        return {str(key): _jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(item) for item in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value
