"""Invitations: what their names say, and what a node does about them, whoever has signed them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basefs.log.entries import Action, Entry
from basefs.log.keys import SigningKey
from basefs.replica.replica import Replica
from basefs.view.invitations import (
    GRACE_SECONDS,
    MAX_MACHINE,
    Invitation,
    InvitationReview,
    invite_keys,
    review,
)
from tests.support.helpers import (
    ALICE,
    BOB,
    CAROL,
    DAVE,
    ROOT_KEY,
    STRANGER,
    Clock,
    copy_replica,
    make_key,
    make_replica,
    path,
)

WEB = path("/web")
INVITE = make_key("invite")
UNTIL = 2_000_000_000
LATER = UNTIL + GRACE_SECONDS + 1


def named(machine: bytes = b"", until: int = UNTIL) -> bytes:
    return Invitation(machine, until).encode()


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Replica]:
    """Bob holds a key for /web; the root key has invited a machine to /web."""
    replica = make_replica(tmp_path / "log")
    replica.commit(lambda author: author.make_directory(WEB))
    replica.commit(lambda author: author.make_directory(path("/web/sub")))
    replica.commit(lambda author: author.grant(WEB, b"bob", BOB.public))
    replica.commit(lambda author: author.grant(WEB, named(), INVITE.public))
    yield replica
    assert replica.check_view() == []
    replica.close()


def last(replica: Replica, at: str = "/web") -> Entry:
    """The end of the chain of grants of a path."""
    entries = replica.grants(path(at))
    parents = {grant.entry.parent for grant in entries}
    return next(grant.entry for grant in reversed(entries) if grant.entry.hash not in parents)


def signs(replica: Replica, signer: SigningKey, name: bytes, key: SigningKey, behind: Entry | None = None) -> Entry:
    """Let a key grant another one, as its holder can without asking our code."""
    entry = signer.sign((behind or last(replica)).hash, 1, Action.GRANT, name, key.public)
    assert not replica.apply([entry], []).rejected
    return entry


def looked(replica: Replica, *own: SigningKey, now: float = UNTIL - 1, since: float = 0) -> InvitationReview:
    keys = {key.fingerprint for key in own}
    return replica.plan(lambda author: review(author.past.grants(), keys, author.past.arrived, now, since))


def grants_in_force(replica: Replica, at: str = "/web") -> list[Entry]:
    return [grant.entry for grant in replica.grants(path(at))]


@given(
    st.binary(max_size=MAX_MACHINE).filter(lambda name: b"\0" not in name),
    st.integers(min_value=0, max_value=2**32 - 1),
)
def test_a_name_says_who_and_until_when(machine: bytes, until: int) -> None:
    name = named(machine, until)
    assert len(name) <= 255
    assert Invitation.decode(name) == Invitation(machine, until)


@pytest.mark.parametrize(
    "name",
    [
        b"",
        b"gamma",
        b"invite",
        b"invite gamma",
        b"invite gamma until tomorrow",
        b"invite gamma until 2026-13-01T00:00:00Z",
        b"invite gamma until 2026-12-01T00:00:00Z ",
        b"Invite gamma until 2026-12-01T00:00:00Z",
        b"invite gamma until 2026-12-01T00:00:00+01:00",
    ],
)
def test_any_other_name_is_of_an_ordinary_grant(name: bytes) -> None:
    assert Invitation.decode(name) is None


def test_the_door_sees_invite_keys_and_their_ends(replica: Replica) -> None:
    found = invite_keys(grants_in_force(replica))
    assert found == {INVITE.fingerprint: UNTIL}
    # Whoever has the token cannot make an ordinary key of it.
    signs(replica, INVITE, b"innocent", INVITE)
    assert invite_keys(grants_in_force(replica)) == found


def test_a_key_with_an_ordinary_grant_is_no_invite_key(replica: Replica) -> None:
    """Bob, who holds /web, would lock out Alice, who holds all."""
    replica.commit(lambda author: author.grant((), b"alice", ALICE.public))
    signs(replica, BOB, named(until=0), ALICE)
    assert set(invite_keys([*grants_in_force(replica), *grants_in_force(replica, "/")])) == {INVITE.fingerprint}


def test_an_expired_invitation_makes_no_member(tmp_path: Path) -> None:
    clock = Clock()
    replica = make_replica(tmp_path / "log", clock=clock)
    replica.commit(lambda author: author.grant((), named(until=int(clock.now) + 1000), INVITE.public))
    assert replica.members() == {ROOT_KEY.public, INVITE.public}
    before = replica.root_hash()
    clock.now += 2000
    assert replica.members() == {ROOT_KEY.public}
    # The view reads no clock.
    assert replica.root_hash() == before and len(replica.grants(())) == 2
    # A newcomer that came in time stays.
    signs(replica, INVITE, b"gamma", CAROL, last(replica, "/"))
    assert replica.members() == {ROOT_KEY.public, CAROL.public}
    replica.close()


def test_nothing_is_due_while_nobody_came(replica: Replica) -> None:
    found = looked(replica, ROOT_KEY)
    assert (found.due, found.open, found.uses) == ([], 1, [])


def test_the_issuer_adopts_a_newcomer(replica: Replica) -> None:
    grant = signs(replica, INVITE, b"gamma", CAROL)
    (due,) = looked(replica, ROOT_KEY).due
    assert (due.path, due.newcomer, due.name) == (WEB, grant, b"gamma")
    # However late it is: it may have been away.
    assert looked(replica, ROOT_KEY, now=LATER).due == [due]


def test_a_machine_that_comes_after_the_end_is_not_adopted(tmp_path: Path, replica: Replica) -> None:
    """Whatever time its grant claims."""
    off = copy_replica(replica, tmp_path / "off", [ROOT_KEY], clock=Clock(LATER))
    grant = signs(off, INVITE, b"gamma", CAROL)
    assert grant.made < UNTIL * 10**9
    found = looked(off, ROOT_KEY, now=LATER + 10)
    assert (found.due, found.open) == ([], 1)
    # Nor is it turned away: it may have come to another member in time.  A grant by the inviter decides.
    off.commit(lambda author: author.grant(WEB, b"gamma", CAROL.public))
    assert [one.newcomer for one in looked(off, ROOT_KEY, now=LATER + 10).due] == [grant]
    off.close()


def test_a_clock_that_was_behind_tells_nothing_of_when_somebody_came(tmp_path: Path, replica: Replica) -> None:
    """A machine without a battery for its clock starts in 1970."""
    off = copy_replica(replica, tmp_path / "off", [ROOT_KEY], clock=Clock(1000.0))
    signs(off, INVITE, b"gamma", CAROL)
    assert looked(off, ROOT_KEY, now=LATER + 10).due == []
    off.close()


def test_a_reader_becomes_no_writer_by_a_token_that_has_expired(tmp_path: Path, replica: Replica) -> None:
    replica.commit(lambda author: author.admit(WEB, b"carol", CAROL.public))
    off = copy_replica(replica, tmp_path / "off", [ROOT_KEY], clock=Clock(LATER))
    signs(off, INVITE, b"gamma", CAROL)
    assert looked(off, ROOT_KEY, now=LATER + 10).due == []
    off.close()


def test_nobody_else_adopts(replica: Replica) -> None:
    """What Bob has invited would hang on the root key otherwise, and stay when Bob's key is revoked."""
    other = make_key("another invite")
    signs(replica, BOB, named(b"sleeper"), other)
    signs(replica, other, b"sleeper", DAVE)
    assert looked(replica, ROOT_KEY).due == []
    assert [one.grant.content for one in looked(replica, ROOT_KEY, now=LATER).due] == [INVITE.public]
    (due,) = looked(replica, BOB).due
    assert due.newcomer is not None and due.newcomer.content == DAVE.public


