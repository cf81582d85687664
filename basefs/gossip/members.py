"""Members of the Serf cluster, which of them are peers of this filesystem, and the addresses that are remembered."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import logging
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import Any

from basefs.durable import write_file
from basefs.errors import RemoteProtocolError
from basefs.gossip.events import Address

log = logging.getLogger(__name__)

#: Tags that make a member a BaseFS peer: the filesystem's identity (hex) and the port of the sync protocol.
TAG_FS = "fs"
TAG_SYNC = "sync"
#: The tag of a member with a key: the first 16 digits of its fingerprint.
TAG_KEY = "key"
#: What Serf calls members that leave by themselves, or because some node has asked for it.
_LEAVING = ("leaving", "left")


@dataclass(frozen=True, slots=True)
class Member:
    """A node as Serf knows it.

    `name`: of its agent; `status`: alive, leaving, left, failed or none; `port`: Serf's own (TCP and UDP).
    """

    name: str
    addr: str
    port: int
    tags: dict[str, str]
    status: str

    @property
    def machine(self) -> str:
        """What it is, whatever its name and address: its key, by `TAG_KEY`.  Without a key, the name of its agent."""
        return self.tags.get(TAG_KEY) or self.name

    @property
    def gossip_address(self) -> str:
        """`ip:port`, an IPv6 address in brackets: the form in which Serf joins it."""
        return join_host_port(self.addr, self.port)

    @property
    def node_name(self) -> str:
        """What people call it."""
        return node_name_of(self.name, self.gossip_address)

    @property
    def leaves(self) -> bool:
        """Whether it has left, or is about to."""
        return self.status in _LEAVING


@dataclass(frozen=True, slots=True)
class Peer:
    """A member that serves this filesystem.

    `name`: of its agent; `host`: IP address; both ports are TCP; `machine`: as of `Member`.
    """

    name: str
    host: str
    gossip_port: int
    sync_port: int
    status: str
    machine: str = ""

    @property
    def sync_address(self) -> Address:
        """Where it answers the sync protocol."""
        return Address(self.host, self.sync_port)

    @property
    def gossip_address(self) -> str:
        """As that of `Member`."""
        return join_host_port(self.host, self.gossip_port)

    @property
    def node_name(self) -> str:
        """What people call it."""
        return node_name_of(self.name, self.gossip_address)

    @property
    def leaves(self) -> bool:
        """Whether it has left, or is about to."""
        return self.status in _LEAVING


def node_name_of(agent_name: str, address: str) -> str:
    """The name of a node without the address that the name of its agent ends with, if that is where it is."""
    return agent_name.removesuffix(f"@{address}")


def join_host_port(host: str, port: int) -> str:
    """`host:port`, with brackets where the host is an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_host_port(text: str) -> tuple[str, int]:
    """The parts of `host:port` or `[host]:port`.  Raises ValueError without a port 1..65535."""
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r}: an IPv6 address needs brackets: [ADDRESS]:PORT")
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is not ADDRESS:PORT")
    return host, int(port)


