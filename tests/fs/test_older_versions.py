"""Files that another node changes while they are open or staged here: what is read, written and counted."""

from __future__ import annotations

import os

import pytest

from basefs.path import Path
from tests.fs import test_seen
from tests.fs.numbers import confused
from tests.fs.test_seen import F, Two, rewrite
from tests.support.helpers import path

two = test_seen.two
G = path("/d/g")


def links(two: Two, handle: int) -> int:
    """What fstat(2) says of an open file."""
    return two.here.fs.metadata.stat_inode(two.here.fs.files.inode_of(handle)).links


def check_shown(two: Two, files: dict[bytes, bytes]) -> None:
    """Programs see these files before and after the changes are published, and each has a number of its own."""
    assert two.shown() == files
    two.meet()
    assert two.shown() == files
    assert confused(two.here.fs, two.here.load) == []


@pytest.mark.parametrize("is_moved", [False, True], ids=["linked", "moved"])
@pytest.mark.parametrize("is_read", [False, True], ids=["", "read"])
def test_what_a_moved_file_takes_along_is_what_is_opened_then(two: Two, is_moved: bool, is_read: bool) -> None:
    """And not the version that somebody has open since before, which a writer would put in its place unseen."""
    old = two.here.fs.files.open(F, os.O_RDONLY, reads=is_read)
    if is_moved:
        two.here.fs.namespace.rename(F, G)
    else:
        two.here.fs.namespace.make_link(G, F)
    two.elsewhere(b"theirs, longer")
    two.here.publish()
    assert (two.here.load(G), two.here.fs.metadata.stat(G).size) == (b"theirs, longer", 14)
    writer = two.here.fs.files.open(G, os.O_RDWR)
    two.here.fs.files.write(writer, b", and ours", 0, appends=True)
    two.here.close(writer)
    two.meet()
    assert set(two.shown().values()) == {b"theirs, longer, and ours"}
    if is_read:
        assert two.here.read_handle(old) == b"first"
    two.here.fs.files.release(old)


@pytest.mark.parametrize("content", [b"ours", b"first"], ids=["new", "as it was"])
def test_who_has_lost_by_a_new_link_goes_on_from_the_own_version(two: Two, content: bytes) -> None:
    """And others open the one that has won."""
    two.here.fs.namespace.make_link(G, F)
    handle = two.here.fs.files.open(G, os.O_RDWR)
    rewrite(two.here, handle, content)
    theirs = two.elsewhere()
    two.meet()
    shown = b"theirs" if two.check_kept(theirs) else content
    assert two.here.load(F) == two.here.load(G) == shown
    rewrite(two.here, handle, b"ours, later")
    two.here.close(handle)
    two.meet()
    two.check_kept(theirs)


def test_a_file_that_is_moved_over_another_one_is_shared_by_all_that_have_it_open(two: Two) -> None:
    """It has another entry then, and the same content."""
    two.here.save("/d/g", b"a file")
    two.meet()
    first = two.here.fs.files.open(G, os.O_RDWR)
    two.here.fs.namespace.rename(G, F)
    two.here.publish()
    second = two.here.fs.files.open(F, os.O_RDWR)
    two.here.fs.files.write(first, b"A", 0)
    assert two.here.read_handle(second) == b"A file"


@pytest.mark.parametrize("is_looked_at", [False, True])
def test_a_link_is_one_file_with_what_is_written_to_a_newer_version(two: Two, is_looked_at: bool) -> None:
    two.here.fs.namespace.make_link(G, F)
    two.elsewhere()
    if is_looked_at:
        two.here.load(F)
    two.here.save("/d/f", b"ours")
    check_shown(two, {b"f": b"ours", b"g": b"ours"})


def test_a_link_is_one_file_with_a_newer_version_that_is_moved(two: Two) -> None:
    two.here.fs.namespace.make_link(G, F)
    two.elsewhere()
    two.here.fs.namespace.rename(F, path("/d/h"))
    two.here.save("/d/h", b"ours")
    check_shown(two, {b"g": b"ours", b"h": b"ours"})


def test_two_that_have_the_newest_version_open_share_it_while_an_older_one_is_staged(two: Two) -> None:
    two.here.fs.namespace.make_link(G, F)
    two.elsewhere()
    first, second = (two.here.fs.files.open(F, os.O_RDWR) for _ in range(2))
    two.here.fs.files.write(first, b"T", 0)
    assert two.here.read_handle(second) == b"Theirs"
    assert two.here.load(F) == two.here.load(G) == b"Theirs"


def test_a_file_is_not_moved_over_a_name_of_its_own_that_shows_a_newer_version(two: Two) -> None:
    """rename(2): two names of one file stay what they are."""
    two.here.fs.namespace.make_link(G, F)
    two.elsewhere()
    two.here.fs.namespace.rename(G, F)
    assert two.shown().keys() == {b"f", b"g"}
    two.meet()
    assert two.shown() == {b"f": b"theirs", b"g": b"theirs"}


def test_an_older_version_counts_the_names_of_its_file(two: Two) -> None:
    old = two.here.fs.files.open(F, os.O_RDWR)
    two.elsewhere()
    two.here.fs.namespace.rename(F, G)
    assert links(two, old) == 1
    two.here.fs.namespace.make_link(F, G)
    assert links(two, old) == two.here.fs.metadata.stat(F).links == 2
    two.here.publish()
    assert links(two, old) == two.here.fs.metadata.stat(F).links == 2
    two.here.fs.namespace.unlink(F)
    assert links(two, old) == two.here.fs.metadata.stat(G).links == 1


@pytest.mark.parametrize("is_older", [False, True], ids=["", "older"])
@pytest.mark.parametrize("is_filled", [False, True], ids=["", "filled"])
@pytest.mark.parametrize("is_moved", [False, True], ids=["removed", "moved"])
def test_an_open_file_is_written_under_the_name_that_another_node_has_left_it(
    two: Two, is_moved: bool, is_filled: bool, is_older: bool
) -> None:
    """And not under the one that it was opened by, which stays away, or what that node has put there."""
    if not is_moved:
        two.here.fs.namespace.make_link(G, F)
        two.meet()
    handle = two.here.fs.files.open(F, os.O_RDWR)
    if is_older:
        two.elsewhere(b"theirs")
    two.there.commit(lambda author: author.rename(F, G) if is_moved else author.remove(F, directory=False))
    two.deliver(two.there, two.here.replica)
    if is_filled:
        two.elsewhere(b"another file")
    two.here.fs.files.write(handle, b"F", 0)
    two.here.close(handle)
    shown = {b"g": b"First"} | ({b"f": b"another file"} if is_filled else {})
    check_shown(two, shown)


@pytest.mark.parametrize("names", [(F, G), (G, F)])
def test_an_open_file_that_changes_places_and_goes_back_is_there(two: Two, names: tuple[Path, Path]) -> None:
    two.here.save("/d/g", b"another file")
    two.meet()
    handle = two.here.fs.files.open(F, os.O_RDWR)
    for _ in range(2):
        two.here.fs.namespace.rename(*names, exchange=True)
    assert links(two, handle) == two.here.fs.metadata.stat(F).links == 1
    two.here.fs.files.write(handle, b"F", 0)
    two.here.close(handle)
    two.meet()
    assert two.shown() == {b"f": b"First", b"g": b"another file"}
    assert two.there.content_at(two.there.attributes(F).content) == b"First"