def test_only_the_path_of_the_invitation_counts(replica: Replica) -> None:
    first = replica.grants(path("/web/sub"))
    assert not first
    sub = replica.attributes(path("/web/sub")).entry
    entry = INVITE.sign(sub, 1, Action.GRANT, b"below", CAROL.public)
    assert not replica.apply([entry], []).rejected
    assert looked(replica, ROOT_KEY).due == []
    # Above it the grant does not even count.
    behind = last(replica, "/")
    assert replica.apply([INVITE.sign(behind.hash, 1, Action.GRANT, b"above", DAVE.public)], []).rejected
    assert looked(replica, ROOT_KEY).due == []


def test_of_two_newcomers_the_first_that_came_is_adopted_and_both_are_seen(replica: Replica) -> None:
    invited = last(replica)
    first = signs(replica, INVITE, b"gamma", CAROL, invited)
    for number in range(8):  # one of them has the lower hash, whichever decides
        signs(replica, INVITE, b"thief", make_key(f"thief {number}"), invited)
    found = looked(replica, ROOT_KEY)
    (due,) = found.due
    assert due.newcomer == first
    (uses,) = found.uses
    assert uses.invite == INVITE.fingerprint and len(uses.newcomers) == 9 and uses.newcomers[0] == CAROL.fingerprint


