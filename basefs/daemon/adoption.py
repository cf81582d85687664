"""Adoption: a running node grants the machines that its invitations brought, and ends these (docs/authority.md).

The rules are those of `basefs/view/invitations.py`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence

from basefs.daemon.lasting import repeat
from basefs.daemon.looks import Looks
from basefs.errors import NotFound, NotPermitted, PermissionDenied
from basefs.log.hashes import Fingerprint
from basefs.log.keys import fingerprint_of
from basefs.path import display, escaped
from basefs.replica.replica import Replica
from basefs.view.author import Author
from basefs.view.draft import Draft
from basefs.view.invitations import Adoption, InvitationReview, Uses, review

log = logging.getLogger(__name__)


class Adopter:
    """What one node does about the invitations in its log.  Thread-safe, as the replica is."""

    def __init__(self, replica: Replica, clock: Callable[[], float] = time.time, since: float | None = None) -> None:
        """`clock`: UNIX seconds; `since`: when this node began to receive what others did meanwhile (default: now)."""
        self._replica = replica
        self._clock = clock
        #: How many keys each invite key has granted, as far as that was looked at; `None` before the first look.
        self._uses: dict[Fingerprint, int] | None = None
        self._looked_at = clock()
        self._since = self._looked_at if since is None else since

    def look(self) -> bool:
        """Do what is due; returns whether an invitation of this node is in force.

        Raises `StoreError`, `ReadOnly`, `NoSpace`.
        """
        now = self._clock()
        # The machine may have been asleep, and waits for what others did meanwhile.  Where no invitation was in force
        # there were no looks either; then nothing is lost by waiting.
        if not 0 <= now - self._looked_at < 300.0:
            self._since = now
        self._looked_at = now
        found = self._replica.plan(self._review)
        self._report(found.uses)
        # Newcomers first.  What a look takes grows with all that are ended in it.
        for one in sorted(found.due, key=lambda each: each.newcomer is None)[:8]:
            try:
                self._end(one)
            except (PermissionDenied, NotPermitted, NotFound) as error:
                # It has ended meanwhile, or this node's key has lost the authority.
                log.debug("invitation %s stays: %s", fingerprint_of(one.grant.content).hex()[:12], error)
        return bool(found.open)

    def _review(self, author: Author) -> InvitationReview:
        own = {key.fingerprint for key in self._replica.keys}
        return review(author.past.grants(), own, author.past.arrived, self._clock(), self._since)

    def _report(self, uses: Sequence[Uses]) -> None:
        """Log that invitations were used twice, once for each further key."""
        counts = {use.invite: len(use.newcomers) for use in uses}
        for invite, count in counts.items():
            # After a start, what is in the log was reported before.
            if self._uses is not None and count > max(1, self._uses.get(invite, 0)):
                digits = invite.hex()[:12]
                name = self._replica.name
                log.warning("invitation %s was used by %d keys: 'basefs keys %s --all' lists them", digits, count, name)
        self._uses = counts

    def _end(self, one: Adoption) -> None:
        """Adopt its newcomer, if any, and revoke it, unless neither is due any more."""
        invite = fingerprint_of(one.grant.content)

        def end(author: Author) -> Iterator[Draft]:
            # It may have been revoked since the look.
            if one not in self._review(author).due:
                return
            if one.newcomer is not None:
                sign = author.admit if one.only_reads else author.grant
                yield sign(one.path, one.name, one.newcomer.content)
            # What the invite key has signed itself is not acknowledged: a thief of the token would gain the authority
            # of this node's key for it.
            yield author.key_holder.revoke(one.path, one.grant.name, invite, discard=True).draft

        if not self._replica.commit(end).entries:
            return
        digits, at = invite.hex()[:12], display(one.path)
        if one.newcomer is None:
            log.info("revoked invitation %s at %s, which has expired", digits, at)
        else:
            name = escaped(one.name.decode("utf-8", "backslashreplace"))
            key = fingerprint_of(one.newcomer.content).hex()[:12]
            log.info("adopted %s (%s) at %s, by invitation %s", name, key, at, digits)


async def keep_adopting(replica: Replica, clock: Callable[[], float] = time.time) -> None:
    """Look at the invitations whenever grants or revokes have come, and when one may have expired, for ever.

    `clock`: UNIX seconds.
    """
    looks, adopter = Looks(replica), Adopter(replica, clock)
    is_any_open = True

    async def look() -> None:
        nonlocal is_any_open
        is_any_open = True
        is_any_open = await looks.look(adopter.look)

    # Invitations expire without a change of the log.
    await repeat("look at the invitations", look, lambda: looks.wait(30.0 if is_any_open else None))
