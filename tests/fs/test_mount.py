"""A mount that the real command makes, with its daemon: what is published, and what outlives whom."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from basefs.daemon.mounts import check_mountpoint, parse_options
from basefs.errors import MountFailed, UsageError
from basefs.fs.server.device import unmount
from tests.fs.server.mounted import NOBODY
from tests.fs.server.test_posix import as_nobody, errno_from
from tests.fs.server.test_tools import run, snapshot
from tests.support.mounts import require_fuse, temporary_directory
from tests.support.node import Node, mount_points

NAME = "conf"


def test_where_nothing_can_be_mounted_tests_are_skipped_but_never_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"only root can mount|no /dev/fuse"):
        require_fuse()
    monkeypatch.setenv("CI", "1")
    with pytest.raises(pytest.fail.Exception, match="no test may be skipped"):
        require_fuse()


class TestOptions:
    def test_parse(self) -> None:
        assert parse_options("") == []
        assert parse_options("ro,max_read=4096,,") == ["ro", "max_read=4096"]

    @pytest.mark.parametrize("name", ["fsname", "subtype", "attr_timeout", "default_permissions"])
    def test_options_that_decide_how_the_mount_works_are_refused(self, name: str) -> None:
        with pytest.raises(UsageError, match=name):
            parse_options(f"ro,{name}=1")

    @pytest.mark.root
    def test_only_root_can_mount_with_nosymfollow(self) -> None:
        def refused() -> None:
            with pytest.raises(UsageError, match="only root can mount with nosymfollow"):
                parse_options("ro,nosymfollow")

        assert as_nobody(refused) == 0
        assert parse_options("nosymfollow") == ["nosymfollow"]

    def test_a_mount_point_must_be_a_directory(self, scratch: Path) -> None:
        (scratch / "file").touch()
        for text in ("file", "missing"):
            with pytest.raises(MountFailed, match=text):
                check_mountpoint(scratch / text)

    def test_what_is_not_mounted_cannot_be_unmounted(self, scratch: Path) -> None:
        with pytest.raises(MountFailed):
            unmount(scratch, lazy=False)


@contextlib.contextmanager
def bootstrapped() -> Iterator[Node]:
    """A node with a filesystem, reachable for other users of this machine."""
    with temporary_directory() as base, Node.temporary(base) as node:
        base.chmod(0o755)
        node.basefs("bootstrap", NAME)
        yield node


@pytest.fixture
def node() -> Iterator[Node]:
    """A node whose filesystem is not mounted yet."""
    with bootstrapped() as made:
        yield made


@pytest.fixture(scope="module")
def mounted() -> Iterator[Node]:
    """A node with a mount that all tests of this module share."""
    with bootstrapped() as made:
        made.mount(NAME)
        yield made
        made.basefs("unmount", NAME)
        written = (made.home / "logs" / f"{NAME}.log").read_text()
        assert "Traceback" not in written
        assert " ERROR " not in written


@pytest.fixture
def here(mounted: Node, request: pytest.FixtureRequest) -> Path:
    """An empty directory in the shared mount."""
    directory: Path = mounted.base / "mnt" / request.node.name[:200].replace("/", "_")
    directory.mkdir()
    return directory


@pytest.mark.fuse
class TestPublishing:
    def test_cp_over_the_same_tree_costs_nothing(self, mounted: Node, here: Path, source: Path) -> None:
        # Hard links are made anew by cp, so not here.
        (source / "hard").unlink()
        run("cp", "-a", f"{source}/.", here)
        before = mounted.entries(NAME)
        run("cp", f"{source}/conf.d/one.conf", f"{source}/conf.d/secret", here / "conf.d")
        # Nothing but new times, since the contents are equal.
        assert mounted.entries(NAME) == before
        assert (here / "conf.d" / "one.conf").read_bytes() == (source / "conf.d" / "one.conf").read_bytes()

    def test_one_save_is_one_entry(self, mounted: Node, here: Path) -> None:
        for content in ("one", "two"):
            before = mounted.entries(NAME)
            (here / "f").write_text(content)
            assert mounted.entries(NAME) == before + 1
        (here / "f").write_text("two")
        assert mounted.entries(NAME) == before + 1

    def test_truncating_an_open_file_shows_nothing_until_it_is_closed(self, mounted: Node, here: Path) -> None:
        (here / "f").write_text("old")
        before = mounted.entries(NAME)
        with (here / "f").open("r+") as file:
            file.truncate(0)
            assert mounted.status(NAME)["entries"] == before
            file.write("new")
        assert mounted.entries(NAME) == before + 1
        assert (here / "f").read_text() == "new"

    def test_fsync(self, mounted: Node, here: Path) -> None:
        before = mounted.entries(NAME)
        with (here / "f").open("wb", buffering=0) as file:
            file.write(b"synced")
            os.fsync(file.fileno())
            assert mounted.entries(NAME) == before + 1
        directory = os.open(here, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)

    def test_statfs(self, here: Path, mounted: Node) -> None:
        space = os.statvfs(here)
        assert space.f_namemax == 255
        assert space.f_blocks * space.f_frsize == _size_of_disk(mounted.home)
        assert 0 < space.f_bavail <= space.f_blocks
        assert space.f_flag & os.ST_NOSUID
        assert space.f_flag & os.ST_NODEV


def _size_of_disk(path: Path) -> int:
    space = os.statvfs(path)
    return space.f_blocks * space.f_frsize


@pytest.mark.fuse
class TestRemount:
    def test_what_is_kept(self, node: Node, source: Path) -> None:
        point = node.mount(NAME)
        run("cp", "-a", f"{source}/.", point / "tree")
        os.chown(point / "tree" / "main.conf", NOBODY, NOBODY)
        os.chown(point / "tree" / "conf.d", -1, NOBODY)
        os.chown(point / "tree" / "link", NOBODY, -1, follow_symlinks=False)
        before = snapshot(point)
        owners = {path: (path.lstat().st_uid, path.lstat().st_gid) for path in point.rglob("*")}
        assert owners[point / "tree" / "main.conf"] == owners[point / "tree" / "hard"] == (NOBODY, NOBODY)
        assert owners[point / "tree" / "conf.d"] == (os.getuid(), NOBODY)
        assert owners[point / "tree" / "link"] == (NOBODY, os.getgid())
        node.basefs("unmount", NAME)
        assert os.listdir(point) == []
        node.mount(NAME, "--owners")
        assert snapshot(point) == before
        assert {path: (path.lstat().st_uid, path.lstat().st_gid) for path in point.rglob("*")} == owners
        node.basefs("unmount", NAME)
        node.mount(NAME, "--uid", "5", "--gid", "6", "--no-owners")
        assert {(path.lstat().st_uid, path.lstat().st_gid) for path in point.rglob("*")} == {(5, 6)}
        assert errno_from(lambda: os.chown(point / "tree", NOBODY, -1)) == errno.EPERM
        assert errno_from(lambda: os.chown(point / "tree", -1, NOBODY)) == errno.EPERM

    def test_names_that_are_never_published_can_be_more(self, node: Node) -> None:
        point = node.mount(NAME)
        (point / "old.lock").write_text("published before")
        node.settle(NAME)
        node.basefs("unmount", NAME)
        (node.home / "config").write_text("[basefs]\nnever_publish = *.lock\n")
        assert "contains '/'" in node.spawn("mount", NAME, point, "-s", "--never-publish", "a/b").stderr
        node.mount(NAME, "--never-publish", "cache-*", "--never-publish", "*.pid")
        for name in ("x.lock", "cache-1", "x.pid", "kept", "old.lock"):
            (point / name).write_text("x")
        (point / "d.lock").mkdir()
        (point / "d.lock" / "f").write_text("x")
        node.settle(NAME)
        shown = {row["path"] for row in node.query("show", "-l", NAME)}
        assert shown == {"/", "/.cluster", "/kept", "/old.lock"}
        # What others have already goes on being published.
        assert node.basefs("cat", f"{NAME}:/old.lock") == "x"
        assert "never leaves this node" in node.spawn("log", f"{NAME}:/cache-1").stderr
        # They stay over a restart, and are published once nothing says otherwise.
        node.basefs("unmount", NAME)
        (node.home / "config").unlink()
        node.mount(NAME)
        assert (point / "d.lock" / "f").read_text() == "x"
        node.settle(NAME)
        assert {"/x.lock", "/d.lock/f", "/cache-1", "/x.pid"} < {row["path"] for row in node.query("show", "-l", NAME)}

    def test_the_addresses_of_the_nodes_survive_what_mirrors_a_directory(
        self, node: Node, source: Path, tmp_path: Path
    ) -> None:
        root = node.mount(NAME, "--owners")
        addresses = root / ".cluster"
        addresses.write_text("10.0.0.1:18374\n")
        (root / "old").write_text("x")
        subprocess.run(["rsync", "-a", "--delete", f"{source}/", f"{root}/"], check=True)
        assert not (root / "old").exists() and addresses.read_text() == "10.0.0.1:18374\n"
        assert {path.name for path in root.iterdir()} == {path.name for path in source.iterdir()}
        # Nor do copies and repositories take it along.
        subprocess.run(["cp", "-a", f"{root}/.", tmp_path / "copy"], check=True)
        assert not (tmp_path / "copy" / ".cluster").exists()
        subprocess.run(["git", "init", "-q", root], check=True)
        asked = ["git", "-C", root, "status", "--porcelain", "--untracked-files=all"]
        said = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
        assert ".cluster" not in said and said
        subprocess.run(["git", "-C", root, "clean", "-fdxq"], check=True)
        subprocess.run(f"rm -rf {root}/* {root}/.git", shell=True, check=True)
        assert os.listdir(root) == [] and addresses.read_text() == "10.0.0.1:18374\n"
        # Whoever names it means it.
        addresses.unlink()
        assert not addresses.exists()

    def test_read_only(self, node: Node) -> None:
        point = node.mount(NAME, "-o", "ro")
        assert os.listdir(point) == []
        assert errno_from(lambda: (point / "f").write_text("x")) == errno.EROFS
        assert errno_from((point / ".cluster").unlink) == errno.EROFS

    def test_links_that_nobody_follows(self, node: Node) -> None:
        point = node.mount(NAME, "-o", "nosymfollow,noexec")
        options = run("findmnt", "-n", "-o", "VFS-OPTIONS", point).strip().split(",")
        assert {"nosymfollow", "noexec", "nosuid", "nodev", "rw"} <= set(options)
        (point / "d").mkdir()
        (point / "d" / "f").write_text("x")
        (point / "out").symlink_to("/etc")
        (point / "passwd").symlink_to("/etc/passwd")
        (point / "within").symlink_to("d/f")
        for call in ((point / "out" / "passwd").read_text, (point / "passwd").read_text, (point / "within").read_text):
            assert errno_from(call) == errno.ELOOP
        assert errno_from(lambda: os.listdir(point / "out")) == errno.ELOOP
        assert os.readlink(point / "out") == "/etc" and (point / "d" / "f").read_text() == "x"
        # Also once more, after another mount: the option is of the mount, not of the tree.
        node.basefs("unmount", NAME)
        node.mount(NAME)
        assert (point / "within").read_text() == "x" and (point / "out" / "passwd").exists()

    def test_a_killed_daemon(self, node: Node) -> None:
        """The mount goes on, and the next daemon publishes what was written meanwhile."""
        point = node.mount(NAME)
        (point / "closed").write_text("safe")
        with (point / "open").open("wb", buffering=0) as file:
            file.write(b"half")
            node.kill(NAME)
            file.write(b" and half")
            (point / "closed").write_text("changed")
            (point / "new").write_text("x")
            assert sorted(os.listdir(point)) == ["closed", "new", "open"]
            assert node.mount(NAME) == point
            assert mount_points(node.base) == [point]
            file.write(b", all")
        node.settle(NAME)
        contents = [node.basefs("cat", f"{NAME}:/{name}") for name in ("closed", "open", "new")]
        assert contents == ["changed", "half and half, all", "x"]

    def test_a_key_that_may_write_in_one_place(self, node: Node) -> None:
        point = node.mount(NAME)
        (point / "mine").mkdir()
        (point / "mine" / "f").write_text("x")
        (point / "theirs").write_text("x")
        (point / "empty").mkdir()
        node.basefs("genkey", node.base / "guest")
        node.basefs("grant", f"{NAME}:/mine", "guest", node.base / "guest.pub")
        node.basefs("unmount", NAME)
        node.mount(NAME, "-k", node.base / "guest")
        writable = {path: bool(path.stat().st_mode & 0o222) for path in [point, *point.rglob("*")]}
        assert {path for path, allowed in writable.items() if allowed} == {point / "mine", point / "mine" / "f"}
        for call in (
            lambda: os.open(point / "theirs", os.O_WRONLY),
            lambda: os.open(point / "theirs", os.O_RDWR | os.O_TRUNC),
            lambda: os.open(point / "new", os.O_CREAT | os.O_WRONLY),
            (point / "theirs").unlink,
            (point / "empty").rmdir,
            (point / "new").mkdir,
            lambda: (point / "new").symlink_to("x"),
            lambda: (point / "theirs").rename(point / "mine" / "stolen"),
            lambda: (point / "mine" / "f").rename(point / "moved"),
            lambda: (point / "theirs").chmod(0o600),
        ):
            assert errno_from(call) == errno.EACCES
        assert (point / "theirs").read_text() == "x"
        (point / "mine" / "f").write_text("changed")
        (point / "mine" / "new").write_text("new")
        (point / "mine" / "new").rename(point / "mine" / "newer")
        (point / "mine" / "d").mkdir()
        assert sorted(os.listdir(point / "mine")) == ["d", "f", "newer"]
        assert (point / "mine" / "f").read_text() == "changed"
