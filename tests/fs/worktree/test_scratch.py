"""Scratch names: what never leaves the node."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from basefs.fs.worktree.scratch import ScratchNames, is_temporary_name
from basefs.log.entries import Action
from tests.fs.local import Local
from tests.support.helpers import path
from tests.support.project import ROOT

is_scratch = ScratchNames().is_scratch


@pytest.mark.parametrize(
    "text",
    [
        *(
            "/4913",
            "/f~",
            "/.f.swp",
            "/.f.swx",
            "/d/.f.swo",
            "/.goutputstream-A1B2C3",
            "/.#f",
            "/d~/f",
        ),
        *("/#f#", "/sudoers.d/#admins#", "/f___jb_tmp___", "/f___jb_old___"),
    ],
)
def test_scratch(text: str) -> None:
    assert is_scratch(path(text))


@pytest.mark.parametrize("text", ["/f", "/.f", "/4913.conf", "/f~1", "/swp", "/a.swap", "/#f", "/f#", "/x.#y", "/"])
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
    more = ScratchNames(["*.lock", "cache-[0-9]", "[#]*"]).is_scratch
    for text in ("/d/x.lock", "/x.lock/f", "/cache-1", "/#f", "/f~", "/\n.lock"):
        assert more(path(text)), text
    for text in ("/lock", "/x.lock.conf", "/cache-10", "/d/cache-", "/f"):
        assert not more(path(text)), text


def test_they_are_neither_published_nor_counted_also_by_another_process(scratch: Path) -> None:
    local = Local.bootstrap(scratch / "log")
    with local.costs():
        local.save("/f~", b"x")
        local.mkdir("/d~")
        local.save("/d~/f", b"x")
        assert local.fs.unpublished() == 0
    local.close()
    again = local.again()
    again.publish()
    assert again.actions == [] and again.load("/f~") == again.load("/d~/f") == b"x"
    again.close()


def test_a_published_file_that_is_renamed_to_one_is_gone_for_others(local: Local) -> None:
    local.save("/f", b"x")
    with local.costs(Action.DELETE):
        local.rename("/f", "/f~")
    with local.costs(Action.WRITE):
        local.rename("/f~", "/f")


def test_a_directory_is_removed_though_a_backup_was_made_in_it(local: Local) -> None:
    local.mkdir("/d")
    local.save("/d/x", b"x")
    with local.costs(Action.DELETE, Action.DELETE):
        local.rename("/d/x", "/d/x~")
        local.remove("/d")


def test_the_names_in_the_document_are_those() -> None:
    section = (ROOT / "docs" / "concepts.md").read_text().partition("## Names that never leave a node")[2]
    names = re.findall(r"^\| `.*\| `([^`]+)` \|", section, re.MULTILINE)
    assert len(names) == 7 and all(is_scratch((name.encode(),)) for name in names)
