"""Forgetting the machines whose keys were revoked.

Members exchange nothing with them any more, so nobody need miss them.  If its key is granted again, such a machine
comes back like a new one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from basefs.daemon import config
from basefs.daemon.lasting import repeat
from basefs.errors import AgentError
from basefs.gossip.events import Address
from basefs.gossip.members import TAG_KEY, Member, Peer
from basefs.gossip.service import Gossip
from basefs.log.keys import fingerprint_of
from basefs.sync.net.service import SyncService

log = logging.getLogger(__name__)


def key_tag(public: bytes) -> str:
    """What gossip carries of a raw public key."""
    return fingerprint_of(public).hex()[:16]


class Expelled:
    """The machines that were expelled, as gossip knows them.

    A session proves which key is at an address.  Another machine may get that address, and fail before this node has
    met it: gossip shows its key.  Serf knows no key of machines that it has not met since its start, and it starts anew
    with each gossip key, so what it has shown is remembered by the name of the agent.
    """

    def __init__(self) -> None:
        self._shown: dict[str, str] = {}

    def lost(
        self, members: Iterable[Member], peers: Sequence[Peer], expelled_at: Callable[[Address], bytes]
    ) -> list[Peer]:
        """Those of the peers that are lost for good.  Call it again and again.

        `members`: as Serf lists them now; `expelled_at`: the revoked raw public key that was proved last at an address,
        empty if none was.
        """
        shown = self._shown | {one.name: one.tags[TAG_KEY] for one in members if one.tags.get(TAG_KEY)}
        self._shown = {peer.name: shown[peer.name] for peer in peers if peer.name in shown}
        found = []
        for peer in peers:
            key = expelled_at(peer.sync_address) if peer.status == "failed" else b""
            if key and self._shown.get(peer.name, key_tag(key)) == key_tag(key):
                found.append(peer)
        return found


async def keep_forgetting(gossip: Gossip, sync: SyncService) -> None:
    """Forget the machines that were expelled, once Serf has lost them, for ever."""
    expelled = Expelled()

    async def forget() -> None:
        for peer in expelled.lost(gossip.members(), gossip.expected, sync.expelled_at):
            try:
                await gossip.forget(peer.name)
            except (AgentError, OSError) as error:
                log.warning("cannot have the others forget %s: %s", peer.name, error)
            else:
                log.info("machine forgotten, its key is no member's any more: %s", peer.name)

    await repeat("forget expelled machines", forget, config.WATCH_SECONDS)
