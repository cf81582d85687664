"""Numbers and times of files: stable while somebody can look at them, and kept no longer."""

from __future__ import annotations

import os
import pathlib
import time
import tracemalloc
from collections.abc import Callable

import pytest
from basefs.fs.staging.identity import Identities

from basefs.log.hashes import EntryHash
from basefs.replica.replica import Applied, Replica
from tests.fs.local import Local
from tests.fs.numbers import confused
from tests.support.helpers import ROOT_KEY, noise, path


def by_hash(origin: EntryHash | None) -> int:
    """The number that follows from the entry that began a file."""
    return Identities(time.time).number(origin)


def number(local: Local, text: str) -> int:
    """st_ino."""
    return local.fs.metadata.stat(path(text)).number


def end_moment(local: Local) -> None:
    """What happens every 100 ms."""
    local.fs.keep_durable()


def remove_elsewhere(local: Local, text: str) -> None:
    """Another node removes a file."""
    local.replica.commit(lambda author: author.remove(path(text), directory=False))
    end_moment(local)


def bring_back(local: Local, text: str, entry: EntryHash) -> None:
    """`basefs revert` to an entry."""
    local.replica.commit(lambda author: author.reverter.path(path(text), entry))
    end_moment(local)


def test_an_open_file_that_another_node_removes_keeps_number_and_times(local: Local) -> None:
    local.save("/f", b"text")
    local.publish()
    local.fs.metadata.set_mode(path("/f"), 0o600)
    local.publish()
    before = local.fs.metadata.stat(path("/f"))
    handle = local.fs.files.open(path("/f"), os.O_RDONLY)
    inode = local.fs.files.inode_of(handle)
    remove_elsewhere(local, "/f")
    after = local.fs.metadata.stat_inode(inode)
    assert (after.number, after.mtime, after.ctime) == (before.number, before.mtime, before.ctime)
    local.fs.files.release(handle)


def test_a_removed_file_is_forgotten_once_it_is_closed(local: Local) -> None:
    local.save("/f", b"text")
    local.publish()
    shown = local.replica.attributes(path("/f"))
    made_here = number(local, "/f")
    handle = local.fs.files.open(path("/f"), os.O_RDONLY)
    remove_elsewhere(local, "/f")
    local.fs.files.release(handle)
    end_moment(local)
    bring_back(local, "/f", shown.entry)
    assert local.replica.attributes(path("/f")).origin == shown.origin
    assert number(local, "/f") == by_hash(shown.origin) != made_here


def test_a_file_that_is_removed_here_is_forgotten(local: Local) -> None:
    local.save("/f", b"text")
    local.publish()
    shown = local.replica.attributes(path("/f"))
    local.fs.namespace.unlink(path("/f"))
    local.publish()
    bring_back(local, "/f", shown.entry)
    assert number(local, "/f") == by_hash(shown.origin)


def test_a_file_that_loses_one_of_its_names_or_moves_keeps_its_number(local: Local) -> None:
    local.save("/f", b"text")
    local.fs.namespace.make_link(path("/g"), path("/f"))
    local.publish()
    made_here = number(local, "/f")
    remove_elsewhere(local, "/f")
    assert number(local, "/g") == made_here
    local.replica.commit(lambda author: author.rename(path("/g"), path("/h")))
    end_moment(local)
    assert number(local, "/h") == made_here != by_hash(local.replica.attributes(path("/h")).origin)


def test_a_file_below_a_renamed_directory_keeps_its_number(local: Local) -> None:
    local.fs.namespace.make_directory(path("/d"), 0o755)
    local.save("/d/f", b"text")
    local.publish()
    before = number(local, "/d/f")
    local.fs.namespace.rename(path("/d"), path("/e"))
    end_moment(local)
    assert number(local, "/e/f") == before


def test_names_that_are_out_of_sight_here_do_not_count(local: Local) -> None:
    local.fs.namespace.make_directory(path("/d"), 0o755)
    local.save("/d/f", b"text")
    local.publish()
    local.fs.namespace.unlink(path("/d/f"))
    local.publish()
    local.fs.namespace.remove_directory(path("/d"))
    local.save("/d", b"a file where another node has a directory")
    local.replica.commit(lambda author: author.write(path("/d/g"), b"text"))
    local.replica.commit(lambda author: author.make_link(path("/g"), path("/d/g")))
    assert local.fs.metadata.stat(path("/g")).links == 1
    local.fs.metadata.set_mode(path("/g"), 0o600)
    assert local.fs.metadata.stat(path("/g")).links == 1


def test_a_file_that_is_moved_elsewhere_while_it_is_saved_counts_both_names(local: Local) -> None:
    local.save("/f", b"old")
    local.publish()
    local.save("/f", b"new")
    local.replica.commit(lambda author: author.rename(path("/f"), path("/g")))
    assert number(local, "/f") == number(local, "/g")
    assert local.fs.metadata.stat(path("/f")).links == local.fs.metadata.stat(path("/g")).links == 2
    assert local.fs.metadata.other_names(path("/f")) == [path("/g")]
    local.publish()
    assert number(local, "/f") != number(local, "/g")
    assert (local.load("/f"), local.load("/g")) == (b"new", b"old")


