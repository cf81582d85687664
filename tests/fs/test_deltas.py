"""What a change of a large file takes in the log, whatever happens to its name before it is published."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.fs.local import Local
from tests.support.helpers import noise, path


def put(local: Local, name: str, data: bytes) -> None:
    handle = local.fs.files.create(path(name), 0o644)
    local.fs.files.write(handle, data, 0)
    local.fs.files.release(handle)


def edit(local: Local, name: str) -> None:
    handle = local.fs.files.open(path(name), os.O_RDWR)
    local.fs.files.write(handle, b"changed", 100)
    local.fs.files.release(handle)


def edit_and_rename(local: Local) -> None:
    edit(local, "/a")
    local.fs.namespace.rename(path("/a"), path("/b"))


def rename_and_edit(local: Local) -> None:
    local.fs.namespace.rename(path("/a"), path("/b"))
    edit(local, "/b")


def edit_by_another_name(local: Local) -> None:
    local.fs.namespace.make_link(path("/b"), path("/a"))
    edit(local, "/b")


@pytest.mark.parametrize("size", [6_000, 100_000])
@pytest.mark.parametrize("change", [edit_and_rename, rename_and_edit, edit_by_another_name])
def test_a_small_change_of_a_file_is_a_small_delta(local: Local, change: Callable[[Local], None], size: int) -> None:
    put(local, "/a", noise(1, size))
    local.publish()
    published: list[int] = []
    local.replica.subscribe(lambda applied: published.extend(len(block.data) for block in applied.blocks))
    change(local)
    local.publish()
    assert 0 < sum(published) < 1000
