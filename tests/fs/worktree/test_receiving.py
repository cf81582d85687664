"""What other nodes do comes to the disk, and what was changed here is never overwritten by it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from basefs.fs.channel import VERSION, Flags, Hello, MountServer
from basefs.fs.disk import Disk
from basefs.fs.filesystem import RETRY_SECONDS
from basefs.fs.jobs import JobResult, TreeJob, apply
from basefs.fs.worktree.machine import THIS_MACHINE
from basefs.log.entries import Action
from tests.fs.local import Local, exchange
from tests.support.helpers import BOB, ROOT_KEY, path

A_DAY_AGO = 1_700_000_000_123_456_789

Pair = tuple[Local, Local]


@pytest.fixture
def pair(scratch: Path) -> Iterator[Pair]:
    """Two nodes whose keys have the same authority."""
    one = Local.bootstrap(scratch / "one", keys=(ROOT_KEY, BOB))
    other = one.join(scratch / "other", BOB)
    yield one, other
    sync(one, other)
    assert one.view() == other.view() == one.disk()
    for local in (one, other):
        assert local.replica.check_view() == []
        local.close()


def sync(one: Local, other: Local) -> None:
    """Both publish, exchange and receive until they have the same."""
    for _ in range(20):
        for local in (one, other):
            local.publish()
        if not exchange(one, other):
            break
        for local in (one, other):
            local.fs.settle()


def keep_scratch(one: Local, other: Local, text: str) -> None:
    """A node removes a directory in which another one has a scratch name."""
    one.mkdir(text)
    sync(one, other)
    other.save(f"{text}/.f.swp", b"scratch")
    one.remove(text)
    sync(one, other)


class TestWhatComes:
    def test_has_all_that_it_had_where_it_was_made(self, pair: Pair) -> None:
        one, other = pair
        one.mkdir("/d", 0o750)
        one.save("/d/f", b"content")
        one.chmod("/d/f", 0o4711)
        os.setxattr(one.at("/d/f"), "user.color", b"blue")
        one.symlink("f", "/d/l")
        os.mkfifo(one.at("/d/p"))
        one.touch("/d", A_DAY_AGO)
        sync(one, other)
        assert other.disk() == one.disk()
        assert os.getxattr(other.at("/d/f"), "user.color") == b"blue"
        for text in ("/d", "/d/f", "/d/l"):
            assert other.at(text).lstat().st_mtime_ns == one.at(text).lstat().st_mtime_ns

    def test_is_no_change_here(self, pair: Pair) -> None:
        one, other = pair
        one.mkdir("/d")
        one.save("/d/f", b"x")
        sync(one, other)
        with other.costs():
            other.tell("/d", "/d/f")

    def test_replaces_what_was_there_as_a_whole(self, pair: Pair) -> None:
        one, other = pair
        one.save("/f", b"old")
        sync(one, other)
        with other.at("/f").open("rb") as reader:
            one.save("/f", b"new")
            sync(one, other)
            assert reader.read() == b"old"
        assert other.load("/f") == b"new"

    def test_goes_again(self, pair: Pair) -> None:
        one, other = pair
        one.mkdir("/d")
        one.mkdir("/d/e")
        one.save("/d/e/f", b"x")
        sync(one, other)
        one.remove("/d")
        sync(one, other)
        assert other.disk() == {}

    @pytest.mark.parametrize("first", ["file", "directory", "symlink", "fifo"])
    @pytest.mark.parametrize("second", ["file", "directory", "symlink", "fifo"])
    def test_may_become_anything_else(self, pair: Pair, first: str, second: str) -> None:
        one, other = pair

        def fifo() -> None:
            os.mkfifo(one.at("/x"))
            one.tell("/x")

        def directory() -> None:
            one.mkdir("/x")
            one.save("/x/inside", b"y")

        make: dict[str, Callable[[], None]] = {
            "file": lambda: one.save("/x", b"content"),
            "directory": directory,
            "symlink": lambda: one.symlink("target", "/x"),
            "fifo": fifo,
        }
        make[first]()
        sync(one, other)
        one.remove("/x")
        make[second]()
        sync(one, other)
        assert other.disk() == one.disk() and path("/x") in other.disk()

    def test_leaves_nothing_behind_that_was_prepared(self, pair: Pair) -> None:
        one, other = pair
        for number in range(5):
            one.save("/f", b"%d" % number)
            one.link("/f", f"/{number}")
            sync(one, other)
        assert os.listdir(other.tree.parent / "incoming") == []


class TestHardLinks:
    def test_arrive_as_hard_links(self, pair: Pair) -> None:
        one, other = pair
        one.save("/f", b"x")
        one.link("/f", "/g")
        sync(one, other)
        assert other.at("/f").stat().st_nlink == 2
        one.link("/f", "/h")
        sync(one, other)
        assert other.at("/h").samefile(other.at("/f"))

    def test_a_renamed_file_is_the_same_file(self, pair: Pair) -> None:
        one, other = pair
        one.save("/f", b"x")
        sync(one, other)
        inode = other.at("/f").stat().st_ino
        one.rename("/f", "/g")
        sync(one, other)
        assert other.at("/g").stat().st_ino == inode

    def test_part_where_another_node_changes_one_of_them(self, pair: Pair) -> None:
        one, other = pair
        one.save("/f", b"x")
        one.link("/f", "/g")
        sync(one, other)
        other.replica.commit(lambda author: author.set_attributes(path("/g"), mode=0o600))
        other.replica.commit(lambda author: author.write(path("/f"), b"y"))
        sync(one, other)
        assert (one.mode("/f"), one.mode("/g")) == (0o644, 0o600)
        assert (one.load("/f"), one.load("/g")) == (b"y", b"x")

    def test_get_one_mode_where_all_of_them_do(self, pair: Pair) -> None:
        one, other = pair
        one.save("/f", b"x")
        one.link("/f", "/g")
        sync(one, other)
        one.chmod("/f", 0o600)
        sync(one, other)
        assert other.at("/f").samefile(other.at("/g")) and other.mode("/g") == 0o600


class TestWhatWasChangedHere:
    def test_wins_or_is_listed(self, pair: Pair) -> None:
        one, other = pair
        one.save("/f", b"old")
        sync(one, other)
        one.save("/f", b"one")
        other.save("/f", b"other")
        sync(one, other)
        shown = one.load("/f")
        assert shown in (b"one", b"other")
        (conflict,) = one.replica.survey(path("/f")).conflicts()
        assert one.replica.content_at(conflict.lost.hash) in {b"one", b"other"} - {shown}

    def test_is_not_overwritten_before_it_is_published(self, pair: Pair) -> None:
        one, other = pair
        one.save("/f", b"old")
        sync(one, other)
        other.at("/f").write_bytes(b"mine")
        other.tell("/f", flags=Flags.WRITING)
        one.save("/f", b"theirs")
        one.publish()
        exchange(one, other)
        other.fs.settle()
        other.publish()
        assert other.load("/f") == b"mine"
        other.tell("/f", flags=Flags.CLOSED)

    def test_is_found_though_nobody_has_told(self, pair: Pair) -> None:
        one, other = pair
        one.save("/f", b"old")
        sync(one, other)
        other.at("/f").write_bytes(b"mine")
        one.save("/f", b"theirs")
        one.publish()
        exchange(one, other)
        other.fs.settle()
        assert other.load("/f") == b"mine"
        other.tell("/f", flags=Flags.CLOSED)

    def test_keeps_a_file_that_others_have_removed(self, pair: Pair) -> None:
        one, other = pair
        one.save("/f", b"old")
        sync(one, other)
        one.remove("/f")
        other.save("/f", b"edited")
        sync(one, other)
        assert one.load("/f") == other.load("/f") == b"edited"

    def test_keeps_a_file_that_others_have_renamed(self, pair: Pair) -> None:
        one, other = pair
        one.save("/f", b"old")
        sync(one, other)
        one.rename("/f", "/g")
        other.save("/f", b"edited")
        sync(one, other)
        assert (one.load("/f"), one.load("/g")) == (b"edited", b"old")

    def test_a_removal_brings_no_loser_back(self, pair: Pair) -> None:
        one, other = pair
        one.save("/f", b"one")
        other.save("/f", b"other")
        sync(one, other)
        one.remove("/f")
        sync(one, other)
        assert one.disk() == {}

    def test_a_removal_ends_nothing_that_was_not_seen(self, pair: Pair) -> None:
        one, other = pair
        one.save("/f", b"old")
        sync(one, other)
        other.save("/f", b"new")
        other.publish()
        exchange(one, other)
        one.remove("/f")
        sync(one, other)
        assert one.load("/f") == b"new"

    def test_that_is_the_same_is_no_conflict_and_has_one_time(self, pair: Pair) -> None:
        one, other = pair
        one.save("/f", b"same")
        one.publish()
        other.save("/f", b"same")
        exchange(one, other)
        sync(one, other)
        assert one.replica.survey(path("/f")).conflicts() == []
        assert one.at("/f").stat().st_mtime_ns == other.at("/f").stat().st_mtime_ns


class TestDirectories:
    def test_that_both_make_are_one(self, pair: Pair) -> None:
        one, other = pair
        for local, name in ((one, "one"), (other, "other")):
            local.mkdir("/d")
            local.save(f"/d/{name}", name.encode())
        sync(one, other)
        assert one.listing("/d") == {"one", "other"}

    def test_that_others_have_removed_are_made_again_for_what_is_saved_in_them(self, pair: Pair) -> None:
        one, other = pair
        one.mkdir("/d")
        one.mkdir("/d/e")
        sync(one, other)
        one.remove("/d")
        one.publish()
        exchange(one, other)
        other.save("/d/e/f", b"saved")
        sync(one, other)
        assert one.load("/d/e/f") == b"saved"

    def test_that_others_have_made_again_get_what_is_saved_in_them(self, pair: Pair) -> None:
        one, other = pair
        one.mkdir("/d")
        one.save("/d/old", b"x")
        sync(one, other)
        one.remove("/d")
        one.mkdir("/d")
        one.publish()
        exchange(one, other)
        other.save("/d/f", b"saved")
        other.save("/d/old", b"edited")
        sync(one, other)
        assert one.load("/d/f") == b"saved" and one.load("/d/old") == b"edited"

    def test_stay_for_what_never_leaves_this_node(self, pair: Pair) -> None:
        one, other = pair
        keep_scratch(one, other, "/d")
        assert other.listing("/d") == {".f.swp"} and path("/d") not in other.view()
        with other.costs(Action.MKDIR, Action.WRITE):
            other.save("/d/f", b"x")
        sync(one, other)
        assert one.load("/d/f") == b"x"
        other.remove("/d")

    def test_that_others_have_renamed_are_the_same_here(self, pair: Pair) -> None:
        one, other = pair
        one.mkdir("/d", 0o750)
        one.mkdir("/d/e")
        for number in range(300):
            one.save(f"/d/e/{number}", b"%d" % number)
        one.save("/d/f", b"x")
        sync(one, other)
        directories = {name: other.at(f"/d{name}").stat().st_ino for name in ("", "/e", "/e/7", "/f")}
        other.save("/d/e/.f.swp", b"scratch")
        one.rename("/d", "/new")
        one.save("/new/e/8", b"changed")
        one.remove("/new/e/9")
        one.save("/new/e/made", b"x")
        sync(one, other)
        assert directories == {name: other.at(f"/new{name}").stat().st_ino for name in directories}
        assert other.load("/new/e/8") == b"changed" and "9" not in other.listing("/new/e")
        assert ".f.swp" in other.listing("/new/e") and "d" not in other.listing("/")
        with other.costs():
            other.publish()
        other.remove("/new/e/.f.swp")

    def test_that_others_have_renamed_keep_what_was_saved_in_them(self, pair: Pair) -> None:
        one, other = pair
        one.mkdir("/d")
        one.save("/d/f", b"x")
        one.save("/d/g", b"y")
        sync(one, other)
        one.rename("/d", "/new")
        one.publish()
        exchange(one, other)
        other.save("/d/f", b"edited")
        sync(one, other)
        assert one.load("/d/f") == b"edited" and one.load("/new/g") == b"y"

    def test_go_with_what_stayed_in_them(self, pair: Pair) -> None:
        one, other = pair
        keep_scratch(one, other, "/d")
        other.remove("/d/.f.swp")
        other.fs.settle()
        assert other.disk() == {}

    def test_have_the_time_of_their_last_name(self, pair: Pair) -> None:
        one, other = pair
        one.mkdir("/d")
        one.touch("/d", A_DAY_AGO)
        sync(one, other)
        assert other.at("/d").stat().st_mtime_ns == A_DAY_AGO
        one.save("/d/f", b"x")
        sync(one, other)
        assert other.at("/d").stat().st_mtime_ns > A_DAY_AGO

    def test_have_the_time_that_was_set_after_what_is_in_them(self, pair: Pair) -> None:
        one, other = pair
        one.mkdir("/d")
        for number in range(300):
            one.save(f"/d/{number}", b"x")
        one.touch("/d", A_DAY_AGO)
        sync(one, other)
        assert other.at("/d").stat().st_mtime_ns == A_DAY_AGO


@pytest.mark.parametrize(
    ("holder", "becomes"), [("/d/.f.swp", "file"), ("/d/e/.f.swp", "file"), ("/d/e/.f.swp", "nothing")]
)
def test_what_keeps_a_directory_from_going_is_said_once(
    pair: Pair, caplog: pytest.LogCaptureFixture, holder: str, becomes: str
) -> None:
    one, other = pair
    one.mkdir("/d")
    one.mkdir("/d/e")
    sync(one, other)
    other.save(holder, b"scratch")
    one.remove("/d")
    if becomes == "file":
        one.save("/d", b"file")
    for _ in range(3):
        sync(one, other)
        other.tell("/d")
        other.publish()
    assert other.load(holder) == b"scratch"
    (said,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert said.startswith("/d was re") and holder in said
    other.remove(holder)
    other.fs.settle()
    assert other.disk() == one.disk()
    assert other.fs.unpublished() == 0


class Dying:
    """A mount server that dies when it has done its jobs, before it can say so."""

    hello = Hello(VERSION)

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def start(self) -> None:
        pass

    def rights(self, rights: Mapping[bytes, int]) -> None:
        pass

    def room(self, has: bool) -> None:
        pass

    def perform(self, jobs: Sequence[TreeJob], seen: int) -> list[JobResult]:
        self._disk.forget()
        for job in jobs:
            apply(self._disk, job)
        return [JobResult(False, None, "the mount server does not answer")] * len(jobs)


def test_what_a_dying_mount_server_has_brought_is_no_change_here(pair: Pair) -> None:
    one, other = pair
    one.save("/f", b"first")
    one.save("/gone", b"x")
    sync(one, other)
    other.fs.attach(cast(MountServer, Dying(Disk(other.replica.directory, cached=False))))
    one.save("/f", b"second")
    one.save("/new", b"new")
    one.remove("/gone")
    one.publish()
    exchange(one, other)
    other.fs.settle()
    other.fs.detach()
    assert other.load("/f") == b"second"
    for name in ("/f", "/new", "/gone"):
        one.save(name, b"third")
    one.publish()
    exchange(one, other)
    with other.costs():
        other.fs.settle()
        other.publish()
    assert {other.load(name) for name in ("/f", "/new", "/gone")} == {b"third"}


def test_what_could_not_be_brought_comes_once_it_can(pair: Pair) -> None:
    one, other = pair
    one.mkdir("/d")
    sync(one, other)
    with other.at("/s").open("wb"):
        pass
    other.at("/s").unlink()
    os.mkfifo(other.at("/s"))
    one.save("/s", b"theirs")
    one.publish()
    exchange(one, other)
    other.fs.settle()
    assert other.at("/s").is_fifo()
    other.remove("/s")


def test_what_waits_is_tried_again_by_the_clock_of_the_machine(scratch: Path) -> None:
    now = 1000.0
    one = Local.bootstrap(scratch / "one", keys=(ROOT_KEY, BOB))
    one.mkdir("/d")
    one.publish()
    other = one.join(scratch / "other", BOB, machine=replace(THIS_MACHINE, steady=lambda: now))
    other.save("/d/.f.swp", b"scratch")
    one.remove("/d")
    one.publish()
    exchange(one, other)
    other.fs.settle()
    # Of which nothing tells.
    other.at("/d/.f.swp").unlink()
    for seconds in (0.0, 0.9 * RETRY_SECONDS):
        now = 1000.0 + seconds
        other.fs.attempt()
        assert other.listing("/") == {"d"}
    now = 1000.0 + RETRY_SECONDS
    other.fs.attempt()
    assert other.disk() == {}
    for local in (one, other):
        local.close()


def test_what_a_key_has_written_comes_and_goes_with_its_grant(pair: Pair) -> None:
    one, other = pair
    one.mkdir("/d")
    sync(one, other)
    other.save("/d/f", b"other's")
    other.save("/g", b"other's")
    sync(one, other)
    assert one.load("/d/f") == one.load("/g") == b"other's"
    one.replica.commit(lambda author: author.revoke((), b"bob", BOB.fingerprint, discard=True))
    sync(one, other)
    assert one.disk().keys() == {path("/d")} == other.disk().keys()
    one.replica.commit(lambda author: author.grant((), b"bob", BOB.public))
    sync(one, other)
    assert one.load("/d/f") == other.load("/g") == b"other's"
