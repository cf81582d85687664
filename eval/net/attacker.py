"""A malicious peer: one kind of attack on some nodes, for some seconds.  A program of its own.

It speaks just enough of the sync protocol (`docs/sync-protocol.md`) to be accepted, and reads everything that it is
sent, so that its slowness does not spare the victims work.  For gossip it runs a real Serf agent, as a member with the
tags of this filesystem.  In a closed filesystem it is a member: it has a key that may read, and the gossip key.  On
standard output: `ready`, then a JSON object with its work and its processor time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

from basefs.daemon.gossipkeys import first_key
from basefs.errors import BaseFSError
from basefs.gossip.client import Client
from basefs.gossip.config import AgentConfig
from basefs.gossip.events import MAX_ENTRY, Address, encode_announcement, encode_events
from basefs.gossip.members import TAG_SYNC
from basefs.gossip.service import Gossip
from basefs.log.entries import Action, Entry
from basefs.log.hashes import HASH_SIZE
from basefs.log.interface import Digest
from basefs.log.keys import SigningKey
from basefs.replica.replica import Replica
from basefs.sync.net.connection import Connection
from basefs.sync.net.tls import Credentials, Refused
from basefs.sync.wire.codec import encode
from basefs.sync.wire.limits import MAX_NUMBER, VERSION
from basefs.sync.wire.messages import WHOLE, Blocks, Entries, Eof, Hash, Ls, PathReq, Root, Stay

#: Connections to one node at once.  A host may have eight sessions; the rest knocks.
CONNECTIONS = 12
#: Seconds until an attacker whose connection was closed connects again.
_AGAIN = 0.01
#: Entries of a session, or blocks: below the number for which a peer is sent away.
_UNTIL_TOLD_OFF = 240
_CHUNK = 64 * 1024
#: Of what is printed at the end: the processor seconds that the attacker was given, without its Serf agent.
PROCESSOR = "processor s"
#: The kind that comes under TLS with a key which nobody knows, in an open filesystem, too.
HANDSHAKES = "handshakes"
#: Requests that wait for their answer, below the limit of the protocol.
_WINDOW = 200


@dataclass
class Loot:
    """What an attacker knows of a filesystem: all that a node with no key may read.

    Attributes:
        identity: hash of its root entry.
        root: Merkle root hash, as it was.
        entries: all of its entries, encoded.
        forged: invalid entries: with the name of a granted key and a wrong signature.
        strange: signed properly by a key that was not granted.
    """

    identity: bytes
    root: bytes
    entries: list[bytes]
    forged: list[bytes]
    strange: list[bytes]

    @classmethod
    def of(cls, directory: Path) -> Loot:
        """Read a replica's directory."""
        replica = Replica(directory)
        entries = list(replica.walk(()))
        honest = [Entry.decode(data) for data in entries]
        key = SigningKey.generate()
        strange = [
            key.sign(replica.identity, number, Action.MKDIR, b"strange%d" % number) for number in range(_UNTIL_TOLD_OFF)
        ]
        forged = [replace(entry, fingerprint=honest[-1].fingerprint) for entry in strange]
        return cls(
            replica.identity,
            replica.root_hash(),
            entries,
            [entry.encode() for entry in forged],
            [entry.encode() for entry in strange],
        )


class Line:
    """One connection to a node."""

    def __init__(self, connection: Connection, loot: Loot) -> None:
        self._connection = connection
        self._lines: deque[bytes] = deque()
        self._begun = b""
        self.loot = loot

    async def send(self, data: bytes) -> None:
        """Raises `OSError`."""
        self._connection.write(data)
        await self._connection.drain()

    async def greet(self, root: bytes, port: int = 0) -> None:
        """The first line; the filesystem is the right one."""
        await self.send(encode(Hash(VERSION, self.loot.identity, Digest(root, len(self.loot.entries)), port)))

    async def lines(self) -> AsyncIterator[bytes]:
        """What the node sends, by line; ends when it has hung up."""
        while True:
            while self._lines:
                yield self._lines.popleft() + b"\n"
            data = await self._connection.read()
            if not data:
                return
            *whole, self._begun = (self._begun + data).split(b"\n")
            self._lines += whole

    async def until(self, *sections: bytes) -> None:
        """Wait for a line of such a section.  Raises `ConnectionError` where the node ends the session instead."""
        async for line in self.lines():
            if line.startswith(sections):
                return
        raise ConnectionError


async def _answer(line: Line, data: bytes) -> None:
    """Have the node ask, and send it this."""
    await line.greet(os.urandom(HASH_SIZE))
    await line.until(b"LS ")
    await line.send(data)


async def _wrong_hashes(line: Line) -> None:
    await _answer(line, encode(Blocks(tuple(os.urandom(100) for _ in range(_UNTIL_TOLD_OFF)))))


async def _wrong_signatures(line: Line) -> None:
    await _answer(line, encode(Entries(tuple(line.loot.forged))))


