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
from basefs.log.hashes import EntryHash, Fingerprint
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
        #: The newcomers that came late, as far as that was logged.
        self._late: set[EntryHash] = set()
        self._looked_at = clock()
        self._since = self._looked_at if since is None else since

    def look(self) -> bool:
        """Do what is due; returns whether an invitation is in force.  Raises `StoreError`, `ReadOnly`, `NoSpace`."""
        now = self._clock()
        # The machine may have been asleep, and waits for what others did meanwhile.  Where no invitation was in force
        # there were no looks either; then nothing is lost by waiting.
        if not 0 <= now - self._looked_at < 300.0:
            self._since = now
        self._looked_at = now
        found = self._replica.plan(self._review)
        self._report(found.uses)
        self._ask_about(found.late)
        own = self._own()
        # Newcomers first, then what this node has signed: the others may be many, made by a key holder to keep it busy,
        # and none that it may end.
        ordered = sorted(found.due, key=lambda each: (each.newcomer is None, each.grant.fingerprint not in own))
        # What a look takes grows with all that are ended in it.
        for one in ordered[:8]:
            try:
                self._end(one)
            except (PermissionDenied, NotPermitted, NotFound) as error:
                # Another node has the authority, or it has ended meanwhile.
                log.debug("invitation %s stays: %s", fingerprint_of(one.grant.content).hex()[:12], error)
        return bool(found.open)

    def accept(self, invite: Fingerprint, key: Fingerprint) -> Adoption:
        """Adopt this very key, which came late by an invitation.

        Raises `NotFound` where it did not, `NotPermitted`, `StoreError`.
        """
        found = self._replica.plan(self._review)
        for one in (*found.late, *found.due):
            if one.newcomer is not None and fingerprint_of(one.grant.content) == invite:
                other = fingerprint_of(one.newcomer.content)
                if other != key:
                    raise NotFound(f"the key that waits is {other.hex()[:12]}, not {key.hex()[:12]}: look at it again")
                if self._end(one):
                    return one
        raise NotFound(f"nobody waits to be let in by the invitation {invite.hex()[:12]} of this node")

    def _own(self) -> set[Fingerprint]:
        return {key.fingerprint for key in self._replica.keys}

    def _review(self, author: Author) -> InvitationReview:
        return review(author.past.grants(), self._own(), author.past.arrived, self._clock(), self._since)

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

    def _ask_about(self, late: Sequence[Adoption]) -> None:
        """Log who came late, once for each."""
        for one in late:
            assert one.newcomer is not None, "that one was late"
            if one.newcomer.hash not in self._late:
                self._late.add(one.newcomer.hash)
                who, key, invite = _names(one)
                log.warning(
                    "%s (%s) came after the end of invitation %s: 'basefs invite %s' adopts it with --accept %s, or "
                    "turns it away with --cancel",
                    *(who, key, invite, self._replica.name, invite),
                )

    def _end(self, one: Adoption) -> bool:
        """Adopt its newcomer, if any, and revoke it; returns False where neither was due any more."""
        invite = fingerprint_of(one.grant.content)

        def end(author: Author) -> Iterator[Draft]:
            # It may have been revoked since the look.
            found = self._review(author)
            if one not in (*found.due, *found.late):
                return
            if one.newcomer is not None:
                sign = author.admit if one.only_reads else author.grant
                yield sign(one.path, one.name, one.newcomer.content)
            # What the invite key has signed itself is not acknowledged: a thief of the token would gain the authority
            # of this node's key for it.
            yield author.key_holder.revoke(one.path, one.grant.name, invite, discard=True).draft

        if not self._replica.commit(end).entries:
            return False
        if one.newcomer is None:
            log.info("revoked invitation %s at %s, which has expired", invite.hex()[:12], display(one.path))
        else:
            log.info("adopted %s (%s) at %s, by invitation %s", *_names(one)[:2], display(one.path), invite.hex()[:12])
        return True


def _names(one: Adoption) -> tuple[str, str, str]:
    """What the newcomer is called, and digits of its key and of the invite key."""
    assert one.newcomer is not None, "nobody came otherwise"
    key, invite = (fingerprint_of(entry.content).hex()[:12] for entry in (one.newcomer, one.grant))
    return escaped(one.name.decode("utf-8", "backslashreplace")), key, invite


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
