"""A filesystem on a machine of the caller's: its clock and timers decide, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from basefs.fs.machine import Machine
from basefs.fs.owners import Owners
from basefs.fs.publish.publisher import RETRY_SECONDS
from basefs.fs.publish.timing import CLOSED_SECONDS

from basefs.fs.filesystem import Filesystem
from basefs.replica.bootstrap import bootstrap
from basefs.replica.replica import Replica
from tests.fs.local import Local
from tests.support.helpers import ROOT_KEY, path

QUIET = 0.05


class Virtual:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.timers: list[tuple[float, Callable[[], object]]] = []
        self.is_busy = False
        self.machine = Machine(
            lambda: self.now,
            lambda seconds, call: self.timers.append((self.now + seconds, call)),
            lambda: self.is_busy,
        )


@pytest.fixture
def virtual() -> Virtual:
    return Virtual()


@pytest.fixture
def local(scratch: Path, virtual: Virtual) -> Local:
    (scratch / "log").mkdir()
    local = Local(bootstrap(scratch / "log", [(b"root", ROOT_KEY)], []))
    local.fs.close()
    local.fs = Filesystem(local.replica, Owners(0, 0, keep=False), lambda: virtual.now, QUIET, machine=virtual.machine)
    return local


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_save_is_published_when_its_time_has_come(local: Local, virtual: Virtual, is_busy: bool) -> None:
    virtual.is_busy = is_busy
    woken: list[float] = []
    local.fs.publisher.attend(lambda: woken.append(virtual.now))
    assert local.fs.publisher.attempt() is None
    local.save("/f", b"x")
    assert woken == [1000.0] * len(woken) and woken
    due = local.fs.publisher.attempt()
    assert due == 1000.0 + (QUIET if is_busy else CLOSED_SECONDS)
    assert local.fs.unpublished() == 1
    virtual.now = due
    assert local.fs.publisher.attempt() == due
    assert local.fs.unpublished() == 0
    assert local.fs.publisher.attempt() is None


@pytest.mark.logs("cannot publish, retrying")
def test_what_has_failed_is_tried_again_later(local: Local, virtual: Virtual) -> None:
    local.fs.publisher.attend(lambda: None)
    database = local.replica._store.database
    local.save("/f", b"x")
    virtual.now += 1.0
    database.main.execute("PRAGMA query_only = 1")
    failed_at = virtual.now
    assert local.fs.publisher.attempt() == failed_at + RETRY_SECONDS
    database.main.execute("PRAGMA query_only = 0")
    virtual.now += RETRY_SECONDS / 2
    assert local.fs.publisher.attempt() == failed_at + RETRY_SECONDS
    virtual.now = failed_at + RETRY_SECONDS
    local.fs.publisher.attempt()
    assert local.fs.unpublished() == 0


def test_the_removal_of_an_open_file_is_durable_after_a_moment(local: Local, virtual: Virtual, scratch: Path) -> None:
    local.save("/f", b"x")
    local.publish()
    handle = local.open_writer("/f")
    local.fs.namespace.rename(path("/f"), path("/.fuse_hidden0000000000000001"))
    ((due, note),) = virtual.timers
    assert due > virtual.now
    note()
    local.fs.files.release(handle)
    local.fs.namespace.unlink(path("/.fuse_hidden0000000000000001"))
    local.kill()
    again = Local(Replica(scratch / "log", [ROOT_KEY]))
    assert b"f" not in again.listing("/")
    again.fs.close()
    again.replica.close()
