"""Adoption: what a node signs for its invitations, and what others gain by theirs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from basefs.daemon.adoption import Adopter
from basefs.log.entries import Entry
from basefs.log.hashes import Fingerprint
from basefs.log.keys import SigningKey
from basefs.replica.replica import Replica
from basefs.view.invitations import GRACE_SECONDS, Invitation
from tests.support.helpers import ALICE, BOB, CAROL, DAVE, ROOT_KEY, Clock, copy_replica, make_key, make_replica, path

WEB = path("/web")
FILE = path("/web/f")
INVITE = make_key("invite")
UNTIL = 2_000_000_000
NAME = Invitation(b"", UNTIL).encode()


@pytest.fixture
def alpha(tmp_path: Path) -> Iterator[Replica]:
    """A node with the root key, which has invited a machine to /web."""
    replica = make_replica(tmp_path / "alpha")
    replica.commit(lambda author: author.make_directory(WEB))
    replica.commit(lambda author: author.write(FILE, b"alpha's"))
    replica.commit(lambda author: author.grant(WEB, NAME, INVITE.public))
    yield replica
    assert replica.check_view() == []
    replica.close()


def adopt(replica: Replica, now: float = UNTIL - 1) -> bool:
    """Whether there was an invitation in force."""
    return Adopter(replica, lambda: now, since=0).look()


def node(replica: Replica, directory: Path, *keys: SigningKey, clock: Clock | None = None) -> Replica:
    """Another node, which has what this one has."""
    return copy_replica(replica, directory, keys, clock=clock)


def meet(*replicas: Replica) -> None:
    """Until all have the same entries."""
    for _ in replicas:
        for here in replicas:
            for there in replicas:
                there.add(list(here.walk(())), blocks_of(here), everything=True)
    assert len({replica.root_hash() for replica in replicas}) == 1


def blocks_of(replica: Replica) -> list[bytes]:
    found = []
    for data in replica.walk(()):
        entry = Entry.decode(data)
        if entry.encoded is not None and (block := replica.block(entry.encoded.root)) is not None:
            found.append(block)
    return found


def granted(replica: Replica, at: str = "/web") -> dict[Fingerprint, list[tuple[bytes, Fingerprint]]]:
    """Key -> the names of its grants in force on a path, and who gave them."""
    found: dict[Fingerprint, list[tuple[bytes, Fingerprint]]] = {}
    for grant in replica.grants(path(at)):
        found.setdefault(grant.fingerprint, []).append((grant.entry.name, grant.entry.fingerprint))
    return found


def redeem(replica: Replica, key: SigningKey, name: bytes, invite: SigningKey = INVITE) -> None:
    """What `basefs join` does on the node of this replica, which has the invite key alone."""
    assert [one.fingerprint for one in replica.keys] == [invite.fingerprint]
    replica.commit(lambda author: author.grant(WEB, name, key.public))


def test_a_newcomer_hangs_on_the_issuer_and_the_token_is_worth_nothing(alpha: Replica, tmp_path: Path) -> None:
    gamma, with_token = node(alpha, tmp_path / "gamma", CAROL), node(alpha, tmp_path / "token", INVITE)
    redeem(with_token, CAROL, b"gamma")
    meet(with_token, gamma)
    gamma.commit(lambda author: author.write(path("/web/g"), b"gamma's"))
    meet(alpha, gamma)
    assert adopt(alpha)
    assert granted(alpha) == {CAROL.fingerprint: [(b"gamma", ROOT_KEY.fingerprint)]}
    assert alpha.read(path("/web/g")) == b"gamma's"
    # A thief who has not heard of it uses the token.
    thief = node(with_token, tmp_path / "thief", INVITE)
    redeem(thief, DAVE, b"thief")
    robbed = node(thief, tmp_path / "robbed", DAVE)
    robbed.commit(lambda author: author.write(FILE, b"the thief's"))
    assert robbed.read(FILE) == b"the thief's"
    meet(alpha, robbed, gamma)
    for replica in (alpha, robbed, gamma):
        assert replica.read(FILE) == b"alpha's"
        assert list(granted(replica)) == [CAROL.fingerprint]
    assert not adopt(alpha)
    assert list(granted(alpha)) == [CAROL.fingerprint]


def test_a_third_key_keeps_nobody_from_being_adopted_by_the_name_that_it_gives(alpha: Replica, tmp_path: Path) -> None:
    alpha.commit(lambda author: author.grant(WEB, b"dave", DAVE.public))
    with_token, third = node(alpha, tmp_path / "token", INVITE), node(alpha, tmp_path / "third", DAVE)
    redeem(with_token, CAROL, b"gamma")
    meet(with_token, third)
    forged = Invitation(b"", 1_000_000_000).encode()
    third.commit(lambda author: author.grant(WEB, forged, CAROL.public))
    meet(alpha, third)
    assert adopt(alpha)
    adopt(alpha, UNTIL + GRACE_SECONDS + 1)
    assert ROOT_KEY.fingerprint in {by for _, by in granted(alpha)[CAROL.fingerprint]}


def test_a_second_look_adds_nothing(alpha: Replica, tmp_path: Path) -> None:
    with_token = node(alpha, tmp_path / "token", INVITE)
    redeem(with_token, CAROL, b"gamma")
    meet(alpha, with_token)
    adopter = Adopter(alpha, lambda: UNTIL)
    adopter.look()
    before = alpha.root_hash()
    assert not adopter.look()
    assert alpha.root_hash() == before


def test_a_machine_that_comes_after_the_end_is_neither_adopted_nor_turned_away(alpha: Replica, tmp_path: Path) -> None:
    """A member that has the token grants itself with it while the inviter's node is off, however old the token is."""
    clock = Clock(UNTIL + GRACE_SECONDS)
    inviter, with_token = node(alpha, tmp_path / "off", ROOT_KEY, clock=clock), node(alpha, tmp_path / "token", INVITE)
    # Whatever time it claims.
    redeem(with_token, CAROL, b"gamma")
    meet(inviter, with_token)
    clock.now += 10**6
    adopter = Adopter(inviter, clock, since=0)
    before = inviter.root_hash()
    for _ in range(2):
        assert adopter.look()
    assert inviter.root_hash() == before
    assert granted(inviter).keys() == {INVITE.fingerprint, CAROL.fingerprint}


