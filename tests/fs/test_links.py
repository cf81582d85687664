"""Names of one file whose first name is gone, while another node writes to it."""

from __future__ import annotations

import os
import pathlib
import stat
from collections.abc import Callable

import pytest
from basefs.fs.publish.plan import MAX_STEPS

from basefs.errors import NotPermitted
from basefs.replica.replica import Replica
from tests.fs.local import CLUSTER, Local
from tests.support.helpers import ALICE, BOB, ROOT_KEY, copy_replica, path


@pytest.fixture
def handle(local: Local) -> int:
    """A file that is open for writing; its names are /b and /x, and the one that it had first is gone."""
    local.save("/a", b"at first")
    local.fs.namespace.make_link(path("/x"), path("/a"))
    local.publish()
    handle = local.fs.files.open(path("/a"), os.O_RDWR)
    local.fs.namespace.rename(path("/a"), path("/b"))
    local.publish()
    return handle


def names(local: Local) -> list[tuple[bytes, int, bool]]:
    """Content and number of names of /b and /x, and whether they are one file."""
    one = local.fs.metadata.stat(path("/b")).number == local.fs.metadata.stat(path("/x")).number
    return [(local.load(text), local.fs.metadata.stat(path(text)).links, one) for text in ("/b", "/x")]


def kept(local: Local) -> set[bytes]:
    """What /b and /x show, and what has lost there.

    Without the first name each of them decides by itself.
    """
    lost = {conflict.lost.hash for text in ("/b", "/x") for conflict in local.replica.survey(path(text)).conflicts()}
    return {content for content, _, _ in names(local)} | {local.replica.content_at(hash) for hash in lost}


@pytest.mark.parametrize("name", ["/b", "/x"])
def test_what_is_written_after_it_shows_under_all_names(local: Local, handle: int, name: str) -> None:
    local.replica.commit(lambda author: author.write(path(name), b"theirs"))
    assert names(local) == [(b"theirs", 2, True)] * 2
    local.fs.files.write(handle, b"ours", 0)
    assert names(local) == [(b"oursirst", 2, True)] * 2
    local.close(handle)
    local.publish()
    assert kept(local) >= {b"oursirst", b"theirs"}


@pytest.mark.parametrize("name", ["/b", "/x"])
def test_what_was_written_before_it_is_published_under_all_names(local: Local, handle: int, name: str) -> None:
    local.fs.files.write(handle, b"ours", 0)
    local.replica.commit(lambda author: author.write(path(name), b"theirs"))
    local.replica.commit(lambda author: author.write(path(name), b"theirs again"))
    local.close(handle)
    local.publish()
    assert kept(local) >= {b"oursirst", b"theirs again"}


def test_what_was_closed_before_it_survives_under_all_names(local: Local, handle: int) -> None:
    local.fs.files.write(handle, b"ours", 0)
    local.close(handle)
    local.replica.commit(lambda author: author.write(path("/b"), b"theirs"))
    local.replica.close()
    local.replica = Replica(local.replica.directory, [ROOT_KEY])
    again = Local(local.replica)
    assert names(again) == [(b"oursirst", 2, True)] * 2
    again.publish()
    assert kept(again) >= {b"oursirst", b"theirs"}


def test_another_file_in_its_place_keeps_its_other_names(local: Local, handle: int) -> None:
    local.replica.commit(lambda author: author.write(path("/new"), b"another"))
    local.replica.commit(lambda author: author.make_link(path("/y"), path("/new")))
    local.replica.commit(lambda author: author.remove(path("/b"), directory=False))
    local.replica.commit(lambda author: author.rename(path("/new"), path("/b")))
    local.fs.files.write(handle, b"ours", 0)
    local.close(handle)
    local.publish()
    assert local.load("/x") == b"oursirst", "the name that the open file still has"
    assert local.load("/b") == local.load("/y") == b"another"
    assert local.replica.survey(path("/b")).conflicts() == []


def backed_up_by_link(local: Local) -> None:
    """A published file with a second name that never leaves this node."""
    local.save("/a", b"old")
    local.publish()
    local.fs.namespace.make_link(path("/a~"), path("/a"))


def backed_up_by_rename(local: Local) -> None:
    """One of two published names became such a name."""
    local.save("/b", b"old")
    local.fs.namespace.make_link(path("/a"), path("/b"))
    local.publish()
    local.fs.namespace.rename(path("/b"), path("/b~"))


