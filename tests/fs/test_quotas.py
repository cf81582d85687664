"""A program on a node whose key has a quota sees EDQUOT, and nothing that it was told is saved is lost."""

from __future__ import annotations

import errno
import os
import pathlib
from collections.abc import Iterator

import pytest

from basefs.errors import QuotaExceeded
from basefs.fs.fuse.errno import errno_of
from basefs.log.extensions import NO_LIMIT, Quota
from basefs.path import Path
from basefs.replica.bootstrap import bootstrap
from basefs.replica.replica import Replica
from tests.fs.local import Local
from tests.support.helpers import ALICE, ROOT_KEY, path

D = path("/d")


class Limited:
    """A filesystem on a node that may add so much in a directory, and beside it what it wants."""

    def __init__(self, base: pathlib.Path) -> None:
        base.mkdir()
        (base / "root").mkdir()
        self.root = bootstrap(base / "root", [(b"root", ROOT_KEY)], [])
        for name in (b"d", b"free"):
            self.root.commit(lambda author, name=name: author.make_directory((name,)))
        self.root.commit(lambda author: author.grant((b"free",), b"alice", ALICE.public))
        self.root.close()
        self.base = base

    def local(self, quota: Quota) -> Local:
        """Granted and opened."""
        root = Replica(self.base / "root", [ROOT_KEY])
        root.commit(lambda author: author.grant(D, b"alice", ALICE.public, quota))
        root.close()
        return Local(Replica(self.base / "root", [ALICE]))


@pytest.fixture
def limited(tmp_path: pathlib.Path) -> Iterator[Limited]:
    yield Limited(tmp_path / "node")


def published(local: Local, name: Path) -> bytes:
    local.publish()
    return local.replica.read(name)


def test_a_write_beyond_the_quota_fails_and_what_was_written_before_stays(limited: Limited) -> None:
    local = limited.local(Quota(1000, NO_LIMIT))
    handle = local.open_writer("/d/f")
    local.fs.files.write(handle, b"x" * 900, 0)
    with pytest.raises(QuotaExceeded) as raised:
        local.fs.files.write(handle, b"x" * 200, 900)
    assert errno_of(raised.value) == errno.EDQUOT
    with pytest.raises(QuotaExceeded):
        local.fs.files.truncate(path("/d/f"), 1001, handle)
    local.fs.files.write(handle, b"y" * 100, 900)
    local.close(handle)
    assert published(local, path("/d/f")) == b"x" * 900 + b"y" * 100
    local.save("/free/f", b"z" * 5000)
    assert published(local, path("/free/f")) == b"z" * 5000
    local.replica.close()


def test_what_is_not_published_yet_counts(limited: Limited) -> None:
    local = limited.local(Quota(1000, NO_LIMIT))
    local.save("/d/a", b"x" * 600)
    handle = local.open_writer("/d/b")
    with pytest.raises(QuotaExceeded):
        local.fs.files.write(handle, b"x" * 600, 0)
    local.fs.files.write(handle, b"x" * 400, 0)
    local.close(handle)
    local.publish()
    assert [len(local.replica.read(path(name))) for name in ("/d/a", "/d/b")] == [600, 400]
    # And every save counts, also of the same file.
    handle = local.fs.files.open(path("/d/a"), os.O_WRONLY)
    with pytest.raises(QuotaExceeded):
        local.fs.files.write(handle, b"y", 0)
    local.close(handle)
    local.publish()
    assert local.replica.read(path("/d/a")) == b"x" * 600
    local.replica.close()


def test_no_entry_is_left_for_another_change(limited: Limited) -> None:
    local = limited.local(Quota(NO_LIMIT, 2))
    local.save("/d/a", b"text")
    local.publish()
    with pytest.raises(QuotaExceeded):
        local.fs.files.create(path("/d/b"), 0o644)
    with pytest.raises(QuotaExceeded):
        local.fs.namespace.make_directory(path("/d/c"), 0o755)
    with pytest.raises(QuotaExceeded):
        local.fs.namespace.unlink(path("/d/a"))
    assert set(local.listing("/d")) == {b"a"}
    local.replica.close()


def test_a_file_moved_into_the_quota_is_charged(limited: Limited) -> None:
    local = limited.local(Quota(1000, NO_LIMIT))
    local.save("/free/small", b"x" * 400)
    local.save("/free/large", b"x" * 4000)
    local.publish()
    with pytest.raises(QuotaExceeded):
        local.fs.namespace.rename(path("/free/large"), path("/d/large"))
    local.fs.namespace.rename(path("/free/small"), path("/d/small"))
    local.publish()
    assert local.replica.read(path("/d/small")) == b"x" * 400
    assert local.replica.read(path("/free/large")) == b"x" * 4000
    assert local.replica.quota_left(D) == {D: (600, NO_LIMIT - 1)}
    local.replica.close()