def test_what_comes_back_does_not_get_a_number_that_another_file_has_taken_along(local: Local) -> None:
    local.fs.namespace.make_directory(path("/d"), 0o755)
    local.publish()
    local.replica.commit(lambda author: author.write(path("/f"), b"old"))
    local.save("/f", b"new")
    local.replica.commit(lambda author: author.rename(path("/f"), path("/d/f")))
    local.publish()
    moved = local.replica.attributes(path("/d/f"))
    assert number(local, "/f") == by_hash(moved.origin) != number(local, "/d/f")
    remove_elsewhere(local, "/d/f")
    bring_back(local, "/d/f", moved.entry)
    assert local.replica.attributes(path("/d/f")).origin == moved.origin
    assert number(local, "/d/f") != number(local, "/f")


def test_what_comes_back_does_not_get_a_number_that_went_to_another_name_by_an_exchange(local: Local) -> None:
    for name in ("/f", "/g"):
        local.replica.commit(lambda author, name=name: author.write(path(name), name.encode()))
    first = local.replica.attributes(path("/f")).origin
    local.fs.namespace.rename(path("/f"), path("/g"), exchange=True)
    local.publish()
    exchanged = local.replica.attributes(path("/f"))
    assert exchanged.origin == first
    assert number(local, "/g") == by_hash(first) != number(local, "/f")
    local.fs.namespace.unlink(path("/f"))
    local.publish()
    bring_back(local, "/f", exchanged.entry)
    assert local.replica.attributes(path("/f")).origin == first
    assert number(local, "/f") != number(local, "/g")


def test_all_names_of_a_file_that_is_written_while_it_is_published_have_its_number(surrounded: Local) -> None:
    local = surrounded
    local.save("/f", b"old")
    handle = local.fs.files.open(path("/f"), os.O_RDWR)

    def write_after(commit: Callable[[], Applied]) -> Applied:
        applied = commit()
        local.fs.files.write(handle, b"new", 0)
        return applied

    local.surround(write_after)
    local.publish()
    local.surround(None)
    local.replica.commit(lambda author: author.make_link(path("/g"), path("/f")))
    numbers = {name: listed for name, _, listed in local.fs.metadata.list(())}
    assert {numbers[b"f"], numbers[b"g"]} == {number(local, "/f"), number(local, "/g")} == {number(local, "/f")}
    local.close(handle)


@pytest.mark.parametrize("killed", [False, True], ids=["", "killed"])
def test_a_file_that_others_write_while_it_is_saved_has_one_number(scratch: pathlib.Path, killed: bool) -> None:
    """Without its first name, what they write begins it anew in the log."""
    local = Local.bootstrap(scratch / "log")
    local.save("/f", b"old")
    for name in ("/g", "/h"):
        local.fs.namespace.make_link(path(name), path("/f"))
    local.publish()
    local.fs.namespace.unlink(path("/f"))
    local.publish()
    before = local.replica.attributes(path("/h")).origin
    handle = local.fs.files.open(path("/g"), os.O_RDWR)
    local.fs.files.write(handle, b"new", 0)
    local.replica.commit(lambda author: author.write(path("/h"), b"newer"))
    assert local.replica.attributes(path("/h")).origin != before
    if killed:
        local.fs.files.flush(handle)
        local.kill()
        local = Local(Replica(scratch / "log", [ROOT_KEY]))
    else:
        # Nobody has closed it, so it stays.
        local.publish()
    assert confused(local.fs, local.load) == []
    assert number(local, "/g") == number(local, "/h")
    if not killed:
        local.close(handle)
    local.publish()
    assert confused(local.fs, local.load) == []
    local.replica.close()


def test_contents_of_files_that_come_and_go_leave_the_memory(local: Local) -> None:
    size, count = 32 * 1024, 250

    def come_and_go(first: int) -> None:
        for each in range(first, first + count):
            local.save(f"/job{each}", noise(each, size))
        local.publish()
        for each in range(first, first + count):
            local.fs.namespace.unlink(path(f"/job{each}"))
        local.publish()
        end_moment(local)

    come_and_go(0)
    tracemalloc.start()
    try:
        come_and_go(count)
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown < size * count // 4


@pytest.mark.parametrize("exchange", [False, True], ids=["moved", "exchanged"])
def test_a_directory_that_comes_back_does_not_get_the_number_that_went_with_it(local: Local, exchange: bool) -> None:
    for name in ("/d", "/e") if exchange else ("/d",):
        local.replica.commit(lambda author, name=name: author.make_directory(path(name)))
    made = local.replica.attributes(path("/d")).entry
    before = number(local, "/d")
    local.fs.namespace.rename(path("/d"), path("/e"), exchange=exchange)
    assert number(local, "/e") == before
    if exchange:
        local.fs.namespace.remove_directory(path("/d"))
        local.publish()
    bring_back(local, "/d", made)
    assert number(local, "/d") != number(local, "/e")