async def _strangers_key(line: Line) -> None:
    await _answer(line, encode(Entries(tuple(line.loot.strange))))


async def _replays(line: Line) -> None:
    """The log that the node has, as the answer to its request, for ever."""
    await _answer(line, b"")
    entries = line.loot.entries
    again = b"".join(encode(Entries(tuple(entries[start : start + 32]))) for start in range(0, len(entries), 32))
    while True:
        await line.send(again)


async def _endless_line(line: Line) -> None:
    while True:
        await line.send(b"x" * _CHUNK)


async def _slow_loris(line: Line) -> None:
    """A greeting that never ends, or ends and is followed by a request that does not."""
    if random.random() < 0.5:
        await line.greet(os.urandom(HASH_SIZE))
    for byte in itertools.cycle(b"PATH_REQ /a/b/c"):
        await line.send(bytes([byte]))
        await asyncio.sleep(1)


async def _million_paths(line: Line) -> None:
    """Lists of sub-paths that no node has, each of which the victim requests."""

    def lists() -> bytes:
        names = [os.urandom(12).hex().encode() for _ in range(48)]
        return encode(Ls((), WHOLE, children=tuple((name, os.urandom(HASH_SIZE)) for name in names)))

    await _ask_for_ever(line, lists)


async def _everything(line: Line) -> None:
    """The whole log is wanted, again and again."""
    await _ask_for_ever(line, lambda: encode(PathReq(())))


async def _ask_for_ever(line: Line, request: Callable[[], bytes]) -> None:
    await line.greet(os.urandom(HASH_SIZE))
    await line.until(b"LS ")
    await line.send(encode(Eof()) + b"".join(request() for _ in range(_WINDOW)))
    async for told in line.lines():
        if told == b"EOF\n":
            await line.send(request())
        elif told.startswith((b"LS ", b"PATH_REQ ", b"ENTRY_REQ ", b"BLOCK_REQ ")):
            await line.send(encode(Eof()))


async def _knocks(line: Line) -> None:
    """A comparison of equal logs, over and over."""
    await line.greet(line.loot.root)
    await line.until(b"SAME", b"LS ", b"CLOSE")


async def _wrong_roots(line: Line) -> None:
    """Push sessions, each in the name of another node, that advertise changes which were never made."""
    await line.greet(line.loot.root, random.randrange(1024, 65536))
    await line.until(b"SAME", b"LS ")
    await line.send(encode(Stay()))
    await line.until(b"STAY")
    while True:
        await line.send(
            b"".join(encode(Root(Digest(os.urandom(HASH_SIZE), random.randrange(MAX_NUMBER)), 0)) for _ in range(20))
        )
        await asyncio.sleep(0.01)


async def _no_more(line: Line) -> None:
    """A TLS handshake was all: a closed filesystem ends that of an unknown key, an open one any."""


SYNC: dict[str, Callable[[Line], Awaitable[None]]] = {
    "wrong hashes": _wrong_hashes,
    "wrong signatures": _wrong_signatures,
    "a stranger's key": _strangers_key,
    "replayed entries": _replays,
    "an endless line": _endless_line,
    "slow-loris": _slow_loris,
    "a million paths": _million_paths,
    "everything, again": _everything,
    "knocking": _knocks,
    "wrong roots": _wrong_roots,
    HANDSHAKES: _no_more,
}


class Attack:
    """What goes over connections, and how much."""

    def __init__(self, kind: str, source: str, loot: Loot, credentials: Credentials | None) -> None:
        """`credentials`: of a member of a closed filesystem."""
        self._act = SYNC[kind]
        self._source = source
        self._loot = loot
        self._credentials = Credentials(SigningKey.generate(), None) if kind == HANDSHAKES else credentials
        self.counts = {"connections": 0}

    async def run(self, victims: list[Address], seconds: float) -> None:
        """Attack all of them at once."""
        visits = [self._visit(victim) for victim in victims for _ in range(CONNECTIONS)]
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.gather(*visits), seconds)

    async def _visit(self, victim: Address) -> None:
        while True:
            connection = None
            with contextlib.suppress(OSError, Refused):
                connection = Connection(*await asyncio.open_connection(*victim, local_addr=(self._source, 0)))
                self.counts["connections"] += 1
                if self._credentials is not None:
                    await connection.begin(self._credentials)
                await self._act(Line(connection, self._loot))
            if connection is not None:
                connection.close()
            await asyncio.sleep(_AGAIN)


