"""Members of the Serf cluster, which of them are peers of this filesystem, and the addresses that are remembered."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import logging
import threading
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import Any

from basefs.durable import write_file
from basefs.errors import RemoteProtocolError
from basefs.gossip.events import Address
from basefs.gossip.queries import SETTLED, Claim, PeerState, digest_of

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
    """A member that serves this filesystem.  `name`: of its agent; `host`: IP address; both ports are TCP."""

    name: str
    host: str
    gossip_port: int
    sync_port: int
    status: str

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


def namesakes(members: Sequence[Member]) -> dict[str, list[str]]:
    """Node names that several of these members have, and their addresses, sorted.

    Those that are leaving do not count: a node that returns at another address has its former one leave.
    """
    return _shared((member.node_name, member.gossip_address) for member in members if not member.leaves)


def clones(members: Sequence[Member]) -> dict[str, list[str]]:
    """Keys that several of these members use, by the start of their fingerprints, and the addresses, sorted.

    Only those count that are alive: a machine that returns with another name and address was the lost one.
    """
    return _shared(
        (member.tags[TAG_KEY], member.gossip_address)
        for member in members
        if member.status == "alive" and member.tags.get(TAG_KEY)
    )


def _shared(owners: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for what, address in owners:
        found.setdefault(what, []).append(address)
    return {what: sorted(addresses) for what, addresses in found.items() if len(addresses) > 1}


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
                out.append(Peer(member.name, member.addr, member.port, int(port), member.status))
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
#: large network.  They are dropped in the order of `_WORTH`, and of each kind the one that changed longest ago.
MAX_PEERS = 1024
_WORTH = [PeerState.LEFT, PeerState.GONE, PeerState.MEMBER, PeerState.FORMER, PeerState.OWN]


@dataclass(frozen=True, slots=True)
class KnownPeer:
    """A peer that was seen once: where it gossiped then, `ip:port`, its agent's name and its sync port, if a member.

    `since`: UNIX seconds at which `state` began, or for a member, at which it was seen last: of two nodes the one
    with the newer time is right.
    """

    address: str
    name: str = ""
    sync_port: int = 0
    state: PeerState = PeerState.MEMBER
    since: float = 0.0


class PeerBook:
    """The peers that this node has ever met, ordered and bounded, with a file behind them.

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
        #: By name, or by address where that is unknown.
        self._peers = {peer.name or peer.address: peer for peer in _load(path)}
        self._saved = frozenset(self._peers.values())
        self._saving = threading.Lock()  # one save at a time, also if the task that waits for one is cancelled

    def state(self, name: str) -> PeerState | None:
        """What is known of the peer of this name, `None` if nothing."""
        peer = self._peers.get(name)
        return None if peer is None else peer.state

    def since(self, name: str) -> float:
        """When the peer of this name was seen last, or when its state began (UNIX seconds); 0 if nothing is known."""
        peer = self._peers.get(name)
        return 0.0 if peer is None else peer.since

    @property
    def addresses(self) -> list[str]:
        """All addresses to try, the one that changed last first."""
        tried = (PeerState.MEMBER, PeerState.LEFT)
        return list(dict.fromkeys(peer.address for peer in reversed(self._peers.values()) if peer.state in tried))

    @property
    def sync_addresses(self) -> list[tuple[str, int]]:
        """Where those that have a sync port answered then."""
        return [(split_host_port(peer.address)[0], peer.sync_port) for peer in self._peers.values() if peer.sync_port]

    @property
    def missed(self) -> list[KnownPeer]:
        """The peers that have not left, the one seen last first; those of unknown name included."""
        return [peer for peer in reversed(self._peers.values()) if peer.state is PeerState.MEMBER]

    @property
    def former(self) -> set[str]:
        """What this node's agents were called before this one, as far as they may still count as members."""
        return {peer.name for peer in self._peers.values() if peer.state is PeerState.FORMER}

    def add(self, addresses: Iterable[str]) -> None:
        """Note addresses at which peers of unknown names answer."""
        for address in addresses:
            self._put(KnownPeer(address))

    def see(self, peers: Iterable[Peer], now: float) -> None:
        """Note that these peers are alive, or were a moment ago.  `now`: UNIX seconds, here and below."""
        for peer in peers:
            if self.state(peer.name) is PeerState.FORMER:
                continue
            address = peer.gossip_address
            self._peers.pop(address, None)
            # A peer that is seen is back, whatever the clock was when it went.
            since = max(now, self._peers[peer.name].since) if peer.name in self._peers else now
            self._put(KnownPeer(address, peer.name, peer.sync_port, PeerState.MEMBER, since))

    def note_own(self, name: str, address: str, now: float) -> None:
        """Note what this node's agent is called now, and where it is."""
        for peer in list(self._peers.values()):
            if peer.state is PeerState.OWN and peer.name != name:
                self._put(replace(peer, state=PeerState.FORMER, since=now))
        if self.state(name) is not PeerState.OWN:
            self._put(KnownPeer(address, name, state=PeerState.OWN, since=now))

    def settle(self, name: str, state: PeerState, now: float, address: str = "") -> None:
        """Note another state of a peer, unless it is gone.  `address`: where it was, if nothing is known of it."""
        peer = self._peers.get(name)
        if peer is None and address:
            peer = KnownPeer(address, name)
        if peer is not None and peer.state not in (state, PeerState.GONE, PeerState.OWN):
            self._put(replace(peer, state=state, since=now))

    def news_for(self, claims: Iterable[Claim]) -> list[Claim]:
        """What this node knows better than the node that sent `claims`: peers of it that have left or are gone."""
        found = []
        for claim, peer in self._matching(claims):
            state = PeerState.GONE if peer.state is PeerState.FORMER else peer.state
            if state in SETTLED and claim.state is PeerState.MEMBER and peer.since > claim.since:
                found.append(Claim(claim.digest, state, peer.since))
        return found

    def learn(self, claims: Iterable[Claim], alive: Container[str], now: float) -> None:
        """Take over what another node knows better, but of none of the names `alive`, and nothing of the future."""
        for claim, peer in self._matching(claims):
            # A clock may be a day ahead.  What is said of a later time would hold until then, whatever happens.
            is_newer = peer.since < claim.since <= now + 24 * 3600.0
            if claim.state in SETTLED and is_newer and peer.name not in alive:
                self.settle(peer.name, claim.state, claim.since)

    def _matching(self, claims: Iterable[Claim]) -> list[tuple[Claim, KnownPeer]]:
        known = {digest_of(peer.name): peer for peer in self._peers.values() if peer.name}
        return [(claim, known[claim.digest]) for claim in claims if claim.digest in known]

    def _put(self, peer: KnownPeer) -> None:
        key = peer.name or peer.address
        self._peers.pop(key, None)
        self._peers[key] = peer
        if len(self._peers) > MAX_PEERS:
            del self._peers[min(self._peers, key=lambda each: _WORTH.index(self._peers[each].state))]

    @property
    def changed(self) -> bool:
        """Whether `save` has something to write."""
        return self._saved != frozenset(self._peers.values())

    def save(self) -> None:
        """Write the file if something has changed.  Blocks on the disk.  Raises OSError; the old file is whole then."""
        with self._saving:
            peers = list(self._peers.values())
            if self._saved != frozenset(peers):
                rows = [{**asdict(peer), "state": peer.state.value} for peer in peers]
                write_file(self._path, json.dumps(rows, indent=0).encode() + b"\n", mode=0o600)
                self._saved = frozenset(peers)


def _load(path: Path) -> list[KnownPeer]:
    try:
        with path.open("rb") as file:
            # A longer one is not ours: 1024 peers are some 160 KiB.
            data = json.loads(file.read(1024 * 1024))
        peers = [KnownPeer(**{**record, "state": PeerState(record["state"])}) for record in data]
        for peer in peers:
            kinds = (str, str, int, PeerState, float)
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
