"""Invitations: grants of keys that travel in a token, and what becomes of them (docs/authority.md).

An invitation is an ordinary grant; only its name says so, and until when: `invite gamma until 2026-12-01T10:00:00Z`.
The view knows nothing of that and reads no clock: the key may write until it is revoked.  A newcomer grants its own key
with the key of the token.  Then the node that signed the invitation *adopts* the newcomer: it grants that key by its
own, and revokes the invite key.

Anybody who may grant can give any name to a grant of any key.  So a node acts by these rules only:

1. A node adopts by invitations that its own key signed, and by no others.  What hangs on the key of another one would
   otherwise hang on the adopter's, and stay when that other key is revoked.
2. It adopts the first newcomer that it received, at the path of the invitation: nothing above or below.
3. It gives no name that another key has, and no second name to a key that has one.
4. It revokes invitations that its own key signed, once they have expired unused, and no others: a key holder can sign
   any number of grants with such a name.  An expired one opens no door (`invite_keys`), revoked or not.
5. It adopts nobody that it has received after the end of the invitation, by its own clock: a token that has expired
   would do as well as a new one while the inviter is off.  The times in entries are claims.
"""

from __future__ import annotations

import calendar
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from basefs.log.entries import Action, Entry
from basefs.log.hashes import Fingerprint
from basefs.log.keys import fingerprint_of
from basefs.path import Path
from basefs.view.past import GrantRecord

