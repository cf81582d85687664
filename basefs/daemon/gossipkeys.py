"""The gossip key of a closed filesystem: as new as that of any member that this node reaches.

Any member passes the key on, and only those with a key that is valid at `/` make one: it is signed, so that neither a
reader nor the holder of one directory can set the key of all, and a key that was signed by somebody who has been
revoked since gives way to any other one.

A new key is due in two cases.  Its maker's key is no longer valid at `/`: newcomers do not take it.  Or it has leaked,
which follows from two facts, in whatever order they are written: the members that may have the key, which its file
names before they are given it, and the members of the log.  A member that had not received a revoke yet may have given
the new key to the revoked machine: where it makes none itself, it tells those that do.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from basefs.daemon.api.messages import RenewedGossipKey
from basefs.daemon.config import SYNC_PORT_OFFSET, parse_address
from basefs.daemon.lasting import repeat
from basefs.daemon.membership import Membership
from basefs.durable import write_file
from basefs.errors import BaseFSError, NotPermitted, StoreError
from basefs.gossip.events import Address
from basefs.gossip.key import KEY_SIZE, SYSTEM, GossipKey
from basefs.gossip.members import Peer
from basefs.gossip.service import Gossip
from basefs.log.ed25519 import PUBLIC_KEY_SIZE, SIGNATURE_SIZE, is_signed
from basefs.log.keys import SigningKey
from basefs.replica.replica import Replica
from basefs.sync.net.keys import exchange_keys
from basefs.sync.net.service import SyncService
from basefs.tasks import cancel, within

log = logging.getLogger(__name__)

#: The name of the file, beside the log.
KEY_FILE = "gossip.key"
#: Prefix of the signed bytes, so that a signature of a gossip key is never valid for anything else.
_DOMAIN = b"basefs gossip key v1\x00"
#: Seconds between two questions to members that gossip does not reach: perhaps one of both has an older key.
_ASK_SECONDS = 5.0
#: Members that are told at once, and seconds after which one that does not answer gives its place to the next.
_TOLD_AT_ONCE, _TELL_SECONDS = 16, 3.0


@dataclass(frozen=True, slots=True)
class SignedKey:
    """A gossip key with who made it.

    Attributes:
        key: the key.
        signer: raw public key of the member that made it, 32 bytes; zeros for the substitute of a node without one.
        signature: over the identity of the filesystem and the key, 64 bytes.
    """

    key: GossipKey
    signer: bytes = bytes(PUBLIC_KEY_SIZE)
    signature: bytes = bytes(SIGNATURE_SIZE)

    @classmethod
    def make(cls, generation: int, signer: SigningKey, identity: bytes, rng: random.Random = SYSTEM) -> SignedKey:
        """A new key of a filesystem."""
        key = GossipKey.of(generation, rng)
        return cls(key, signer.public, signer.secret.sign(_DOMAIN + identity + key.raw))

    def is_valid(self, identity: bytes, makers: frozenset[bytes]) -> bool:
        """Whether one of these members, raw public keys, has made it for this filesystem."""
        return self.signer in makers and is_signed(_DOMAIN + identity + self.key.raw, self.signature, self.signer)

    def encode(self) -> bytes:
        """Key, signer and signature."""
        return self.key.raw + self.signer + self.signature

    @classmethod
    def decode(cls, data: bytes) -> SignedKey:
        """The reverse.  Raises ValueError for another length."""
        if len(data) != KEY_SIZE + PUBLIC_KEY_SIZE + SIGNATURE_SIZE:
            raise ValueError("no signed gossip key")
        return cls(
            GossipKey(data[:KEY_SIZE]), data[KEY_SIZE : KEY_SIZE + PUBLIC_KEY_SIZE], data[KEY_SIZE + PUBLIC_KEY_SIZE :]
        )


@dataclass(frozen=True, slots=True)
class SentKey:
    """The gossip key of a node as it sends it to members.

    Attributes:
        signed: the key.
        has_leaked: whether somebody may have it who is no member any more, as far as the node knows.
    """

    signed: SignedKey
    has_leaked: bool = False

    def encode(self) -> bytes:
        """The key, and a byte."""
        return self.signed.encode() + bytes([self.has_leaked])

    @classmethod
    def decode(cls, data: bytes) -> SentKey:
        """The reverse.  Raises ValueError for another length."""
        return cls(SignedKey.decode(data[:-1]), data[-1:] == b"\x01")


@dataclass(frozen=True, slots=True)
class KeptKey:
    """The gossip key of a node as its file has it.

    Attributes:
        signed: the key.
        known_to: raw public keys of the members that may have it, 32 bytes each; those that have been removed from the
            filesystem stay, until there is another key.
    """

    signed: SignedKey
    known_to: frozenset[bytes] = frozenset()

    @classmethod
    def load(cls, directory: Path) -> KeptKey:
        """The key beside a log; where there is none, or a damaged one, a substitute that every other one replaces."""
        path = directory / KEY_FILE
        try:
            first, *others = path.read_bytes().split()
            known_to = [bytes.fromhex(line.decode()) for line in others]
            return cls(SignedKey.decode(base64.b64decode(first)), frozenset(known_to))
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            log.warning("%s holds no gossip key (%s): asking other members", path, error)
        return cls(SignedKey(GossipKey.of(0)))

    def save(self, directory: Path) -> None:
        """Write the file, readable by its owner only.  Raises OSError; the old one is whole then."""
        lines = [base64.b64encode(self.signed.encode()), *(key.hex().encode() for key in sorted(self.known_to))]
        write_file(directory / KEY_FILE, b"\n".join(lines) + b"\n")


class GossipKeys:
    """Exchanges the key with members over TLS.  Used in the event loop."""

    def __init__(
        self,
        key: KeptKey,
        replica: Replica,
        gossip: Gossip,
        membership: Membership,
        compare: Callable[[Address], object],
        rng: random.Random = SYSTEM,
    ) -> None:
        """`key`: that gossip begins with; `rng`: for all that is left to chance, keys included.

        `compare`: is called with members that gossip does not reach and that answer, to compare the logs.
        """
        self._kept = key
        self._compare = compare
        self._replica = replica
        self._gossip = gossip
        self._membership = membership
        self._changing = asyncio.Lock()
        self._rng = rng
        #: The key that has leaked as another member says, and from when on another one is believed.
        self._reported: GossipKey | None = None
        self._heeds_at = float("-inf")
        #: When others are told next that the key has leaked, and seconds until they are told once more.
        self._warns_at, self._pause = float("-inf"), _ASK_SECONDS

    async def watch_members(self, sync: SyncService) -> None:
        """Have `sync` let in the members, and note that they may have the key, for ever."""
        await self._membership.watch(sync, self._note_members)

    async def begin(self) -> None:
        """Ask for the key, for a node that has none yet: before gossip starts, which does not wait for long."""
        try:
            await self._note_members()
        except OSError as error:
            log.error("cannot keep the gossip key: %s", error)
        if self._kept.signed.key.generation:
            return
        asked = [asyncio.ensure_future(self._meet(address)) for address in self._named()[:3]]
        if asked:
            await asyncio.wait(asked, timeout=3.0)
        for outcome in await cancel(asked):
            if isinstance(outcome, OSError):
                log.error("cannot keep the gossip key: %s", outcome)

    async def exchange(self, member: bytes, theirs: bytes) -> bytes:
        """Take a member's key if it is newer; returns the one of this node.

        `member`: its public key.  Raises OSError, also for who is no member any more, and for the key of an
        invitation: when that ends, the gossip key need not change.
        """
        await self._take(theirs, lambda: member in self._membership.in_gossip)
        await self._note_members()
        return self._key_for(member)

    def _key_for(self, member: bytes) -> bytes:
        """What a member is sent.  Raises PermissionError for those of whom a crash would leave nothing."""
        # As it stands now: the exchange may have begun before a revoke.
        if member not in self._membership.in_gossip & self._kept.known_to:
            raise PermissionError("no part of gossip")
        return SentKey(self._kept.signed, self._has_leaked()).encode()

    async def _note_members(self) -> None:
        """Write down that the members may have the key.  Raises OSError."""
        async with self._changing:
            if not self._membership.in_gossip <= self._kept.known_to:
                known_to = self._kept.known_to | self._membership.in_gossip
                await self._keep(replace(self._kept, known_to=known_to))

    async def _keep(self, kept: KeptKey) -> None:
        await asyncio.to_thread(kept.save, self._replica.directory)
        self._kept = kept

    async def watch(self) -> None:
        """Exchange keys with members that gossip does not reach, and make a new key where one is due, for ever."""

        async def pause() -> None:
            # At random, so that one member makes the key and the others take it.
            await asyncio.sleep(self._rng.uniform(0.5, 1.0) * _ASK_SECONDS)

        # Beside each other: members that do not answer must not keep the key from who was expelled for long.
        await asyncio.gather(
            repeat("keep the gossip key", self._keep_secret, pause),
            repeat("exchange the gossip key", self._ask_lost, pause),
        )

    async def _keep_secret(self) -> None:
        await self._renew_if_due()
        await self._warn_if_due()

    async def _ask_lost(self) -> None:
        lost = self._lost()
        for address in self._rng.sample(lost, min(len(lost), 3)):
            if await self._meet(address):
                # Whose key counts follows from the log: while the logs differ, both may keep their own key for ever.
                self._compare(address)

    def _has_leaked(self) -> bool:
        """Whether somebody may have the key who takes no part in gossip: the key of a member was revoked."""
        return not self._kept.known_to <= self._membership.in_gossip

    def _is_due(self, makers: frozenset[bytes]) -> bool:
        signed = self._kept.signed
        # Generation 0 stands for none: such a node is given a key, and makes none.
        is_orphaned = signed.key.generation > 0 and not signed.is_valid(self._replica.identity, makers)
        return is_orphaned or self._has_leaked() or self._reported == signed.key

    async def _renew_if_due(self) -> None:
        """Raises OSError; it is tried again then."""
        # As of the last look at the members, which costs nothing; asked anew before a key is made.
        if not self._is_due(self._membership.root_keys):
            return
        # The first member to make a new key spares the others.
        await asyncio.sleep(self._rng.uniform(0.0, 5.0))
        makers = await asyncio.to_thread(self._replica.root_keys)
        signer = self._signer(makers)
        # Without such a key of its own this node waits for one that has.
        if self._is_due(makers) and signer is not None:
            await self._make(signer)

    async def _warn_if_due(self) -> None:
        """Tell some members that the key has leaked: one of them may make another one.  Raises OSError."""
        now = asyncio.get_running_loop().time()
        if not self._has_leaked():
            self._warns_at, self._pause = now, _ASK_SECONDS
        elif now >= self._warns_at:
            # Maybe nobody makes another one.
            self._warns_at, self._pause = now + self._pause, min(2 * self._pause, 300.0)
            others = [peer.sync_address for peer in self._others()]
            await self._tell(self._rng.sample(others, min(len(others), _TOLD_AT_ONCE)))

    async def renew(self) -> RenewedGossipKey:
        """Make a new key now.

        Raises `NotPermitted` without a key of this node that is valid at `/`, `StoreError` where the disk takes none.
        """
        signer = self._signer(await asyncio.to_thread(self._replica.root_keys))
        if signer is None:
            raise NotPermitted(
                "no key of this node is valid at /, so it makes no gossip key: run this on a node that has one; "
                f"'basefs keys {self._replica.name}' lists them"
            )
        try:
            told = await self._make(signer)
        except OSError as error:
            raise StoreError(f"cannot keep a new gossip key: {error}") from None
        return RenewedGossipKey(self._kept.signed.key.generation, sum(told), len(told))

    def _signer(self, makers: frozenset[bytes]) -> SigningKey | None:
        """The key of this node that makes gossip keys."""
        return next((key for key in self._replica.keys if key.public in makers), None)

    async def _make(self, signer: SigningKey) -> list[bool]:
        """Make a key, and tell the others; returns which of them have answered.  Raises OSError.

        Those that do not answer ask once they are back.
        """
        new = SignedKey.make(self._kept.signed.key.generation + 1, signer, self._replica.identity, self._rng)
        await self._take(SentKey(new).encode(), lambda: True)
        return await self._tell([peer.sync_address for peer in self._others()])

    async def _tell(self, addresses: Sequence[Address]) -> list[bool]:
        """Exchange the key with members, some at a time; returns which of them have answered.  Raises OSError."""
        places = asyncio.Semaphore(_TOLD_AT_ONCE)

        async def tell(address: Address) -> bool:
            async with places:
                return await self._meet(address, _TELL_SECONDS)

        return list(await asyncio.gather(*map(tell, addresses)))

    def _others(self) -> list[Peer]:
        """The members that have not left; who comes back asks."""
        return [peer for peer in self._gossip.expected if not peer.leaves]

    def _lost(self) -> Sequence[Address]:
        others = self._others()
        lost = [peer.sync_address for peer in others if peer.status != "alive"]
        return lost if len(lost) < len(others) else [*lost, *self._named()]

    def _named(self) -> list[Address]:
        named = map(parse_address, self._gossip.candidates)
        return [Address(host, port + SYNC_PORT_OFFSET) for host, port in named]

    async def _meet(self, address: Address, seconds: float | None = None) -> bool:
        """Whether a member has answered, within so many seconds.  Raises OSError where the disk takes no new key."""
        exchange = exchange_keys(*address, self._membership.credentials, self._key_for)
        try:
            member, theirs = await within(seconds, exchange)
        except (BaseFSError, asyncio.TimeoutError) as error:
            log.debug("%s", error)
            return False
        await self._take(theirs, lambda: member in self._membership.in_gossip)
        return True

    async def _take(self, theirs: bytes, may: Callable[[], bool]) -> None:
        """`may`: whether it may still come from who has sent it.  Raises OSError."""
        sent = SentKey.decode(theirs)
        other = sent.signed
        async with self._changing:
            mine = self._kept.signed
            if other.key == mine.key:
                if sent.has_leaked and may():
                    self._heed(other.key)
                return
            makers, identity = await asyncio.to_thread(self._replica.root_keys), self._replica.identity
            found = await asyncio.to_thread(self._replica.membership)
            is_valid = other.is_valid(identity, makers)
            if is_valid and (is_valid, other.key) > (mine.is_valid(identity, makers), mine.key) and may():
                await self._keep(KeptKey(other, found.keys - found.invited))
                log.info("gossip has a new key, number %d", other.key.generation)
                await self._gossip.encrypt(other.key.as_serf())

    def _heed(self, key: GossipKey) -> None:
        """Another member says that a key has leaked, and says so again where it is not believed yet."""
        now = asyncio.get_running_loop().time()
        if key != self._reported and now >= self._heeds_at:
            # Any member can say so, and each new key starts all agents again.
            self._reported, self._heeds_at = key, now + 60.0
