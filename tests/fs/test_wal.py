"""A write-ahead log: records that survive, whatever is cut off or left over behind them."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from basefs.fs.staging.wal import WriteAheadLog
from hypothesis import given
from hypothesis import strategies as st

from basefs import durable
from basefs.errors import NoSpace
from tests.support.mounts import temporary_directory
from tests.support.patience import DEADLINE

RECORDS = st.lists(st.binary(min_size=1, max_size=50), max_size=8)


def reopened(path: Path) -> list[bytes]:
    """What another process finds."""
    journal = WriteAheadLog(path)
    found = journal.load()
    journal.close()
    return found


@given(RECORDS, RECORDS, RECORDS)
def test_what_was_appended_since_the_last_reset_is_found(old: list[bytes], kept: list[bytes], new: list[bytes]) -> None:
    with temporary_directory() as scratch:
        journal = WriteAheadLog(scratch / "journal")
        for record in old:
            journal.append(record)
        journal.reset(kept)
        for record in new:
            journal.append(record)
        assert reopened(scratch / "journal") == [*kept, *new]
        journal.close()


@given(RECORDS.filter(bool), st.data())
def test_a_torn_tail_ends_it_and_is_written_over(records: list[bytes], data: st.DataObject) -> None:
    with temporary_directory() as scratch:
        path = scratch / "journal"
        journal = WriteAheadLog(path)
        for record in records[:-1]:
            journal.append(record)
        whole = journal._end
        journal.append(records[-1])
        cut = data.draw(st.integers(whole, journal._end - 1))
        journal.close()
        with path.open("r+b") as file:
            file.truncate(cut)
        again = WriteAheadLog(path)
        assert again.load() == records[:-1]
        again.append(b"more")
        again.close()
        assert reopened(path) == [*records[:-1], b"more"]


def test_an_empty_reset_gives_back_what_a_burst_has_allocated(scratch: Path) -> None:
    journal = WriteAheadLog(scratch / "journal")
    for _ in range(8):
        journal.append(bytes(1024 * 1024))
    assert (scratch / "journal").stat().st_size > 8 * 1024 * 1024
    journal.reset()
    assert (scratch / "journal").stat().st_size <= 1024 * 1024
    assert reopened(scratch / "journal") == []
    journal.close()


def test_on_a_full_disk_small_records_still_fit(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = WriteAheadLog(scratch / "journal")
    journal.append(b"first")

    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(NoSpace):
        for _ in range(100):
            journal.append(bytes(60_000))
    before = len(reopened(scratch / "journal"))
    for _ in range(100):
        journal.append(b"removed")
    assert len(reopened(scratch / "journal")) == before + 100
    journal.close()


def test_what_was_synced_after_it_was_replaced_survives_a_power_cut(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, found = scratch / "journal", scratch / "found after a cut"

    def sync(directory: Path) -> None:
        """What the names lead to is on the disk now."""
        durable.sync_directory(directory)
        found.unlink(missing_ok=True)
        found.hardlink_to(path)

    journal = WriteAheadLog(path)
    journal.append(b"published")
    journal.sync()
    sync(scratch)
    monkeypatch.setattr("basefs.fs.staging.wal.sync_directory", sync)
    journal.reset([b"kept"])
    assert reopened(found) == [b"published"]
    journal.append(b"new")
    journal.sync()
    assert reopened(found) == [b"kept", b"new"]
    journal.close()


def test_what_a_lost_header_made_void_does_not_come_back(scratch: Path) -> None:
    path = scratch / "journal"
    journal = WriteAheadLog(path)
    header = path.read_bytes()[:8].ljust(8, b"\0")
    journal.append(b"published")
    journal.reset()
    for name in (b"1", b"2"):
        journal.append(name)
    journal.close()
    with path.open("r+b") as file:
        # The power was cut, and of all that only the records were on the disk.
        file.write(header)
    journal = WriteAheadLog(path)
    assert journal.load() == []
    journal.append(b"3")
    journal.reset()
    journal.append(b"4")
    assert reopened(path) == [b"4"]
    journal.close()


def test_what_is_behind_a_record_that_is_not_whole_does_not_come_back(scratch: Path) -> None:
    path = scratch / "journal"
    journal = WriteAheadLog(path)
    for name in (b"1", b"2"):
        journal.append(name)
    journal.close()
    with path.open("r+b") as file:
        # A sector that was not on the disk when the power was cut.
        file.seek(8)
        file.write(bytes(8))
    journal = WriteAheadLog(path)
    assert journal.load() == []
    journal.reset()
    journal.append(b"3")
    assert reopened(path) == [b"3"]
    journal.close()


def test_a_sync_waits_for_another_one_that_has_taken_up_its_records(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def slow(descriptor: int) -> None:
        begun.set()
        assert may_end.wait(DEADLINE)

    monkeypatch.setattr("basefs.fs.staging.wal.os.fdatasync", slow)
    journal = WriteAheadLog(scratch / "journal")
    journal.append(b"1")
    first, second = threading.Thread(target=journal.sync), threading.Thread(target=journal.sync)
    first.start()
    assert begun.wait(DEADLINE)
    second.start()
    second.join(0.2)
    assert second.is_alive()
    may_end.set()
    for thread in (first, second):
        thread.join(DEADLINE)
        assert not thread.is_alive()
    journal.close()
