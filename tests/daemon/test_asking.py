"""Asking to write: which machines do, and which nobody would hear."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from basefs.daemon.asking import asked_key
from basefs.log.entries import ROOT_NAME, Action
from basefs.log.extensions import Extensions
from tests.support.helpers import ALICE, BIRTH, BOB, NONCE, ROOT_KEY, copy_replica, make_replica, path


@pytest.mark.parametrize("is_open", [True, False])
def test_a_key_that_was_revoked_is_heard_in_an_open_filesystem_only(tmp_path: Path, *, is_open: bool) -> None:
    root = ROOT_KEY.sign(NONCE, BIRTH * 10**9, Action.MKDIR, ROOT_NAME, extensions=Extensions(is_open=is_open))
    born = [root, ROOT_KEY.sign(root.hash, BIRTH * 10**9, Action.GRANT, b"root", ROOT_KEY.public)]
    with closing(make_replica(tmp_path / "alpha", born=born)) as alpha:
        alpha.commit(lambda author: author.grant((), b"alice", ALICE.public))
        with closing(copy_replica(alpha, tmp_path / "writer", [ALICE])) as writer:
            assert asked_key(writer) == ""
        alpha.commit(lambda author: author.key_holder.revoke((), b"alice", ALICE.fingerprint).draft)
        for number, key in enumerate((ALICE, BOB)):
            with closing(copy_replica(alpha, tmp_path / str(number), [key])) as stranger:
                assert asked_key(stranger) == (key.public.hex() if is_open else "")


def test_a_member_whose_directory_was_removed_asks(tmp_path: Path) -> None:
    with closing(make_replica(tmp_path / "alpha")) as alpha:
        alpha.commit(lambda author: author.make_directory(path("/web")))
        alpha.commit(lambda author: author.grant(path("/web"), b"alice", ALICE.public))
        alpha.commit(lambda author: author.remove(path("/web"), directory=True))
        with closing(copy_replica(alpha, tmp_path / "reader", [ALICE])) as reader:
            assert asked_key(reader) == ALICE.public.hex()
