"""Whom the node of a closed filesystem lets in: the members that its log names, as it changes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from basefs.errors import BaseFSError, UsageError
from basefs.log.entries import KEY_ACTIONS
from basefs.log.interface import Digest
from basefs.log.keys import SigningKey
from basefs.replica.applied import Applied
from basefs.replica.replica import Replica
from basefs.sync.net.service import SyncService
from basefs.sync.net.tls import Credentials
from basefs.tasks import is_set_within

log = logging.getLogger(__name__)

#: Seconds between checks for other changes: removing a directory also ends the grants on it.  A revoke ends
#: sessions within 2 s of its arrival, at once as a rule.
_LOOK_SECONDS = 1.0
#: Seconds after which the members are asked for in any case: an invitation expires without a change of the log.
_EXPIRY_SECONDS = 30.0
#: Share of the time that letting in new members may take: a key holder can grant any number of keys.
_SHARE = 0.1


class Membership:
    """The members of a closed filesystem, and the key by which this node is one."""

    def __init__(self, replica: Replica) -> None:
        """Raises `UsageError` without a key of this node."""
        self._replica = replica
        self._seen: Digest | None = None
        members, invited = replica.members_and_invited()
        self._invited = invited
        self.credentials = Credentials(self._own(members), members)

    @property
    def in_gossip(self) -> frozenset[bytes]:
        """The members that take part in gossip: all but invitations, which only read the filesystem."""
        return (self.credentials.trusted or frozenset()) - self._invited

    def _own(self, members: frozenset[bytes]) -> SigningKey:
        """The first key of this node that is a member; otherwise the first one, which may be granted later."""
        keys = self._replica.keys
        if not keys:
            raise UsageError(
                "only members read this filesystem, and this node has no key: 'basefs genkey' makes one, and "
                "'basefs grant' on another node makes it a member"
            )
        return next((key for key in keys if key.public in members), keys[0])

    async def watch(self, sync: SyncService, on_change: Callable[[], Awaitable[None]]) -> None:
        """Keep the trusted keys equal to the members, for ever.

        `on_change` is called after they may have changed, and again a moment later where it raises OSError.
        """
        loop = asyncio.get_running_loop()
        look_again = due = loop.time()
        changed = key_changes(self._replica)
        while True:
            changed.clear()
            pause = _LOOK_SECONDS
            digest = self._replica.digest()
            if digest != self._seen or loop.time() >= look_again:
                look_again = loop.time() + _EXPIRY_SECONDS
                try:
                    members, invited = await asyncio.to_thread(self._replica.members_and_invited)
                    # Revokes never wait for their turn.
                    sync.turn_away(members)
                    self._invited = invited
                    started = loop.time()
                    is_due = started >= due
                    if is_due:
                        await sync.trust(members, self._own(members))
                        due = loop.time() + (loop.time() - started) / _SHARE
                    await on_change()
                    self._seen = digest if is_due else None
                    pause = _LOOK_SECONDS if is_due else min(_LOOK_SECONDS, due - started)
                except (BaseFSError, OSError) as error:
                    log.error("cannot find out who is a member: %s", error)
                except Exception:
                    # A task that is gone would let a revoked key in for ever.
                    log.exception("cannot find out who is a member")
            await is_set_within(changed, pause)


def key_changes(replica: Replica) -> asyncio.Event:
    """An event of the running loop, set whenever grants, revokes or admits have come to a log."""
    loop, changed = asyncio.get_running_loop(), asyncio.Event()

    def note(applied: Applied) -> None:
        """In any thread."""
        if any(entry.action in KEY_ACTIONS for entry in applied.entries):
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(changed.set)

    replica.subscribe(note)
    return changed
