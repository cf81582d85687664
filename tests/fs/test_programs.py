"""Public test programs on a real mount: what differs from the plain disk is in docs/posix.md, and nothing else."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eval.places import mounted, plain
from eval.posix.deviations import is_known
from eval.posix.outcome import Outcome, Status
from eval.posix.python import python
from eval.posix.stress import QUICK, stress
from eval.posix.tools import git, make, sqlite
from tests.support.mounts import temporary_directory
from tests.support.project import ROOT

pytestmark = pytest.mark.fuse

#: Two tests of `test_os` that walk a hundred directories deep, with paths of thousands of bytes, again and again.
SLOW = "test_walk_many_open_files"

Program = Callable[[Path, Path], list[Outcome]]


@pytest.fixture
def root() -> Iterator[Path]:
    """A mount."""
    with temporary_directory() as base, mounted(base / "node") as node:
        yield node.mountpoint


def check(name: str, program: Program, root: Path, scratch: Path) -> None:
    """Every case passes that passes on the disk, but for those that are listed."""
    outcomes = program(root, scratch)
    assert any(outcome.status is Status.PASSED for outcome in outcomes)
    failed = [outcome for outcome in outcomes if outcome.status is Status.FAILED and not is_known(name, outcome.case)]
    if not failed:
        return
    # Only now, for those that may be this machine's fault.
    with plain(scratch / "disk") as disk:
        there = {outcome.case: outcome.status for outcome in program(disk, scratch)}
    assert [outcome for outcome in failed if there.get(outcome.case) is not Status.FAILED] == []


def test_git(root: Path, tmp_path: Path) -> None:
    check("git", git, root, tmp_path)


def test_make(root: Path, tmp_path: Path) -> None:
    check("make", make, root, tmp_path)


def test_sqlite(root: Path, tmp_path: Path) -> None:
    check("sqlite", sqlite, root, tmp_path)


@pytest.mark.parametrize("name", QUICK)
def test_stress(root: Path, tmp_path: Path, name: str) -> None:
    check("stress-ng", lambda place, scratch: stress(place, scratch, [name], seconds=1), root, tmp_path)


@pytest.mark.parametrize("module", ["test_os", "test_shutil", "test_tempfile", "test_mmap"])
def test_python(root: Path, tmp_path: Path, module: str) -> None:
    check("python", lambda place, scratch: python(place, scratch, (module,), SLOW), root, tmp_path)


def test_names_that_are_too_long_are_refused_by_every_call(root: Path) -> None:
    long = root / ("n" * 256)
    file = root / "f"
    file.touch()
    calls: list[Callable[[], object]] = [
        long.stat,
        long.read_bytes,
        lambda: long.write_bytes(b""),
        long.mkdir,
        long.rmdir,
        long.unlink,
        lambda: long.chmod(0o600),
        lambda: os.truncate(long, 0),
        lambda: os.link(file, long),
        lambda: os.rename(file, long),
        lambda: os.rename(long, file),
        lambda: os.symlink("x", long),
        lambda: os.readlink(long),
        lambda: os.utime(long),
        lambda: (long / "below").stat(),
    ]
    for call in calls:
        with pytest.raises(OSError) as failure:
            call()
        assert failure.value.errno == errno.ENAMETOOLONG


def test_every_deviation_is_in_the_document() -> None:
    from eval.posix.deviations import KNOWN

    document = (ROOT / "docs" / "posix.md").read_text()
    for deviation in KNOWN:
        assert f"| {deviation.program} | {deviation.cases} | {deviation.reason} |" in document
