"""What applications do becomes entries: which, and how many."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from basefs.fs.channel import Flags
from basefs.fs.filesystem import count_unpublished
from basefs.fs.worktree.drafts import LARGE_BYTES
from basefs.fs.worktree.machine import THIS_MACHINE
from basefs.fs.worktree.owners import Owners
from basefs.fs.worktree.publisher import MAX_STEPS
from basefs.fs.worktree.scratch import ScratchNames
from basefs.log.blocks import MAX_CONTENT_BYTES
from basefs.log.entries import Action
from basefs.path import MAX_DEPTH
from tests.fs.local import Local, exchange
from tests.support.helpers import BOB, ROOT_KEY, noise, path

A_DAY_AGO = 1_700_000_000_123_456_789


class TestAFile:
    def test_is_written_whole_with_its_time(self, local: Local) -> None:
        with local.costs(Action.WRITE):
            local.save("/f", b"content")
        state = local.replica.attributes(path("/f"))
        assert local.replica.read(path("/f")) == b"content"
        assert state.mtime == local.at("/f").stat().st_mtime_ns

    def test_that_is_written_often_before_it_is_published_is_one_entry(self, local: Local) -> None:
        with local.costs(Action.WRITE):
            for number in range(10):
                local.save("/f", b"%d" % number)

    def test_that_is_rewritten_with_the_same_content_is_none(self, local: Local) -> None:
        local.save("/f", b"x")
        with local.costs():
            local.save("/f", b"x")
        assert local.fs.unpublished() == 0

    def test_that_came_and_went_is_none(self, local: Local) -> None:
        with local.costs():
            local.save("/f", b"x")
            local.remove("/f")

    def test_that_is_saved_by_a_rename_is_one_write(self, local: Local) -> None:
        local.save("/f", b"old")
        with local.costs(Action.WRITE):
            local.save("/f.new", b"new")
            local.rename("/f.new", "/f")
        assert local.replica.read(path("/f")) == b"new"

    def test_that_is_renamed_is_a_link_and_a_delete(self, local: Local) -> None:
        local.save("/f", b"x")
        local.publish()
        with local.costs(Action.LINK, Action.DELETE):
            local.rename("/f", "/g")

    def test_that_is_renamed_and_edited_is_a_small_difference(self, local: Local) -> None:
        data = noise(1, 10 * LARGE_BYTES)
        local.save("/f", data)
        local.publish()
        published: list[int] = []
        local.replica.subscribe(lambda applied: published.extend(len(block.data) for block in applied.blocks))
        with local.costs(Action.LINK, Action.WRITE, Action.DELETE):
            local.rename("/f", "/g")
            with local.at("/g").open("r+b") as file:
                file.write(b"changed")
            local.tell("/g")
        assert 0 < sum(published) < 1000
        assert local.replica.read(path("/g")) == b"changed" + data[7:]

    def test_whose_mode_is_changed_keeps_its_content_in_one_entry(self, local: Local) -> None:
        local.save("/f", b"x")
        for mode in (0o600, 0o4755, 0o2711, 0o1644):
            with local.costs(Action.MODE):
                local.chmod("/f", mode)
            assert local.replica.attributes(path("/f")).mode == mode

    def test_has_extended_attributes(self, local: Local) -> None:
        local.save("/f", b"x")
        with local.costs(Action.XATTR):
            os.setxattr(local.at("/f"), "user.color", b"blue")
            local.tell("/f")
        with local.costs(Action.XATTR):
            os.removexattr(local.at("/f"), "user.color")
            local.tell("/f")

    def test_has_the_time_that_was_set_and_no_other(self, local: Local) -> None:
        local.save("/f", b"x")
        with local.costs(Action.MODE):
            local.touch("/f", A_DAY_AGO)
        assert local.replica.attributes(path("/f")).mtime == A_DAY_AGO
        with local.costs():
            local.save("/f", b"x")

    def test_that_is_too_large_stays_here_and_is_counted(self, local: Local, caplog: pytest.LogCaptureFixture) -> None:
        with local.costs():
            with local.at("/large").open("wb") as file:
                file.truncate(MAX_CONTENT_BYTES + 1)
            local.tell("/large", flags=Flags.CLOSED)
        assert local.fs.unpublished() == 1
        assert "stays on this node" in caplog.text
        local.remove("/large")
        local.publish()
        assert local.fs.unpublished() == 0

    def test_that_is_being_written_to_waits_for_its_close(self, local: Local) -> None:
        with local.costs():
            local.at("/f").write_bytes(b"half")
            local.tell("/f", flags=Flags.WRITING)
        assert local.fs.unpublished() == 1
        with local.costs(Action.WRITE):
            local.save("/f", b"whole")

    def test_under_a_temporary_name_waits_for_its_real_one(self, local: Local) -> None:
        local.save("/f", b"old")
        with local.costs(Action.WRITE):
            local.save("/.f.AbC123", b"new")
            local.fs.publish(patient=True)
            assert local.fs.unpublished() == 1
            local.rename("/.f.AbC123", "/f")
            local.fs.publish(patient=True)
            assert local.fs.unpublished() == 0

    def test_whose_old_content_becomes_a_backup_is_one_write(self, local: Local) -> None:
        local.save("/f", b"old")
        with local.costs(Action.WRITE):
            local.rename("/f", "/f~")
            local.save("/f", b"new")
        assert local.load("/f~") == b"old"


class TestHardLinks:
    def test_are_links_in_the_log(self, local: Local) -> None:
        local.save("/f", b"x")
        with local.costs(Action.LINK):
            local.link("/f", "/g")

    def test_that_are_made_at_once_are_one_write_and_a_link(self, local: Local) -> None:
        with local.costs(Action.WRITE, Action.LINK):
            local.save("/f", b"x")
            local.link("/f", "/g")

    def test_follow_what_is_written_by_one_name(self, local: Local) -> None:
        local.save("/f", b"x")
        local.link("/f", "/g")
        with local.costs(Action.WRITE, Action.LINK):
            local.save("/g", b"y")
        assert local.replica.read(path("/f")) == local.replica.read(path("/g")) == b"y"

    def test_have_one_mode(self, local: Local) -> None:
        local.save("/f", b"x")
        local.link("/f", "/g")
        with local.costs(Action.MODE, Action.MODE):
            local.chmod("/g", 0o600)
        assert local.replica.attributes(path("/f")).mode == 0o600

    def test_over_another_file_replace_it(self, local: Local) -> None:
        local.save("/f", b"x")
        local.save("/g", b"y")
        with local.costs(Action.LINK):
            local.at("/g").unlink()
            local.link("/f", "/g")
        assert local.replica.read(path("/g")) == b"x"


class TestDirectories:
    def test_are_published_before_what_is_in_them_and_removed_after(self, local: Local) -> None:
        with local.costs(Action.MKDIR, Action.MKDIR, Action.WRITE):
            local.mkdir("/d")
            local.mkdir("/d/e")
            local.save("/d/e/f", b"x")
        with local.costs(Action.DELETE, Action.DELETE, Action.DELETE):
            local.remove("/d")
        assert local.view() == {}

    def test_that_are_renamed_take_along_what_nobody_has_named(self, local: Local) -> None:
        local.mkdir("/d")
        local.save("/d/f", b"x")
        with local.costs(Action.MKDIR, Action.LINK, Action.DELETE, Action.DELETE):
            local.rename("/d", "/e")
        assert local.view() == local.disk()

    def test_that_were_made_again_have_nothing_of_the_one_before(self, local: Local) -> None:
        local.mkdir("/d")
        local.save("/d/old", b"x")
        local.publish()
        local.remove("/d")
        local.mkdir("/d")
        local.save("/d/new", b"y")
        local.publish()
        assert set(local.view()) == {path("/d"), path("/d/new")}

    def test_that_change_places_are_told_from_each_other(self, local: Local) -> None:
        for top in "ab":
            local.mkdir(f"/{top}")
            local.save(f"/{top}/{top}", top.encode())
        local.publish()
        local.at("/a").rename(local.at("/c"))
        local.at("/b").rename(local.at("/a"))
        local.at("/c").rename(local.at("/b"))
        local.tell("/a", "/b", "/c")
        local.publish()
        assert local.view() == local.disk()
        assert path("/a/b") in local.view()

    def test_have_a_time_where_it_was_set(self, local: Local) -> None:
        local.mkdir("/d")
        with local.costs(Action.WRITE):
            local.save("/d/f", b"x")
        with local.costs(Action.MODE):
            local.touch("/d", A_DAY_AGO)
        assert local.replica.attributes(path("/d")).mtime == A_DAY_AGO


class TestOtherThings:
    def test_symbolic_links_are_themselves(self, local: Local) -> None:
        with local.costs(Action.SLINK):
            local.symlink("nowhere", "/l")
        with local.costs(Action.SLINK):
            local.at("/l").unlink()
            local.symlink("elsewhere", "/l")
        assert local.replica.read(path("/l")) == b"elsewhere"

    def test_pipes_are_nodes(self, local: Local) -> None:
        with local.costs(Action.NODE):
            os.mkfifo(local.at("/p"))
            local.tell("/p")
        assert local.view() == local.disk()

    def test_sockets_stay_here(self, local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(local.tree)
        with local.costs(), socket.socket(socket.AF_UNIX) as listening:
            listening.bind("s")
            local.tell("/s")
        assert local.fs.unpublished() == 0
        local.remove("/s")

    @pytest.mark.parametrize("first", ["file", "directory", "symlink"])
    @pytest.mark.parametrize("second", ["file", "directory", "symlink"])
    def test_a_name_may_become_anything_else(self, local: Local, first: str, second: str) -> None:
        make: dict[str, Callable[[], None]] = {
            "file": lambda: local.save("/x", b"content"),
            "directory": lambda: local.mkdir("/x"),
            "symlink": lambda: local.symlink("target", "/x"),
        }
        make[first]()
        if first == "directory":
            local.save("/x/inside", b"y")
        local.publish()
        local.remove("/x")
        make[second]()
        local.publish()
        assert local.view() == local.disk() and path("/x") in local.view()


class TestWhatIsRefused:
    @pytest.fixture
    def guest(self, scratch: Path) -> Local:
        """A node without a right to write."""
        owner = Local.bootstrap(scratch / "owner", keys=(ROOT_KEY,))
        owner.mkdir("/d")
        owner.publish()
        guest = owner.join(scratch / "guest", BOB)
        self.owner = owner
        return guest

    @pytest.mark.logs("stays on this node")
    def test_stays_counted_and_is_published_once_it_may_be(self, guest: Local) -> None:
        guest.mkdir("/d/e")
        guest.save("/d/e/f", b"x")
        guest.publish()
        guest.publish()
        assert guest.fs.unpublished() == 2
        assert guest.load("/d/e/f") == b"x"
        self.owner.replica.commit(lambda author: author.grant((), b"bob", BOB.public))
        exchange(self.owner, guest)
        guest.tell("/d/e", "/d/e/f")
        guest.publish()
        assert guest.fs.unpublished() == 0
        exchange(self.owner, guest)
        self.owner.fs.settle()
        assert self.owner.load("/d/e/f") == b"x"
        for local in (guest, self.owner):
            local.close()


@pytest.mark.parametrize(
    "names", [("/d", "/f"), ("/f", "/d"), ("/d", "/e"), ("/e", "/d", "/f"), ("/d/x", "/d/y", "/e/x")]
)
@pytest.mark.parametrize("count", [3, 2 * MAX_STEPS])
def test_what_changes_places_is_published_at_once(scratch: Path, names: tuple[str, ...], count: int) -> None:
    one = Local.bootstrap(scratch / "one", keys=(ROOT_KEY, BOB))
    for top in "de":
        one.mkdir(f"/{top}")
        for number in range(count):
            one.save(f"/{top}/{number}", b"%d in %s" % (number, top.encode()))
    one.save("/d/x", b"x")
    one.mkdir("/d/y")
    one.save("/d/y/f", b"y")
    one.mkdir("/e/x")
    one.save("/e/x/f", b"z")
    one.save("/f", b"f")
    one.publish()
    other = one.join(scratch / "other", BOB)
    before = other.disk()
    other.rename(names[-1], "/aside")
    for old, new in reversed(list(pairwise(names))):
        other.rename(old, new)
    other.rename("/aside", names[0])
    other.publish()
    assert other.view() == other.disk() != before
    assert other.fs.unpublished() == 0
    exchange(one, other)
    one.fs.settle()
    assert one.disk() == other.disk()
    for local in (one, other):
        local.close()


def test_a_file_that_never_rests_is_published_once_it_does(local: Local) -> None:
    with local.costs(Action.WRITE):
        local.save("/f", b"x" * 100)
        local.at("/f").write_bytes(b"y" * 50)
        local.publish()
        assert local.fs.unpublished() == 0
    assert local.replica.read(path("/f")) == b"y" * 50


@pytest.mark.logs("cannot publish, retrying")
def test_what_the_log_does_not_take_is_tried_again(scratch: Path) -> None:
    now = 1000.0
    made = Local.bootstrap(scratch / "log")
    made.kill()
    made._machine = replace(THIS_MACHINE, steady=lambda: now)
    local = made.again()
    local.save("/f", b"x")
    database = local.replica._store.database
    database.main.execute("PRAGMA query_only = 1")
    local.publish()
    assert local.fs.unpublished() == 1
    database.main.execute("PRAGMA query_only = 0")
    local.publish()
    assert local.fs.unpublished() == 0
    local.close()


def test_a_filesystem_that_does_not_run_says_what_is_not_published(local: Local) -> None:
    local.save("/same", b"x")
    local.save("/changed", b"x")
    local.save("/gone", b"x")
    local.publish()
    local.at("/same").write_bytes(b"x")
    local.at("/changed").write_bytes(b"y")
    local.at("/gone").unlink()
    local.at("/new").write_bytes(b"x")
    local.at("/new~").write_bytes(b"x")
    owners = Owners(os.geteuid(), os.getegid(), keep=os.geteuid() == 0)
    before = local.replica.totals()
    assert count_unpublished(local.replica, owners, ScratchNames()) == 3
    assert local.replica.totals() == before
    local.tell("/same", "/changed", "/gone", "/new")


@pytest.mark.logs("stays on this node: a path has up to")
def test_what_a_move_takes_too_deep_stays_on_this_node(local: Local) -> None:
    """The mount checks the path of what is moved alone."""
    for top in ("/a", "/b"):
        names = top
        for _ in range(MAX_DEPTH // 2 + 10):
            local.mkdir(names)
            names += "/d"
        local.save(names, b"deepest")
    local.publish()
    assert local.fs.unpublished() == 0
    below = "/a" + "/d" * (MAX_DEPTH // 2)
    local.rename("/b", below + "/b")
    local.save("/f", b"beside")
    local.publish()
    assert local.fs.unpublished() > 0 and (b"f",) in local.view()
    local.rename(below + "/b", "/b")
    local.publish()
    assert local.fs.unpublished() == 0 and local.view() == local.disk()


def test_a_change_that_keeps_size_and_time_is_published(local: Local) -> None:
    """As of cp -p, rsync -t and touch -r."""
    local.save("/f", b"a=1")
    local.touch("/f", 10**18)
    local.publish()
    local.save("/f", b"a=2")
    local.touch("/f", 10**18)
    local.publish()
    assert local.view()[(b"f",)] == local.disk()[(b"f",)]
    assert local.replica.read((b"f",)) == b"a=2"
