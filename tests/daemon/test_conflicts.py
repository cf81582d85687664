"""Conflicts as they begin."""

from __future__ import annotations

import logging
import pathlib
from functools import partial

import pytest

from basefs.daemon.api.messages import LostRevision
from basefs.daemon.conflicts import ConflictWatch
from basefs.daemon.keyfiles import default_keys
from basefs.log.entries import Action
from basefs.path import Path
from basefs.replica.bootstrap import bootstrap
from basefs.view.author import Author
from tests.support.commands import Cli
from tests.support.helpers import ALICE, BOB, ROOT_KEY, copy_replica, path


def test_a_conflict_that_begins_by_a_grant_is_reported(tmp_path: pathlib.Path) -> None:
    """Alice may write in /d and bob below it, so she wins; a grant that knows nothing of it lets him win."""
    root = bootstrap(tmp_path, [(b"root", ROOT_KEY)], [])
    root.commit(lambda author: author.make_directory(path("/d")))
    root.commit(lambda author: author.make_directory(path("/d/e")))
    root.commit(lambda author: author.grant(path("/d"), b"alice", ALICE.public))
    root.commit(lambda author: author.grant(path("/d/e"), b"bob", BOB.public))
    copies = [copy_replica(root, tmp_path / name, [key]) for name, key in (("alice", ALICE), ("bob", BOB))]
    elsewhere = copy_replica(root, tmp_path / "elsewhere", [ROOT_KEY])
    for number, copy in enumerate(copies):
        applied = copy.commit(lambda author, number=number: author.write(path("/d/e/f"), b"%d" % number))  # type: ignore[misc]
        root.apply(applied.entries, applied.blocks)
    assert root.read(path("/d/e/f")) == b"0"
    reported: list[LostRevision] = []
    watch = ConflictWatch(root, reported.append)
    watch.wait()
    applied = elsewhere.commit(lambda author: author.grant((), b"bob", BOB.public))
    root.apply(applied.entries, applied.blocks)
    assert root.read(path("/d/e/f")) == b"1"
    watch.wait()
    watch.stop()
    assert [(one.path, one.lost.fingerprint) for one in reported] == [("/d/e/f", ALICE.fingerprint.hex())]
    for replica in (root, elsewhere, *copies):
        replica.close()


@pytest.mark.alone
def test_grants_without_end_have_few_surveys_and_none_elsewhere(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = bootstrap(tmp_path, [(b"root", ROOT_KEY)], [])
    for name in ("/web", "/etc"):
        root.commit(lambda author, name=name: author.make_directory(path(name)))  # type: ignore[misc]
        root.commit(lambda author, name=name: author.grant(path(name), b"alice", ALICE.public))  # type: ignore[misc]
    web = root.attributes(path("/web")).entry
    forks = [ALICE.sign(web, made, Action.WRITE, b"%d" % (made // 2)) for made in range(60)]
    root.apply(forks, [])
    looks: list[Path] = []
    examine = root.examine
    watch = ConflictWatch(root, lambda conflict: None)
    watch.wait()
    monkeypatch.setattr(root, "examine", lambda place, look: looks.append(place) or examine(place, look))
    for directory, most in (("/etc", 0), ("/web", 300)):
        parent = root.grants(path(directory))[-1].entry.hash
        for number in range(100):
            root.apply([ALICE.sign(parent, number, Action.GRANT, b"key", BOB.public)], [])
        watch.wait()
        assert len(looks) <= most, "one by one these are a hundred surveys of 30 paths"
    assert looks
    watch.stop()
    root.close()


def test_an_unexpected_error_is_logged_and_the_next_conflict_is_reported(
    conf: Cli, caplog: pytest.LogCaptureFixture
) -> None:
    reported: list[str] = []

    def report(conflict: LostRevision) -> None:
        reported.append(conflict.path)
        if len(reported) == 1:
            raise ZeroDivisionError("a bug")

    with conf.replica("conf") as here, caplog.at_level(logging.ERROR):
        other = copy_replica(here, conf.base / "other", default_keys(conf.home))
        watch = ConflictWatch(here, report)
        watch.wait()
        for name in (path("/1"), path("/2")):
            here.commit(partial(Author.write, path=name, content=b"here"))
            applied = other.commit(partial(Author.write, path=name, content=b"there"))
            here.apply(applied.entries, applied.blocks)
        watch.wait()
        watch.stop()
        other.close()
    assert reported == ["/1", "/2"]
    assert "ZeroDivisionError: a bug" in caplog.text
