"""The ledger: what a daemon finds of what another one had not published, where something went wrong meanwhile."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

import pytest
from basefs.fs.staging.journal import JOURNAL_FILE
from basefs.fs.staging.wal import WriteAheadLog
from basefs.fs.staging.workingset import DIRECTORY, WorkingSet

from basefs.errors import NoSpace, StoreError
from basefs.replica.replica import LOG_FILE, Applied, Replica
from tests.fs.local import Local
from tests.support.helpers import ROOT_KEY, noise, path


def crashed(local: Local, target: Path) -> Local:
    """A daemon that starts where another one was killed."""
    shutil.copytree(local.replica.directory, target)
    return Local(Replica(target, [ROOT_KEY]))


def test_what_another_node_removes_meanwhile_is_made_again_as_it_was(local: Local, scratch: Path) -> None:
    local.save("/f", b"old")
    local.fs.metadata.set_mode(path("/f"), 0o600)
    local.publish()
    local.save("/f", b"new")
    here = crashed(local, scratch / "here")
    # It was down when that arrived.
    here.replica.commit(lambda author: author.remove(path("/f"), directory=False))
    again = crashed(here, scratch / "again")
    assert (again.load("/f"), again.mode("/f")) == (b"new", 0o600)
    again.publish()
    assert (again.replica.read(path("/f")), again.replica.attributes(path("/f")).mode) == (b"new", 0o600)
    for each in (here, again):
        each.replica.close()


@pytest.mark.logs("disk full")
def test_a_content_that_cannot_be_read_at_the_start_is_not_taken_for_an_empty_one(
    local: Local, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.save("/f", b"text")
    local.publish()
    local.fs.metadata.set_mode(path("/f"), 0o600)
    here = crashed(local, scratch / "here")
    here.replica.commit(lambda author: author.remove(path("/f"), directory=False))

    def full(*_: object) -> NoReturn:
        raise NoSpace("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(WorkingSet, "open_content", full)
        patched.setattr(WorkingSet, "new_spool", full)
        again = crashed(here, scratch / "again")
        with pytest.raises(NoSpace):
            again.publish()
    again.publish()
    assert (again.replica.read(path("/f")), again.replica.attributes(path("/f")).mode) == (b"text", 0o600)
    for each in (here, again):
        each.replica.close()


def test_what_is_published_is_not_published_again_where_the_journal_takes_nothing(
    local: Local, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.save("/f", b"old")
    local.publish()
    local.save("/f", b"new")

    def broken(*_: object) -> NoReturn:
        raise StoreError("an error of the disk")

    with monkeypatch.context() as patched:
        patched.setattr(WriteAheadLog, "append", broken)
        patched.setattr(WriteAheadLog, "reset", broken)
        local.publish()
    assert local.fs.unpublished() == 0 and local.load("/f") == b"new"
    again = crashed(local, scratch / "again")
    assert again.fs.unpublished() == 0 and again.load("/f") == b"new"
    again.replica.close()


def test_a_file_without_its_content_keeps_no_other_from_being_published(
    local: Local, scratch: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log was restored from a backup, and is older than what was pending."""
    local.save("/f", b"before")
    local.fs.namespace.make_link(path("/also"), path("/f"))
    local.publish()
    shutil.copytree(local.replica.directory, scratch / "backup")
    applied: list[Applied] = []
    local.replica.subscribe(applied.append)
    local.save("/lost", b"text")
    local.publish()
    local.fs.keep_durable()
    local.fs.metadata.set_mode(path("/lost"), 0o600)
    local.fs.namespace.rename(path("/lost"), path("/f"))
    shutil.copytree(local.replica.directory / DIRECTORY, scratch / "backup" / DIRECTORY, dirs_exist_ok=True)
    restored = Local(Replica(scratch / "backup", [ROOT_KEY]))
    restored.save("/new", b"new")
    restored.publish()
    assert restored.replica.read(path("/new")) == b"new"
    assert restored.replica.read(path("/f")) == b"before", (
        "what is there is not taken away before its place can be filled"
    )
    assert restored.fs.unpublished() == 1 and "cannot publish /f, kept on this node only" in caplog.text
    # Somebody has it.
    for transaction in applied:
        restored.replica.apply(transaction.entries, transaction.blocks)
    restored.publish()
    assert restored.fs.unpublished() == 0 and restored.replica.read(path("/also")) == b"before"
    assert (restored.replica.read(path("/f")), restored.replica.attributes(path("/f")).mode) == (b"text", 0o600)
    restored.replica.close()