def parse_member(record: dict[str, Any]) -> Member:
    """A member from an RPC body.  Raises RemoteProtocolError if a field is missing or of another type."""
    try:
        packed = ipaddress.ip_address(bytes(record["Addr"]))
        if isinstance(packed, ipaddress.IPv6Address) and packed.ipv4_mapped is not None:
            packed = packed.ipv4_mapped  # Go keeps an IPv4 address in 16 bytes
        tags = {str(key): str(value) for key, value in (record["Tags"] or {}).items()}
        return Member(str(record["Name"]), str(packed), int(record["Port"]), tags, str(record["Status"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RemoteProtocolError(f"the Serf agent sent a broken member: {error!r}") from error


def display_names(members: Sequence[Member] | Sequence[Peer]) -> dict[str, str]:
    """What each is called, by the name of its agent: the name of its node, unless another one has that, too."""
    counts = Counter(member.node_name for member in members)
    return {each.name: each.node_name if counts[each.node_name] == 1 else each.name for each in members}


def clones(members: Sequence[Member]) -> dict[str, list[str]]:
    """Keys that several of these members use, by the start of their fingerprints, and the addresses, sorted.

    Only those count that are alive: a machine that returns with another name and address was the lost one.
    """
    found: dict[str, list[str]] = {}
    for member in members:
        if member.status == "alive" and member.tags.get(TAG_KEY):
            found.setdefault(member.machine, []).append(member.gossip_address)
    return {key: sorted(addresses) for key, addresses in found.items() if len(addresses) > 1}


class PeerFilter:
    """Picks the peers of one filesystem out of the members.

    Members of another filesystem, and those without a usable tag, are ignored, with one INFO message for each name.
    """

    def __init__(self, fsid: bytes) -> None:
        self._fsid = fsid.hex()
        self._strangers: dict[str, None] = {}
        #: How many names of strangers were seen.
        self.foreign = 0

    def peers(self, members: Iterable[Member], own: str) -> list[Peer]:
        """The peers among `members`, sorted by name; this node's agent, of the name `own`, is none of them."""
        out = []
        for member in members:
            if member.name == own:
                continue
            port = member.tags.get(TAG_SYNC, "")
            if member.tags.get(TAG_FS) != self._fsid:
                self._ignore(member.name, "another filesystem")
            elif not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65536):
                self._ignore(member.name, "no sync port")
            else:
                out.append(Peer(member.name, member.addr, member.port, int(port), member.status, member.machine))
        return sorted(out, key=lambda peer: peer.name)

    def _ignore(self, name: str, reason: str) -> None:
        if name in self._strangers:
            return
        # A cluster with more of them is logged again.
        if len(self._strangers) >= 1024:
            del self._strangers[next(iter(self._strangers))]
        self._strangers[name] = None
        self.foreign += 1
        log.info("ignoring member %r of the Serf cluster: %s", name, reason)


#: The name of the file, beside the log.
PEERS_FILE = "peers.json"
#: Peers kept.  More would make the file grow with every node that there ever was; fewer would forget real peers of a
#: large network.  Those that have left are dropped first, and then the one that changed longest ago.
MAX_PEERS = 1024


@dataclass(frozen=True, slots=True)
class KnownPeer:
    """A machine that was met once, and where it was last.

    Attributes:
        address: where it gossiped, `ip:port`.
        machine: see `Member.machine`; '' of one that was only named.
        name: of its agent.
        sync_port: 0 if unknown.
        left: whether it stopped in good order, and nobody misses it.
        own: whether it is this machine.
        seen: when it was alive last, UNIX seconds.
    """

    address: str
    machine: str = ""
    name: str = ""
    sync_port: int = 0
    left: bool = False
    seen: float = 0.0
    own: bool = False


class PeerBook:
    """The machines that this node has ever met, ordered and bounded, with a file behind them.

    Serf forgets a failed member after 24 hours.  Two halves of a network that were apart for longer would then never
    meet again, and nobody would miss the other half.  So the file keeps them until they are forgotten by request: a
    JSON list of objects, the one that changed last at the end.

    1. The file is replaced as a whole (`basefs/durable.py`), so it is never half.
    2. All but `save` change memory only; `save` writes if something has changed since it was loaded or saved.
    3. A file that cannot be read costs the peers in it and nothing else: it is kept under another name, a WARNING says
       what to do, and the book is empty.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        #: By machine, or by address where that is unknown.
        self._peers = {peer.machine or peer.address: peer for peer in _load(path)}
        self._saved = frozenset(self._peers.values())
        self._saving = threading.Lock()  # one save at a time, also if the task that waits for one is cancelled

    def get(self, machine: str) -> KnownPeer | None:
        """What is known of a machine, `None` if it was never met, or is forgotten."""
        return self._peers.get(machine)

    def machines_at(self, address: str) -> list[str]:
        """The machines that were at an address last."""
        return [peer.machine for peer in self._peers.values() if peer.address == address]

    @property
    def addresses(self) -> list[str]:
        """All addresses to try, the one that changed last first."""
        return list(dict.fromkeys(peer.address for peer in reversed(self._peers.values()) if not peer.own))

    @property
    def sync_addresses(self) -> list[tuple[str, int]]:
        """Where those that have a sync port answered then."""
        return [(split_host_port(peer.address)[0], peer.sync_port) for peer in self._peers.values() if peer.sync_port]

    @property
    def missed(self) -> list[KnownPeer]:
        """The machines that have not left, the one seen last first; those that were only named included."""
        return [peer for peer in reversed(self._peers.values()) if not (peer.left or peer.own)]

    def add(self, addresses: Iterable[str]) -> None:
        """Note addresses at which unknown machines answer."""
        for address in addresses:
            self._put(KnownPeer(address))

    def see(self, peer: Peer, now: float, met_at: float) -> None:
        """Note that a machine is alive, or was a moment ago.

        Whoever was at its address makes room, unless it was seen there since a session has shown who is there.

        Args:
            now: UNIX seconds.
            met_at: UNIX seconds, when a session has shown that.
        """
        address = peer.gossip_address
        for one in [one for one in self._peers.values() if one.address == address and one.machine != peer.machine]:
            if one.seen <= met_at:
                del self._peers[one.machine or one.address]
        self._put(KnownPeer(address, peer.machine, peer.name, peer.sync_port, seen=now))

    def note_own(self, machine: str, name: str, address: str) -> str:
        """Note the agent of this machine; returns the name of the one before, '' if it had none or the same."""
        former = self._peers.get(machine)
        if former is None or (former.name, former.address, former.own) != (name, address, True):
            self._put(KnownPeer(address, machine, name, own=True))
        return former.name if former is not None and former.own and former.name != name else ""

    def leave(self, machine: str) -> None:
        """Note that a machine has stopped in good order."""
        peer = self._peers.get(machine)
        if peer is not None and not peer.left:
            self._put(replace(peer, left=True))

    def forget(self, machine: str) -> None:
        """Forget a machine."""
        self._peers.pop(machine, None)

    def _put(self, peer: KnownPeer) -> None:
        key = peer.machine or peer.address
        self._peers.pop(key, None)
        self._peers[key] = peer
        if len(self._peers) > MAX_PEERS:
            del self._peers[next((key for key, one in self._peers.items() if one.left), next(iter(self._peers)))]

    @property
    def changed(self) -> bool:
        """Whether `save` has something to write."""
        return self._saved != frozenset(self._peers.values())

    def save(self) -> None:
        """Write the file if something has changed.  Blocks on the disk.  Raises OSError; the old file is whole then."""
        with self._saving:
            peers = list(self._peers.values())
            if self._saved != frozenset(peers):
                write_file(self._path, json.dumps(list(map(asdict, peers)), indent=0).encode() + b"\n", mode=0o600)
                self._saved = frozenset(peers)


def _load(path: Path) -> list[KnownPeer]:
    try:
        with path.open("rb") as file:
            # A longer one is not ours: 1024 peers are some 160 KiB.
            data = json.loads(file.read(1024 * 1024))
        peers = [KnownPeer(**record) for record in data]
        for peer in peers:
            kinds = (str, str, str, int, bool, float, bool)
            if not all(map(isinstance, astuple(peer), kinds)):
                raise TypeError("a field is of another type")
            split_host_port(peer.address)
        return peers[-MAX_PEERS:]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        aside = path.with_name(f"{path.name}.damaged")
        with contextlib.suppress(OSError):
            path.replace(aside)
        log.warning(
            "%s is damaged (%s) and was renamed to %s: former nodes count again once they are met; --join names one",
            path,
            error,
            aside.name,
        )
        return []
