"""`basefs mount`: what it checks, and what it says where it cannot mount.  How a mount behaves: tests/fs."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path

import pytest

from tests.support.commands import Cli
from tests.support.node import COMMAND, Node, mount_points
from tests.support.patience import DEADLINE
from tests.support.wait import wait_until


@pytest.fixture
def point(conf: Cli) -> Path:
    """An empty directory in the home's neighbourhood."""
    directory = conf.base / "mnt"
    directory.mkdir()
    return directory


class TestMountServerOfTheServiceManager:
    def test_wrong_combinations(self, conf: Cli, point: Path) -> None:
        assert "--serve-only needs --foreground" in conf.fails("mount", "conf", point, "-s", "--serve-only", code=2)
        assert not point.is_mount()

    @pytest.mark.root
    @pytest.mark.fuse
    @pytest.mark.process
    def test_the_daemon_neither_mounts_nor_unmounts(self, node: Node, conf: Cli, point: Path) -> None:
        command = [COMMAND, "mount", "-fs", "conf", point, "--serve-only"]
        daemon = subprocess.Popen(command, env=node.environment)
        mount = [COMMAND, "mount", "--mount-only", "conf", point, "-o", "noexec,nosymfollow"]
        server = subprocess.Popen(mount, env=node.environment)
        try:
            wait_until((node.home / "run" / "conf.sock").exists, DEADLINE, "the daemon answers")
            wait_until(point.is_mount, DEADLINE, "the mount")
            wait_until(lambda: os.access(point, os.W_OK) and _writes(point / "file"), DEADLINE, "the node's rights")
            (point / "link").symlink_to("file")
            with pytest.raises(OSError, match="Too many levels"):
                (point / "link").read_text()
            assert os.statvfs(point).f_flag & os.ST_NOEXEC
            daemon.terminate()
            assert daemon.wait(DEADLINE) == 0
            assert (point / "file").read_text() == "hello"
            node.basefs("unmount", "conf")
            assert server.wait(DEADLINE) == 0 and not point.is_mount()
        finally:
            for process in (daemon, server):
                process.kill()
                process.wait()


def _reads(path: Path) -> str | None:
    """What is in a file, `None` while its mount is dead."""
    try:
        return path.read_text()
    except OSError:
        return None


def _writes(path: Path) -> bool:
    """Whether a file can be written, which is."""
    try:
        path.write_text("hello")
    except PermissionError:
        return False
    return True


