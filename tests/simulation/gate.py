"""What the daemon of a closed filesystem has beside that of an open one: the door, under the real TLS, and its keys."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, cast

from basefs.daemon.adoption import keep_adopting
from basefs.daemon.gossipkeys import GossipKeys, first_key
from basefs.daemon.membership import Membership
from basefs.gossip.events import Address
from basefs.gossip.service import Gossip
from basefs.replica.replica import Replica
from basefs.sync.net.service import SyncService
from basefs.sync.net.transport import SessionContext
from tests.simulation.bus import SimulatedGossip


class Gate:
    """The door of one process."""

    def __init__(
        self,
        replica: Replica,
        gossip: SimulatedGossip,
        clock: Callable[[], float],
        compare: Callable[[Address], object],
        rng: random.Random,
    ) -> None:
        """`compare`: as that of `GossipKeys`."""
        self.membership = Membership(replica)
        gossip.key = first_key(replica)
        self._keys = GossipKeys(replica, cast(Gossip, gossip), self.membership, compare, rng)
        self._replica, self._clock = replica, clock

    def close_to_others(self, shared: SessionContext) -> SessionContext:
        """What sessions share, with TLS."""
        return replace(shared, credentials=self.membership.credentials, is_member=self.membership.lets_in)

    def lasting(self, sync: SyncService) -> list[Coroutine[Any, Any, None]]:
        """What goes on for as long as the daemon runs."""
        return [self._keys.watch_members(sync), self._keys.watch(), keep_adopting(self._replica, self._clock)]
