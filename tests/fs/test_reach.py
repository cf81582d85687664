"""The mirror acts on nothing outside of the mount, whatever becomes of a path while it is about to act on it."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from basefs.fs.fuse.reach import Reach, path_of

from tests.fs.pair import Side, tree_of, two_mounts

pytestmark = pytest.mark.fuse


@pytest.fixture
def mount(scratch: Path) -> Iterator[Path]:
    """A small filesystem of its own with a directory `d`, a file in it, and another filesystem mounted at `other`."""
    point = scratch / "mount"
    point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "reach", point], check=True)
    try:
        (point / "d").mkdir()
        (point / "d" / "f").write_text("inside")
        (point / "other").mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "other", point / "other"], check=True)
        yield point
    finally:
        subprocess.run(["umount", "-l", point], check=False)


def reach_of(mount: Path) -> Reach:
    """What lies in a mount that is there."""
    reach = Reach(os.fsencode(mount))
    reach.begin()
    return reach


def refused(act: Callable[[], Any]) -> int | None:
    """The number of the error."""
    with pytest.raises(OSError) as raised:
        act()
    return raised.value.errno


def test_what_lies_in_the_mount_is_reached(mount: Path) -> None:
    reach = reach_of(mount)
    with reach.directory((b"d",)) as directory, reach.entry(b"f", directory) as found:
        assert Path(os.fsdecode(path_of(found))).read_text() == "inside"
    with reach.directory(()) as top:
        assert os.path.samestat(os.fstat(top), mount.stat())


def test_links_are_not_followed(mount: Path, scratch: Path) -> None:
    (mount / "link").symlink_to(scratch)
    reach = reach_of(mount)
    assert refused(lambda: reach.directory((b"link",)).__enter__()) == errno.ENOTDIR
    with reach.directory(()) as top, reach.entry(b"link", top) as found:
        assert refused(lambda: os.open(path_of(found), os.O_WRONLY)) == errno.ELOOP


def test_what_is_mounted_inside_is_not_entered(mount: Path) -> None:
    (mount / "other" / "e").mkdir()
    reach = reach_of(mount)
    for names in ((b"other",), (b"other", b"e")):
        assert refused(lambda names=names: reach.directory(names).__enter__()) == errno.EXDEV  # type: ignore[misc]
    with reach.directory(()) as top:
        assert refused(lambda: reach.entry(b"other", top).__enter__()) == errno.EXDEV


def test_what_lies_below_a_mount_that_is_gone_is_not_reached(mount: Path) -> None:
    reach = reach_of(mount)
    subprocess.run(["umount", "-l", mount], check=True)
    assert refused(lambda: reach.directory(()).__enter__()) == errno.EXDEV


def commits(side: Side, act: Callable[[Path], Any]) -> list[Any]:
    """What a node publishes of something that is done on its mount."""
    act(side.mount)
    assert side.publish() == 0
    return list(side.ask("take"))


def replaced(where: str, target: Path) -> Callable[[Path], None]:
    """Puts a link in place of a file, or of a directory and the one file that may be in it."""

    def act(mount: Path) -> None:
        path = mount / where
        if path.is_dir():
            for name in os.listdir(path):
                (path / name).unlink()
            path.rmdir()
        else:
            path.unlink()
        path.symlink_to(target)

    return act


@pytest.mark.parametrize(
    ("where", "act", "becomes_a_link", "target"),
    [
        ("f", lambda mount: (mount / "f").chmod(0o777), "f", "secret"),
        ("f", lambda mount: (mount / "f").write_text("two"), "f", "secret"),
        ("d/secret", lambda mount: (mount / "d/secret").unlink(), "d", ""),
        ("d/made", lambda mount: (mount / "d/made").write_text("two"), "d", ""),
        ("d/made", lambda mount: (mount / "d/made").mkdir(), "d", ""),
    ],
    ids=["chmod", "write", "unlink", "create", "mkdir"],
)
def test_a_path_that_becomes_a_link_while_it_is_changed_leads_nowhere(
    scratch: Path, where: str, act: Callable[[Path], Any], becomes_a_link: str, target: str
) -> None:
    """A key holder changes a path and then makes it a link, and on another node the second arrives during the first."""
    outside = scratch / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (outside / "secret").chmod(0o600)
    os.utime(outside / "secret", (1, 1))

    def prepare(mount: Path) -> None:
        (mount / "f").write_text("one")
        (mount / "d").mkdir()
        (mount / "d/secret").write_text("one")

    with two_mounts(scratch) as (victim, attacker):
        # As after a minute: the kernel must ask what a name stands for.
        victim.ask("cache", 0.0)
        for delivery in commits(attacker, prepare):
            victim.ask("give", *delivery)
        victim.ask("settle")
        # What nobody has looked at is not shown to anybody.
        assert "d/secret" in tree_of(victim.mount)
        first = commits(attacker, act)
        if (attacker.mount / "d/made").is_dir():
            (attacker.mount / "d/made").rmdir()
        victim.ask("interpose", where, commits(attacker, replaced(becomes_a_link, outside / target)))
        for delivery in first:
            victim.ask("give", *delivery)
        victim.ask("settle")
        assert os.readlink(victim.mount / becomes_a_link) == str(outside / target).rstrip("/")
        assert os.listdir(outside) == ["secret"]
        status = (outside / "secret").stat()
        assert (status.st_mode & 0o777, status.st_mtime) == (0o600, 1)
        assert victim.ask("problems") == []