class TestErrors:
    @pytest.mark.root
    @pytest.mark.fuse
    @pytest.mark.process
    def test_a_device_that_may_not_be_used(self, node: Node, conf: Cli, point: Path) -> None:
        """As in a container that has the node of the device, and no permission for it."""
        forbid = "mount --bind /dev/fuse /dev/fuse && mount -o remount,bind,nodev /dev/fuse"
        command = [
            "unshare",
            "--mount",
            "sh",
            "-c",
            f'{forbid} && exec "$@"',
            "sh",
            COMMAND,
            "mount",
            "-s",
            "conf",
            point,
        ]
        done = subprocess.run(command, env=node.environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == (
            f"basefs: cannot mount on {point}: cannot open /dev/fuse (Permission denied): load the module 'fuse'; "
            "in a container, allow this device\n"
        )

    def test_no_such_filesystem(self, cli: Cli) -> None:
        assert "there is no filesystem conf" in cli.fails("mount", "conf", cli.base)
        assert "is neither NAME:/PATH nor" in cli.fails("mount", "../conf", cli.base, code=2)

    def test_what_is_no_directory(self, conf: Cli) -> None:
        (conf.base / "file").touch()
        assert "is not a directory: choose another path" in conf.fails("mount", "conf", conf.base / "file")
        assert "make it with 'mkdir" in conf.fails("mount", "conf", conf.base / "missing")

    @pytest.mark.parametrize("option", ["fsname=x", "ro,subtype=x", "attr_timeout=1", "default_permissions"])
    def test_an_option_that_is_not_the_users(self, conf: Cli, point: Path, option: str) -> None:
        assert option.split(",")[-1].split("=")[0] in conf.fails("mount", "conf", point, "-s", "-o", option, code=2)

    @pytest.mark.parametrize("bind", ["example.org", "10.0.0.1:0", "10.0.0.1:x", "300.1.1.1", ""])
    def test_an_address_that_is_none(self, conf: Cli, point: Path, bind: str) -> None:
        assert "addres" in conf.fails("mount", "conf", point, "-s", "-b", bind, code=2)

    def test_an_address_to_join_that_is_none(self, conf: Cli, point: Path) -> None:
        assert "'b:x' is not an address" in conf.fails("mount", "conf", point, "-s", "-j", "a:1,b:x", code=2)

    def test_a_missing_key(self, conf: Cli, point: Path) -> None:
        assert "no key at" in conf.fails("mount", "conf", point, "-s", "-k", conf.base / "nothing", code=2)

    def test_a_missing_encryption_key(self, conf: Cli, point: Path) -> None:
        missing = conf.base / "nothing"
        assert str(missing) in conf.fails("mount", "conf", point, "-s", "--encrypt-key-file", missing)

    @pytest.mark.parametrize("secret", [b"", b"junk", b"\xff\xfe", b"not base64 at all"])
    def test_what_is_no_encryption_key(self, conf: Cli, point: Path, secret: bytes) -> None:
        (conf.base / "secret").write_bytes(secret)
        told = conf.fails("mount", "conf", point, "--encrypt-key-file", conf.base / "secret", code=2)
        assert "holds no encryption key" in told

    @pytest.mark.fuse
    def test_an_address_that_this_machine_does_not_have(self, node: Node, point: Path) -> None:
        done = node.spawn("mount", "conf", point, "-b", "192.0.2.1")
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        assert "192.0.2.1:18375: no interface of this machine has this address" in done.stderr

    def test_a_command_line_that_cannot_be_read(self, conf: Cli, point: Path) -> None:
        assert conf.misused("mount", "conf") == "basefs: missing argument 'MOUNTPOINT': see 'basefs mount --help'"
        assert "no such option" in conf.misused("mount", "conf", point, "--no-such-option")
        assert "'bad' is not one of" in conf.misused("mount", "conf", point, "--profile", "bad")

    def test_an_option_that_nobody_knows(self, conf: Cli, point: Path) -> None:
        told = conf.fails("mount", "conf", point, "-s", "-o", "ro,no_such_option", code=2)
        assert "there is no mount option no_such_option" in told
        assert "did you mean noatime?" in conf.fails("mount", "conf", point, "-s", "-o", "noatme", code=2)

    def test_a_damaged_log(self, node: Node, conf: Cli, point: Path) -> None:
        (conf.home.directory("conf") / "log.db").write_bytes(b"this is no database")
        done = node.spawn("mount", "conf", point, "-s")
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        assert done.stderr.startswith("basefs: ")
        assert mount_points(node.base) == []


@pytest.mark.fuse
class TestMounted:
    def test_it_answers_when_the_command_returns(self, node: Node, conf: Cli, point: Path) -> None:
        assert node.basefs("mount", "conf", point, "-s") == ""
        assert os.listdir(point) == []
        assert stat.S_IMODE((conf.home.run_directory() / "conf.sock").stat().st_mode) == 0o600
        assert stat.S_IMODE(conf.home.run_directory().stat().st_mode) == 0o700

    def test_a_directory_that_is_not_empty(self, node: Node, point: Path) -> None:
        (point / "below").touch()
        done = node.spawn("mount", "conf", point, "-s")
        assert done.returncode == 0
        assert done.stderr == f"basefs: {point} has files of its own, which are hidden while conf is mounted there\n"
        assert os.listdir(point) == []
        node.basefs("unmount", "conf")
        assert os.listdir(point) == ["below"]

    def test_what_is_mounted_or_running_already(self, node: Node, conf: Cli, point: Path) -> None:
        conf("bootstrap", "other")
        node.mount("conf")
        (conf.base / "mnt2").mkdir()
        for arguments, message in (
            (("conf", point), "is mounted on"),
            (("other", point), "is mounted on"),
            (("conf", conf.base / "mnt2"), "conf is running already"),
        ):
            done = node.spawn("mount", *arguments, "-s")
            assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
            assert message in done.stderr
        assert mount_points(node.base) == [point]
        assert os.listdir(point) == []

    def test_a_mount_without_its_daemon_gets_another_one(self, node: Node, conf: Cli, point: Path) -> None:
        node.mount("conf")
        node.kill("conf")
        (point / "meanwhile").write_text("kept")
        (conf.base / "mnt2").mkdir()
        done = node.spawn("mount", "conf", conf.base / "mnt2", "-s")
        assert (done.returncode, done.stderr.count("\n")) == (1, 1) and f"is mounted on {point} still" in done.stderr
        server = node.server("conf")
        node.basefs("mount", "conf", point, "-s")
        assert node.server("conf") == server and mount_points(node.base) == [point]
        assert conf("cat", "conf:/meanwhile") == "kept"

    def test_a_mount_server_that_dies_is_replaced(self, node: Node, conf: Cli, point: Path) -> None:
        node.mount("conf")
        (point / "file").write_text("kept")
        node.kill_server("conf")
        wait_until(lambda: _reads(point / "file") == "kept", DEADLINE, "the mount is back")
        (point / "file").write_text("again")
        # The daemon attaches a moment after the mount is back.
        wait_until(lambda: conf("cat", "conf:/file") == "again", DEADLINE, "what was written is published")

    def test_a_dead_mount_is_repaired(self, node: Node, point: Path) -> None:
        node.mount("conf")
        node.kill("conf")
        node.kill_server("conf")
        node.basefs("mount", "conf", point, "-s")
        assert os.listdir(point) == []
        assert mount_points(node.base) == [point]

    def test_through_a_symbolic_link_or_a_relative_path(self, node: Node, conf: Cli, point: Path) -> None:
        link = conf.base / "link"
        link.symlink_to("mnt")
        node.basefs("mount", "conf", link, "-s")
        assert mount_points(node.base) == [point]
        assert json.loads(conf("list", "--json"))[0]["mountpoint"] == str(point)
        assert conf("show", link / ".cluster").endswith("\t/.cluster\n")
        assert conf("show", link).splitlines()[0].endswith("\t/")
        node.basefs("unmount", link)
        assert mount_points(node.base) == []

    def test_read_only(self, node: Node, point: Path) -> None:
        node.basefs("mount", "conf", point, "-s", "-o", "ro", "-o", "noexec,noatime")
        assert os.statvfs(point).f_flag & (os.ST_RDONLY | os.ST_NOEXEC) == os.ST_RDONLY | os.ST_NOEXEC

    def test_the_state_of_a_mount_is_told_apart_by_home(self, node: Node, cli: Cli, point: Path) -> None:
        """Two nodes on one machine, both with a filesystem `conf`."""
        mounted = node.mount("conf")
        other = Node(node.base / "other")
        other.base.mkdir()
        with Node.temporary(other.base):
            other.basefs("bootstrap", "conf")
            theirs = other.mount("conf")
            for target in (mounted, mounted / ".cluster"):
                done = other.spawn("show", target)
                assert (done.returncode, done.stderr.count("\n")) == (2, 1)
                assert f"mounted from another home than {other.home}" in done.stderr
            done = other.spawn("unmount", mounted)
            assert (done.returncode, done.stderr.count("\n")) == (2, 1)
            assert "another home" in done.stderr
            assert set(mount_points(node.base)) == {mounted, theirs}
            other.basefs("unmount", theirs)
            assert mount_points(node.base) == [mounted]
        assert os.listdir(mounted) == []
