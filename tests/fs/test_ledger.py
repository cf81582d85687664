"""The ledger: what a daemon finds of what another one had not published, where something went wrong meanwhile."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NoReturn

import pytest

from basefs.errors import NoSpace, StoreError
from basefs.fs.ledger import Ledger
from basefs.fs.workingset import DIRECTORY, WorkingSet
from basefs.replica import Applied, Replica
from tests.fs.local import Local
from tests.helpers import ROOT_KEY, path


def crashed(local: Local, target: Path) -> Local:
    """A daemon that starts where another one was killed."""
    shutil.copytree(local.replica.directory, target)
    return Local(Replica(target, [ROOT_KEY]))


def test_what_another_node_removes_meanwhile_is_made_again_as_it_was(local: Local, scratch: Path) -> None:
    local.save("/f", b"old")
    local.fs.set_mode(path("/f"), 0o600)
    local.publish()
    local.save("/f", b"new")
    here = crashed(local, scratch / "here")
    # It was down when that arrived.
    here.replica.commit(lambda author: author.remove(path("/f"), directory=False))
    again = crashed(here, scratch / "again")
    assert (again.load("/f"), again.mode("/f")) == (b"new", 0o600)
    again.publish()
    assert (again.replica.read(path("/f")), again.replica.attributes(path("/f")).mode) == (b"new", 0o600)
    for each in (here, again):
        each.replica.close()


def test_a_content_that_cannot_be_read_at_the_start_is_not_taken_for_an_empty_one(
    local: Local, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.save("/f", b"text")
    local.publish()
    local.fs.set_mode(path("/f"), 0o600)
    here = crashed(local, scratch / "here")
    here.replica.commit(lambda author: author.remove(path("/f"), directory=False))

    def full(*_: object) -> NoReturn:
        raise NoSpace("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(WorkingSet, "open_content", full)
        patched.setattr(WorkingSet, "new_spool", full)
        again = crashed(here, scratch / "again")
        with pytest.raises(NoSpace):
            again.publish()
    again.publish()
    assert (again.replica.read(path("/f")), again.replica.attributes(path("/f")).mode) == (b"text", 0o600)
    for each in (here, again):
        each.replica.close()


def test_where_the_journal_takes_nothing_the_overlay_keeps_what_it_says(
    local: Local, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.save("/f", b"old")
    local.publish()
    local.save("/f", b"new")

    def broken(*_: object) -> NoReturn:
        raise StoreError("an error of the disk")

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "note_drop", broken)
        with pytest.raises(StoreError):
            local.publish()
    assert local.fs.unpublished() == 1 and local.load("/f") == b"new"
    local.publish()
    assert local.fs.unpublished() == 0
    again = crashed(local, scratch / "again")
    assert again.fs.unpublished() == 0 and again.load("/f") == b"new"
    again.replica.close()


def test_a_file_without_its_content_keeps_no_other_from_being_published(
    local: Local, scratch: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log was restored from a backup, and is older than what was pending."""
    local.save("/f", b"before")
    local.fs.make_link(path("/also"), path("/f"))
    local.publish()
    shutil.copytree(local.replica.directory, scratch / "backup")
    applied: list[Applied] = []
    local.replica.subscribe(applied.append)
    local.save("/lost", b"text")
    local.publish()
    local.fs.set_mode(path("/lost"), 0o600)
    local.fs.rename(path("/lost"), path("/f"))
    shutil.copytree(local.replica.directory / DIRECTORY, scratch / "backup" / DIRECTORY, dirs_exist_ok=True)
    restored = Local(Replica(scratch / "backup", [ROOT_KEY]))
    restored.save("/new", b"new")
    restored.publish()
    assert restored.replica.read(path("/new")) == b"new"
    assert restored.replica.read(path("/f")) == b"before", (
        "what is there is not taken away before its place can be filled"
    )
    assert restored.fs.unpublished() == 1 and "/f stays on this node only" in caplog.text
    # Somebody has it.
    for transaction in applied:
        restored.replica.apply(transaction.entries, transaction.blocks)
    restored.publish()
    assert restored.fs.unpublished() == 0 and restored.replica.read(path("/also")) == b"before"
    assert (restored.replica.read(path("/f")), restored.replica.attributes(path("/f")).mode) == (b"text", 0o600)
    restored.replica.close()


def test_a_directory_is_renamed_in_one_step(local: Local, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local.fs.make_directory(path("/old"), 0o755)
    local.save("/old/f", b"text")
    local.save("/old/f~", b"scratch")
    rewrite = WorkingSet.rewrite

    def killed_before(working: WorkingSet) -> None:
        shutil.copytree(local.replica.directory, scratch / "killed")
        rewrite(working)

    monkeypatch.setattr(WorkingSet, "rewrite", killed_before)
    local.fs.rename(path("/old"), path("/new"))
    monkeypatch.undo()
    found = {"/old": Local(Replica(scratch / "killed", [ROOT_KEY])), "/new": crashed(local, scratch / "after")}
    for name, here in found.items():
        assert here.listing("/").keys() == {b".cluster", name[1:].encode()}
        assert (here.load(f"{name}/f"), here.load(f"{name}/f~")) == (b"text", b"scratch")
        here.publish()
        assert here.replica.read(path(f"{name}/f")) == b"text"
        here.replica.close()


def test_a_rename_that_the_journal_cannot_take_has_not_happened(
    local: Local, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.save("/new", b"published")
    local.publish()
    local.fs.unlink(path("/new"))
    local.fs.make_directory(path("/old"), 0o755)
    local.save("/old/f", b"text")
    before = local.listing("/")

    def full(*_: object) -> NoReturn:
        raise NoSpace("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(WorkingSet, "rewrite", full)
        with pytest.raises(NoSpace):
            local.fs.rename(path("/old"), path("/new"))
    assert local.listing("/") == before and local.load("/old/f") == b"text"
    local.publish()
    assert local.replica.read(path("/old/f")) == b"text"
    assert (b"new",) not in dict(local.replica.live_paths())
