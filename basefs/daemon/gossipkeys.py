"""The gossip key of a closed filesystem: Serf has that of the log, at any time (`basefs/view/gossipkey.py`).

`expel` and `revoke` write another secret together with the revoke.  Where the key that revoked is not valid at `/`, its
secret would not count, and where the maker of a secret was revoked since, it counts no longer: then a running node with
a key that is valid there adds another one.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import random
from collections.abc import Callable

from basefs.daemon.config import SYNC_PORT_OFFSET, parse_address
from basefs.daemon.lasting import repeat
from basefs.daemon.membership import Membership
from basefs.errors import NotPermitted
from basefs.gossip.events import Address
from basefs.gossip.service import Gossip
from basefs.replica.replica import Replica
from basefs.sync.net.service import SyncService

log = logging.getLogger(__name__)

#: Seconds between two looks for members that gossip does not reach, and for a secret that nobody has added.
_LOOK_SECONDS = 5.0
#: Members that are looked for at once.
_SOUGHT_AT_ONCE = 3
#: Bytes of a gossip key: AES-256.
_KEY_SIZE = 32


def first_key(replica: Replica) -> str:
    """The key with which Serf starts; where the log has none, one that nobody else has."""
    return _as_serf(replica.gossip_key() or random.SystemRandom().randbytes(_KEY_SIZE))


def _as_serf(key: bytes) -> str:
    return base64.b64encode(key).decode()


class GossipKeys:
    """Keeps Serf's key equal to that of the log.  Used in the event loop."""

    def __init__(
        self,
        replica: Replica,
        gossip: Gossip,
        membership: Membership,
        compare: Callable[[Address], object],
        rng: random.Random | None = None,
    ) -> None:
        """`compare`: is called with members that gossip does not reach; `rng`: for all that is left to chance."""
        self._replica = replica
        self._gossip = gossip
        self._membership = membership
        self._compare = compare
        self._rng = rng or random.Random()
        self._members = membership.in_gossip
        self._key = replica.gossip_key()
        #: Whether another secret may be due, by the log.
        self._may_be_due = True

    async def watch_members(self, sync: SyncService) -> None:
        """Have `sync` let in the members, and Serf use the key that the log has then, for ever."""
        await self._membership.watch(sync, self._look)

    async def _look(self) -> None:
        key = await asyncio.to_thread(self._replica.gossip_key)
        members = self._membership.in_gossip
        left, self._members = self._members - members, members
        self._may_be_due = self._may_be_due or bool(left) or key != self._key
        changed, self._key = key != self._key, key
        if changed and key is not None:
            log.info("gossip has a new key")
            await self._gossip.encrypt(_as_serf(key))

    async def watch(self) -> None:
        """Add a secret where one is due, and compare logs with members that gossip does not reach, for ever."""

        async def pause() -> None:
            # At random, so that one member adds a secret and the others receive it.
            await asyncio.sleep(self._rng.uniform(0.5, 1.0) * _LOOK_SECONDS)

        await asyncio.gather(
            repeat("renew the gossip key", self._renew_if_due, pause),
            repeat("look for members outside of gossip", self._seek_lost, pause),
        )

    async def _renew_if_due(self) -> None:
        if not self._may_be_due:
            return
        await asyncio.sleep(self._rng.uniform(0.0, _LOOK_SECONDS))
        self._may_be_due = False
        try:
            make = self._replica.commit
            await asyncio.to_thread(make, lambda author: author.key_holder.renew_gossip_key(if_due=True))
        except NotPermitted as error:
            # A node with a key for `/` does it; this one may get such a key.
            self._may_be_due = True
            log.debug("%s", error)

    async def _seek_lost(self) -> None:
        """Their logs may have another gossip key, and then gossip never brings them together."""
        others = [peer for peer in self._gossip.expected if not peer.leaves]
        lost = [peer.sync_address for peer in others if peer.status != "alive"]
        if len(lost) == len(others):
            named = map(parse_address, self._gossip.candidates)
            lost += [Address(host, port + SYNC_PORT_OFFSET) for host, port in named]
        for address in self._rng.sample(lost, min(len(lost), _SOUGHT_AT_ONCE)):
            self._compare(address)
