"""What a power cut may leave of files that were closed and neither synced nor published.

The journal's records may reach the disk before the files that they name.  What is then in such a file was never closed
by anybody, so nobody shall see it, and it must not be signed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from basefs.fs.staging import spool
from basefs.fs.staging.journal import JOURNAL_FILE
from basefs.fs.staging.records import Frame, StagedInode, decode, encode
from basefs.fs.staging.spool import MEMORY_BYTES
from basefs.fs.staging.wal import WriteAheadLog
from basefs.fs.staging.workingset import DIRECTORY

from basefs.replica.replica import Replica
from tests.fs.local import Local
from tests.support.helpers import ROOT_KEY, noise, path

LARGE = 3 * MEMORY_BYTES
OLD, NEW = noise(1, LARGE), noise(2, LARGE)


def zero(file: Path) -> None:
    """The size was on the disk, the bytes were not."""
    size = file.stat().st_size
    os.truncate(file, 0)
    os.truncate(file, size)


def swap(file: Path) -> None:
    """One page was not."""
    with file.open("r+b") as opened:
        opened.seek(4096)
        opened.write(bytes(4096))


TEARS: list[Callable[[Path], object]] = [zero, swap, Path.unlink, lambda file: os.truncate(file, LARGE // 2)]


def after_a_cut(local: Local, tear: Callable[[Path], object], target: Path) -> Local:
    """What a daemon finds that is started after the power is back: every spool file of these is torn."""
    shutil.copytree(local.replica.directory, target)
    spools = sorted((target / DIRECTORY).glob("*.spool"))
    assert spools
    for file in spools:
        tear(file)
    return Local(Replica(target, [ROOT_KEY]))


def torn_files(directory: Path) -> list[Path]:
    """Where what is left of the files is kept for people."""
    return [directory / DIRECTORY / f"{number}.torn" for number in range(3, 6)]


@pytest.mark.parametrize("tear", TEARS)
def test_what_is_not_whole_is_as_it_was_before(
    local: Local, scratch: Path, tear: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    local.save("/old", OLD)
    local.save("/replaced", OLD)
    local.publish()
    local.save("/small", b"small")
    local.save("/old", NEW)
    local.save("/new", NEW)
    local.save("/.tmp.Ab12Cd", NEW)
    local.fs.namespace.rename(path("/.tmp.Ab12Cd"), path("/replaced"))
    found = after_a_cut(local, tear, scratch / "found")
    entries = found.replica.totals()["entries"]
    assert found.listing("/").keys() == {*local.listing("/").keys()} - {b"new"}
    assert (found.load("/old"), found.load("/replaced"), found.load("/small")) == (OLD, OLD, b"small")
    assert all(name in caplog.text for name in ("/old", "/new", "/replaced"))
    assert all(torn.exists() != (tear is Path.unlink) for torn in torn_files(scratch / "found"))
    found.publish()
    assert found.fs.unpublished() == 0
    assert found.replica.totals()["entries"] == entries + 1
    assert found.replica.read(path("/old")) == OLD
    found.fs.close()
    found.replica.close()


@pytest.mark.parametrize("checked", [0, spool._CHECKED_BYTES])
def test_what_is_whole_is_published(local: Local, scratch: Path, checked: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However it was written, and also where it is not read again."""
    monkeypatch.setattr(spool, "_CHECKED_BYTES", checked)
    handle = local.open_writer("/f")
    local.fs.files.write(handle, NEW[LARGE // 2 :], LARGE // 2)
    local.fs.files.write(handle, NEW[: LARGE // 2], 0)
    local.close(handle)
    found = after_a_cut(local, lambda file: None, scratch / "found")
    found.publish()
    assert found.replica.read(path("/f")) == NEW
    found.fs.close()
    found.replica.close()


def rewritten(local: Local, target: Path, change: Callable[[Frame], list[bytes]]) -> Local:
    """A new daemon that finds other frames of the same files."""
    shutil.copytree(local.replica.directory, target)
    journal = WriteAheadLog(target / DIRECTORY / JOURNAL_FILE)
    journal.reset([changed for raw in journal.load() for changed in change(decode(raw))])
    journal.close()
    return Local(Replica(target, [ROOT_KEY]))


def test_what_was_recorded_without_a_checksum_is_published(local: Local, scratch: Path) -> None:
    local.save("/f", NEW)

    def without(frame: Frame) -> list[bytes]:
        (record,) = frame.records
        assert isinstance(record, StagedInode) and isinstance(record.content, tuple)
        return [encode(replace(frame, records=(replace(record, content=(*record.content[:2], None)),)))]

    found = rewritten(local, scratch / "found", without)
    found.publish()
    assert found.replica.read(path("/f")) == NEW
    found.fs.close()
    found.replica.close()


@pytest.mark.logs("could not be read in full")
@pytest.mark.logs("cannot read the journal of unpublished changes")
def test_what_no_readable_record_names_is_kept(local: Local, scratch: Path) -> None:
    local.save("/f", NEW)
    found = rewritten(local, scratch / "found", lambda frame: [b"of a later version", encode(frame)])
    assert b"f" not in found.listing("/")
    kept = (scratch / "found" / DIRECTORY).glob("*.unreadable")
    assert NEW in {file.read_bytes() for file in kept}
    found.fs.close()
    found.replica.close()


class Disk:
    """What was synced of a filesystem's files, in `left`: names reach the disk at once, bytes when they are synced."""

    def __init__(self, local: Local, left: Path, patch: pytest.MonkeyPatch) -> None:
        self.left = left
        self._directory = local.replica.directory
        shutil.copytree(self._directory, left)
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, partial(self._sync, getattr(os, name)))

    def _sync(self, really: Callable[[int], None], descriptor: int) -> None:
        really(descriptor)
        synced = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if synced.is_file() and self._directory in synced.parents:
            # A new journal gets its name right after it was synced.
            name = synced.relative_to(self._directory).with_name(synced.name.removesuffix(".new"))
            shutil.copy(synced, self.left / name)

    def after_a_cut(self) -> Local:
        """What a daemon finds."""
        for file in (self.left / DIRECTORY).iterdir():
            if not (self._directory / DIRECTORY / file.name).exists():
                file.unlink()
        return Local(Replica(self.left, [ROOT_KEY]))

    def holds(self, text: str, content: bytes) -> None:
        """A file survives."""
        found = self.after_a_cut()
        assert found.load(text) == content
        found.publish()
        assert found.load(text) == content
        found.fs.close()
        found.replica.close()


@pytest.fixture
def disk(local: Local, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(local, scratch / "left", monkeypatch)


def sync(local: Local, text: str, content: bytes) -> None:
    """Save and fsync(2)."""
    handle = local.open_writer(text)
    local.fs.files.write(handle, content, 0)
    local.fs.files.sync(handle)
    local.close(handle)


@pytest.mark.parametrize("content", [b"small", NEW], ids=["small", "large"])
def test_what_is_published_while_it_is_synced_is_not_lost(
    local: Local, disk: Disk, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal must not forget it before the log has it for sure."""
    really = local.replica.sync_to_disk

    def interrupted() -> None:
        really()
        monkeypatch.setattr(local.replica, "sync_to_disk", really)
        local.publish()

    monkeypatch.setattr(local.replica, "sync_to_disk", interrupted)
    sync(local, "/f", content)
    disk.holds("/f", content)


def test_what_is_saved_again_without_a_sync_is_as_it_was_synced(local: Local, disk: Disk) -> None:
    sync(local, "/f", OLD)
    local.save("/f", NEW)
    disk.holds("/f", OLD)


@pytest.mark.parametrize("name", ["/f", "/f~"])
def test_what_is_replaced_without_a_sync_is_there_or_what_replaces_it(local: Local, disk: Disk, name: str) -> None:
    sync(local, name, OLD)
    local.save("/.f.Ab12Cd", NEW)
    local.fs.namespace.rename(path("/.f.Ab12Cd"), path(name))
    # The next one that asks, of another file.
    local.fs.files.sync(None)
    disk.holds(name, NEW)


def test_what_was_made_anew_is_on_the_disk_with_the_sync_of_another_file(local: Local, disk: Disk) -> None:
    local.save("/f", OLD)
    local.publish()
    local.fs.namespace.unlink(path("/f"))
    local.save("/f", NEW)
    local.fs.files.sync(None)
    disk.holds("/f", NEW)


@pytest.mark.logs("lost the last save of")
def test_what_was_removed_and_made_anew_without_a_sync_is_not_what_it_was_before_that(
    local: Local, scratch: Path
) -> None:
    local.save("/f", OLD)
    local.publish()
    local.fs.namespace.unlink(path("/f"))
    local.save("/f", NEW)
    found = after_a_cut(local, zero, scratch / "found")
    assert b"f" not in found.listing("/")
    found.publish()
    assert not found.fs.unpublished()
    assert b"f" not in found.listing("/")
    found.fs.close()
    found.replica.close()


def test_a_backup_of_what_was_published_survives(local: Local, disk: Disk) -> None:
    sync(local, "/f", OLD)
    local.publish()
    local.fs.namespace.rename(path("/f"), path("/f~"))
    local.publish()
    local.fs.files.sync(None)
    disk.holds("/f~", OLD)


@pytest.mark.logs("lost the last save of")
def test_what_is_not_whole_and_published_under_an_older_content_shows_the_newest(local: Local, scratch: Path) -> None:
    """Another node's change came after it was saved and before the power was cut."""
    local.save("/f", b"old")
    local.publish()
    handle = local.open_writer("/f")
    local.fs.files.write(handle, NEW, 0)
    local.fs.files.flush(handle)
    local.replica.commit(lambda author: author.write(path("/f"), b"of another node"))
    found = after_a_cut(local, zero, scratch / "found")
    assert found.load("/f") == b"of another node"
    found.publish()
    assert found.load("/f") == b"of another node"
    found.fs.close()
    found.replica.close()
    local.close(handle)


def test_a_backup_is_in_the_journal_before_what_replaces_it_is_in_the_log(local: Local, disk: Disk) -> None:
    """Otherwise it would be taken for what is published where it was."""
    local.save("/f", b"old")
    local.publish()
    local.fs.namespace.rename(path("/f"), path("/f~"))
    local.fs.files.sync(None)
    local.save("/f", b"new")
    local.publish()
    local.replica.sync_to_disk()
    disk.holds("/f~", b"old")
    disk.holds("/f", b"new")


def test_a_backup_that_became_a_file_of_its_own_before_another_one_took_its_place(local: Local, disk: Disk) -> None:
    local.save("/f", b"old")
    local.publish()
    local.fs.namespace.rename(path("/f"), path("/f~"))
    handle = local.open_writer("/f")
    local.fs.files.sync(None)
    # What is open is not published, what is left of the old one becomes a file of its own.
    local.save("/other", b"other")
    local.publish()
    local.fs.files.write(handle, b"new", 0)
    local.close(handle)
    local.publish()
    local.replica.sync_to_disk()
    disk.holds("/f~", b"old")
    disk.holds("/f", b"new")


def remove(local: Local) -> None:
    local.fs.namespace.unlink(path("/a/f"))
    local.fs.namespace.remove_directory(path("/a"))
    local.publish()


@pytest.mark.parametrize(
    "go", [remove, lambda local: local.fs.namespace.rename(path("/a"), path("/b"))], ids=["rm -r", "mv"]
)
def test_a_directory_that_is_gone_does_not_come_back_with_what_was_published_in_it(
    local: Local, disk: Disk, go: Callable[[Local], object]
) -> None:
    """As it would if the log had what happened, and the journal still that something in it is to be published."""
    local.fs.namespace.make_directory(path("/a"), 0o755)
    local.publish()
    sync(local, "/a/f", NEW)
    local.publish()
    go(local)
    local.replica.sync_to_disk()
    found = disk.after_a_cut()
    found.publish()
    assert b"a" not in found.listing("/")
    found.fs.close()
    found.replica.close()


def test_the_log_does_not_get_ahead_of_the_journal(local: Local, disk: Disk) -> None:
    """Or what was pending when that was synced last would replace what another rename has put there since."""
    sync(local, "/f", b"synced")
    local.publish()
    local.save("/g", b"pending")
    local.fs.keep_durable()
    local.publish()
    local.fs.namespace.rename(path("/f"), path("/g"))
    local.publish()
    really = local.replica.sync_to_disk

    def cut() -> None:
        really()
        shutil.copytree(disk.left, disk.left.with_name("cut"), dirs_exist_ok=True)

    local.replica.sync_to_disk = cut  # type: ignore[method-assign]
    local.fs.keep_durable()
    local.replica.sync_to_disk = really  # type: ignore[method-assign]
    again = Local(Replica(disk.left.with_name("cut"), [ROOT_KEY]))
    again.publish()
    assert again.load("/g") == b"synced"
    again.replica.close()


def test_what_was_done_behind_a_lost_transaction_is_lost_with_it(local: Local, disk: Disk) -> None:
    """The journal is on the disk and the log is not: what was done later may build on what the log has lost."""
    local.save("/f", b"old")
    local.publish()
    local.fs.files.sync(None)
    local.save("/f", b"new")
    local.publish()
    local.fs.namespace.rename(path("/f"), path("/f~"))
    local.save("/g", b"later")
    shutil.copytree(local.replica.directory / DIRECTORY, disk.left / DIRECTORY, dirs_exist_ok=True)
    found = disk.after_a_cut()
    assert found.listing("/").keys() == {b".cluster", b"f"} and found.load("/f") == b"new"
    found.publish()
    assert found.replica.read(path("/f")) == b"new"
    found.fs.close()
    found.replica.close()


def test_a_scratch_file_stays_where_it_was_synced_if_only_the_log_goes_on(local: Local, disk: Disk) -> None:
    local.fs.namespace.make_directory(path("/d"), 0o755)
    for name in ("/f~", "/d/f~"):
        local.save(name, b"scratch")
    local.fs.files.sync(None)
    local.fs.namespace.rename(path("/f~"), path("/g~"))
    local.fs.namespace.rename(path("/d"), path("/e"))
    local.save("/other", b"other")
    local.publish()
    local.replica.sync_to_disk()
    disk.holds("/f~", b"scratch")
    disk.holds("/e/f~", b"scratch")


def test_a_backup_that_was_not_synced_is_on_the_disk_before_the_log_has_what_replaces_it(
    local: Local, disk: Disk
) -> None:
    local.save("/f", b"old")
    local.publish()
    local.fs.files.sync(None)
    local.fs.namespace.rename(path("/f"), path("/f~"))
    local.save("/f", b"new")
    local.publish()
    local.replica.sync_to_disk()
    disk.holds("/f~", b"old")
    disk.holds("/f", b"new")


def test_a_file_that_another_one_replaces_is_not_taken_for_that_by_its_other_name(local: Local, disk: Disk) -> None:
    local.save("/f", b"old")
    local.publish()
    local.save("/f", b"pending")
    local.fs.files.sync(None)
    local.fs.namespace.rename(path("/f"), path("/g"))
    local.save("/f", b"new")
    local.publish()
    local.replica.sync_to_disk()
    disk.holds("/f", b"new")
    disk.holds("/g", b"pending")


def replace_by_what_is_open(local: Local, name: str) -> int:
    """A file that nobody has closed gets a name."""
    handle = local.fs.files.create(path("/.f.Ab12Cd"), 0o644)
    local.fs.files.write(handle, b"not closed", 0)
    local.fs.namespace.rename(path("/.f.Ab12Cd"), path(name))
    return handle


def make_anew(local: Local, name: str) -> int:
    """A file that nobody has closed takes the place of one that was open when it was removed."""
    other, hidden = local.fs.files.open(path(name), os.O_RDONLY), path("/.fuse_hidden0123456789012345")
    local.fs.namespace.rename(path(name), hidden)
    handle = local.fs.files.create(path(name), 0o644)
    local.fs.files.release(other)
    local.fs.namespace.unlink(hidden)
    return handle


@pytest.mark.parametrize(
    ("name", "replace"), [("/f", replace_by_what_is_open), ("/f~", replace_by_what_is_open), ("/f", make_anew)]
)
def test_what_nobody_has_closed_takes_no_spool_file_from_the_journal(
    local: Local, disk: Disk, name: str, replace: Callable[[Local, str], int]
) -> None:
    """Until it is closed, a crash gives the name back to the file before, and must lose nothing that came later."""
    local.save(name, b"old")
    local.publish()
    sync(local, name, OLD)
    handle = replace(local, name)
    sync(local, "/other", NEW)
    local.fs.files.sync(None)
    disk.holds("/other", NEW)
    disk.holds(name, OLD)
    local.fs.files.write(handle, b"closed", 0)
    local.close(handle)
    local.fs.files.sync(None)
    assert len(list((local.replica.directory / DIRECTORY).glob("*.spool"))) == 1


def test_what_replaced_a_file_and_was_removed_before_it_was_closed_brings_nothing_back(
    local: Local, scratch: Path
) -> None:
    sync(local, "/f", OLD)
    handle = replace_by_what_is_open(local, "/f")
    local.fs.namespace.unlink(path("/f"))
    found = after_a_cut(local, lambda file: None, scratch / "found")
    assert b"f" not in found.listing("/")
    found.fs.close()
    found.replica.close()
    local.fs.files.release(handle)
