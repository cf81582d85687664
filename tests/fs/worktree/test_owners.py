"""Owners: names travel, ids do not."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from basefs.fs.worktree.owners import STRANGER, THESE_NAMES, Owners
from basefs.log.entries import Action
from basefs.view.states import MAX_ID, Owner
from tests.fs.local import Local, exchange
from tests.support.helpers import BOB, ROOT_KEY, path
from tests.support.mounts import wait_until

#: Ids that no system gives to anybody.
UNKNOWN, OTHER = 1_143_201_107, 3_221_225_472
NOBODY_HERE = Owner(b"no-such-user", b"no-such-group", 4711, 4712)


@pytest.fixture
def keeping() -> Owners:
    return Owners(7, 8, keep=True)


def test_without_keeping_everything_belongs_to_the_mount() -> None:
    owners = Owners(7, 8, keep=False)
    assert owners.ids(None) == owners.ids(Owner(b"root", b"root", 0, 0)) == (7, 8)
    assert owners.maker(0, 0) is None


def test_known_users_travel_by_name(keeping: Owners) -> None:
    assert keeping.maker(0, 0) == Owner(b"root", b"root", 0, 0)
    assert keeping.ids(Owner(b"root", b"root", 4711, 4712)) == (0, 0)


@pytest.mark.parametrize("number", [UNKNOWN, OTHER, MAX_ID])
def test_ids_without_a_name_travel_as_numbers(keeping: Owners, number: int) -> None:
    owner = keeping.maker(number, number)
    assert owner == Owner(b"", b"", number, number)
    assert keeping.ids(owner) == (number, number)


def test_a_name_that_is_unknown_here_is_nobody_s(keeping: Owners) -> None:
    assert keeping.ids(NOBODY_HERE) == (STRANGER, STRANGER)


def test_who_mounts_needs_no_name(keeping: Owners) -> None:
    assert keeping.maker(7, 8) is None
    assert keeping.ids(None) == (7, 8)


def test_nothing_has_changed_while_nobody_was_made(keeping: Owners) -> None:
    keeping.ids(NOBODY_HERE)
    assert not keeping.have_changed()


@pytest.mark.root
class TestOnTheDisk:
    @pytest.fixture
    def pair(self, scratch: Path) -> Iterator[tuple[Local, Local]]:
        """Two nodes, that have a file of a user whom nobody knows."""
        one = Local.bootstrap(scratch / "one", keys=(ROOT_KEY, BOB), owners=Owners(0, 0, keep=True))
        other = one.join(scratch / "other", BOB)
        one.save("/f", b"x")
        one.publish()
        one.replica.commit(lambda author: author.set_attributes(path("/f"), owner=NOBODY_HERE))
        exchange(one, other)
        for local in (one, other):
            local.fs.settle()
        yield one, other
        for local in (one, other):
            local.close()

    def owner(self, local: Local, text: str) -> tuple[int, int]:
        status = local.at(text).lstat()
        return status.st_uid, status.st_gid

    def test_an_unknown_owner_shows_as_nobody_and_stays_what_the_log_says(self, pair: tuple[Local, Local]) -> None:
        one, other = pair
        assert self.owner(one, "/f") == self.owner(other, "/f") == (STRANGER, STRANGER)
        with one.costs(Action.WRITE, Action.MODE):
            one.save("/f", b"new")
            one.chmod("/f", 0o600)
        assert one.replica.attributes(path("/f")).owner == NOBODY_HERE

    def test_who_replaces_a_file_owns_the_new_one(self, pair: tuple[Local, Local]) -> None:
        one, other = pair
        one.remove("/f")
        one.save("/f", b"secret")
        one.chmod("/f", 0o600)
        one.publish()
        exchange(one, other)
        other.fs.settle()
        assert self.owner(one, "/f") == self.owner(other, "/f") == (0, 0)
        assert other.mode("/f") == 0o600

    @pytest.mark.parametrize("text", ["/g", "/d", "/l"])
    def test_a_change_of_owner_goes_everywhere(self, pair: tuple[Local, Local], text: str) -> None:
        one, other = pair
        one.save("/g", b"x")
        one.mkdir("/d")
        one.symlink("g", "/l")
        daemon = pwd.getpwnam("daemon")
        os.chown(one.at(text), daemon.pw_uid, UNKNOWN, follow_symlinks=False)
        one.tell(text)
        one.publish()
        exchange(one, other)
        other.fs.settle()
        assert self.owner(other, text) == (daemon.pw_uid, UNKNOWN)
        assert one.replica.attributes(path(text)).owner == Owner(b"daemon", b"", daemon.pw_uid, UNKNOWN)

    def test_what_is_made_belongs_to_who_makes_it(self, pair: tuple[Local, Local]) -> None:
        one, other = pair
        one.save("/mine", b"x")
        os.chown(one.at("/mine"), UNKNOWN, OTHER)
        one.publish()
        exchange(one, other)
        other.fs.settle()
        assert self.owner(other, "/mine") == (UNKNOWN, OTHER)

    def test_a_user_who_is_made_later_gets_what_is_theirs(self, scratch: Path) -> None:
        users: dict[bytes, int] = {}
        names = replace(THESE_NAMES, user_id=users.__getitem__, group_id=users.__getitem__, version=lambda: dict(users))
        local = Local.bootstrap(scratch / "log", owners=Owners(0, 0, keep=True, names=names))
        local.save("/f", b"x")
        local.publish()
        local.replica.commit(lambda author: author.set_attributes(path("/f"), owner=NOBODY_HERE))
        local.fs.start()
        wait_until(lambda: self.owner(local, "/f") == (STRANGER, STRANGER), "the unknown owner")
        users |= {b"no-such-user": 4343, b"no-such-group": 4344}
        wait_until(lambda: self.owner(local, "/f") == (4343, 4344), "the user that was made")
        assert local.replica.attributes(path("/f")).owner == NOBODY_HERE
        local.close()