def recorded(local: Local, scratch: Path) -> list[bytes]:
    """What the journal of a filesystem has."""
    copy = Path(shutil.copy(local.replica.directory / DIRECTORY / JOURNAL_FILE, scratch / "journal"))
    with closing(WriteAheadLog(copy)) as journal:
        return journal.load()


def test_a_directory_is_renamed_in_one_step(local: Local, scratch: Path) -> None:
    local.fs.namespace.make_directory(path("/old"), 0o755)
    local.save("/old/f", b"text")
    local.save("/old/f~", b"scratch")
    shutil.copytree(local.replica.directory, scratch / "killed")
    before = recorded(local, scratch)
    local.fs.namespace.rename(path("/old"), path("/new"))
    assert len(recorded(local, scratch)) == len(before) + 1, "there is nothing between before and after"
    found = {"/old": Local(Replica(scratch / "killed", [ROOT_KEY])), "/new": crashed(local, scratch / "after")}
    for name, here in found.items():
        assert here.listing("/").keys() == {b".cluster", name[1:].encode()}
        assert (here.load(f"{name}/f"), here.load(f"{name}/f~")) == (b"text", b"scratch")
        here.publish()
        assert here.replica.read(path(f"{name}/f")) == b"text"
        here.replica.close()


def test_what_is_being_written_is_not_what_a_backup_was(local: Local, scratch: Path) -> None:
    local.save("/f", b"old")
    local.publish()
    local.fs.namespace.rename(path("/f"), path("/f~"))
    local.save("/f", b"new")
    handle = local.open_writer("/f~")
    local.fs.files.write(handle, b"a part", 0)
    local.fs.files.write(handle, b"another", 6)
    local.publish()
    found = crashed(local, scratch / "found")
    assert (found.load("/f"), found.load("/f~")) == (b"new", b"old")
    local.close(handle)
    again = crashed(local, scratch / "again")
    assert again.load("/f~") == b"a partanother"
    for each in (found, again):
        each.replica.close()


def test_what_is_published_and_synced_takes_no_room_beside_the_log(local: Local) -> None:
    for number in range(3):
        local.save("/f", noise(number, 20_000))
        local.publish()
        local.fs.keep_durable()
        assert list((local.replica.directory / DIRECTORY).glob("*.spool")) == []


@pytest.mark.parametrize("content", [b"small", noise(1, 20_000)], ids=["small", "large"])
@pytest.mark.parametrize("late", [False, True], ids=["before the commit", "after the commit"])
def test_what_is_recorded_again_while_it_is_published_is_published(
    local: Local, scratch: Path, content: bytes, late: bool
) -> None:
    """As by the last close of a file, which the kernel may tell late."""
    local.save("/f", content)
    again, commit = local.fs.working, local.replica.commit
    (inode,) = (inode for _, inode in again.overlay.items() if inode is not None)

    def interrupted(*arguments: Any, **options: Any) -> Applied:
        if not late:
            again.record(inode)
        applied = commit(*arguments, **options)
        if late:
            again.record(inode)
        return applied

    local.replica.commit = interrupted  # type: ignore[method-assign]
    local.publish()
    local.replica.commit = commit  # type: ignore[method-assign]
    local.save("/later~", b"later")
    # The spool file goes, and the journal stays as it is.
    again.sync()
    found = crashed(local, scratch / "found")
    assert (found.load("/f"), found.load("/later~")) == (content, b"later")
    found.publish()
    assert found.fs.unpublished() == 0 and found.replica.read(path("/f")) == content
    found.replica.close()


def test_two_files_change_places_in_one_step(local: Local, scratch: Path) -> None:
    local.save("/a", b"a")
    local.save("/b", b"b")
    before = recorded(local, scratch)
    local.fs.namespace.rename(path("/a"), path("/b"), exchange=True)
    assert len(recorded(local, scratch)) == len(before) + 1, "there is nothing between before and after"
    found = crashed(local, scratch / "after")
    assert (found.load("/a"), found.load("/b")) == (b"b", b"a")
    found.replica.close()


