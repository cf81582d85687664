"""The tools that people use, on a mount."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from tests.fs.server.test_posix import owner_of

pytestmark = [pytest.mark.fuse, pytest.mark.root]

Snapshot = dict[bytes, tuple[object, ...]]


def snapshot(root: Path, *, directory_times: bool = True, links: bool = True) -> Snapshot:
    """Everything below a directory that a copy should keep, or all but the times of directories, or hard links."""
    found: Snapshot = {}
    top = os.fsencode(root)
    for directory, subdirectories, files in os.walk(top):
        for name in [*subdirectories, *files]:
            path = os.path.join(directory, name)
            status = os.lstat(path)
            content: object = None
            if stat.S_ISLNK(status.st_mode):
                content = os.readlink(path)
            elif stat.S_ISREG(status.st_mode):
                content = Path(os.fsdecode(path)).read_bytes()
            is_directory = stat.S_ISDIR(status.st_mode)
            time = status.st_mtime_ns if directory_times or not is_directory else 0
            count = status.st_nlink if links and not is_directory else 0
            found[os.path.relpath(path, top)] = (status.st_mode, time, count, content)
    return found


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Run a tool, which must succeed and be silent on stderr."""
    environment = {**os.environ, "LC_ALL": "C", "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="surrogateescape",
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), (command, done)
    return done.stdout


def test_cp(here: Path, source: Path) -> None:
    run("cp", "-a", f"{source}/.", here)
    assert snapshot(here) == snapshot(source)


def test_rsync_twice(here: Path, source: Path) -> None:
    command = ("rsync", "-a", "--itemize-changes", f"{source}/", f"{here}/")

    def same() -> bool:
        copy, original = (snapshot(root, directory_times=False, links=False) for root in (here, source))
        return copy == original

    first = run(*command)
    assert ">f+++++++++ conf.d/one.conf" in first
    assert same()
    assert [line for line in run(*command).splitlines() if not line.startswith(".d")] == []
    (source / "conf.d" / "one.conf").write_text("changed\n")
    assert [line.split()[1] for line in run(*command).splitlines() if line.startswith(">f")] == ["conf.d/one.conf"]
    assert same()


def test_tar_there_and_back(here: Path, source: Path, scratch: Path) -> None:
    run("tar", "-C", source, "-cf", scratch / "there.tar", ".")
    run("tar", "-C", here, "-xf", scratch / "there.tar")
    assert snapshot(here) == snapshot(source)
    (scratch / "back").mkdir()
    run("tar", "-C", here, "-cf", scratch / "back.tar", ".")
    run("tar", "-C", scratch / "back", "-xf", scratch / "back.tar")
    assert snapshot(scratch / "back") == snapshot(source)


def test_sed_in_place(here: Path) -> None:
    (here / "f").write_text("port = 80\n")
    (here / "f").chmod(0o640)
    run("sed", "-i", "s/80/8080/", here / "f")
    assert (here / "f").read_text() == "port = 8080\n"
    assert stat.S_IMODE((here / "f").stat().st_mode) == 0o640
    assert os.listdir(here) == ["f"]


def test_vim(here: Path) -> None:
    (here / "f").write_text("port = 80\n")
    for replacement in ("8080", "443"):
        run("vim", "-es", "-u", "NONE", "-c", f"%s/[0-9]\\+/{replacement}/", "-c", "wq", here / "f")
        assert (here / "f").read_text() == f"port = {replacement}\n"
    assert os.listdir(here) == ["f"]


def test_git(here: Path) -> None:
    git = (
        "git",
        "-c",
        "user.name=n",
        "-c",
        "user.email=e@example.org",
        "-c",
        "init.defaultBranch=main",
        "-C",
        here,
    )
    run(*git, "init", "-q")
    (here / "f").write_text("one\n")
    (here / "d").mkdir()
    (here / "d" / "g").write_text("two\n")
    run(*git, "add", ".")
    run(*git, "commit", "-qm", "first")
    (here / "f").write_text("changed\n")
    assert run(*git, "status", "--short") == " M f\n"
    run(*git, "commit", "-qam", "second")
    run(*git, "fsck", "--strict", "--no-progress")
    run(*git, "checkout", "-q", "HEAD~1")
    assert (here / "f").read_text() == "one\n"
    run(*git, "gc", "-q")
    assert run(*git, "log", "--all", "--format=%s") == "second\nfirst\n"
    assert run(*git, "status", "--short") == ""


def test_find_and_grep(here: Path, source: Path) -> None:
    run("cp", "-a", f"{source}/.", here)
    assert run("find", here, "-type", "f", "-perm", "600") == f"{here}/conf.d/secret\n"
    assert run("find", here, "-type", "l", "-printf", "%l\n").splitlines().count("conf.d/one.conf") == 1
    assert run("grep", "-rl", "one = 1", here / "conf.d") == f"{here}/conf.d/one.conf\n"


def test_walks_find_every_directory(here: Path) -> None:
    """find(1) counts on the links of a directory, where it trusts the filesystem."""
    made = [here / f"{a}" / f"{b}" / "c" for a in range(5) for b in range(5)]
    for directory in made:
        directory.mkdir(parents=True)
        (directory.parent / "f").touch()
    expected = {str(path) for directory in made for path in (directory, *directory.parents) if here in path.parents}
    for options in ([], ["-noleaf"], ["-depth"], ["-mindepth", "1", "-name", "*"]):
        found = run("find", here, "-mindepth", "1", *options, "-type", "d").splitlines()
        assert (len(found), set(found)) == (len(expected), expected), options
    assert len(run("find", here, "-name", "f").splitlines()) == len(made)
    assert len(run("ls", "-R", here).split(":\n")) == len(expected) + 2


def test_rm(here: Path, source: Path) -> None:
    run("cp", "-a", f"{source}/.", here / "copy")
    run("rm", "-r", here / "copy")
    assert os.listdir(here) == []


def test_mv_of_a_tree(here: Path, source: Path) -> None:
    (source / "hard").unlink()
    run("cp", "-a", f"{source}/.", here / "old")
    run("mv", here / "old", here / "new")
    assert os.listdir(here) == ["new"]
    # The times of directories are those of the move.
    assert snapshot(here / "new", directory_times=False) == snapshot(source, directory_times=False)


@pytest.mark.parametrize("tool", ["cp", "rsync", "tar"])
def test_a_copy_of_etc_ends_with_success_and_has_its_owners(here: Path, scratch: Path, tool: str) -> None:
    run("tar", "-C", "/", "-cf", scratch / "etc.tar", "etc")
    commands: dict[str, tuple[str | Path, ...]] = {
        "cp": ("cp", "-a", "/etc", here),
        "rsync": ("rsync", "-aHAX", "/etc", here),
        "tar": ("tar", "-C", here, "-xpf", scratch / "etc.tar"),
    }
    run(*commands[tool])
    found = {path: owner_of(here / path.relative_to("/")) for path in Path("/etc").rglob("*")}
    assert found == {path: owner_of(path) for path in Path("/etc").rglob("*")}
    if tool == "rsync":
        assert run("rsync", "-aHAX", "--itemize-changes", "/etc", here) == ""