class Flood:
    """Gossip events, every one of them well-formed, as fast as the agent takes them."""

    def __init__(self, kind: str, source: str, loot: Loot, directory: Path, encrypt_key: str | None) -> None:
        """`encrypt_key`: of a closed filesystem, as Serf takes it."""
        self._payloads = _PAYLOADS[kind]
        self._source = source
        self._loot = loot
        self._directory = directory
        self._encrypt_key = encrypt_key
        self.counts = {"events": 0}
        self._gossip: Gossip | None = None

    async def start(self, victims: list[Address], gossip_port: int) -> None:
        """Become a member of the cluster.  Raises `BaseFSError`."""
        self._directory.mkdir(parents=True, exist_ok=True)
        config = AgentConfig(
            node_name=f"attacker-{os.getpid()}",
            bind=f"{self._source}:{gossip_port}",
            encrypt_key=self._encrypt_key,
            tags={TAG_SYNC: str(victims[0].port)},
            join=tuple(f"{victim.host}:{gossip_port}" for victim in victims),
        )
        self._gossip = Gossip(
            config,
            rundir=self._directory,
            fsid=self._loot.identity,
            on_event=lambda event: None,
            on_members=lambda peers: None,
        )
        await self._gossip.start()
        while sum(peer.status == "alive" for peer in self._gossip.peers) < len(victims):
            await asyncio.sleep(0.1)

    @property
    def agent_pid(self) -> int | None:
        """The process number of the agent."""
        return None if self._gossip is None else self._gossip.agent_pid

    async def run(self, victims: list[Address], seconds: float) -> None:
        """Send to all, through the agent."""
        assert self._gossip is not None
        agent = json.loads((self._directory / "serf.json").read_text())
        host, _, port = agent["rpc_addr"].rpartition(":")
        payloads = itertools.cycle(self._payloads(self._loot, Address(self._source, victims[0].port)))
        end = time.monotonic() + seconds
        async with await Client.connect(host, int(port), agent["rpc_auth"]) as client:
            while time.monotonic() < end:
                await client.user_event(self._gossip.event_name, next(payloads))
                self.counts["events"] += 1
        await self._gossip.stop()


def _known(loot: Loot, here: Address) -> list[bytes]:
    return encode_events([entry for entry in loot.entries if len(entry) <= MAX_ENTRY][:200], (), here)


def _orphans(loot: Loot, here: Address) -> list[bytes]:
    key = SigningKey.generate()
    entries = [key.sign(os.urandom(HASH_SIZE), 1, Action.MKDIR, b"lost%d" % number) for number in range(500)]
    return encode_events([entry.encode() for entry in entries], (), here)


def _announcements(loot: Loot, here: Address) -> list[bytes]:
    return [encode_announcement(os.urandom(HASH_SIZE), here, ()) for _ in range(500)]


_PAYLOADS: dict[str, Callable[[Loot, Address], list[bytes]]] = {
    "gossip of known entries": _known,
    "gossip of a stranger's entries": lambda loot, here: encode_events(loot.strange, (), here),
    "gossip of orphans": _orphans,
    "gossip of announcements": _announcements,
}
KINDS = (*SYNC, *_PAYLOADS)


def yield_cores(pid: int) -> None:
    """Let a process use only idle cores: a real attacker has cores of its own.

    Where the kernel groups processes by session (sched(7), autogroup) priorities count within a session only, and the
    session has one of its own.
    """
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setscheduler(int(thread.name), os.SCHED_IDLE, os.sched_param(0))
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text("19")


async def _main(arguments: argparse.Namespace) -> None:
    loot = Loot.of(arguments.log)
    victims = [Address(host, arguments.sync_port) for host in arguments.victims]
    key = None if arguments.key is None else SigningKey.load(arguments.key)
    if arguments.kind in SYNC:
        credentials = None if key is None else Credentials(key, None)
        attack: Attack | Flood = Attack(arguments.kind, arguments.source, loot, credentials)
    else:
        with contextlib.closing(Replica(arguments.log)) as replica:
            encrypt_key = None if key is None else first_key(replica)
        attack = Flood(arguments.kind, arguments.source, loot, arguments.directory, encrypt_key)
        await attack.start(victims, arguments.sync_port - 1)
        if arguments.yield_cores and attack.agent_pid is not None:
            yield_cores(attack.agent_pid)
    if arguments.yield_cores:
        yield_cores(os.getpid())
    print("ready", flush=True)
    await attack.run(victims, arguments.seconds)
    print(json.dumps({**attack.counts, PROCESSOR: time.process_time()}), flush=True)


def main() -> None:
    """Attack."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--source", required=True, help="own address")
    parser.add_argument("--sync-port", type=int, required=True, help="of the victims")
    parser.add_argument("--log", type=Path, required=True, help="directory of a replica of theirs")
    parser.add_argument("--key", type=Path, help="of a member of a closed filesystem")
    parser.add_argument("--directory", type=Path, required=True, help="for the files of a Serf agent")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--yield-cores", action="store_true", help="use only what others leave of the cores")
    parser.add_argument("victims", nargs="+", help="addresses")
    try:
        asyncio.run(_main(parser.parse_args()))
    except BaseFSError as error:
        parser.exit(1, f"{error}\n")


if __name__ == "__main__":
    main()
