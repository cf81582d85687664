"""What a new process finds: what was changed meanwhile, what a kill has left half done, what a power cut has taken."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from basefs.log.entries import Action
from basefs.log.treerows import TreeRows
from tests.fs.local import Local, exchange
from tests.support.helpers import BOB, ROOT_KEY, path


@pytest.fixture
def stopped(scratch: Path) -> Iterator[Callable[[], Local]]:
    """A filesystem with some files whose process was killed; a function that begins another one."""
    local = Local.bootstrap(scratch / "log")
    local.mkdir("/d")
    for name in ("/f", "/g", "/d/f"):
        local.save(name, b"old")
        # As if it had been written a while ago.
        os.utime(local.at(name), ns=(10**18, 10**18))
    local.publish()
    local.kill()
    begun: list[Local] = []

    def begin() -> Local:
        begun.append(local.again())
        return begun[-1]

    begin.local = local  # type: ignore[attr-defined]
    yield begin
    for one in begun:
        one.publish()
        assert one.view() == one.disk()
        one.close()


def tree_of(begin: Callable[[], Local]) -> Path:
    """The tree's directory while nobody serves it."""
    local: Local = begin.local  # type: ignore[attr-defined]
    return local.tree


class TestWithoutAProcess:
    def test_nothing_that_is_as_it_was_costs_anything(self, stopped: Callable[[], Local]) -> None:
        local = stopped()
        with local.costs():
            assert local.fs.unpublished() <= 2, "directories, at the most"

    def test_changes_are_found(self, stopped: Callable[[], Local]) -> None:
        tree = tree_of(stopped)
        (tree / "f").write_bytes(b"new")
        (tree / "g").unlink()
        (tree / "d/new").write_bytes(b"x")
        (tree / "d").chmod(0o700)
        local = stopped()
        local.publish()
        assert local.replica.read(path("/f")) == b"new"
        assert set(local.view()) == {path("/d"), path("/d/f"), path("/d/new"), path("/f")}
        assert local.view()[path("/d")][1] == 0o700

    def test_a_change_that_keeps_size_and_time_is_found(self, stopped: Callable[[], Local]) -> None:
        file = tree_of(stopped) / "f"
        file.write_bytes(b"new")
        os.utime(file, ns=(10**18, 10**18))
        local = stopped()
        local.publish()
        assert local.actions == [Action.WRITE]

    def test_a_tree_that_was_copied_from_a_backup_is_no_change(self, stopped: Callable[[], Local]) -> None:
        tree = tree_of(stopped)
        (tree / "f").rename(tree / "f.old")
        shutil.copy2(tree / "f.old", tree / "f")
        (tree / "f.old").unlink()
        local = stopped()
        local.publish()
        assert local.actions == []

    def test_what_others_have_done_comes_once(self, scratch: Path) -> None:
        one = Local.bootstrap(scratch / "one", keys=(ROOT_KEY, BOB))
        other = one.join(scratch / "other", BOB)
        one.mkdir("/d")
        one.save("/d/f", b"x")
        one.publish()
        # It has come, and the process is killed before it is on the disk.
        exchange(one, other)
        other.kill()
        other = other.again()
        assert other.load("/d/f") == b"x"
        one.remove("/d")
        one.publish()
        exchange(one, other)
        other.kill()
        other = other.again()
        assert other.disk() == {}
        for local in (one, other):
            local.close()

    @pytest.mark.parametrize("is_seen", [True, False])
    def test_a_directory_goes_with_what_stayed_in_it(self, scratch: Path, is_seen: bool) -> None:
        one = Local.bootstrap(scratch / "one", keys=(ROOT_KEY, BOB))
        one.mkdir("/d")
        one.publish()
        other = one.join(scratch / "other", BOB)
        other.save("/d/.f.swp", b"scratch")
        one.remove("/d")
        one.publish()
        exchange(one, other)
        other.fs.settle()
        assert other.listing("/d") == {".f.swp"}
        other.kill()
        if is_seen:
            other = other.again()
            other.remove("/d/.f.swp")
            other.fs.settle()
        else:
            other.at("/d/.f.swp").unlink()
            other = other.again()
        other.publish()
        assert other.disk() == other.view() == {}
        for local in (one, other):
            local.close()

    def test_a_local_change_beside_one_of_others_is_a_conflict_and_not_lost(self, scratch: Path) -> None:
        one = Local.bootstrap(scratch / "one", keys=(ROOT_KEY, BOB))
        other = one.join(scratch / "other", BOB)
        one.save("/f", b"old")
        one.publish()
        exchange(one, other)
        other.fs.settle()
        one.save("/f", b"theirs")
        one.publish()
        exchange(one, other)
        other.kill()
        other.at("/f").write_bytes(b"mine")
        other = other.again()
        assert other.load("/f") == b"mine"
        other.publish()
        conflicts = other.replica.survey(path("/f")).conflicts()
        contents = {other.replica.content_at(conflict.lost.hash) for conflict in conflicts} | {other.load("/f")}
        assert contents == {b"theirs", b"mine"}
        for local in (one, other):
            local.close()

    def test_what_was_prepared_and_did_not_get_there_is_removed(self, stopped: Callable[[], Local]) -> None:
        left = tree_of(stopped).parent / "incoming" / "17"
        left.write_bytes(b"half")
        stopped()
        assert not left.exists()


@pytest.mark.logs("power cut")
class TestAfterAPowerCut:
    @pytest.fixture
    def cut(self, stopped: Callable[[], Local]) -> Callable[[], Local]:
        """The machine has started anew since; a function that begins a process."""
        local: Local = stopped.local  # type: ignore[attr-defined]
        replica = type(local.replica)(local.replica.directory, local.replica.keys)

        def note(rows: TreeRows) -> None:
            rows.set_fact("boot", b"another one")

        replica.keep_rows(note)
        replica.close()
        return stopped

    def test_what_was_published_comes_back(self, cut: Callable[[], Local]) -> None:
        tree = Path(tree_of(cut))
        (tree / "f").write_bytes(b"")
        (tree / "g").unlink()
        (tree / "d/f").unlink()
        (tree / "d").rmdir()
        local = cut()
        assert local.load("/f") == local.load("/g") == local.load("/d/f") == b"old"
        local.publish()
        assert local.actions == []

    def test_what_is_newer_is_a_change(self, cut: Callable[[], Local]) -> None:
        (tree_of(cut) / "f").write_bytes(b"newer")
        local = cut()
        local.publish()
        assert local.actions == [Action.WRITE]
        assert local.replica.read(path("/f")) == b"newer"

    def test_a_new_empty_file_is_not_published_before_it_is_changed(self, cut: Callable[[], Local]) -> None:
        (tree_of(cut) / "new").write_bytes(b"")
        local = cut()
        local.publish()
        assert local.actions == []
        with local.costs(Action.WRITE):
            local.save("/new", b"x")
