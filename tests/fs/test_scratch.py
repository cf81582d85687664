"""Scratch names: what never leaves the node."""

from __future__ import annotations

import pytest

from basefs.fs.scratch import is_scratch, is_temporary_name
from basefs.log.entries import Action
from tests.fs.local import Local
from tests.helpers import path
from tests.mounts import wait_until


@pytest.mark.parametrize(
    "text",
    ["/4913", "/f~", "/.f.swp", "/.f.swx", "/d/.f.swo", "/.goutputstream-A1B2C3", "/.#f", "/d~/f", "/.fuse_hidden01"],
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


def test_a_temporary_file_waits_for_its_name(local: Local) -> None:
    local.save("/f", b"old")
    local.publish()
    with local.costs(Action.WRITE):
        local.save("/.f.AbC123", b"new")
        local.fs.publisher.publish()
        assert local.fs.unpublished() == 1
        local.fs.rename(path("/.f.AbC123"), path("/f"))
        local.fs.publisher.publish()
        assert local.fs.unpublished() == 0 and not local.fs.working.is_waiting
    assert local.load("/f") == b"new"


def test_a_temporary_file_that_is_not_renamed_is_published_all_the_same(local: Local) -> None:
    with local.costs(Action.WRITE):
        local.save("/f.tmp", b"meant")
        wait_until(lambda: not local.fs.working.is_deferred(path("/f.tmp")), "the end of the wait")
        local.fs.publisher.publish()
        assert local.fs.unpublished() == 0
    with local.costs():
        local.save("/g.tmp", b"gone")
        local.fs.publisher.publish()
        local.fs.unlink(path("/g.tmp"))
    with local.costs(Action.WRITE):
        local.save("/h.tmp", b"last")
        local.fs.publisher.stop()


def test_a_file_whose_old_content_is_a_backup_is_not_gone(local: Local) -> None:
    local.save("/f", b"old")
    local.publish()
    with local.costs(Action.WRITE):
        local.fs.rename(path("/f"), path("/f~"))
        local.fs.publisher.publish()
        local.save("/f", b"new")
    with local.costs(Action.DELETE):
        local.fs.rename(path("/f"), path("/f~"))


def test_a_backup_stays_here_with_its_content_and_survives_a_restart(local: Local) -> None:
    local.save("/f", b"old")
    local.publish()
    with local.costs(Action.WRITE):
        local.fs.rename(path("/f"), path("/f~"))
        local.save("/f", b"new")
    assert local.load("/f~") == b"old"
    assert b"f~" not in local.replica.names_in(())
    again = Local(local.replica)
    assert (again.load("/f~"), again.load("/f")) == (b"old", b"new")
