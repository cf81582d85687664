"""What keys are called: nobody without the authority names a key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from basefs.log.entries import Action, Entry
from basefs.replica.replica import Replica
from tests.support.helpers import ALICE, BOB, CAROL, DAVE, ROOT_KEY, make_replica, path

WEB = path("/web")


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Replica]:
    """Bob holds a key for `/web`, Carol one for everything."""
    replica = make_replica(tmp_path / "log")
    replica.commit(lambda author: author.make_directory(WEB))
    replica.commit(lambda author: author.grant(WEB, b"bob", BOB.public))
    replica.commit(lambda author: author.grant((), b"carol", CAROL.public))
    yield replica
    assert replica.check_view() == []
    replica.close()


def last_grant(replica: Replica) -> Entry:
    (grant,) = replica.grants(WEB)
    return grant.entry


def grants(replica: Replica, behind: Entry) -> None:
    """Bob calls the root's key bob, his own root, and Carol's intern."""
    for name, key in ((b"bob", ROOT_KEY), (b"root", BOB), (b"intern", CAROL)):
        entry = BOB.sign(behind.hash, 1, Action.GRANT, name, key.public)
        assert not replica.apply([entry], []).rejected
        behind = entry


NAMES = {ROOT_KEY.fingerprint: "root", BOB.fingerprint: "bob", CAROL.fingerprint: "carol"}


@pytest.mark.parametrize("revoked", [False, True])
def test_the_holder_of_a_directory_names_no_key_that_has_a_name(replica: Replica, *, revoked: bool) -> None:
    behind = last_grant(replica)
    assert replica.key_names() == NAMES
    if revoked:
        draft = replica.commit(lambda author: author.revoke(WEB, b"bob", BOB.fingerprint))
        (behind,) = (entry for entry in draft.entries if entry.action is Action.REVOKE)
    grants(replica, behind)
    # A revoked key is called what the holder of a valid key has called it.
    assert replica.key_names() == NAMES


def test_a_second_name_from_beside_the_first_grant_changes_nothing(replica: Replica) -> None:
    for stamp in range(20):
        entry = CAROL.sign(replica.identity, stamp, Action.GRANT, b"intern", ROOT_KEY.public)
        assert not replica.apply([entry], []).rejected
    assert replica.key_names() == NAMES


def test_keys_of_one_name_show_digits(replica: Replica) -> None:
    replica.commit(lambda author: author.grant(WEB, b"root", DAVE.public))
    fake = f"carol ({CAROL.fingerprint.hex()[:6]})"
    replica.commit(lambda author: author.grant(WEB, fake.encode(), ALICE.public))
    names = replica.key_names()
    assert names[ROOT_KEY.fingerprint] == f"root ({ROOT_KEY.fingerprint.hex()[:6]})"
    assert names[DAVE.fingerprint] == f"root ({DAVE.fingerprint.hex()[:6]})"
    assert names[ALICE.fingerprint] == f"{fake} ({ALICE.fingerprint.hex()[:6]})"
    assert names[CAROL.fingerprint] == "carol"


def test_the_first_name_of_two_from_one_signer_stays(replica: Replica) -> None:
    replica.commit(lambda author: author.grant((), b"intern", CAROL.public))
    assert replica.key_names()[CAROL.fingerprint] == "carol"


def test_a_key_keeps_its_name_when_its_directory_is_deleted(replica: Replica) -> None:
    grants(replica, last_grant(replica))
    replica.commit(lambda author: author.make_directory((*WEB, b"sub")))
    replica.commit(lambda author: author.grant((*WEB, b"sub"), b"dave", DAVE.public))
    replica.commit(lambda author: author.remove((*WEB, b"sub"), directory=True))
    assert replica.key_names() == {**NAMES, DAVE.fingerprint: "dave"}
    replica.commit(lambda author: author.remove(WEB, directory=True))
    assert replica.key_names() == {**NAMES, DAVE.fingerprint: "dave"}
