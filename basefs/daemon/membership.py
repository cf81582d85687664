"""Whom the node of a closed filesystem lets in: the members that its log names, as it changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from basefs.daemon.lasting import repeat
from basefs.daemon.looks import Looks
from basefs.errors import UsageError
from basefs.log.interface import Digest
from basefs.log.keys import SigningKey
from basefs.replica.replica import Replica
from basefs.sync.net.service import SyncService
from basefs.sync.net.tls import Credentials


class Membership:
    """The members of a closed filesystem, and the key by which this node is one."""

    def __init__(self, replica: Replica) -> None:
        """Raises `UsageError` without a key of this node."""
        self._replica = replica
        self._seen: Digest | None = None
        self._found = replica.membership()
        self.credentials = Credentials(self._own(self._found.keys), self._found.keys)

    @property
    def in_gossip(self) -> frozenset[bytes]:
        """The members that take part in gossip: all but invitations, which only read the filesystem."""
        return (self.credentials.trusted or frozenset()) - self._found.invited

    def lets_in(self, key: bytes) -> bool:
        """Whether a raw public key is a member's by the log of now, where the last look was at an earlier one."""
        if self._seen == self._replica.digest():
            return key in (self.credentials.trusted or ())
        return key in self._replica.members()

    def expelled(self) -> frozenset[bytes]:
        """The keys that were granted and are no members any more; takes time.

        Not all keys that are no members: the log may not have received yet that somebody was let in.
        """
        return self._replica.ever_granted() - self._replica.members()

    def _own(self, members: frozenset[bytes]) -> SigningKey:
        """The first key of this node that is a member; otherwise the first one, which may be granted later."""
        keys = self._replica.keys
        if not keys:
            raise UsageError(
                "only members read this filesystem, and this node has no key: 'basefs genkey' makes one, and "
                f"'basefs grant {self._replica.name}' on another node makes it a member"
            )
        return next((key for key in keys if key.public in members), keys[0])

    async def watch(self, sync: SyncService, on_change: Callable[[], Awaitable[None]]) -> None:
        """Keep the trusted keys equal to the members, for ever.

        `on_change` is called after they may have changed, and again a moment later where it raises OSError.
        """
        loop, looks = asyncio.get_running_loop(), Looks(self._replica)
        look_again = loop.time()

        async def look() -> None:
            nonlocal look_again
            digest = self._replica.digest()
            if digest == self._seen and loop.time() < look_again:
                return
            # An invitation expires without a change of the log.
            look_again = loop.time() + 30.0
            self._found = await looks.look(self._replica.membership)
            members = self._found.keys
            sync.turn_away(members)
            sync.prefer(self._found.root_keys)
            # New members wait for their turn, revokes never do.
            if not looks.is_hurried:
                await looks.spend(sync.trust(members, self._own(members)))
            await on_change()
            self._seen = None if looks.is_hurried else digest

        # Also for other changes: removing a directory ends the grants on it.  A revoke ends sessions within 2 s of its
        # arrival, at once as a rule.
        await repeat("find out who is a member", look, lambda: looks.wait(1.0, 1.0))
