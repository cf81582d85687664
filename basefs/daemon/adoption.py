"""Adoption: a running node grants the machines that its invitations brought, and ends these (docs/authority.md).

The rules are those of `basefs/view/invitations.py`.  Adopting is two commits: with a crash in between, the next look
goes on where this one ended.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from basefs.daemon.membership import key_changes
from basefs.errors import BaseFSError, NotFound, NotPermitted, PermissionDenied
from basefs.log.hashes import Fingerprint
from basefs.log.keys import fingerprint_of
from basefs.path import display, escaped
from basefs.replica.replica import Replica
from basefs.tasks import is_set_within
from basefs.view.author import Author
from basefs.view.draft import Draft
from basefs.view.invitations import Adoption, InvitationReview, Uses, review

log = logging.getLogger(__name__)

#: Seconds between looks for invitations that have expired, while any is in force.
_LOOK_SECONDS = 30.0
#: Invitations that are ended in one look, and what a look takes grows with all of them.
_AT_ONCE = 8
#: Share of the time that looks may take: a key holder can sign any number of grants, each of which asks for a look.
_SHARE = 0.1


class Adopter:
    """What one node does about the invitations in its log.  Thread-safe, as the replica is."""

    def __init__(self, replica: Replica, clock: Callable[[], float] = time.time) -> None:
        """`clock`: UNIX seconds."""
        self._replica = replica
        self._clock = clock
        #: How many keys each invite key has granted, as far as that was looked at; `None` before the first look.
        self._uses: dict[Fingerprint, int] | None = None

    def look(self) -> bool:
        """Do what is due; returns whether an invitation is in force.  Raises `StoreError`, `ReadOnly`, `NoSpace`."""
        found = self._replica.plan(self._review)
        self._report(found.uses)
        # Newcomers first: the others may be many, made by a key holder to keep this node busy.
        for one in sorted(found.due, key=lambda each: each.newcomer is None)[:_AT_ONCE]:
            try:
                self._end(one)
            except (PermissionDenied, NotPermitted, NotFound) as error:
                # Another node has the authority, or it has ended meanwhile.
                log.debug("invitation %s stays: %s", fingerprint_of(one.grant.content).hex()[:12], error)
        return bool(found.open)

    def _review(self, author: Author) -> InvitationReview:
        own = {key.fingerprint for key in self._replica.keys}
        return review(author.past.grants(), own, self._clock())

    def _report(self, uses: Sequence[Uses]) -> None:
        """Log that invitations were used twice, once for each further key."""
        counts = {use.invite: len(use.newcomers) for use in uses}
        for invite, count in counts.items():
            # After a start, what is in the log was reported before.
            if self._uses is not None and count > max(1, self._uses.get(invite, 0)):
                digits = invite.hex()[:12]
                log.warning("invitation %s was used by %d keys: 'basefs keys --all' lists them", digits, count)
        self._uses = counts

    def _end(self, one: Adoption) -> None:
        invite = fingerprint_of(one.grant.content)
        digits, where = invite.hex()[:12], display(one.path)
        if one.newcomer is not None:
            key = one.newcomer.content

            def adopt(author: Author) -> Draft:
                # It may have been revoked since the look.
                is_due = one in self._review(author).due
                if not is_due:
                    return Draft()
                sign = author.admit if one.only_reads else author.grant
                return sign(one.path, one.name, key)

            self._replica.commit(adopt)
        # What the invite key has signed itself is not acknowledged: a thief of the token would gain the authority of
        # this node's key for it.
        name = one.grant.name
        self._replica.commit(lambda author: author.key_holder.revoke(one.path, name, invite, discard=True).draft)
        if one.newcomer is None:
            log.info("revoked invitation %s at %s, which has expired", digits, where)
            return
        who, key_digits = one.name.decode("utf-8", "backslashreplace"), fingerprint_of(one.newcomer.content).hex()[:12]
        log.info("adopted %s (%s) at %s, by invitation %s", escaped(who), key_digits, where, digits)


async def keep_adopting(replica: Replica) -> None:
    """Look at the invitations whenever grants or revokes have come, and when one may have expired, for ever."""
    loop = asyncio.get_running_loop()
    wake = key_changes(replica)
    adopter = Adopter(replica)
    while True:
        started = loop.time()
        wake.clear()
        is_any_open = True
        try:
            is_any_open = await asyncio.to_thread(adopter.look)
        except BaseFSError as error:
            log.error("cannot look at the invitations: %s", error)
        except Exception:
            # A task that is gone would leave invitations in force.
            log.exception("cannot look at the invitations")
        await asyncio.sleep((loop.time() - started) / _SHARE)
        await is_set_within(wake, _LOOK_SECONDS if is_any_open else None)
