"""Scratch names: what never leaves the node."""

from __future__ import annotations

import pytest

from basefs.fs.scratch import is_scratch
from basefs.log.entries import Action
from tests.fs.local import Local
from tests.helpers import path


@pytest.mark.parametrize(
    "text",
    ["/4913", "/f~", "/.f.swp", "/.f.swx", "/d/.f.swo", "/.goutputstream-A1B2C3", "/.#f", "/d~/f", "/.fuse_hidden01"],
)
def test_scratch(text: str) -> None:
    assert is_scratch(path(text))


@pytest.mark.parametrize("text", ["/f", "/.f", "/4913.conf", "/f~1", "/swp", "/a.swap", "/#f#", "/x.#y", "/"])
def test_not_scratch(text: str) -> None:
    assert not is_scratch(path(text))


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
