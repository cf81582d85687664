"""The kernel's pages of a file: from which version they may come, so that no reader sees two of them mixed."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from basefs.fs.files import Pages
from basefs.fs.fuse.kernel import Kernel
from basefs.fs.fuse.mirror import Mirror
from basefs.fs.fuse.operations import Operations

from basefs.replica.replica import Applied
from tests.fs.local import Local
from tests.support.helpers import path
from tests.support.mounts import wait_until
from tests.support.patience import DEADLINE

FILE = path("/f")
#: The id of the thread that asks.
CALLER = [1]


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    made = Local.bootstrap(tmp_path / "log")
    made.save("/f", b"first")
    made.publish()
    yield made
    made.replica.close()


def opened(local: Local, *, settled: bool = True, flags: int = os.O_RDONLY) -> Pages:
    """What is said of the pages of a file that is opened and closed."""
    handle = local.fs.files.open(FILE, flags)
    try:
        return local.fs.files.pages(FILE, handle, settled=settled)
    finally:
        local.fs.files.release(handle)


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
    # What was read before it is changed must not be a part of the file either.
    assert opened(local, settled=False, flags=os.O_RDWR) is Pages.BYPASS
    assert [opened(local), opened(local)] == [Pages.DROP, Pages.KEEP]


def test_who_finds_a_file_that_is_just_being_replaced_bypasses_its_pages(local: Local) -> None:
    """The kernel leads to it for a moment after libfuse has given it another name."""
    handle = local.fs.files.open(FILE, os.O_RDONLY)
    change(local, b"second")
    hidden = path("/.fuse_hidden0000000100000001")
    local.fs.files.keep_version(local.fs.files.inode_of(handle), hidden)
    late = local.fs.files.open(hidden, os.O_RDONLY)
    assert local.read_handle(late) == b"first"
    assert local.fs.files.pages(hidden, late, settled=True) is Pages.BYPASS
    local.fs.files.release(late)
    local.fs.files.release(handle)


def test_who_reads_what_was_read_before_waits_for_nobody(local: Local) -> None:
    """Not for the replica's lock, which is held while a batch of another node's changes is applied."""
    # The kernel has its pages now.
    opened(local)
    done = threading.Event()

    def read() -> None:
        local.fs.metadata.stat(FILE)
        if opened(local) is Pages.KEEP:
            done.set()

    thread = threading.Thread(target=read, daemon=True)

    def meanwhile(_: object) -> None:
        """The lock is held."""
        thread.start()
        assert done.wait(DEADLINE)

    local.replica.examine(FILE, meanwhile)
    thread.join()


def test_what_is_appended_goes_to_the_end_whatever_the_kernel_takes_for_it(local: Local) -> None:
    change(local, b"longer than it was\n")
    handle = local.fs.files.open(FILE, os.O_WRONLY | os.O_APPEND)
    local.fs.files.write(handle, b"line\n", 3, appends=True)
    local.close(handle)
    assert local.load(FILE) == b"longer than it was\nline\n"


def test_pages_that_the_kernel_had_to_drop_are_read_again(local: Local) -> None:
    opened(local)
    handle = local.fs.files.open(FILE, os.O_RDONLY)
    change(local, b"second")
    assert local.read_handle(handle) == b"first", "the version that was opened, though nobody has read it yet"
    local.fs.files.release(handle)


def test_who_is_asked_for_no_content_looks_for_none_before_somebody_reads(local: Local) -> None:
    change(local, b"second")
    handle = local.fs.files.open(FILE, os.O_RDONLY, reads=False)
    assert not local.fs.files.inode_of(handle).is_loaded
    assert local.read_handle(handle) == b"second"
    local.fs.files.release(handle)


def test_the_mirror_writes_nothing_whatever_it_asks_for(local: Local, tmp_path: Path) -> None:
    """So neither its opening nor its closing costs more than a request that does nothing."""
    mirror = Mirror(local.fs.working, Kernel(), tmp_path)
    operations = Operations(local.fs, lambda: None, caller=lambda: (0, 0, mirror.thread), mirror=mirror)
    handle = operations.open("/f", os.O_WRONLY)
    assert operations.writes(handle)
    operations.release("/f", handle)
    mirror._since = 0.0
    for handle in (operations.open("/f", os.O_WRONLY), operations.create("/f", 0o644)):
        assert not operations.writes(handle)
        assert not local.fs.files.inode_of(handle).is_loaded
        operations.release("/f", handle)


def test_the_mirror_sets_no_size(local: Local, tmp_path: Path) -> None:
    """Here on a plain directory.  The kernel ignores what it is told of a size while another one is being set."""
    file = tmp_path / "f"
    file.write_bytes(b"not its business")
    os.utime(file, (1, 1))
    mirror = Mirror(local.fs.working, Kernel(), tmp_path)
    mirror._reach.begin()
    local.replica.subscribe(mirror.on_applied)
    opened(local)
    change(local, b"second")
    names, (before, after) = mirror._waiting.popitem()
    mirror.perform(names, before, after)
    assert file.read_bytes() == b"not its business"
    assert file.stat().st_mtime > 1


def test_a_change_is_settled_when_the_mirror_has_shown_it(local: Local, tmp_path: Path) -> None:
    mirror = Mirror(local.fs.working, Kernel(), tmp_path)
    assert mirror.is_settled(FILE, 5, 1)
    told = []

    def ask(applied: Applied) -> None:
        told.append(mirror.is_settled(FILE, 6, 1))

    local.replica.subscribe(ask)
    opened(local)
    change(local, b"second")
    assert told == [False], "not all subscribers have heard of it, the mirror may be one of them"
    assert mirror.is_settled(FILE, 6, 1)
    local.replica.subscribe(mirror.on_applied)
    change(local, b"third")
    assert not mirror.is_settled(FILE, 5, 1), "nobody performs it, so the kernel never hears of it"
    assert mirror.is_settled(path("/other"), 5, 1)


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
def kernel(forgetful: Forgetful) -> Iterator[Kernel]:
    kernel = Kernel()
    kernel.attach(forgetful, 1, SimpleNamespace())
    yield kernel
    forgetful.may.set()
    kernel.detach()


@pytest.fixture
def mirror(local: Local, tmp_path: Path, kernel: Kernel) -> Mirror:
    """It hears of changes, and performs none."""
    mirror = Mirror(local.fs.working, kernel, tmp_path)
    mirror.thread = -1
    local.replica.subscribe(mirror.on_applied)
    local.fs.metadata.stat(FILE)
    return mirror


@pytest.fixture
def operations(local: Local, kernel: Kernel, mirror: Mirror) -> Iterator[Operations]:
    yield Operations(local.fs, lambda: None, caller=lambda: (0, 0, CALLER[0]), kernel=kernel, mirror=mirror)
    CALLER[:] = [1]


def pages(operations: Operations) -> Pages:
    """What is said of the pages of who opens the file."""
    handle = operations.open("/f", os.O_RDONLY)
    try:
        return operations.opened("/f", handle)
    finally:
        operations.release("/f", handle)


def forget(kernel: Kernel, forgetful: Forgetful) -> None:
    """Have the kernel forget what it knows of the file."""
    forgetful.may.set()
    wait_until(lambda: kernel.has_forgotten(FILE), "the kernel's caches")


def test_the_kernel_has_pages_again_when_it_has_asked_for_the_new_size(
    local: Local, operations: Operations, forgetful: Forgetful, kernel: Kernel, mirror: Mirror
) -> None:
    """Not only when those who watch have been told as well, which takes much longer."""
    change(local, b"the second")
    assert pages(operations) is Pages.BYPASS, "it may still know the old size"
    assert operations.find("/f", None).size == 10
    forget(kernel, forgetful)
    assert pages(operations) is Pages.BYPASS, "what it was told before it forgot, it has forgotten"
    assert operations.find("/f", None).size == 10
    assert [pages(operations), pages(operations)] == [Pages.DROP, Pages.KEEP]
    assert mirror.waiting == 1
    change(local, b"the third one")
    assert pages(operations) is Pages.BYPASS, "another change waits"


def test_who_has_an_older_version_open_keeps_others_from_the_pages(
    local: Local, operations: Operations, forgetful: Forgetful, kernel: Kernel
) -> None:
    """To the kernel both are one file, and it is told nothing of the new one before that is another file."""
    handle = operations.open("/f", os.O_RDONLY)
    change(local, b"the second")
    forget(kernel, forgetful)
    assert forgetful.paths == []
    assert operations.find("/f", handle).size == 5
    operations.release("/f", handle)
    assert operations.find("/f", None).size == 10
    assert pages(operations) is Pages.BYPASS, "it need not have asked, it has forgotten nothing"
    change(local, b"the third one")
    forget(kernel, forgetful)
    assert operations.find("/f", None).size == 13
    assert pages(operations) is Pages.DROP


def test_an_answer_that_comes_from_an_older_version_counts_as_that(
    local: Local, operations: Operations, forgetful: Forgetful, kernel: Kernel, mirror: Mirror
) -> None:
    """Opened between the moment in which the change could be seen and that in which it was told of."""
    change(local, b"the second")
    forget(kernel, forgetful)
    assert operations.find("/f", None).size == 10
    mirror.answered(FILE, 5, 1)
    assert pages(operations) is Pages.BYPASS


def test_only_who_was_answered_can_know_that_the_answer_has_reached_the_kernel(
    local: Local, operations: Operations, forgetful: Forgetful, kernel: Kernel
) -> None:
    change(local, b"the second")
    forget(kernel, forgetful)
    assert operations.find("/f", None).size == 10
    CALLER[:] = [2]
    assert pages(operations) is Pages.BYPASS
    CALLER[:] = [1]
    assert pages(operations) is Pages.DROP
    CALLER[:] = [2]
    assert pages(operations) is Pages.KEEP


def test_a_change_that_is_being_shown_is_not_settled(
    local: Local, operations: Operations, forgetful: Forgetful, kernel: Kernel, mirror: Mirror
) -> None:
    """An older answer to the mirror may reach the kernel after a newer one to somebody else."""
    mirror._performing = FILE
    change(local, b"the second")
    forget(kernel, forgetful)
    assert operations.find("/f", None).size == 10
    assert pages(operations) is Pages.BYPASS
    mirror._performing = None
    assert pages(operations) is Pages.BYPASS


def test_a_name_that_came_is_not_settled_before_the_mirror_has_made_it(
    local: Local, operations: Operations, forgetful: Forgetful, kernel: Kernel, mirror: Mirror
) -> None:
    local.fs.metadata.list(())
    local.replica.commit(lambda author: author.write(path("/new"), b"first"))
    local.replica.commit(lambda author: author.write(path("/new"), b"the second"))
    forget(kernel, forgetful)
    assert operations.find("/new", None).size == 10
    assert not mirror.is_settled(path("/new"), 10, 1)
