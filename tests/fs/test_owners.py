"""Owners: names travel, ids do not."""

from __future__ import annotations

import os
import pwd

import pytest
from basefs.fs.owners import STRANGER, Owners

from basefs.errors import NotPermitted
from basefs.view.states import decode_mode, encode_mode

#: An id that no system gives to anybody.
UNKNOWN = 54_321_987


@pytest.fixture
def keeping() -> Owners:
    return Owners(7, 8, keep=True)


def test_without_keeping_everything_belongs_to_the_mount() -> None:
    owners = Owners(7, 8, keep=False)
    assert owners.ids(None) == owners.ids((b"root", b"root")) == (7, 8)
    assert owners.names(7, 8) is None
    for wanted in ((7, 9), (9, 8), (0, 0)):
        with pytest.raises(NotPermitted):
            owners.names(*wanted)


def test_known_users_travel_by_name(keeping: Owners) -> None:
    assert keeping.names(0, 0) == (b"root", b"root")
    assert keeping.ids((b"root", b"root")) == (0, 0)


def test_ids_without_a_name_travel_as_digits(keeping: Owners) -> None:
    names = (str(UNKNOWN).encode(), str(UNKNOWN).encode())
    assert keeping.names(UNKNOWN, UNKNOWN) == names
    assert keeping.ids(names) == (UNKNOWN, UNKNOWN)


@pytest.mark.parametrize("name", [b"no such user", b"\xff\xfe", b"9" * 255, b"\xc2\xb2", b"-1"])
def test_names_unknown_here_belong_to_nobody_and_never_to_who_mounts(keeping: Owners, name: bytes) -> None:
    assert keeping.ids((name, name)) == (STRANGER, STRANGER)
    assert keeping.ids((b"root", name)) == (0, STRANGER)


def test_what_has_no_owner_belongs_to_the_mount(keeping: Owners) -> None:
    assert keeping.ids(None) == (7, 8)


def test_every_user_of_this_machine_survives_the_way_through_an_entry(keeping: Owners) -> None:
    for user in pwd.getpwall():
        names = keeping.names(user.pw_uid, os.getgid())
        assert names is not None
        _, owner = decode_mode(encode_mode(0o644, names))
        assert keeping.ids(owner)[0] == user.pw_uid


def test_a_name_that_no_system_can_hold_belongs_to_nobody() -> None:
    assert Owners(7, 8, keep=True).ids((b"no\x00body", b"\xff")) == (STRANGER, STRANGER)
