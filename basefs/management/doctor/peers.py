"""Whether the other nodes can be reached, port by port, and whether they and this node let each other in.

A node that is down and one behind a firewall look alike from here.  What can be told apart: a node that answers on one
port and not on another has a firewall before it; and where no node at all answers, the trouble is more likely here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgpack

from basefs.daemon.api.messages import GrantedKey
from basefs.daemon.api.probing import Answer, Greeting
from basefs.daemon.config import SYNC_PORT_OFFSET, NodeAddress
from basefs.management.doctor.finding import Diagnosis, note, problem
from basefs.management.output import SHORT, printable
from basefs.tasks import is_set_within, within

#: Seconds that a peer has for an answer: some round trips of the worst network for which Serf's wan profile is made.
PATIENCE = 5.0


@dataclass(frozen=True, slots=True)
class Reached:
    """Which ports of a node answered; `gossip_udp` is `None` if unknown."""

    address: NodeAddress
    gossip_tcp: bool
    gossip_udp: bool | None
    sync_tcp: bool

    @property
    def silent(self) -> list[str]:
        """The ports that did not answer."""
        return [
            name
            for name, answered in (
                (f"{self.address.port}/tcp", self.gossip_tcp),
                (f"{self.address.port}/udp", self.gossip_udp is not False),
                (f"{self.address.port + SYNC_PORT_OFFSET}/tcp", self.sync_tcp),
            )
            if not answered
        ]

    @property
    def nothing(self) -> bool:
        """Whether no port answered."""
        return not (self.gossip_tcp or self.gossip_udp or self.sync_tcp)


async def reach(addresses: Sequence[NodeAddress], *, encrypted: bool, patience: float = PATIENCE) -> list[Reached]:
    """Try the ports of nodes, given by IP address and gossip port, all at once.

    `encrypted`: their gossip is, so that a ping of ours would get no answer.
    """
    return list(await asyncio.gather(*(_reach(address, encrypted, patience) for address in addresses)))


async def _reach(address: NodeAddress, encrypted: bool, patience: float) -> Reached:
    host, port = address
    gossip, sync = await asyncio.gather(
        _connects(host, port, patience), _connects(host, port + SYNC_PORT_OFFSET, patience)
    )
    # Their agents would log a ping in the clear as an error.
    ping = None if encrypted else await _pings(host, port, patience)
    return Reached(address, gossip, ping, sync)


async def _connects(host: str, port: int, patience: float) -> bool:
    try:
        _, writer = await within(patience, asyncio.open_connection(host, port), lambda streams: streams[1].close())
    except (OSError, asyncio.TimeoutError):
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True


class _Pinger(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.answered = asyncio.Event()

    def datagram_received(self, data: bytes, address: object) -> None:
        if data[:1] == b"\2":
            self.answered.set()


async def _pings(host: str, port: int, patience: float) -> bool:
    loop = asyncio.get_running_loop()
    try:
        transport, pinger = await loop.create_datagram_endpoint(_Pinger, remote_addr=(host, port))
    except OSError:
        return False
    # A ping of memberlist (Serf's transport), for anybody, without a name; the answer begins with 2.
    message = b"\0" + msgpack.packb({"SeqNo": 1, "Node": ""})
    deadline = loop.time() + patience
    try:
        while not pinger.answered.is_set() and loop.time() < deadline:
            transport.sendto(message)
            # UDP may lose one.
            await is_set_within(pinger.answered, min(1.0, patience))
        return pinger.answered.is_set()
    finally:
        transport.close()


def examine(name: str, found: Sequence[Reached]) -> list[Diagnosis]:
    """What the answers of all known peers of a filesystem mean."""
    dead = [peer for peer in found if peer.nothing]
    findings = []
    if found and len(dead) == len(found):
        where = ", ".join(str(peer.address) for peer in dead[:3])
        what = f"none of the {len(dead)} known peers of {name} answers ({where})"
        if len(dead) == 1:
            what = f"{where}, the only known peer of {name}, does not answer"
        ports = f"{dead[0].address.port} (TCP and UDP) and {dead[0].address.port + SYNC_PORT_OFFSET} (TCP)"
        return [problem("peers", what, f"see 'ip address' and 'ip route' here; a firewall must let {ports} through")]
    for peer in found:
        where = str(peer.address)
        if peer.nothing:
            what = f"{where}, a known peer of {name}, answers on no port: it is down, or cut off"
            findings.append(note("peers", what, f"basefs status {name}, there"))
        elif peer.silent:
            what = f"{where}, a known peer of {name}, answers, but not on {', '.join(peer.silent)}"
            findings.append(problem("peers", what, "let that port through the firewalls of both nodes"))
    return findings


@dataclass(frozen=True, slots=True)
class Standing:
    """What this node knows of who may read a filesystem.

    Attributes:
        name, identity: of the filesystem.
        fingerprint: of the key that this node shows.
        keys: every grant that is in the log.
        permission: what lets a key of this node in, and where to type it.
    """

    name: str
    identity: str
    fingerprint: str
    keys: Sequence[GrantedKey]
    permission: str

    def standings(self, fingerprint: str) -> set[str]:
        """What the grants of a key are worth."""
        return {one.standing for one in self.keys if one.fingerprint == fingerprint}

    def is_member(self, fingerprint: str) -> bool:
        """Whether a key may read, as far as this node knows."""
        return not self.standings(fingerprint).isdisjoint(("valid", "reads"))

    def called(self, fingerprint: str) -> str:
        """The name of a key, and digits of its fingerprint."""
        name = next((one.name for one in self.keys if one.fingerprint == fingerprint), "")
        return f"{printable(name)} ({fingerprint[:SHORT]})" if name else fingerprint[:SHORT]


def explain(access: Standing, greetings: Sequence[Greeting]) -> list[Diagnosis]:
    """Why peers that answer and this node do not let each other in."""
    return [problem("peers", *why) for each in greetings if (why := _why(access, each)) is not None]


def _why(access: Standing, one: Greeting) -> tuple[str, str] | None:
    """What a greeting says that is wrong, and what to do."""
    name, where = access.name, str(one.address)
    forget = f"if no node of {name} is there any more: basefs members {name} --forget {where}"
    compare = f"'basefs list' there must print {access.identity}; {forget}"
    match one.answer:
        case Answer.UNKNOWN_THERE:
            return _turned_away(access, where)
        case Answer.UNKNOWN_HERE:
            what = f"{where} shows a key that is not known here: another filesystem, or a machine that joined elsewhere"
            return what, f"{compare}; a key that joined arrives by the member that let it in"
        case Answer.OTHER_FILESYSTEM:
            return f"{where} serves another filesystem than {name}: {one.identity}", forget
        case Answer.OTHER_VERSION:
            return f"{where} speaks another version of the sync protocol", "install the same version of BaseFS there"
        case Answer.NO_TLS:
            what = f"{where} does not speak TLS, and {name} is closed: an open filesystem or another program is there"
            return what, compare
        case Answer.ONLY_TLS:
            return f"{where} speaks TLS only, and {name} is open: a closed filesystem is there", compare
        case Answer.BANNED:
            what = f"{where} has banned this node for a while, because it broke the protocol"
            return what, f"the ban ends by itself within an hour; the log of {name} there says why"
    if one.fingerprint and not access.is_member(one.fingerprint):
        what = f"{where} shows the key {access.called(one.fingerprint)}, which is no member any more"
        return what, f"it stays out until a member that may grant grants it again; {forget}"
    return None


def _turned_away(access: Standing, where: str) -> tuple[str, str]:
    """Why a peer does not know the key of this node."""
    name, key = access.name, access.fingerprint[:SHORT]
    if access.is_member(access.fingerprint):
        what = f"{where} does not know the key {key} of this node: it was revoked, or its grant has not arrived there"
        return what, f"run there: basefs keys {name} --all"
    if "revoked" in access.standings(access.fingerprint):
        return f"{where} turns this node away, since its key {key} was revoked", access.permission
    what = f"{where} turns this node away: only members read {name}, and the key {key} of this node is not a member"
    return what, access.permission
