"""A content that cannot be read is an error of its file; everything else goes on."""

from __future__ import annotations

import pathlib

import pytest
from basefs.fs.fuse.errno import errno_of

from basefs.errors import UnreadableContent
from basefs.log import codecs
from basefs.log.entries import Action
from basefs.log.extensions import Extensions
from tests.fs.local import Local
from tests.support.helpers import ALICE, in_blocks, noise, path

pytestmark = pytest.mark.logs("cannot be read")


@pytest.fixture
def local(tmp_path: pathlib.Path) -> Local:
    made = Local.bootstrap(tmp_path / "log")
    made.fs.namespace.make_directory(path("/web"), 0o755)
    made.publish()
    made.replica.commit(lambda author: author.key_holder.grant(path("/web"), b"alice", ALICE.public).draft)
    return made


def send(local: Local, name: bytes, encoded: bytes, size: int) -> None:
    """A file in /web by the holder of its key."""
    named, blocks = in_blocks(encoded, codecs.FRAME.tag)
    parent = local.replica.attributes(path("/web")).origin
    assert parent is not None
    entry = ALICE.sign(parent, 1, Action.WRITE, name, named, Extensions(size))
    assert local.replica.apply([entry], blocks).entries == (entry,)


@pytest.mark.parametrize("size", [5, 1024 * 1024, 8 * 1024 * 1024])
def test_it_can_be_moved_replaced_and_removed_and_nothing_else_stops(local: Local, size: int) -> None:
    for name in (b"a", b"b", b"c"):
        send(local, name, noise(1, 1000), size)
    for name in ("/web/a", "/web/b", "/web/c"):
        with pytest.raises(UnreadableContent) as caught:
            local.load(name)
        assert errno_of(caught.value) == 5
        assert local.fs.metadata.stat(path(name)).size == size
    local.fs.namespace.rename(path("/web/a"), path("/web/moved"))
    local.fs.namespace.unlink(path("/web/b"))
    local.save("/web/c", b"replaced")
    local.save("/web/own", b"mine")
    local.publish()
    assert set(local.listing("/web")) >= {b"moved", b"c", b"own"} and b"b" not in local.listing("/web")
    assert (local.load("/web/c"), local.load("/web/own")) == (b"replaced", b"mine")
    assert local.fs.unpublished() == 0
    local.fs.close()
    local.replica.close()
