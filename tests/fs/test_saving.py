"""One save is one entry, whatever the program does: with the real programs, on a real mount."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from basefs.fs.worktree.publisher import RENAME_SECONDS
from eval.saves import FILES, NEW, OLD, PROGRAMS, Program, prepare
from tests.support.mounts import temporary_directory, wait_until
from tests.support.node import Node
from tests.support.project import ROOT

pytestmark = pytest.mark.fuse

NAME = "conf"


@contextlib.contextmanager
def mounted_with(quiet_window: float) -> Iterator[Node]:
    """A node with a mount that publishes after so many seconds without a change."""
    with temporary_directory() as base, Node.temporary(base) as node:
        node.home.mkdir(parents=True, mode=0o700, exist_ok=True)
        (node.home / "config").write_text(f"[basefs]\nquiet_window = {quiet_window}\n")
        node.basefs("genkey")
        node.basefs("bootstrap", NAME)
        node.mount(NAME, "--owners")
        yield node


#: Seconds without a change that end a save; on a busy machine programs pause for longer than 50 ms.
QUIET = 0.5
#: How often a program may save until the machine has not paused in the middle of it.
ATTEMPTS = 5


@pytest.fixture(scope="module")
def mounted() -> Iterator[Node]:
    """A node for all tests of this module."""
    with mounted_with(QUIET) as node:
        yield node


def paths(node: Node) -> set[str]:
    """All that others see."""
    return {row["path"] for row in node.query("show", NAME)}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_one_save_is_one_write(mounted: Node, tmp_path: Path, program: Program) -> None:
    for attempt in range(ATTEMPTS):
        here, elsewhere = mounted.mountpoint / f"directory{PROGRAMS.index(program)}-{attempt}", tmp_path / f"{attempt}"
        elsewhere.mkdir()
        prepare(here, program)
        before, shown = mounted.entries(NAME), paths(mounted)
        begin = time.monotonic()
        program.save(here, elsewhere)
        seconds = time.monotonic() - begin
        written = mounted.entries(NAME) - before
        if written == program.files or seconds < QUIET:
            break
    assert written == program.files
    # No temporary name was ever there for others, and no file was deleted only to be made again.
    assert paths(mounted) == shown
    for name in FILES[: program.files]:
        assert (here / name).read_text() == NEW
        revisions = mounted.query("log", f"{NAME}:/{here.name}/{name}")
        assert [revision["action"] for revision in revisions] == ["write", "write"]


@pytest.fixture(scope="module")
def hurried() -> Iterator[Node]:
    """A node that publishes without waiting for quiet, as a very busy one does between two steps of a program."""
    with mounted_with(0.0) as node:
        yield node


@pytest.mark.parametrize("name", [".file.Ab12Cd", "sedAb12Cd", "file.dpkg-new", ".ansible_tmpk2v9x0file"])
def test_a_temporary_name_waits_for_the_real_one(hurried: Node, name: str) -> None:
    for attempt in range(ATTEMPTS):
        here = hurried.mountpoint / f"slow{name}{attempt}"
        here.mkdir()
        (here / "file").write_text(OLD)
        before = hurried.entries(NAME)
        begin = time.monotonic()
        (here / name).write_text(NEW)
        (here / name).rename(here / "file")
        seconds = time.monotonic() - begin
        written = hurried.entries(NAME) - before
        if written == 1 or seconds < RENAME_SECONDS:
            break
    assert written == 1
    (here / name).write_text(NEW)
    wait_until(lambda: f"/{here.name}/{name}" in paths(hurried), "the file that keeps its temporary name")


def test_a_save_without_a_change_costs_nothing(mounted: Node, tmp_path: Path) -> None:
    here = mounted.mountpoint / "unchanged"
    here.mkdir()
    (here / "file").write_text(OLD)
    (tmp_path / "file").write_text(OLD)
    before = mounted.entries(NAME)
    (here / "file").write_text(OLD)
    (here / ".file.tmp").write_text(OLD)
    (here / ".file.tmp").rename(here / "file")
    assert mounted.entries(NAME) == before


def test_the_table_names_every_program() -> None:
    table = (ROOT / "docs" / "saving.md").read_text()
    for program in PROGRAMS:
        assert f"| {program.name} | {program.files} |" in table
