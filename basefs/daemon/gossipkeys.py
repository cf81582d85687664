"""The key of gossip of a closed filesystem: as new as that of any member that this node reaches."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from pathlib import Path

from basefs.daemon.config import SYNC_PORT_OFFSET, parse_address
from basefs.daemon.membership import Membership
from basefs.errors import BaseFSError
from basefs.gossip.events import Address
from basefs.gossip.key import KEY_FILE, GossipKey
from basefs.gossip.service import Gossip
from basefs.sync.net.keys import exchange_keys

log = logging.getLogger(__name__)

#: Seconds between two questions to a member that gossip does not reach: perhaps one of both has an older key.
_ASK_SECONDS = 5.0
#: Seconds within which the members make a new key once one of theirs was revoked: the first to do so spares the others.
_RENEW_SECONDS = 5.0
#: Nodes that a newcomer asks before it takes part in gossip.
_FIRST = 3
#: Members that are told at once.
_TOLD_AT_ONCE = 16


def load_or_substitute(directory: Path) -> GossipKey:
    """The key beside a log, or one that every other one replaces.  Raises `AgentError`, OSError."""
    path = directory / KEY_FILE
    key = GossipKey.load(path)
    if key is None:
        key = GossipKey.substitute()
        key.save(path)
    return key


class GossipKeys:
    """Exchanges the key with members over TLS; the newer one counts.  Used in the event loop."""

    def __init__(self, key: GossipKey, directory: Path, gossip: Gossip, membership: Membership) -> None:
        """`key`: that gossip begins with; `directory`: of the log."""
        self._key = key
        self._path = directory / KEY_FILE
        self._gossip = gossip
        self._membership = membership
        self._taking = asyncio.Lock()
        self._renewal: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Ask for the key, for a node that has none yet: before gossip starts."""
        for address in self._named()[:_FIRST]:
            if self._key.generation:
                return
            await self._meet(address)

    async def exchange(self, member: bytes, theirs: bytes) -> bytes:
        """Take a member's key if it is newer; returns the one of this node.

        `member`: its public key.  Raises OSError, also for the key of an invitation: when that ends, the gossip key
        need not change.
        """
        if member in self._membership.invited:
            raise PermissionError("an invitation is no part of gossip")
        await self._take(GossipKey(theirs))
        return self._key.raw

    async def renew(self) -> None:
        """Make a new key, and give it to all members that answer; the others ask once they are back.

        Raises OSError.
        """
        await self._take(self._key.next())
        places = asyncio.Semaphore(_TOLD_AT_ONCE)

        async def tell(address: Address) -> None:
            async with places:
                await self._meet(address)

        await asyncio.gather(*(tell(peer.sync_address) for peer in self._gossip.expected))

    def renew_soon(self) -> None:
        """Make a new key unless another member does first: the key of a member was revoked."""
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.get_running_loop().create_task(self._renew_later())

    async def _renew_later(self) -> None:
        before = self._key
        await asyncio.sleep(random.uniform(0.0, _RENEW_SECONDS))
        if self._key == before:
            try:
                await self.renew()
            except OSError as error:
                log.error("cannot make a new key of gossip: %s", error)

    async def watch(self) -> None:
        """Ask members that gossip does not reach, for ever."""
        try:
            while True:
                lost = self._lost()
                if lost:
                    await self._meet(random.choice(lost))
                await asyncio.sleep(_ASK_SECONDS)
        finally:
            if self._renewal is not None:
                self._renewal.cancel()

    def _lost(self) -> Sequence[Address]:
        expected = self._gossip.expected
        lost = [peer.sync_address for peer in expected if peer.status != "alive"]
        return lost if len(lost) < len(expected) else [*lost, *self._named()]

    def _named(self) -> list[Address]:
        named = map(parse_address, self._gossip.candidates)
        return [Address(host, port + SYNC_PORT_OFFSET) for host, port in named]

    async def _meet(self, address: Address) -> None:
        try:
            await self._take(GossipKey(await exchange_keys(*address, self._membership.credentials, self._key.raw)))
        except BaseFSError as error:
            log.debug("%s", error)
        except OSError as error:
            log.error("cannot keep the new key of gossip: %s", error)

    async def _take(self, key: GossipKey) -> None:
        async with self._taking:
            if key.replaces(self._key):
                await asyncio.to_thread(key.save, self._path)
                self._key = key
                log.info("gossip has a new key, number %d", key.generation)
                await self._gossip.encrypt(key.as_serf())
