"""Filesystem without a mount: close-to-open, one save is one entry, and what stays on this node."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from basefs.fs.owners import Owners
from basefs.fs.staging.scratch import HIDDEN_PREFIX

from basefs.errors import (
    BaseFSError,
    Exists,
    InvalidName,
    IsADirectory,
    NameTooLong,
    NotADirectory,
    NotEmpty,
    NotFound,
    NotPermitted,
    PermissionDenied,
)
from basefs.log.entries import Action
from basefs.replica.replica import Replica
from tests.fs.local import CLUSTER, MOUNT_OWNER, Local
from tests.support.helpers import ALICE, ROOT_KEY, copy_replica, path

WRITE, MODE, DELETE, LINK, MKDIR = Action.WRITE, Action.MODE, Action.DELETE, Action.LINK, Action.MKDIR

SECOND = 1_000_000_000
HIDDEN = "/.fuse_hidden0000000700000001"


class TestCloseToOpen:
    def test_a_new_file_is_visible_here_before_it_is_closed_and_published_after_it_was(self, local: Local) -> None:
        handle = local.fs.files.create(path("/f"), 0o644)
        local.fs.files.write(handle, b"half", 0)
        assert local.listing("/") == {CLUSTER: stat.S_IFREG, b"f": stat.S_IFREG}
        assert local.load("/f") == b"half"
        local.publish()
        assert b"f" not in local.replica.names_in(())
        local.close(handle)
        local.publish()
        assert local.replica.read(path("/f")) == b"half"

    def test_a_close_is_visible_to_the_next_open(self, local: Local) -> None:
        for content in (b"one", b"two"):
            local.save("/f", content)
            assert local.load("/f") == content
            local.publish()
            assert local.load("/f") == content

    def test_fsync_of_a_known_file_publishes_it(self, local: Local) -> None:
        local.save("/f", b"known")
        local.publish()
        handle = local.open_writer("/f")
        local.fs.files.write(handle, b"synced", 0)
        asked: list[bool] = []
        local.fs.working.on_change(lambda urgent, closed: asked.append(urgent))
        local.fs.files.sync(handle)
        assert asked == [True], "it is published at once, by another thread: others may not wait for it"
        local.publish()
        assert local.replica.read(path("/f")) == b"synced"
        local.close(handle)

    def test_fsync_of_a_new_file_does_not_since_it_may_be_about_to_be_renamed(self, local: Local) -> None:
        local.save("/f", b"old")
        with local.costs(WRITE):
            handle = local.open_writer("/f.tmp")
            local.fs.files.write(handle, b"new", 0)
            local.fs.files.sync(handle)
            local.close(handle)
            local.fs.namespace.rename(path("/f.tmp"), path("/f"))
        assert local.load("/f") == b"new"

    def test_what_a_closed_duplicate_has_written_is_published(self, local: Local) -> None:
        handle = local.open_writer("/f")
        local.fs.files.write(handle, b"1", 0)
        local.fs.files.flush(handle)
        local.publish()
        assert local.replica.read(path("/f")) == b"1"
        local.fs.files.write(handle, b"2", 1)
        local.publish()
        assert local.replica.read(path("/f")) == b"1"
        local.fs.files.flush(handle)
        local.publish()
        assert local.replica.read(path("/f")) == b"12"
        local.fs.files.release(handle)

    def test_a_shell_that_closes_a_duplicate_before_anything_is_written_publishes_nothing(self, local: Local) -> None:
        local.save("/f", b"before")
        local.publish()
        with local.costs(WRITE):
            handle = local.open_writer("/f")
            local.fs.files.flush(handle)
            local.publish()
            assert local.replica.read(path("/f")) == b"before"
            local.fs.files.write(handle, b"after", 0)
            local.close(handle)

    def test_what_is_written_after_the_last_close_is_published_at_release(self, local: Local) -> None:
        handle = local.open_writer("/f")
        local.fs.files.flush(handle)
        local.fs.files.write(handle, b"mapped", 0)
        local.fs.files.release(handle)
        assert local.load("/f") == b"mapped"
        local.publish()
        assert local.replica.read(path("/f")) == b"mapped"

    def test_a_reader_sees_what_is_written_here(self, local: Local) -> None:
        local.save("/f", b"old and long")
        local.publish()
        reader = local.fs.files.open(path("/f"), os.O_RDONLY)
        local.save("/f", b"new")
        assert local.read_handle(reader) == local.load("/f") == b"new"
        local.close(reader)

    def test_a_reader_keeps_its_version_when_another_node_changes_the_file(self, local: Local) -> None:
        local.save("/f", b"old and long")
        local.publish()
        reader = local.fs.files.open(path("/f"), os.O_RDONLY)
        local.replica.commit(lambda author: author.write(path("/f"), b"new"))
        assert local.read_handle(reader) == b"old and long"
        assert local.load("/f") == b"new"
        assert local.fs.metadata.stat_inode(local.fs.files.inode_of(reader)).size == 12
        local.close(reader)

    def test_a_reader_keeps_its_version_when_the_file_is_unlinked(self, local: Local) -> None:
        local.save("/f", b"kept")
        reader = local.fs.files.open(path("/f"), os.O_RDONLY)
        local.fs.namespace.unlink(path("/f"))
        assert local.read_handle(reader) == b"kept"
        local.save("/f", b"another file")
        local.publish()
        assert local.read_handle(reader) == b"kept"
        local.close(reader)

    def test_two_writers_of_a_file_share_it(self, local: Local) -> None:
        local.save("/f", b"....")
        left, right = (local.fs.files.open(path("/f"), os.O_RDWR) for _ in range(2))
        local.fs.files.write(left, b"L", 0)
        local.fs.files.write(right, b"R", 3)
        assert local.read_handle(left) == local.read_handle(right) == b"L..R"
        local.close(left)
        local.close(right)
        local.publish()
        assert local.replica.read(path("/f")) == b"L..R"

    def test_an_idle_writer_does_not_hide_what_another_node_wrote(self, local: Local) -> None:
        local.save("/f", b"ours")
        local.publish()
        idle = local.fs.files.open(path("/f"), os.O_RDWR)
        local.replica.commit(lambda author: author.write(path("/f"), b"theirs, longer"))
        assert local.load("/f") == b"theirs, longer"
        assert local.fs.metadata.stat(path("/f")).size == 14
        local.close(idle)
        local.publish()
        assert local.load("/f") == b"theirs, longer"

    def test_what_came_while_it_was_writing_is_in_conflict_with_that(self, local: Local) -> None:
        local.save("/f", b"0123")
        local.publish()
        writer = local.fs.files.open(path("/f"), os.O_RDWR)
        local.replica.commit(lambda author: author.write(path("/f"), b"theirs"))
        local.fs.files.write(writer, b"x", 0)
        local.close(writer)
        assert local.load("/f") == b"x123"
        local.publish()
        survey = local.replica.survey(path("/f"))
        (conflict,) = survey.conflicts()
        assert {local.replica.read(path("/f")), local.replica.content_at(conflict.lost.hash)} == {b"x123", b"theirs"}
        assert local.load("/f") == local.replica.read(path("/f"))
        assert len(survey.revisions()) == 3

    def test_all_names_of_a_file_show_what_is_being_written(self, local: Local) -> None:
        local.save("/f", b"one")
        local.fs.namespace.make_link(path("/g"), path("/f"))
        local.publish()
        idle = local.fs.files.open(path("/f"), os.O_RDWR)
        local.save("/g", b"two")
        assert local.load("/f") == local.load("/g") == local.read_handle(idle) == b"two"
        local.close(idle)
        local.publish()
        assert local.load("/f") == b"two"

    def test_a_file_is_forgotten_with_its_last_handle(self, local: Local) -> None:
        for text in ("/f", "/g"):
            local.save(text, b"x")
        local.load("/f")
        local.publish()
        local.load("/f")
        assert not local.fs.working.overlay
        assert local.fs.working.by_origin == {}
        assert local.fs.files._handles == {}


class TestCost:
    """One save is one entry."""

    def test_a_new_file_is_one_write(self, local: Local) -> None:
        with local.costs(WRITE):
            local.save("/f", b"content")

    def test_an_empty_file_is_one_write(self, local: Local) -> None:
        with local.costs(WRITE):
            local.close(local.fs.files.create(path("/f"), 0o644))

    def test_another_mode_is_one_entry_more(self, local: Local) -> None:
        with local.costs(WRITE, MODE):
            local.close(local.fs.files.create(path("/f"), 0o640))
        assert local.mode("/f") == 0o640

    def test_what_happens_before_the_close_is_part_of_the_save(self, local: Local) -> None:
        """As `cp -p` does: write, chown to oneself, chmod, utimens, close."""
        with local.costs(WRITE, MODE):
            handle = local.fs.files.create(path("/f"), 0o600)
            for offset in range(3):
                local.fs.files.write(handle, b"x", offset)
            local.fs.metadata.set_owner(path("/f"), *MOUNT_OWNER)
            local.fs.metadata.set_mode(path("/f"), 0o755)
            local.fs.metadata.set_times(path("/f"), 1_234_500_000_000)
            local.close(handle)
        found = local.fs.metadata.stat(path("/f"))
        assert (found.mode & 0o7777, found.mtime, found.size) == (0o755, 1_234_500_000_000, 3)

    def test_a_rewrite_is_one_write(self, local: Local) -> None:
        local.save("/f", b"one")
        with local.costs(WRITE):
            local.save("/f", b"two")

    def test_an_unchanged_rewrite_costs_nothing(self, local: Local) -> None:
        local.save("/f", b"same")
        with local.costs():
            local.save("/f", b"same")
        assert local.load("/f") == b"same"

    def test_truncating_an_open_file_waits_for_its_close(self, local: Local) -> None:
        local.save("/f", b"before")
        handle = local.fs.files.open(path("/f"), os.O_RDWR)
        with local.costs():
            local.fs.files.truncate(path("/f"), 0, handle)
        local.fs.files.write(handle, b"after", 0)
        with local.costs(WRITE):
            local.close(handle)

    def test_opening_and_closing_costs_nothing(self, local: Local) -> None:
        local.save("/f", b"content")
        with local.costs():
            local.close(local.fs.files.open(path("/f"), os.O_RDWR))
            local.close(local.fs.files.open(path("/f"), os.O_RDONLY))

    def test_truncating_an_empty_file_costs_nothing(self, local: Local) -> None:
        local.save("/f", b"")
        with local.costs():
            local.save("/f", b"")

    def test_a_default_directory_is_one_entry(self, local: Local) -> None:
        with local.costs(MKDIR):
            local.fs.namespace.make_directory(path("/d"), 0o755)
        with local.costs(MKDIR, MODE):
            local.fs.namespace.make_directory(path("/e"), 0o700)

    def test_the_same_mode_costs_nothing(self, local: Local) -> None:
        local.save("/f", b"")
        with local.costs():
            local.fs.metadata.set_mode(path("/f"), 0o644)
        with local.costs(MODE):
            local.fs.metadata.set_mode(path("/f"), 0o600)

    def test_replacing_by_rename_is_a_write_of_the_target(self, local: Local) -> None:
        local.save("/f", b"one")
        local.save("/f.tmp", b"two")
        with local.costs(WRITE, DELETE):
            local.fs.namespace.rename(path("/f.tmp"), path("/f"))
        assert local.load("/f") == b"two"
        assert b"f.tmp" not in local.listing("/")


class TestUnlink:
    def test_an_unpublished_file_leaves_nothing(self, local: Local) -> None:
        with local.costs():
            handle = local.fs.files.create(path("/f"), 0o600)
            local.fs.files.write(handle, b"draft", 0)
            local.fs.namespace.unlink(path("/f"))
            assert b"f" not in local.listing("/")
            assert local.read_handle(handle) == b"draft"
            local.close(handle)
        assert b"f" not in local.listing("/")

    def test_a_published_file_is_one_delete(self, local: Local) -> None:
        local.save("/f", b"x")
        with local.costs(DELETE):
            local.fs.namespace.unlink(path("/f"))
        with pytest.raises(NotFound):
            local.fs.metadata.stat(path("/f"))

    def test_closing_an_unlinked_file_does_not_bring_it_back(self, local: Local) -> None:
        local.save("/f", b"x")
        local.publish()
        handle = local.fs.files.open(path("/f"), os.O_RDWR)
        local.fs.files.write(handle, b"changed", 0)
        with local.costs(DELETE):
            local.fs.namespace.unlink(path("/f"))
            local.close(handle)
        assert b"f" not in local.listing("/")

    def test_a_new_file_of_that_name_is_another_one(self, local: Local) -> None:
        local.save("/f", b"old")
        old = local.fs.files.open(path("/f"), os.O_RDWR)
        local.fs.namespace.unlink(path("/f"))
        local.save("/f", b"new")
        local.fs.files.write(old, b"written to the old one", 0)
        local.close(old)
        assert local.load("/f") == b"new"

    def test_another_name_keeps_the_file(self, local: Local) -> None:
        local.save("/f", b"x")
        local.fs.namespace.make_link(path("/g"), path("/f"))
        assert local.fs.metadata.stat(path("/f")).links == local.fs.metadata.stat(path("/g")).links == 2
        local.fs.namespace.unlink(path("/f"))
        assert local.load("/g") == b"x"
        assert local.fs.metadata.stat(path("/g")).links == 1

    def test_what_was_written_through_the_name_that_goes_is_not_lost(self, local: Local) -> None:
        local.save("/f", b"old")
        local.fs.namespace.make_link(path("/g"), path("/f"))
        local.publish()
        local.save("/g", b"new")
        local.fs.namespace.unlink(path("/g"))
        assert local.load("/f") == b"new"
        local.publish()
        assert local.replica.read(path("/f")) == b"new"
        assert local.fs.metadata.stat(path("/f")).links == 1


class TestHidden:
    """libfuse renames what is open and loses its name to `.fuse_hidden...`, and unlinks that after the last close."""

    def test_the_content_stays_with_who_has_it_open(self, local: Local) -> None:
        local.save("/f", b"kept")
        handle = local.fs.files.open(path("/f"), os.O_RDONLY)
        with local.costs(DELETE):
            local.fs.namespace.rename(path("/f"), path(HIDDEN))
        assert set(local.listing("/")) == {CLUSTER}
        assert local.read_handle(handle) == b"kept"
        with local.costs():
            local.close(handle)
            local.fs.namespace.unlink(path(HIDDEN))

    def test_it_is_written_without_being_published(self, local: Local) -> None:
        handle = local.open_writer("/f")
        local.fs.files.write(handle, b"secret", 0)
        with local.costs():
            local.fs.namespace.rename(path("/f"), path(HIDDEN))
            local.fs.files.write(handle, b" more", 6)
            local.fs.files.sync(handle)
            local.close(handle)
            assert set(local.listing("/")) == {CLUSTER}
            local.fs.namespace.unlink(path(HIDDEN))
        with pytest.raises(NotFound):
            local.fs.metadata.stat(path(HIDDEN))

    def test_it_keeps_its_attributes_and_has_no_name(self, local: Local) -> None:
        local.save("/f", b"1234")
        local.fs.metadata.set_mode(path("/f"), 0o600)
        local.fs.metadata.set_times(path("/f"), 1000 * SECOND)
        handle = local.fs.files.open(path("/f"), os.O_RDWR)
        local.fs.namespace.rename(path("/f"), path(HIDDEN))
        found = local.fs.metadata.stat(path(HIDDEN))
        assert (found.mode, found.size, found.mtime, found.links) == (stat.S_IFREG | 0o600, 4, 1000 * SECOND, 0)
        with local.costs():
            local.fs.metadata.set_mode(path(HIDDEN), 0o640)
            local.fs.files.truncate(path(HIDDEN), 2, handle)
        assert local.mode(HIDDEN) == 0o640
        assert local.fs.metadata.stat(path(HIDDEN)).size == 2
        local.close(handle)
        local.fs.namespace.unlink(path(HIDDEN))

    def test_its_directory_can_be_removed(self, local: Local) -> None:
        local.fs.namespace.make_directory(path("/d"), 0o755)
        local.save("/d/f", b"x")
        handle = local.fs.files.open(path("/d/f"), os.O_RDONLY)
        local.fs.namespace.rename(path("/d/f"), path("/d" + HIDDEN))
        local.fs.namespace.remove_directory(path("/d"))
        assert local.read_handle(handle) == b"x"
        local.close(handle)

    def test_nobody_else_can_use_such_names(self, local: Local) -> None:
        local.save("/f", b"x")
        with local.costs():
            for make in (
                lambda: local.fs.files.create(path(HIDDEN), 0o644),
                lambda: local.fs.namespace.make_directory(path(HIDDEN), 0o755),
                lambda: local.fs.namespace.make_symlink(path(HIDDEN), b"f"),
                lambda: local.fs.namespace.make_link(path(HIDDEN), path("/f")),
            ):
                with pytest.raises(NotPermitted):
                    make()
        assert not any(name.startswith(HIDDEN_PREFIX) for name in local.listing("/"))

    def test_it_needs_the_right_to_unlink(self, scratch: Path, local: Local) -> None:
        local.save("/f", b"x")
        local.publish()
        stranger = Local(copy_replica(local.replica, scratch / "stranger", [ALICE]))
        handle = stranger.fs.files.open(path("/f"), os.O_RDONLY)
        with pytest.raises(PermissionDenied):
            stranger.fs.namespace.rename(path("/f"), path(HIDDEN))
        assert stranger.load("/f") == b"x"
        stranger.close(handle)
        stranger.replica.close()


class TestRename:
    def test_an_open_file_is_published_under_its_new_name(self, local: Local) -> None:
        handle = local.open_writer("/old")
        local.fs.files.write(handle, b"before", 0)
        local.fs.namespace.rename(path("/old"), path("/new"))
        local.fs.files.write(handle, b" after", 6)
        local.close(handle)
        assert set(local.listing("/")) == {CLUSTER, b"new"}
        assert local.load("/new") == b"before after"

    def test_an_open_file_below_a_renamed_directory_goes_along(self, local: Local) -> None:
        local.fs.namespace.make_directory(path("/d"), 0o755)
        local.fs.namespace.make_directory(path("/d/e"), 0o755)
        handle = local.open_writer("/d/e/f")
        local.fs.files.write(handle, b"before", 0)
        local.fs.namespace.rename(path("/d"), path("/moved"))
        local.fs.files.write(handle, b" after", 6)
        local.close(handle)
        assert local.load("/moved/e/f") == b"before after"
        assert set(local.listing("/")) == {CLUSTER, b"moved"}

    def test_over_an_open_file_its_writer_writes_for_nobody(self, local: Local) -> None:
        local.save("/target", b"old")
        writer = local.fs.files.open(path("/target"), os.O_RDWR)
        local.fs.files.write(writer, b"unsaved", 0)
        local.save("/source", b"new")
        local.fs.namespace.rename(path("/source"), path("/target"))
        assert local.load("/target") == b"new"
        assert local.read_handle(writer) == b"unsaved"
        local.close(writer)
        assert local.load("/target") == b"new"

    def test_over_a_file_that_is_not_published_yet(self, local: Local) -> None:
        writer = local.open_writer("/target")
        local.fs.files.write(writer, b"draft", 0)
        local.save("/source", b"new")
        local.fs.namespace.rename(path("/source"), path("/target"))
        local.close(writer)
        assert local.load("/target") == b"new"
        assert set(local.listing("/")) == {CLUSTER, b"target"}

    def test_a_reader_of_the_replaced_file_keeps_it(self, local: Local) -> None:
        local.save("/target", b"old")
        reader = local.fs.files.open(path("/target"), os.O_RDONLY)
        local.save("/source", b"new")
        local.fs.namespace.rename(path("/source"), path("/target"))
        assert local.read_handle(reader) == b"old"
        local.close(reader)

    def test_to_itself_changes_nothing(self, local: Local) -> None:
        local.save("/f", b"x")
        handle = local.fs.files.open(path("/f"), os.O_RDWR)
        with local.costs():
            local.fs.namespace.rename(path("/f"), path("/f"))
        local.fs.files.write(handle, b"y", 0)
        local.close(handle)
        assert local.load("/f") == b"y"

    def test_between_two_names_of_a_file_changes_nothing(self, local: Local) -> None:
        local.save("/f", b"x")
        local.fs.namespace.make_link(path("/g"), path("/f"))
        handle = local.fs.files.open(path("/g"), os.O_RDWR)
        local.fs.files.write(handle, b"unsaved", 0)
        with local.costs():
            local.fs.namespace.rename(path("/f"), path("/g"))
        local.close(handle)
        assert local.load("/f") == local.load("/g") == b"unsaved"

    def test_noreplace(self, local: Local) -> None:
        local.save("/a", b"a")
        local.save("/b", b"b")
        with pytest.raises(Exists):
            local.fs.namespace.rename(path("/a"), path("/b"), replace=False)
        draft = local.open_writer("/c")
        with pytest.raises(Exists):
            local.fs.namespace.rename(path("/a"), path("/c"), replace=False)
        local.close(draft)
        local.fs.namespace.rename(path("/a"), path("/d"), replace=False)
        assert (local.load("/b"), local.load("/c"), local.load("/d")) == (b"b", b"", b"a")

    @pytest.mark.parametrize("published", [False, True])
    def test_exchange(self, local: Local, published: bool) -> None:
        local.save("/a", b"a")
        local.save("/b", b"b")
        if published:
            local.publish()
        local.fs.namespace.rename(path("/a"), path("/b"), exchange=True)
        for _ in range(2):
            assert (local.load("/a"), local.load("/b")) == (b"b", b"a")
            local.publish()

    def test_exchange_of_a_directory_and_a_file(self, local: Local) -> None:
        local.save("/a", b"a")
        local.fs.namespace.make_directory(path("/d"), 0o755)
        local.save("/d/f", b"inside")
        local.fs.namespace.rename(path("/a"), path("/d"), exchange=True)
        assert (local.load("/a/f"), local.load("/d")) == (b"inside", b"a")

    def test_the_mode_and_the_time_go_along(self, local: Local) -> None:
        local.save("/a", b"a")
        local.save("/b", b"b")
        local.fs.metadata.set_mode(path("/a"), 0o600)
        local.fs.metadata.set_times(path("/a"), 1000 * SECOND)
        local.fs.namespace.rename(path("/a"), path("/b"))
        found = local.fs.metadata.stat(path("/b"))
        assert (found.mode, found.mtime) == (stat.S_IFREG | 0o600, 1000 * SECOND)


class TestContent:
    def test_o_trunc_empties_the_file(self, local: Local) -> None:
        local.save("/f", b"something long")
        handle = local.fs.files.open(path("/f"), os.O_WRONLY | os.O_TRUNC)
        assert local.fs.metadata.stat(path("/f")).size == 0
        local.close(handle)
        assert local.load("/f") == b""

    def test_o_trunc_of_a_file_that_is_being_written(self, local: Local) -> None:
        first = local.open_writer("/f")
        local.fs.files.write(first, b"draft", 0)
        second = local.fs.files.open(path("/f"), os.O_WRONLY | os.O_TRUNC)
        local.fs.files.write(second, b"x", 0)
        local.close(first)
        local.close(second)
        assert local.load("/f") == b"x"

    def test_a_gap_is_filled_with_zeros(self, local: Local) -> None:
        handle = local.open_writer("/f")
        local.fs.files.write(handle, b"end", 5)
        local.fs.files.write(handle, b"S", 0)
        assert local.fs.metadata.stat(path("/f")).size == 8
        local.close(handle)
        assert local.load("/f") == b"S\0\0\0\0end"

    def test_reads_stop_at_the_end(self, local: Local) -> None:
        local.save("/f", b"0123456789")
        handle = local.fs.files.open(path("/f"), os.O_RDONLY)
        reads = [local.fs.files.read(handle, size, offset) for size, offset in ((4, 0), (4, 8), (4, 10), (4, 99))]
        assert reads == [b"0123", b"89", b"", b""]
        local.close(handle)

    @pytest.mark.parametrize("length", [0, 3, 6, 10])
    def test_truncate_without_a_handle_is_published_at_once(self, local: Local, length: int) -> None:
        local.save("/f", b"012345")
        with local.costs(*([] if length == 6 else [WRITE])):
            local.fs.files.truncate(path("/f"), length)
        assert local.load("/f") == b"012345"[:length].ljust(length, b"\0")
        assert local.fs.metadata.stat(path("/f")).size == length

    def test_truncate_with_a_handle(self, local: Local) -> None:
        handle = local.open_writer("/f")
        local.fs.files.write(handle, b"012345", 0)
        for length in (2, 4):
            local.fs.files.truncate(path("/f"), length, handle)
            assert local.fs.metadata.stat(path("/f")).size == length
        local.close(handle)
        assert local.load("/f") == b"01\0\0"

    def test_a_large_file_survives_reopening_the_log(self, local: Local) -> None:
        content = os.urandom(300_000)
        local.save("/f", content)
        local.fs.close()
        local.replica.close()
        local.replica = Replica(local.replica.directory, [ROOT_KEY])
        assert Local(local.replica).load("/f") == content


class TestAttributes:
    def test_a_chmod_between_two_saves_of_an_open_file_stays(self, local: Local) -> None:
        handle = local.fs.files.create(path("/f"), 0o600)
        local.fs.files.write(handle, b"1", 0)
        local.fs.files.sync(handle)
        local.fs.metadata.set_mode(path("/f"), 0o640)
        local.fs.files.write(handle, b"2", 1)
        local.close(handle)
        assert local.mode("/f") == 0o640
        assert local.load("/f") == b"12"

    def test_bits_above_0777_are_dropped(self, local: Local) -> None:
        local.close(local.fs.files.create(path("/f"), 0o4755))
        local.fs.namespace.make_directory(path("/d"), 0o1777)
        assert (local.mode("/f"), local.mode("/d")) == (0o755, 0o777)
        local.fs.metadata.set_mode(path("/f"), 0o6711)
        assert local.mode("/f") == 0o711

    def test_bits_that_the_log_has_and_the_mount_does_not_show_stay_until_chmod(self, local: Local) -> None:
        local.replica.commit(lambda author: author.write(path("/f"), b"x", mode=0o4755))
        assert local.mode("/f") == 0o755
        local.save("/f", b"y")
        local.publish()
        assert (local.mode("/f"), local.replica.attributes(path("/f")).mode) == (0o755, 0o4755)
        local.fs.metadata.set_mode(path("/f"), 0o700)
        local.publish()
        assert local.replica.attributes(path("/f")).mode == 0o700

    def test_a_write_after_utimens_makes_the_time_now(self, local: Local) -> None:
        handle = local.open_writer("/f")
        local.fs.metadata.set_times(path("/f"), 1000 * SECOND)
        local.fs.files.write(handle, b"x", 0)
        local.close(handle)
        assert local.fs.metadata.stat(path("/f")).mtime > 1_000_000_000 * SECOND

    @pytest.mark.parametrize(
        ("given", "kept"),
        [(-5, -5), (0, 0), (1_234_900_000_001, 1_234_900_000_001), (2**40 * SECOND, 2**63 - 1), (-(2**70), -(2**63))],
    )
    def test_times_are_kept_to_the_nanosecond_within_what_an_entry_holds(
        self, local: Local, given: int, kept: int
    ) -> None:
        local.save("/f", b"")
        local.fs.metadata.set_times(path("/f"), given)
        for _ in range(2):
            assert local.fs.metadata.stat(path("/f")).mtime == kept
            local.publish()
        assert local.replica.attributes(path("/f")).mtime == kept

    def test_an_access_time_stays_on_this_node(self, local: Local) -> None:
        local.save("/f", b"x")
        assert local.fs.metadata.stat(path("/f")).atime is None
        local.fs.metadata.set_access_time(path("/f"), 5)
        handle = local.fs.files.open(path("/f"), os.O_RDONLY)
        for _ in range(2):
            assert local.fs.metadata.stat(path("/f")).atime == 5
            assert local.fs.metadata.stat_inode(local.fs.files.inode_of(handle)).atime == 5
            with local.costs():
                local.fs.metadata.set_access_time(path("/f"), 5)
        local.fs.files.release(handle)
        local.fs.metadata.set_access_time(path("/f"), None)
        assert (local.fs.metadata.stat(path("/f")).atime or 0) > 1_000_000_000 * SECOND

    def test_a_directory_that_another_node_removes_while_its_mode_changes_is_empty(self, local: Local) -> None:
        local.fs.namespace.make_directory(path("/d"), 0o755)
        local.publish()
        local.fs.metadata.set_mode(path("/d"), 0o700)
        local.replica.commit(lambda author: author.remove(path("/d"), directory=True))
        assert local.fs.metadata.list(path("/d")) == []
        local.publish()
        assert not local.fs.working.exists(path("/d"))

    def test_a_directory_that_moves_keeps_its_number_and_changes_its_ctime(self, local: Local) -> None:
        for name in ("/d", "/e"):
            local.fs.namespace.make_directory(path(name), 0o755)
        local.save("/d/f", b"x")
        local.publish()
        before = local.fs.metadata.stat(path("/d"))
        local.fs.namespace.rename(path("/d"), path("/new"))
        after = local.fs.metadata.stat(path("/new"))
        assert (after.number, after.mtime) == (before.number, before.mtime)
        assert after.ctime > before.ctime
        local.fs.namespace.rename(path("/new"), path("/e"), exchange=True)
        assert local.fs.metadata.stat(path("/e")).number == before.number

    def test_a_file_that_loses_a_name_to_another_one_has_changed(self, local: Local) -> None:
        local.save("/f", b"x")
        local.fs.namespace.make_link(path("/link"), path("/f"))
        local.save("/new", b"y")
        local.publish()
        before = local.fs.metadata.stat(path("/f")).ctime
        local.fs.namespace.rename(path("/new"), path("/link"))
        assert local.fs.metadata.stat(path("/f")).links == 1
        assert local.fs.metadata.stat(path("/f")).ctime > before

    def test_times_of_none_are_now(self, local: Local) -> None:
        local.save("/f", b"")
        local.fs.metadata.set_times(path("/f"), 1000 * SECOND)
        local.fs.metadata.set_times(path("/f"), None)
        assert local.fs.metadata.stat(path("/f")).mtime > 1_000_000_000 * SECOND

    def test_chown_to_the_owner_of_the_mount_is_accepted_and_anything_else_is_not(self, local: Local) -> None:
        local.save("/f", b"")
        with local.costs():
            local.fs.metadata.set_owner(path("/f"), *MOUNT_OWNER)
            local.fs.metadata.set_owner(path("/f"), -1, -1)
            for uid, gid in ((1, -1), (-1, 1), (1, 1)):
                with pytest.raises(NotPermitted):
                    local.fs.metadata.set_owner(path("/f"), uid, gid)
        found = local.fs.metadata.stat(path("/f"))
        assert (found.uid, found.gid) == MOUNT_OWNER

    def test_owners_are_kept_on_request(self, scratch: Path) -> None:
        keeping = Local.bootstrap(scratch / "owners", owners=Owners(*MOUNT_OWNER, keep=True))
        keeping.save("/f", b"")
        with keeping.costs(MODE):
            keeping.fs.metadata.set_owner(path("/f"), 1, -1)
        found = keeping.fs.metadata.stat(path("/f"))
        assert (found.uid, found.gid) == (1, MOUNT_OWNER[1])
        with keeping.costs(WRITE, MODE):
            handle = keeping.fs.files.create(path("/g"), 0o644)
            keeping.fs.metadata.set_owner(path("/g"), 1, 2)
            keeping.close(handle)
        found = keeping.fs.metadata.stat(path("/g"))
        assert (found.uid, found.gid) == (1, 2)
        keeping.replica.close()

    def test_symbolic_links(self, local: Local) -> None:
        local.fs.namespace.make_symlink(path("/l"), b"\xff\n/nowhere")
        assert local.fs.metadata.read_link(path("/l")) == b"\xff\n/nowhere"
        found = local.fs.metadata.stat(path("/l"))
        assert (found.mode, found.size) == (stat.S_IFLNK | 0o777, 10)
        assert local.listing("/")[b"l"] == stat.S_IFLNK

    def test_space_is_that_of_the_disk_with_the_log(self, local: Local) -> None:
        assert local.fs.metadata.space().f_blocks == os.statvfs(local.replica.directory).f_blocks


class TestErrors:
    @pytest.fixture
    def furnished(self, local: Local) -> Local:
        local.fs.namespace.make_directory(path("/d"), 0o755)
        local.fs.namespace.make_directory(path("/empty"), 0o755)
        local.save("/d/f", b"x")
        local.save("/f", b"x")
        return local

    @pytest.mark.parametrize("published", [False, True])
    def test_a_path_has_up_to_4096_bytes_and_256_names(self, local: Local, published: bool) -> None:
        top = (b"x" * 255,) * 15
        for depth in range(1, len(top) + 1):
            local.fs.namespace.make_directory(top[:depth], 0o755)
        deep = (b"d",) * 256
        for depth in range(1, len(deep) + 1):
            local.fs.namespace.make_directory(deep[:depth], 0o755)
        local.fs.namespace.make_directory(path("/new"), 0o755)
        local.save("/new/f", b"x")
        if published:
            local.publish()
        for where in ((*top, b"y" * 255, b"z"), (*deep, b"z")):
            with pytest.raises(NameTooLong):
                local.fs.files.create(where, 0o644)
            with pytest.raises(NameTooLong):
                local.fs.namespace.make_directory(where, 0o755)
            with pytest.raises(NameTooLong):
                local.fs.namespace.make_link(where, path("/new/f"))
            with pytest.raises(NameTooLong):
                local.fs.namespace.rename(path("/new/f"), where)
        # What is in it would have a longer path.
        with pytest.raises(NameTooLong):
            local.fs.namespace.rename(path("/new"), (*top, b"z" * 254))
        with pytest.raises(NameTooLong):
            local.fs.namespace.rename(path("/new"), (*deep[:255], b"z"))
        local.fs.namespace.rename(path("/new"), (*top, b"z" * 253))
        local.publish()
        assert local.replica.read((*top, b"z" * 253, b"f")) == b"x"

    @pytest.mark.parametrize(
        ("operation", "error"),
        [
            (lambda fs: fs.metadata.stat(path("/nothing")), NotFound),
            (lambda fs: fs.metadata.stat(path("/f/x")), NotADirectory),
            (lambda fs: fs.metadata.list(path("/f")), NotADirectory),
            (lambda fs: fs.metadata.list(path("/nothing")), NotFound),
            (lambda fs: fs.files.open(path("/nothing"), os.O_RDONLY), NotFound),
            (lambda fs: fs.files.open(path("/nothing"), os.O_WRONLY), NotFound),
            (lambda fs: fs.files.open(path("/d"), os.O_RDONLY), IsADirectory),
            (lambda fs: fs.files.open(path("/d"), os.O_WRONLY), IsADirectory),
            (lambda fs: fs.files.truncate(path("/d"), 0), IsADirectory),
            (lambda fs: fs.files.create(path("/nothing/f"), 0o644), NotFound),
            (lambda fs: fs.files.create(path("/f/x"), 0o644), NotADirectory),
            (lambda fs: fs.files.create((b"n" * 256,), 0o644), NameTooLong),
            (lambda fs: fs.namespace.make_directory(path("/f"), 0o755), Exists),
            (lambda fs: fs.namespace.make_directory((), 0o755), Exists),
            (lambda fs: fs.namespace.make_directory((b"n" * 256,), 0o755), NameTooLong),
            (lambda fs: fs.namespace.make_directory((b"..",), 0o755), InvalidName),
            (lambda fs: fs.namespace.make_symlink(path("/f"), b"x"), Exists),
            (lambda fs: fs.namespace.make_symlink(path("/l"), b"x" * 4096), NameTooLong),
            (lambda fs: fs.namespace.make_link(path("/f"), path("/d/f")), Exists),
            (lambda fs: fs.namespace.make_link(path("/g"), path("/d")), NotPermitted),
            (lambda fs: fs.namespace.make_link(path("/g"), path("/nothing")), NotFound),
            (lambda fs: fs.namespace.unlink(path("/nothing")), NotFound),
            (lambda fs: fs.namespace.unlink(path("/d")), IsADirectory),
            (lambda fs: fs.namespace.remove_directory(path("/d")), NotEmpty),
            (lambda fs: fs.namespace.remove_directory(path("/f")), NotADirectory),
            (lambda fs: fs.namespace.remove_directory(()), NotPermitted),
            (lambda fs: fs.namespace.rename(path("/nothing"), path("/x")), NotFound),
            (lambda fs: fs.namespace.rename(path("/f"), path("/nothing/x")), NotFound),
            (lambda fs: fs.namespace.rename(path("/f"), path("/d")), IsADirectory),
            (lambda fs: fs.namespace.rename(path("/d"), path("/f")), NotADirectory),
            (lambda fs: fs.namespace.rename(path("/empty"), path("/d")), NotEmpty),
            (lambda fs: fs.namespace.rename(path("/d"), path("/d/inside")), InvalidName),
            (lambda fs: fs.namespace.rename((), path("/x")), NotPermitted),
            (lambda fs: fs.metadata.set_mode(path("/nothing"), 0o600), NotFound),
            (lambda fs: fs.metadata.set_times(path("/nothing"), 1), NotFound),
            (lambda fs: fs.metadata.set_owner(path("/nothing"), *MOUNT_OWNER), NotFound),
        ],
    )
    def test_each_tells_what_is_wrong_and_changes_nothing(
        self, furnished: Local, operation: Callable[[object], object], error: type[BaseFSError]
    ) -> None:
        with furnished.costs(), pytest.raises(error):
            operation(furnished.fs)
        assert furnished.fs.files._handles == {}

    def test_a_directory_with_a_file_that_is_not_published_yet_is_not_empty(self, furnished: Local) -> None:
        handle = furnished.open_writer("/empty/f")
        with pytest.raises(NotEmpty):
            furnished.fs.namespace.remove_directory(path("/empty"))
        furnished.fs.namespace.unlink(path("/empty/f"))
        furnished.fs.namespace.remove_directory(path("/empty"))
        furnished.close(handle)

    def test_a_name_that_is_not_published_yet_is_taken(self, local: Local) -> None:
        handle = local.open_writer("/f")
        with pytest.raises(Exists):
            local.fs.namespace.make_directory(path("/f"), 0o755)
        with pytest.raises(Exists):
            local.fs.namespace.make_symlink(path("/f"), b"x")
        local.close(handle)

    def test_a_create_that_lost_a_race_against_another_node_opens_what_is_there(self, local: Local) -> None:
        local.save("/f", b"theirs")
        handle = local.fs.files.create(path("/f"), 0o644)
        assert local.read_handle(handle) == b"theirs"
        local.close(handle)
        assert local.load("/f") == b"theirs"


class TestWithoutPermission:
    """A node whose key is granted on /mine only."""

    @pytest.fixture
    def guest(self, scratch: Path, local: Local) -> Iterator[Local]:
        local.fs.namespace.make_directory(path("/mine"), 0o755)
        local.fs.namespace.make_directory(path("/empty"), 0o755)
        local.save("/mine/f", b"x")
        local.save("/f", b"x")
        local.publish()
        local.replica.commit(lambda author: author.grant(path("/mine"), b"alice", ALICE.public))
        guest = Local(copy_replica(local.replica, scratch / "guest", [ALICE]))
        yield guest
        assert guest.replica.check_view() == []
        guest.replica.close()

    def test_no_w_bits_are_shown_where_it_may_not_write(self, guest: Local) -> None:
        assert [guest.mode(text) for text in ("/", "/f", "/mine", "/mine/f")] == [0o555, 0o444, 0o755, 0o644]

    @pytest.mark.parametrize(
        "operation",
        [
            lambda fs: fs.files.open(path("/f"), os.O_WRONLY),
            lambda fs: fs.files.open(path("/f"), os.O_RDWR | os.O_TRUNC),
            lambda fs: fs.files.create(path("/new"), 0o644),
            lambda fs: fs.files.truncate(path("/f"), 0),
            lambda fs: fs.namespace.unlink(path("/f")),
            lambda fs: fs.namespace.make_directory(path("/new"), 0o755),
            lambda fs: fs.namespace.remove_directory(path("/empty")),
            lambda fs: fs.namespace.make_symlink(path("/new"), b"x"),
            lambda fs: fs.namespace.make_link(path("/new"), path("/f")),
            lambda fs: fs.namespace.rename(path("/f"), path("/new")),
            lambda fs: fs.namespace.rename(path("/f"), path("/mine/g")),
            lambda fs: fs.namespace.rename(path("/mine/f"), path("/new")),
            lambda fs: fs.metadata.set_mode(path("/f"), 0o600),
            lambda fs: fs.metadata.set_times(path("/f"), 1),
        ],
    )
    def test_it_is_refused_at_once(self, guest: Local, operation: Callable[[object], object]) -> None:
        with guest.costs(), pytest.raises(PermissionDenied):
            operation(guest.fs)

    def test_it_reads_everywhere_and_writes_below_its_own_place(self, guest: Local) -> None:
        assert guest.load("/f") == b"x"
        guest.save("/mine/f", b"changed")
        guest.save("/mine/new", b"new")
        guest.fs.namespace.rename(path("/mine/new"), path("/mine/newer"))
        assert set(guest.listing("/mine")) == {b"f", b"newer"}
        assert guest.load("/mine/f") == b"changed"


def test_a_sync_that_has_waited_for_the_end_finds_nothing_to_do(local: Local) -> None:
    local.save("/f", b"saved")
    local.fs.close()
    local.fs.keep_durable()
    assert local.replica.read(path("/f")) == b"saved"
