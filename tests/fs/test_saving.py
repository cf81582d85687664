"""One save is one entry, whatever the program does: with the real programs, on a real mount."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from eval.node import Node
from eval.saves import FILES, NEW, OLD, PROGRAMS, Program, prepare
from tests.mounts import temporary_directory

pytestmark = pytest.mark.fuse

NAME = "conf"


@pytest.fixture(scope="module")
def mounted() -> Iterator[Node]:
    """A node with a mount, for all tests of this module."""
    with temporary_directory() as base, Node.temporary(base) as node:
        node.basefs("genkey")
        node.basefs("bootstrap", NAME)
        node.mount(NAME, "--owners")
        yield node


def paths(node: Node) -> set[str]:
    """All that others see."""
    return {row["path"] for row in node.query("show", NAME)}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_one_save_is_one_write(mounted: Node, tmp_path: Path, program: Program) -> None:
    here = mounted.mountpoint / f"directory{PROGRAMS.index(program)}"
    prepare(here, program)
    before, shown = mounted.entries(NAME), paths(mounted)
    program.save(here, tmp_path)
    assert mounted.entries(NAME) == before + program.files
    # No temporary name was ever there for others, and no file was deleted only to be made again.
    assert paths(mounted) == shown
    for name in FILES[: program.files]:
        assert (here / name).read_text() == NEW
        revisions = mounted.query("log", f"{NAME}:/{here.name}/{name}")
        assert [revision["action"] for revision in revisions] == ["write", "write"]


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
    table = (Path(__file__).parent.parent.parent / "docs" / "saving.md").read_text()
    for program in PROGRAMS:
        assert f"| {program.name} | {program.files} |" in table
