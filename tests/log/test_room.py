"""When a disk counts as full."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from basefs.log.room import MORE_BYTES, TRY_AGAIN, Room


class Disk:
    """A disk, and a clock."""

    def __init__(self) -> None:
        self.free = 1000
        self.now = 0.0
        self.room = Room(Path("/d"), lambda directory: self.free, lambda: self.now)


def test_it_is_short_until_more_is_free_and_both_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    disk = Disk()
    assert not disk.room.is_short()
    for free in (1000, 0, 500):
        disk.free = free
        disk.room.ran_out()
        assert disk.room.is_short()
    disk.free = 500 + MORE_BYTES - 1
    assert disk.room.is_short()
    disk.free += 1
    assert not disk.room.is_short() and not disk.room.is_short()
    assert [record.getMessage() for record in caplog.records] == [
        "disk full: something did not fit in /d, where 1000 bytes are free",
        f"room again: {500 + MORE_BYTES} bytes are free in /d",
    ]
    disk.room.ran_out()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "WARNING"], "once more"


@pytest.mark.logs("disk full")
def test_of_a_quota_only_what_fits_tells() -> None:
    disk = Disk()
    disk.room.ran_out(received=True)
    disk.room.took()
    assert disk.room.is_short() and disk.room.is_full(), "something smaller may fit"
    assert disk.room.takes_own(), "what applications write has met no limit"
    disk.now = TRY_AGAIN
    assert disk.room.is_short() and not disk.room.is_full(), "it may be tried"
    disk.room.took()
    assert not disk.room.is_short()
    disk.room.ran_out()
    disk.room.took(same=True)
    assert not disk.room.is_short()


@pytest.mark.logs("disk full")
def test_what_an_application_writes_may_be_larger_than_what_others_send() -> None:
    disk = Disk()
    disk.room.ran_out()
    assert disk.room.is_short() and not disk.room.is_full() and not disk.room.takes_own()
    disk.room.ran_out(received=True)
    disk.room.ran_out()
    assert disk.room.is_full()
    disk.free += MORE_BYTES
    assert not disk.room.is_full()
    disk.room.ran_out()
    assert not disk.room.is_full()
