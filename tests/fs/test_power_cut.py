"""What a power cut may leave of files that were closed and neither synced nor published.

The journal's records may reach the disk before the files that they name.  What is then in such a file was never closed
by anybody, so nobody shall see it, and it must not be signed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from basefs.fs import spool
from basefs.fs.journal import Journal, Record
from basefs.fs.ledger import JOURNAL_FILE
from basefs.fs.spool import MEMORY_BYTES
from basefs.fs.workingset import DIRECTORY
from basefs.replica import Replica
from tests.fs.local import Local
from tests.helpers import ROOT_KEY, noise, path

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
    return [directory / DIRECTORY / f"{number}.torn" for number in range(2, 5)]


@pytest.mark.parametrize("tear", TEARS)
def test_what_is_not_whole_is_as_it_was_before(
    local: Local, scratch: Path, tear: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    local.save("/old", OLD)
    local.save("/replaced", OLD)
    local.publish()
    local.save("/old", NEW)
    local.save("/new", NEW)
    local.save("/.tmp.Ab12Cd", NEW)
    local.fs.rename(path("/.tmp.Ab12Cd"), path("/replaced"))
    local.save("/small", b"small")
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
    local.fs.write(handle, NEW[LARGE // 2 :], LARGE // 2)
    local.fs.write(handle, NEW[: LARGE // 2], 0)
    local.close(handle)
    found = after_a_cut(local, lambda file: None, scratch / "found")
    found.publish()
    assert found.replica.read(path("/f")) == NEW
    found.fs.close()
    found.replica.close()


def rewritten(local: Local, target: Path, change: Callable[[Record], list[Record]]) -> Local:
    """A new daemon that finds other records of the same files."""
    shutil.copytree(local.replica.directory, target)
    journal = Journal(target / DIRECTORY / JOURNAL_FILE)
    journal.reset([changed for record in journal.load() for changed in change(record)])
    journal.close()
    return Local(Replica(target, [ROOT_KEY]))


def test_what_was_recorded_without_a_checksum_is_published(local: Local, scratch: Path) -> None:
    local.save("/f", NEW)
    found = rewritten(local, scratch / "found", lambda record: [(*record[:-1], record[-1][:2])])
    found.publish()
    assert found.replica.read(path("/f")) == NEW
    found.fs.close()
    found.replica.close()


def test_what_no_readable_record_names_is_kept(local: Local, scratch: Path) -> None:
    local.save("/f", NEW)
    found = rewritten(local, scratch / "found", lambda record: [("of a later version", ()), record])
    assert b"f" not in found.listing("/")
    kept = (scratch / "found" / DIRECTORY).glob("*.unreadable")
    assert NEW in {file.read_bytes() for file in kept}
    found.fs.close()
    found.replica.close()