def test_a_grant_by_the_inviter_itself_accepts(alpha: Replica, tmp_path: Path) -> None:
    clock = Clock(UNTIL + GRACE_SECONDS)
    inviter, with_token = node(alpha, tmp_path / "off", ROOT_KEY, clock=clock), node(alpha, tmp_path / "token", INVITE)
    redeem(with_token, CAROL, b"gamma")
    meet(inviter, with_token)
    inviter.commit(lambda author: author.grant(WEB, b"delta", CAROL.public))
    Adopter(inviter, clock).look()
    assert {name for name, _ in granted(inviter)[CAROL.fingerprint]} == {b"delta"}
    assert INVITE.fingerprint not in granted(inviter)


def test_what_was_here_in_time_is_adopted_however_late(alpha: Replica, tmp_path: Path) -> None:
    """The node may have been killed in between."""
    with_token = node(alpha, tmp_path / "token", INVITE)
    redeem(with_token, CAROL, b"gamma")
    meet(alpha, with_token)
    Adopter(alpha, Clock(UNTIL + 10**6)).look()
    assert granted(alpha) == {CAROL.fingerprint: [(b"gamma", ROOT_KEY.fingerprint)]}


def test_a_node_that_was_off_or_asleep_revokes_no_invitation_before_it_knows_who_came(alpha: Replica) -> None:
    clock = Clock(UNTIL - 1000)
    adopter = Adopter(alpha, clock)
    for asleep in (0, 10**6):
        clock.now = UNTIL + asleep + GRACE_SECONDS + 1
        for _ in range(2):
            adopter.look()
            assert INVITE.fingerprint in granted(alpha)
            clock.now += GRACE_SECONDS - 10
    adopter.look()
    assert granted(alpha) == {}


def test_what_a_thief_writes_with_the_token_gains_no_authority(alpha: Replica, tmp_path: Path) -> None:
    """An acknowledgement by the root key would make it win against everybody who may write /web."""
    thief = node(alpha, tmp_path / "thief", INVITE)
    thief.commit(lambda author: author.write(FILE, b"the thief's"))
    redeem(thief, DAVE, b"thief")
    meet(alpha, thief)
    assert alpha.read(FILE) == b"the thief's"
    adopt(alpha)
    assert alpha.read(FILE) == b"alpha's"
    signers = {Entry.decode(data).fingerprint for data in alpha.walk(FILE)}
    assert signers == {ROOT_KEY.fingerprint, INVITE.fingerprint}
    # The first one who came is a thief now and then: he may write in /web as the invitation says, and nowhere else.
    assert granted(alpha, "/").keys() == {ROOT_KEY.fingerprint}