def restarted(local: Local) -> Local:
    """A daemon that finds what another one left when it was killed."""
    local.replica.close()
    local.replica = Replica(local.replica.directory, [ROOT_KEY])
    return Local(local.replica)


@pytest.mark.parametrize("back_up", [backed_up_by_link, backed_up_by_rename])
@pytest.mark.parametrize("killed", ["never", "before", "after"])
def test_what_is_saved_under_one_name_is_published_though_the_other_one_never_is(
    local: Local, back_up: Callable[[Local], None], killed: str
) -> None:
    back_up(local)
    here = restarted(local) if killed == "before" else local
    here.save("/a", b"new")
    here.fs.metadata.set_mode(path("/a"), 0o600)
    here = restarted(local) if killed == "after" else here
    for _ in range(2):
        here.publish()
        assert here.load("/a") == b"new" and here.mode("/a") == 0o600
    attributes = here.replica.attributes(path("/a"))
    assert attributes.content is not None and attributes.mode == 0o600
    assert here.replica.open_write(attributes.content).whole() == b"new"


def test_what_is_saved_under_a_name_that_goes_is_published_under_one_that_stays(local: Local) -> None:
    local.save("/a", b"old")
    local.fs.namespace.make_link(path("/b"), path("/a"))
    local.publish()
    local.fs.namespace.make_link(path("/b~"), path("/b"))
    local.save("/b", b"new")
    local.fs.namespace.unlink(path("/b"))
    local.fs.namespace.unlink(path("/b~"))
    local.publish()
    assert local.load("/a") == b"new" == local.replica.read(path("/a"))


@pytest.mark.parametrize("gone", ["/a", "/b"])
@pytest.mark.parametrize("opened", [False, True])
def test_the_names_that_stay_show_when_one_was_removed(local: Local, gone: str, *, opened: bool) -> None:
    local.save("/a", b"text")
    local.fs.metadata.set_times(path("/a"), 1_500_000_000_123_456_789)
    local.fs.namespace.make_link(path("/b"), path("/a"))
    local.publish()
    before = [local.fs.metadata.stat(path(text)) for text in ("/a", "/b")]
    assert before[0] == before[1] and before[0].mtime == 1_500_000_000_123_456_789, "to the nanosecond under each name"
    stays = path({"/a": "/b", "/b": "/a"}[gone])
    handle = local.fs.files.open(path(gone), os.O_RDONLY) if opened else None
    local.fs.namespace.unlink(path(gone))
    local.publish()
    if handle is not None:
        local.fs.files.release(handle)
    after = local.fs.metadata.stat(stays)
    assert after.ctime > before[0].ctime and (after.mtime, after.number) == (before[0].mtime, before[0].number)
    # Another node's change shows its own time.
    local.replica.commit(lambda author: author.write(stays, b"theirs", mtime=1_600_000_000_987_654_321))
    assert local.fs.metadata.stat(stays).mtime == local.fs.metadata.stat(stays).ctime == 1_600_000_000_987_654_321


def written(local: Local, text: str) -> None:
    handle = local.fs.files.open(path(text), os.O_RDWR)
    local.fs.files.write(handle, b"new", 0)
    local.close(handle)


def emptied(local: Local, text: str) -> None:
    local.fs.files.truncate(path(text), 0)


def made_private(local: Local, text: str) -> None:
    local.fs.metadata.set_mode(path(text), 0o600)


@pytest.mark.parametrize("change", [written, emptied, made_private])
@pytest.mark.parametrize("where", ["/b", "/c"])
@pytest.mark.parametrize("over", [False, True])
@pytest.mark.parametrize("steps", [1, MAX_STEPS])
def test_a_name_that_was_renamed_away_stays_away_when_the_file_is_changed(
    local: Local,
    change: Callable[[Local, str], None],
    where: str,
    over: bool,
    steps: int,
) -> None:
    local.save("/a", b"old")
    local.fs.namespace.make_link(path("/b"), path("/a"))
    if over:
        local.save("/c", b"another")
    local.publish(most=steps)
    local.fs.namespace.rename(path("/a"), path("/c"))
    change(local, where)
    for _ in range(2):
        assert set(local.listing("/")) == {b".cluster", b"b", b"c"}
        assert [local.fs.metadata.stat(path(text)).links for text in ("/b", "/c")] == [2, 2]
        local.publish(most=steps)
    assert local.load("/b") == local.load("/c")