def test_a_rename_that_the_journal_cannot_take_has_not_happened(
    local: Local, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.save("/new", b"published")
    local.publish()
    local.fs.namespace.unlink(path("/new"))
    local.fs.namespace.make_directory(path("/old"), 0o755)
    local.save("/old/f", b"text")
    before = local.listing("/")

    def full(*_: object) -> NoReturn:
        raise NoSpace("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(WriteAheadLog, "append", full)
        with pytest.raises(NoSpace):
            local.fs.namespace.rename(path("/old"), path("/new"))
    assert local.listing("/") == before and local.load("/old/f") == b"text"
    local.publish()
    assert local.replica.read(path("/old/f")) == b"text"
    assert (b"new",) not in dict(local.replica.live_paths())


def test_a_backup_has_its_size_after_a_restart(local: Local, scratch: Path) -> None:
    """It holds what was published under the name that it had, and nothing of its own."""
    local.save("/f", b"long before")
    local.publish()
    local.fs.namespace.rename(path("/f"), path("/f~"))
    local.save("/f", b"new")
    local.publish()
    again = crashed(local, scratch / "again")
    assert again.fs.metadata.stat(path("/f~")).size == len(b"long before")
    assert again.load("/f~") == b"long before"
    again.save("/f~", b"short")
    assert again.load("/f~") == b"short"
    again.replica.close()


@pytest.mark.parametrize("exchange", [False, True])
def test_who_is_killed_while_a_directory_is_renamed_finds_what_was_not_published_in_it(
    surrounded: Local, scratch: Path, exchange: bool
) -> None:
    """Scratch files never are, so nothing would ever bring them back."""
    local = surrounded
    for directory in ("/a", "/b") if exchange else ("/a",):
        local.fs.namespace.make_directory(path(directory), 0o755)
        local.save(f"{directory}/file", directory.encode())
        local.publish()
        local.save(f"{directory}/file~", directory.encode())
    moments = [scratch / "before", scratch / "after"]

    def killed(commit: Callable[[], Applied]) -> Applied:
        shutil.copytree(local.replica.directory, moments[0])
        applied = commit()
        shutil.copytree(local.replica.directory, moments[1])
        return applied

    local.publish()
    local.surround(killed)
    local.fs.namespace.rename(path("/a"), path("/b"), exchange=exchange)
    local.surround(None)
    for moment, (a, b) in zip([*moments, local.replica.directory], [("a", "b"), ("b", "a"), ("b", "a")], strict=True):
        found = local if moment is local.replica.directory else Local(Replica(moment, [ROOT_KEY]))
        for name in ("file", "file~"):
            assert found.load(f"/{a}/{name}") == b"/a"
            assert not exchange or found.load(f"/{b}/{name}") == b"/b"
        found.publish()
        assert found.listing(f"/{a}").keys() == {b"file", b"file~"}
        if found is not local:
            found.replica.close()


def test_who_is_killed_while_a_directory_changes_places_with_a_file_that_is_open(
    surrounded: Local, scratch: Path
) -> None:
    local = surrounded
    local.fs.namespace.make_directory(path("/a"), 0o755)
    local.publish()
    handle = local.open_writer("/f")
    local.fs.files.write(handle, b"closed", 0)
    local.fs.files.flush(handle)
    local.fs.files.write(handle, b"not so", 0)
    local.save("/a/file~", b"scratch")

    def killed(commit: Callable[[], Applied]) -> Applied:
        applied = commit()
        shutil.copytree(local.replica.directory, scratch / "killed", dirs_exist_ok=True)
        return applied

    local.surround(killed)
    local.fs.namespace.rename(path("/a"), path("/f"), exchange=True)
    found = Local(Replica(scratch / "killed", [ROOT_KEY]))
    assert (found.load("/a"), found.load("/f/file~")) == (b"closed", b"scratch")
    found.replica.close()
    assert (local.load("/a"), local.load("/f/file~")) == (b"not so", b"scratch")
    local.close(handle)


def test_a_directory_that_cannot_be_renamed_keeps_what_was_not_published_in_it(
    local: Local, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.fs.namespace.make_directory(path("/a"), 0o755)
    local.publish()
    local.save("/a/file~", b"scratch")

    def full(*_: object, **more: object) -> NoReturn:
        raise NoSpace("no space left")

    with monkeypatch.context() as patched, pytest.raises(NoSpace):
        patched.setattr(local.replica, "commit", full)
        local.fs.namespace.rename(path("/a"), path("/b"))
    # The directory goes by other means; what was to be moved stays away from where it never was.
    local.save("/a/new~", b"more")
    for each in (local, crashed(local, scratch / "again")):
        assert each.listing("/a").keys() == {b"file~", b"new~"}
        assert b"b" not in each.listing("/")
        if each is not local:
            each.replica.close()


@pytest.mark.logs("is written down later")
def test_a_rename_that_cannot_be_written_down_has_happened(
    local: Local, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.fs.namespace.make_directory(path("/a"), 0o755)
    local.publish()
    local.save("/a/file~", b"scratch")

    def full(*_: object) -> NoReturn:
        raise NoSpace("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(WriteAheadLog, "append", full)
        local.fs.namespace.rename(path("/a"), path("/b"))
        patched.undo()
        again = crashed(local, scratch / "again")
        assert again.load("/b/file~") == b"scratch"
        again.replica.close()
        patched.setattr(WriteAheadLog, "append", full)
        with pytest.raises(NoSpace):
            local.save("/b/more~", b"more")
    assert local.load("/b/file~") == b"scratch"
    local.save("/b/more~", b"more")
    again = crashed(local, scratch / "later")
    assert again.listing("/b").keys() == {b"file~", b"more~"}
    again.replica.close()


def test_a_new_directory_that_the_log_got_before_the_journal_forgot_it_shows_all_that_is_in_it(
    local: Local, scratch: Path
) -> None:
    local.fs.namespace.make_directory(path("/d"), 0o755)
    here = scratch / "here"
    shutil.copytree(local.replica.directory, here)
    local.publish()
    local.save("/d/f", b"text")
    local.publish()
    # The power was cut: the journal is as it was when it was synced last, the log is newer.
    for name in (LOG_FILE, f"{LOG_FILE}-wal"):
        shutil.copy(local.replica.directory / name, here / name)
    found = Local(Replica(here, [ROOT_KEY]))
    assert found.load("/d/f") == b"text"
    found.publish()
    assert not found.fs.unpublished()
    found.replica.close()


def test_the_mode_of_a_directory_does_not_bring_it_back(local: Local, scratch: Path) -> None:
    for name in ("/a", "/b"):
        local.fs.namespace.make_directory(path(name), 0o755)
    local.publish()
    for name in ("/a", "/b"):
        local.fs.metadata.set_mode(path(name), 0o700)
        local.fs.metadata.set_times(path(name), 1_000_000_000 * 10**9)
    # Another node removes the one, and puts a link in the place of the other.
    for name in ("/a", "/b"):
        local.replica.commit(lambda author, name=name: author.remove(path(name), directory=True))  # type: ignore[misc]
    local.replica.commit(lambda author: author.make_symlink(path("/b"), b"elsewhere"))
    again = crashed(local, scratch / "again")
    for each in (local, again):
        each.publish()
        assert not each.fs.unpublished()
        assert b"a" not in each.listing("/")
        assert each.fs.metadata.read_link(path("/b")) == b"elsewhere"
    again.replica.close()


def test_what_was_renamed_while_it_was_published_is_whole_while_it_is_changed_further(
    local: Local, scratch: Path
) -> None:
    """The record that is on the disk may be the one from before it was published."""
    content = noise(1, 40_000)
    local.save("/b", content)

    def rename_meanwhile(_: Applied) -> None:
        if b"b" in local.listing("/"):
            local.fs.namespace.rename(path("/b"), path("/a"))

    local.replica.subscribe(rename_meanwhile)
    local.publish()
    handle = local.fs.files.open(path("/a"), os.O_WRONLY)
    local.fs.files.write(handle, b"more", len(content))
    again = crashed(local, scratch / "again")
    assert again.load("/a") == content and b"b" not in again.listing("/")
    again.replica.close()
    local.close(handle)
    assert local.load("/a") == content + b"more"


def test_a_file_that_is_made_anew_does_not_share_the_number_of_what_it_was(local: Local) -> None:
    local.fs.namespace.make_directory(path("/d"), 0o755)
    local.save("/f", b"old")
    local.publish()
    local.save("/f", b"new")
    number = local.fs.metadata.stat(path("/f")).number
    # Another node renames it meanwhile.
    local.replica.commit(lambda author: author.rename(path("/f"), path("/d/f")))
    local.publish()
    assert local.load("/f") == b"new"
    assert local.load("/d/f") == b"old"
    assert local.fs.metadata.stat(path("/f")).number == number != local.fs.metadata.stat(path("/d/f")).number
