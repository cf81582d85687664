"""Scratch names: what never leaves the node."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable

import pytest
from basefs.fs.publish import plan
from basefs.fs.publish.plan import make_plan
from basefs.fs.staging.journal import JOURNAL_FILE
from basefs.fs.staging.records import StagedName, decode
from basefs.fs.staging.scratch import ScratchNames, is_temporary_name
from basefs.fs.staging.wal import WriteAheadLog
from basefs.fs.staging.workingset import DIRECTORY

from basefs.errors import NoSpace
from basefs.fs import namespace
from basefs.log.entries import Action
from tests.fs.local import Local
from tests.support.helpers import path
from tests.support.mounts import wait_until
from tests.support.patience import DEADLINE
from tests.support.project import ROOT

is_scratch = ScratchNames().is_scratch


@pytest.mark.parametrize(
    "text",
    ["/4913", "/f~", "/.f.swp", "/.f.swx", "/d/.f.swo", "/.goutputstream-A1B2C3", "/.#f", "/d~/f"],
)
def test_scratch(text: str) -> None:
    assert is_scratch(path(text))


@pytest.mark.parametrize("text", ["/f", "/.f", "/4913.conf", "/f~1", "/swp", "/a.swap", "/#f#", "/x.#y", "/"])
def test_not_scratch(text: str) -> None:
    assert not is_scratch(path(text))


@pytest.mark.parametrize(
    "name",
    [
        *(".file.AbC123", "sedXyZ12a", "f.dpkg-new", "f.dpkg-tmp", ".ansible_tmpk2v9x0file"),
        *("tmpab_12cd3", "f.tmp", "f.tmp.Ab12Cd"),
    ],
)
def test_what_is_probably_renamed(name: str) -> None:
    assert is_temporary_name(name.encode()) and not is_scratch((name.encode(),))


@pytest.mark.parametrize("name", ["f", ".bashrc", "sed", "tmp", "tmpfs", "f.conf", "dpkg-new", "newtmpfile"])
def test_what_is_probably_meant(name: str) -> None:
    assert not is_temporary_name(name.encode())


def test_more_names_are_one_name_each_and_end_nothing_built_in() -> None:
    more = ScratchNames(["*.lock", "cache-[0-9]", "[#]*#"]).is_scratch
    for text in ("/d/x.lock", "/x.lock/f", "/cache-1", "/#f#", "/f~", "/\n.lock"):
        assert more(path(text)), text
    for text in ("/lock", "/x.lock.conf", "/cache-10", "/d/cache-", "/f"):
        assert not more(path(text)), text


#: How many seconds names wait from now on; a function.
Waiting = Callable[[float], None]


@pytest.fixture(autouse=True)
def waiting(monkeypatch: pytest.MonkeyPatch) -> Waiting:
    """Names wait for longer than any pause of this machine, until a test says otherwise."""

    def wait(seconds: float) -> None:
        for module in (namespace, plan):
            monkeypatch.setattr(module, "RENAME_SECONDS", seconds)

    wait(1000.0)
    return wait


def published(local: Local) -> bool:
    """Whether nothing is left after another try."""
    local.fs.publisher.publish(patient=True)
    return local.fs.unpublished() == 0


def test_a_temporary_file_waits_for_its_name(local: Local) -> None:
    local.save("/f", b"old")
    local.publish()
    with local.costs(Action.WRITE):
        local.save("/.f.AbC123", b"new")
        local.fs.publisher.publish(patient=True)
        assert local.fs.unpublished() == 1
        local.fs.namespace.rename(path("/.f.AbC123"), path("/f"))
        local.fs.publisher.publish(patient=True)
        assert local.fs.unpublished() == 0
    assert local.load("/f") == b"new"


def test_a_temporary_file_that_is_not_renamed_is_published_all_the_same(local: Local, waiting: Waiting) -> None:
    with local.costs(Action.WRITE):
        local.save("/f.tmp", b"meant")
        assert not published(local)
        waiting(0.2)
        wait_until(lambda: published(local), "the end of the wait")
    waiting(1000.0)
    with local.costs():
        local.save("/g.tmp", b"gone")
        local.fs.publisher.publish(patient=True)
        local.fs.namespace.unlink(path("/g.tmp"))
    with local.costs(Action.WRITE):
        local.save("/h.tmp", b"last")
        local.fs.publisher.stop()


def test_a_file_whose_old_content_is_a_backup_is_not_gone(local: Local) -> None:
    local.save("/f", b"old")
    local.publish()
    with local.costs(Action.WRITE):
        local.fs.namespace.rename(path("/f"), path("/f~"))
        local.fs.publisher.publish(patient=True)
        local.save("/f", b"new")
    with local.costs(Action.DELETE):
        local.fs.namespace.rename(path("/f"), path("/f~"))


def test_a_directory_that_is_renamed_keeps_its_temporary_files_back_and_then_gives_them(
    local: Local, waiting: Waiting
) -> None:
    local.fs.namespace.make_directory(path("/d"), 0o755)
    local.save("/d/x.tmp", b"x")
    local.fs.namespace.rename(path("/d"), path("/e"))
    with local.fs.working.lock:
        assert make_plan(local.fs.working, patient=True).due is not None
    waiting(0.2)
    wait_until(lambda: published(local), "the end of the wait")
    with local.fs.working.lock:
        assert make_plan(local.fs.working, patient=True).due is None
    assert list(local.replica.names_in(path("/e"))) == [b"x.tmp"] and b"d" not in local.replica.names_in(())


def test_a_directory_is_removed_though_a_backup_was_made_in_it(local: Local) -> None:
    local.fs.namespace.make_directory(path("/d"), 0o755)
    local.save("/d/x", b"x")
    with local.costs(Action.DELETE, Action.DELETE):
        local.fs.namespace.rename(path("/d/x"), path("/d/x~"))
        local.fs.namespace.unlink(path("/d/x~"))
        local.fs.namespace.remove_directory(path("/d"))
        assert published(local)
    assert b"d" not in local.listing("/")


@pytest.mark.parametrize("name", ["/f.tmp", "/f.plain"])
def test_a_published_file_is_renamed_to_a_temporary_name_as_to_any_other(local: Local, name: str) -> None:
    local.save("/f", b"old")
    with local.costs(Action.LINK, Action.DELETE):
        local.fs.namespace.rename(path("/f"), path(name))
        assert published(local)


def test_a_file_that_has_a_real_name_too_does_not_wait(local: Local) -> None:
    with local.costs(Action.WRITE, Action.LINK):
        local.save("/f", b"x")
        local.fs.namespace.make_link(path("/f.tmp"), path("/f"))
        assert published(local)


def test_a_temporary_file_waits_from_its_close_on(local: Local, waiting: Waiting) -> None:
    waiting(0.2)
    handle = local.open_writer("/large.tmp")
    begin = time.monotonic()
    wait_until(lambda: time.monotonic() > begin + 0.2, "a slow writer")
    local.fs.files.write(handle, b"large", 0)
    waiting(60.0)
    local.close(handle)
    assert not published(local)


def test_a_backup_stays_here_with_its_content_and_survives_a_restart(local: Local) -> None:
    local.save("/f", b"old")
    local.publish()
    with local.costs(Action.WRITE):
        local.fs.namespace.rename(path("/f"), path("/f~"))
        local.save("/f", b"new")
    assert local.load("/f~") == b"old"
    assert b"f~" not in local.replica.names_in(())
    again = Local(local.replica)
    assert (again.load("/f~"), again.load("/f")) == (b"old", b"new")


class TestTheJournal:
    """What is told in it of a removed name that may come back."""

    @staticmethod
    def gone(local: Local) -> int:
        journal = WriteAheadLog(local.replica.directory / DIRECTORY / JOURNAL_FILE)
        found = journal.load()
        journal.close()
        records = [record for raw in found for record in decode(raw).records]
        return sum(isinstance(one, StagedName) and (one.path, one.number) == ((b"f",), None) for one in records)

    @pytest.fixture
    def saved(self, local: Local) -> Local:
        """`/f` is published, and something else keeps the journal from being begun again."""
        local.save("/f", b"old")
        local.publish()
        local.save("/other~", b"")
        return local

    def test_names_a_backup_s_old_place_once(self, saved: Local) -> None:
        saved.fs.namespace.rename(path("/f"), path("/f~"))
        assert self.gone(saved) == 1, "it survives a crash at once"
        saved.publish()
        assert self.gone(saved) == 1

    def test_names_what_was_removed_while_it_is_open_once(self, saved: Local) -> None:
        handle = saved.fs.files.open(path("/f"), os.O_RDONLY)
        saved.fs.namespace.rename(path("/f"), path("/.fuse_hidden01"))
        wait_until(lambda: self.gone(saved) > 0, "the record")
        saved.publish()
        assert self.gone(saved) == 1
        saved.fs.namespace.unlink(path("/.fuse_hidden01"))
        saved.fs.files.release(handle)

    def test_names_it_again_where_the_name_was_taken_and_removed_again(self, saved: Local) -> None:
        saved.fs.namespace.rename(path("/f"), path("/f~"))
        saved.save("/f", b"new")
        saved.fs.namespace.unlink(path("/f"))
        assert self.gone(saved) == 2
        saved.publish()
        assert self.gone(saved) == 2

    @pytest.mark.logs("not durable yet")
    def test_names_it_as_soon_as_there_is_room_again(self, saved: Local, monkeypatch: pytest.MonkeyPatch) -> None:
        append = WriteAheadLog.append
        handle = saved.fs.files.open(path("/f"), os.O_RDONLY)
        full = threading.Event()

        def refuse(self: WriteAheadLog, record: bytes) -> None:
            full.set()
            raise NoSpace("full")

        monkeypatch.setattr(WriteAheadLog, "append", refuse)
        saved.fs.namespace.rename(path("/f"), path("/.fuse_hidden01"))
        assert full.wait(DEADLINE)
        with saved.fs.working.lock:
            monkeypatch.setattr(WriteAheadLog, "append", append)
        saved.publish()
        assert self.gone(saved) == 1
        saved.fs.namespace.unlink(path("/.fuse_hidden01"))
        saved.fs.files.release(handle)


def test_the_names_in_the_document_are_those() -> None:
    section = (ROOT / "docs" / "concepts.md").read_text().partition("## Names that never leave a node")[2]
    names = re.findall(r"^\| `.*\| `([^`]+)` \|", section, re.MULTILINE)
    assert len(names) == 6 and all(is_scratch((name.encode(),)) for name in names)