@pytest.mark.parametrize("inside", ["/d/a/b/f", "/x"])
@pytest.mark.parametrize("change", [written, emptied, made_private])
@pytest.mark.parametrize("steps", [1, 3, MAX_STEPS])
def test_a_tree_that_was_removed_stays_away_when_one_of_its_files_goes_on_elsewhere(
    local: Local, inside: str, change: Callable[[Local, str], None], steps: int
) -> None:
    for text in ("/d", "/d/a", "/d/a/b"):
        local.fs.namespace.make_directory(path(text), 0o755)
    local.save(inside, b"old")
    local.fs.namespace.make_link(*map(path, ("/x", inside) if inside != "/x" else ("/d/a/b/f", "/x")))
    local.publish(most=steps)
    local.fs.namespace.rename(path("/d/a/b"), path("/d/c"))
    change(local, "/d/c/f")
    local.fs.namespace.unlink(path("/d/c/f"))
    for text in ("/d/c", "/d/a", "/d"):
        local.fs.namespace.remove_directory(path(text))
    for _ in range(2):
        assert set(local.listing("/")) == {b".cluster", b"x"}
        assert local.fs.metadata.stat(path("/x")).links == 1
        local.publish(most=steps)


def test_a_file_that_no_key_of_the_node_may_write_gets_no_second_name(tmp_path: pathlib.Path) -> None:
    root = Local.bootstrap(tmp_path / "root")
    for name in ("/secret", "/web"):
        root.fs.namespace.make_directory(path(name), 0o755)
    root.save("/secret/admin", b"good")
    root.publish()
    root.replica.commit(lambda author: author.grant(path("/web"), b"alice", ALICE.public))
    root.replica.close()
    alice = Local(copy_replica(root.replica, tmp_path / "alice", (ALICE,)))
    with pytest.raises(NotPermitted):
        alice.fs.namespace.make_link(path("/web/x"), path("/secret/admin"))
    alice.save("/web/own", b"hers")
    alice.fs.namespace.make_link(path("/web/x"), path("/web/own"))
    alice.publish()
    assert alice.fs.metadata.stat(path("/web/x")).links == 2
    assert alice.fs.unpublished() == 0
    alice.replica.close()


def test_a_file_that_leaves_the_directory_of_another_key_is_saved_where_it_went(tmp_path: pathlib.Path) -> None:
    local = Local.bootstrap(tmp_path / "root")
    local.fs.namespace.make_directory(path("/web"), 0o755)
    local.replica.commit(lambda author: author.grant((), b"alice", ALICE.public))
    local.publish()
    local.replica.commit(lambda author: author.grant(path("/web"), b"bob", BOB.public))
    local.save("/web/f", b"at first")
    local.publish()
    handle = local.fs.files.open(path("/web/f"), os.O_RDWR)
    local.fs.namespace.rename(path("/web/f"), path("/f"))
    local.publish()
    local.fs.files.write(handle, b"AT", 0)
    local.close(handle)
    local.publish()
    assert local.load("/f") == b"AT first"
    assert local.fs.unpublished() == 0
    assert local.replica.check_view() == []


@pytest.mark.parametrize("is_moved", [False, True], ids=["removed", "moved"])
def test_a_link_where_its_file_had_begun_takes_no_mode_along(local: Local, is_moved: bool) -> None:
    local.save("/a", b"content")
    local.publish()
    local.fs.namespace.rename(path("/a"), path("/b"))
    local.fs.metadata.set_mode(path("/b"), 0o755)
    local.publish()
    local.fs.namespace.make_link(path("/a"), path("/b"))
    local.publish()
    if is_moved:
        local.fs.namespace.rename(path("/a"), path("/c"))
    else:
        local.fs.namespace.unlink(path("/a"))
    local.publish()
    names = {b"b", b"c"} if is_moved else {b"b"}
    assert {name for name in local.listing("/") if name != CLUSTER} == names
    assert {stat.S_IMODE(local.fs.metadata.stat((name,)).mode) for name in names} == {0o755}