def test_a_newcomer_takes_no_name_of_another_key(replica: Replica) -> None:
    signs(replica, INVITE, b"bob", CAROL)
    (due,) = looked(replica, ROOT_KEY).due
    assert due.name == b"bob-" + CAROL.fingerprint.hex()[:6].encode()


def test_the_name_of_the_invitation_counts_more_than_that_of_the_newcomer(replica: Replica) -> None:
    other = make_key("another invite")
    replica.commit(lambda author: author.grant(WEB, named(b"delta"), other.public))
    signs(replica, other, b"anything", CAROL)
    (due,) = looked(replica, ROOT_KEY).due
    assert due.name == b"delta"


def test_a_key_that_has_a_name_keeps_it(replica: Replica) -> None:
    """Or whoever has a token could rename the keys of others in the log."""
    replica.commit(lambda author: author.grant((), b"alice", ALICE.public))
    signs(replica, INVITE, b"evil", ALICE)
    (due,) = looked(replica, ROOT_KEY).due
    assert due.name == b"alice"


def test_the_holder_of_a_token_makes_no_invitations(replica: Replica) -> None:
    """They would be the issuer's, and adopted for ever."""
    signs(replica, INVITE, named(b"again"), CAROL)
    signs(replica, INVITE, b"itself", INVITE)
    assert looked(replica, ROOT_KEY).due == []


def test_an_expired_invitation_that_nobody_used_is_revoked_by_the_node_that_signed_it(replica: Replica) -> None:
    assert looked(replica, ROOT_KEY, now=UNTIL + GRACE_SECONDS).due == []
    (due,) = looked(replica, ROOT_KEY, now=LATER).due
    assert (due.path, due.grant.content, due.newcomer) == (WEB, INVITE.public, None)
    found = looked(replica, ALICE, now=LATER)
    assert (found.due, found.open) == ([], 0)


def test_a_grant_that_is_named_like_an_expired_invitation_gets_no_other_grant_revoked(replica: Replica) -> None:
    """Bob names a grant of Carol's key so that a node with a higher key revokes Carol's own."""
    replica.commit(lambda author: author.grant(WEB, b"carol", CAROL.public))
    signs(replica, BOB, named(until=1), CAROL)
    found = looked(replica, ROOT_KEY, now=UNTIL)
    assert found.due == []


def test_what_was_revoked_is_over(replica: Replica) -> None:
    signs(replica, INVITE, b"gamma", CAROL)
    replica.commit(lambda author: author.revoke(WEB, named(), INVITE.fingerprint))
    found = looked(replica, ROOT_KEY, now=LATER)
    assert (found.due, found.open) == ([], 0)
    # It is still seen that a thief uses the token.
    signs(replica, INVITE, b"thief", STRANGER)
    assert len(looked(replica, ROOT_KEY).uses[0].newcomers) == 2
