"""The kernel's pages of a file: from which version they may come, so that no reader sees two of them mixed."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from basefs.fs.files import Pages
from basefs.fs.kernel import Kernel
from basefs.fs.mirror import Mirror
from basefs.replica import Applied
from tests.fs.local import Local
from tests.helpers import path
from tests.mounts import DEADLINE, wait_until

FILE = path("/f")


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    made = Local.bootstrap(tmp_path / "log")
    made.save("/f", b"first")
    made.publish()
    yield made
    made.replica.close()


def opened(local: Local, *, settled: bool = True, flags: int = os.O_RDONLY) -> Pages:
    """What is said of the pages of a file that is opened and closed."""
    handle = local.fs.open(FILE, flags)
    try:
        return local.fs.pages(FILE, handle, settled=settled)
    finally:
        local.fs.release(handle)


def change(local: Local, content: bytes) -> None:
    """What another node does."""
    local.replica.commit(lambda author: author.write(FILE, content))


def test_pages_are_kept_as_long_as_the_version_is_the_same(local: Local) -> None:
    assert [opened(local), opened(local)] == [Pages.DROP, Pages.KEEP]
    change(local, b"second")
    assert [opened(local), opened(local)] == [Pages.DROP, Pages.KEEP]


def test_until_the_kernel_knows_the_new_version_readers_bypass_its_pages(local: Local) -> None:
    opened(local)
    change(local, b"second")
    assert opened(local, settled=False) is Pages.BYPASS
    # Mapped files cannot be shared without pages, and who writes makes a version of its own.
    assert opened(local, settled=False, flags=os.O_RDWR) is Pages.DROP
    assert [opened(local), opened(local)] == [Pages.KEEP, Pages.KEEP]


def test_who_reads_what_was_read_before_waits_for_nobody(local: Local) -> None:
    """Not for the replica's lock, which is held while a batch of another node's changes is applied."""
    # The kernel has its pages now.
    opened(local)
    done = threading.Event()

    def read() -> None:
        local.fs.stat(FILE)
        if opened(local) is Pages.KEEP:
            done.set()

    thread = threading.Thread(target=read, daemon=True)
    with local.replica._lock:
        thread.start()
        assert done.wait(DEADLINE)
    thread.join()


def test_pages_that_the_kernel_had_to_drop_are_read_again(local: Local) -> None:
    opened(local)
    handle = local.fs.open(FILE, os.O_RDONLY)
    change(local, b"second")
    assert local.read_handle(handle) == b"first", "the version that was opened, though nobody has read it yet"
    local.fs.release(handle)


class Forgetful:
    """What libfuse does for the kernel's caches: nothing until it may."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.paths: list[bytes] = []

        def fuse_invalidate_path(_: int, path: bytes) -> int:
            assert self.may.wait(DEADLINE)
            self.paths.append(path)
            return 0

        self.fuse_invalidate_path = fuse_invalidate_path


@pytest.fixture
def forgetful() -> Forgetful:
    return Forgetful()


@pytest.fixture
def mirror(local: Local, tmp_path: Path, forgetful: Forgetful) -> Iterator[Mirror]:
    """One that hears of changes, and performs none."""
    kernel = Kernel()
    kernel.attach(forgetful, 1, SimpleNamespace())
    made = Mirror(local.fs.working, kernel, tmp_path)
    local.replica.subscribe(made._on_applied)
    yield made
    forgetful.may.set()
    kernel.detach()


def test_a_change_is_settled_when_the_kernel_has_forgotten_what_it_knew(
    local: Local, mirror: Mirror, forgetful: Forgetful
) -> None:
    """Not only when those who watch have been told as well, which takes much longer: who reads would ask for all."""
    local.fs.stat(FILE)
    change(local, b"second")
    assert not mirror.is_settled(FILE), "the kernel may still know the size that it had"
    assert mirror.is_settled(path("/other"))
    forgetful.may.set()
    wait_until(lambda: mirror.is_settled(FILE), "the kernel's caches")
    assert forgetful.paths == [b"/f"]
    assert mirror.waiting == 1
    assert [opened(local), opened(local)] == [Pages.DROP, Pages.KEEP]


def test_a_change_of_what_somebody_has_open_is_not_settled_before_the_mirror_has_shown_it(
    local: Local, mirror: Mirror, forgetful: Forgetful
) -> None:
    forgetful.may.set()
    handle = local.fs.open(FILE, os.O_RDONLY)
    change(local, b"second")
    assert mirror._kernel.is_current(FILE)
    assert not mirror.is_settled(FILE), "to the kernel the version that is open and the new one are one file"
    local.fs.release(handle)
    change(local, b"third")
    wait_until(lambda: mirror._kernel.is_current(FILE), "the kernel's caches")
    assert not mirror.is_settled(FILE), "the changes that wait have become one"


def test_who_opens_what_was_looked_up_before_the_change_has_it_open(
    local: Local, mirror: Mirror, forgetful: Forgetful
) -> None:
    """The mirror may be told who has the file open after it was looked up for somebody, and before that one has it."""
    forgetful.may.set()
    handle = local.fs.open(FILE, os.O_RDONLY)
    inode = local.fs.inode_of(handle)
    local.fs.working.opened.discard(inode)
    change(local, b"second")
    local.fs.working.opened.add(inode)
    wait_until(lambda: mirror.is_settled(FILE), "the kernel's caches")
    assert not mirror.is_settled(FILE, inode)
    assert not mirror.is_settled(FILE), "the kernel may learn the size of the version that is open"
    local.fs.release(handle)
    assert not mirror.is_settled(FILE)


def test_a_name_that_came_is_not_settled_before_the_mirror_has_made_it(
    local: Local, mirror: Mirror, forgetful: Forgetful
) -> None:
    forgetful.may.set()
    new = path("/new")
    local.fs.list(())
    local.replica.commit(lambda author: author.write(new, b"first"))
    assert not mirror.is_settled(new)
    local.replica.commit(lambda author: author.write(new, b"second"))
    wait_until(lambda: mirror._kernel.is_current(new), "the kernel's caches")
    assert not mirror.is_settled(new)


def test_who_is_asked_for_no_content_looks_for_none_before_somebody_reads(local: Local) -> None:
    change(local, b"second")
    handle = local.fs.open(FILE, os.O_RDONLY, reads=False)
    assert not local.fs.inode_of(handle).is_loaded
    assert local.read_handle(handle) == b"second"
    local.fs.release(handle)


def test_no_change_is_settled_before_all_have_heard_of_it(local: Local, tmp_path: Path) -> None:
    mirror = Mirror(local.fs.working, Kernel(), tmp_path)
    assert mirror.is_settled(FILE)
    told = []

    def ask(applied: Applied) -> None:
        told.append(mirror.is_settled(FILE))

    local.replica.subscribe(ask)
    opened(local)
    change(local, b"second")
    assert told == [False], "not all subscribers have heard of it, the mirror may be one of them"
    assert mirror.is_settled(FILE)