#: Seconds after its end at which an invitation is revoked, and after which a newcomer is late: the clocks of the nodes
#: may differ by as much, and what a newcomer did in the last minute needs some time to arrive.
GRACE_SECONDS = 300
#: The directory on which invitations to read hang: an invite key must be able to let another one in, and what it may do
#: besides should be nothing.
READERS: Path = (b".readers",)
#: Bytes of the name of an invited machine: the name of a key has 255, and the words around this one need 40.
MAX_MACHINE = 200
#: Digits of a fingerprint behind a name that another key has.
_DIGITS = 6
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_NAME = re.compile(rb"invite (?:(.+) )?until (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Invitation:
    """What the name of an invite key says.

    Attributes:
        machine: the name that the newcomer gets; empty where it chooses one.
        until: when it expires, UNIX seconds.
    """

    machine: bytes
    until: int

    def encode(self) -> bytes:
        """The name of the grant."""
        machine = self.machine + b" " if self.machine else b""
        return b"invite " + machine + b"until " + time.strftime(_TIME, time.gmtime(self.until)).encode()

    @classmethod
    def decode(cls, name: bytes) -> Invitation | None:
        """The inverse of `encode`; `None` for the name of any other grant."""
        found = _NAME.fullmatch(name)
        if found is None:
            return None
        try:
            until = calendar.timegm(time.strptime(found[2].decode(), _TIME))
        except ValueError:
            return None
        return cls(found[1] or b"", until)


def is_invitation(key_name: bytes) -> bool:
    """Whether the name of a key says that it is an invitation."""
    return Invitation.decode(key_name) is not None


def invite_keys(grants: Iterable[Entry]) -> dict[Fingerprint, int]:
    """The keys that these grants, those in force, give to invitations alone, and when the last of these expires.

    Its grants of itself do not count.  After that time (UNIX seconds) each node refuses it by its own clock.
    """
    found: dict[Fingerprint, int] = {}
    others: set[Fingerprint] = set()
    for grant in grants:
        key = fingerprint_of(grant.content)
        invitation = Invitation.decode(grant.name)
        if invitation is not None:
            found[key] = max(invitation.until, found.get(key, invitation.until))
        elif grant.fingerprint != key:
            others.add(key)
    return {key: until for key, until in found.items() if key not in others}


@dataclass(frozen=True, slots=True)
class Uses:
    """The keys that an invite key has granted anywhere, valid or not, in the order of arrival."""

    invite: Fingerprint
    newcomers: tuple[Fingerprint, ...]


@dataclass(frozen=True, slots=True)
class Adoption:
    """An invitation to be ended.

    Attributes:
        path: on which it hangs.
        grant: of the invite key.
        newcomer: the grant or admit of the newcomer's key by the invite key; `None` for an invitation that nobody used
            in time.
        name: what the newcomer's key is called from then on.
    """

    path: Path
    grant: Entry
    newcomer: Entry | None = None
    name: bytes = b""

    @property
    def only_reads(self) -> bool:
        """Whether the newcomer is admitted, and granted nothing."""
        return self.path == READERS or (self.newcomer is not None and self.newcomer.action is Action.ADMIT)


@dataclass(frozen=True, slots=True)
class InvitationReview:
    """The invitations of a log at a moment.

    Attributes:
        due: those to be ended now.
        open: how many that this node has signed are in force.
        uses: who used which.
    """

    due: list[Adoption]
    open: int
    uses: list[Uses]


def review(
    grants: Sequence[GrantRecord],
    own: Collection[Fingerprint],
    arrived: Callable[[Entry], float],
    now: float,
    since: float = 0.0,
) -> InvitationReview:
    """Look at all grants that were ever made, as a node with these keys at this time, in UNIX seconds.

    `arrived`: when an entry came to this node; `since`: when the node was started or woke up, so that what others did
    meanwhile has some time to arrive before an invitation counts as unused.
    """
    valid = [one for one in grants if one.standing == "valid"]
    by_signer = _by_signer(valid)
    due: list[Adoption] = []
    in_force = 0
    for one in valid:
        invitation = Invitation.decode(one.entry.name)
        if invitation is None or one.entry.fingerprint not in own:
            continue
        in_force += 1
        newcomer = _newcomer(one, by_signer)
        if newcomer is None:
            if max(invitation.until, since) + GRACE_SECONDS < now:
                due.append(Adoption(one.path, one.entry))
        # One that this node has granted since was accepted.
        elif _is_in_time(newcomer, one, invitation, arrived) or any(_accepts(mine, newcomer, own) for mine in valid):
            due.append(_adoption(one, invitation, newcomer, valid))
    return InvitationReview(due, in_force, _uses(grants))


def _is_in_time(
    newcomer: GrantRecord, invited: GrantRecord, invitation: Invitation, arrived: Callable[[Entry], float]
) -> bool:
    at = arrived(newcomer.entry)
    # It hangs behind the invitation, so where it came before that the clock was wrong, and tells nothing.
    return arrived(invited.entry) - GRACE_SECONDS <= at <= invitation.until + GRACE_SECONDS


def _by_signer(valid: Iterable[GrantRecord]) -> dict[Fingerprint, list[GrantRecord]]:
    """What each key has granted or admitted, without invitations: no newcomer is one, and there may be many."""
    found: dict[Fingerprint, list[GrantRecord]] = {}
    for one in valid:
        grants = found.setdefault(one.entry.fingerprint, [])
        if not is_invitation(one.entry.name):
            grants.append(one)
    return found


def _newcomer(invited: GrantRecord, by_signer: Mapping[Fingerprint, Iterable[GrantRecord]]) -> GrantRecord | None:
    """The first key that an invite key has granted at its own path; not itself.  `by_signer`: without invitations.

    What others call that key does not count: they could keep it from being adopted.
    """
    for one in by_signer.get(invited.fingerprint, ()):
        if one.path == invited.path and one.fingerprint != invited.fingerprint:
            return one
    return None


def _accepts(mine: GrantRecord, newcomer: GrantRecord, own: Collection[Fingerprint]) -> bool:
    """Whether a grant by a key of this node gives a newcomer what the invite key has given it, or more."""
    return (
        mine.entry.fingerprint in own
        and (mine.fingerprint, mine.path) == (newcomer.fingerprint, newcomer.path)
        and (mine.entry.action is Action.GRANT or newcomer.entry.action is Action.ADMIT)
        and not is_invitation(mine.entry.name)
    )


def _adoption(
    invited: GrantRecord, invitation: Invitation, newcomer: GrantRecord, valid: Sequence[GrantRecord]
) -> Adoption:
    key = newcomer.fingerprint
    # By path, so that those of higher authority come first.
    named = [
        one
        for one in valid
        if one.fingerprint == key and one.entry.fingerprint != invited.fingerprint and not is_invitation(one.entry.name)
    ]
    wanted = named[0].entry.name if named else invitation.machine or newcomer.entry.name
    return Adoption(invited.path, invited.entry, newcomer.entry, free_name(wanted, key, valid))


def free_name(name: bytes, key: Fingerprint, valid: Iterable[GrantRecord]) -> bytes:
    """A name for a key among the grants in force: with digits of its fingerprint if another key has the name."""
    taken = {one.entry.name for one in valid if one.fingerprint != key}
    return name if name not in taken else name[:MAX_MACHINE] + b"-" + key.hex()[:_DIGITS].encode()


def _uses(grants: Iterable[GrantRecord]) -> list[Uses]:
    invites = {one.fingerprint: dict[Fingerprint, None]() for one in grants if is_invitation(one.entry.name)}
    for one in grants:
        if one.entry.fingerprint in invites and one.fingerprint != one.entry.fingerprint:
            invites[one.entry.fingerprint][one.fingerprint] = None
    return [Uses(key, tuple(newcomers)) for key, newcomers in invites.items() if newcomers]