def test_a_token_used_twice_lets_in_one_and_is_seen(
    alpha: Replica, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    adopter = Adopter(alpha, lambda: UNTIL)
    adopter.look()
    first, second = (node(alpha, tmp_path / name, INVITE) for name in ("first", "second"))
    redeem(first, CAROL, b"gamma")
    redeem(second, DAVE, b"delta")
    meet(alpha, first)
    meet(alpha, second)
    with caplog.at_level(logging.INFO):
        adopter.look()
        adopter.look()
    said = [record.getMessage() for record in caplog.records]
    digits = INVITE.fingerprint.hex()[:12]
    assert said.count(f"invitation {digits} was used by 2 keys: 'basefs keys {alpha.name} --all' lists them") == 1
    carol = CAROL.fingerprint.hex()[:12]
    assert f"adopted gamma ({carol}) at /web, by invitation {digits}" in said
    assert list(granted(alpha)) == [CAROL.fingerprint]
    grants = alpha.plan(lambda author: author.past.grants())
    by_invite = {one.fingerprint for one in grants if one.entry.fingerprint == INVITE.fingerprint}
    assert by_invite == {CAROL.fingerprint, DAVE.fingerprint}


def test_one_issuer_key_on_two_nodes_that_adopt_at_once(alpha: Replica, tmp_path: Path) -> None:
    twin = node(alpha, tmp_path / "twin", ROOT_KEY)
    first, second = (node(alpha, tmp_path / name, INVITE) for name in ("first", "second"))
    redeem(first, CAROL, b"gamma")
    redeem(second, DAVE, b"delta")
    meet(alpha, first)
    meet(twin, second)
    adopt(alpha)
    adopt(twin)
    meet(alpha, twin)
    for replica in (alpha, twin):
        assert granted(replica).keys() == {CAROL.fingerprint, DAVE.fingerprint}
        assert not adopt(replica)
    meet(alpha, twin)
    # The same newcomer on both.
    other = make_key("another invite")
    alpha.commit(lambda author: author.grant(WEB, NAME, other.public))
    with_token = node(alpha, tmp_path / "token", other)
    redeem(with_token, BOB, b"epsilon", other)
    meet(alpha, twin, with_token)
    adopt(alpha)
    adopt(twin)
    meet(alpha, twin)
    assert granted(alpha) == granted(twin)
    assert granted(alpha).keys() == {CAROL.fingerprint, DAVE.fingerprint, BOB.fingerprint}


def test_nothing_outlives_the_key_that_invited_it(alpha: Replica, tmp_path: Path) -> None:
    """Bob makes sleepers by his own invitations, so that they stay when he is expelled."""
    alpha.commit(lambda author: author.grant(WEB, b"bob", BOB.public))
    bob = node(alpha, tmp_path / "bob", BOB)
    invites = [make_key(f"sleeper's invite {number}") for number in range(3)]
    for number, invite in enumerate(invites):
        bob.commit(lambda author, invite=invite: author.grant(WEB, NAME, invite.public))  # type: ignore[misc]
        with_token = node(bob, tmp_path / f"token {number}", invite)
        redeem(with_token, make_key(f"sleeper {number}"), b"sleeper", invite)
        meet(bob, with_token)
    meet(alpha, bob)
    adopt(alpha)
    adopt(alpha, now=UNTIL + GRACE_SECONDS + 1)
    alpha.commit(lambda author: author.revoke(WEB, b"bob", BOB.fingerprint))
    assert granted(alpha) == {}


def test_grants_that_others_name_like_expired_invitations_are_left_alone(alpha: Replica, tmp_path: Path) -> None:
    """Else a key holder would have each node with a higher key sign as many revokes, and spend its time on them."""
    alpha.commit(lambda author: author.grant(WEB, b"bob", BOB.public))
    alpha.commit(lambda author: author.grant((), b"alice", ALICE.public))
    bob, alice = node(alpha, tmp_path / "bob", BOB), node(alpha, tmp_path / "alice", ALICE)
    others = [make_key(f"other {number}") for number in range(20)]
    for other in others:
        bob.commit(lambda author, other=other: author.grant(WEB, NAME, other.public))  # type: ignore[misc]
    meet(alpha, bob, alice)
    expired = UNTIL + GRACE_SECONDS + 1
    before = alice.root_hash()
    assert not adopt(alice, now=expired)
    assert alice.root_hash() == before
    # Those that signed them clean up, a few in each look.
    assert adopt(alpha, now=expired) and adopt(bob, now=expired)
    assert not adopt(alpha, now=expired)
    while adopt(bob, now=expired):
        pass
    meet(alpha, alice, bob)
    assert granted(alice).keys() == {BOB.fingerprint}
