"""`basefs unmount`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from basefs.fs.server.device import unmount
from tests.support.commands import Cli
from tests.support.mounts import wait_until
from tests.support.node import Node, has_ended, mount_points


def test_what_does_not_run(conf: Cli) -> None:
    assert "conf is not running" in conf.fails("unmount", "conf")


def test_what_is_not_there(cli: Cli) -> None:
    assert "there is no filesystem conf" in cli.fails("unmount", "conf")
    assert f"no BaseFS filesystem is mounted on {cli.base}: 'basefs list' lists" in cli.fails("unmount", cli.base)
    assert "is not a filesystem name" in cli.fails("unmount", "..", code=2)
    assert cli.misused("unmount") == "basefs: missing argument 'NAME|MOUNTPOINT': see 'basefs unmount --help'"


def test_what_runs_without_a_mount(node: Node, conf: Cli) -> None:
    node.basefs("run", "conf", "-s")
    pid = node.daemon("conf")
    assert conf("unmount", "conf") == ""
    wait_until(lambda: has_ended(pid), "the daemon's end")
    assert list(conf.home.run_directory().iterdir()) == []
    assert "conf is not running" in conf.fails("unmount", "conf")


@pytest.mark.fuse
@pytest.mark.parametrize("by", ["name", "mount point", "relative path"])
def test_a_mount(node: Node, conf: Cli, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    point = node.mount("conf")
    pid = node.daemon("conf")
    monkeypatch.chdir(conf.base)
    target = {"name": "conf", "mount point": point, "relative path": "mnt/../mnt/"}[by]
    assert conf("unmount", target) == ""
    assert mount_points(conf.base) == []
    wait_until(lambda: has_ended(pid), "the daemon's end")
    assert os.listdir(point) == []
    assert list(conf.home.run_directory().iterdir()) == []


@pytest.mark.fuse
@pytest.mark.parametrize("by", ["name", "mount point"])
def test_a_dead_mount(node: Node, conf: Cli, by: str) -> None:
    point = node.mount("conf")
    node.kill("conf")
    node.kill_server("conf")
    with pytest.raises(OSError):
        os.listdir(point)
    assert conf("unmount", "conf" if by == "name" else point) == ""
    assert mount_points(conf.base) == []
    assert conf("list").split("\t")[1] == "stopped"


@pytest.mark.fuse
@pytest.mark.parametrize("by", ["name", "mount point"])
def test_a_mount_whose_daemon_is_dead(node: Node, conf: Cli, by: str) -> None:
    point = node.mount("conf")
    node.kill("conf")
    (point / "file").write_text("kept")
    told = conf.empty("unmount", "conf" if by == "name" else point)
    assert "1 changed name of conf is not published" in told
    assert mount_points(conf.base) == []
    assert conf("list").split("\t")[1] == "stopped"


@pytest.mark.fuse
def test_a_dead_mount_of_an_earlier_daemon(node: Node, conf: Cli) -> None:
    old = node.mount("conf", point="old")
    node.kill("conf")
    node.kill_server("conf")
    new = node.mount("conf", point="new")
    assert conf("unmount", old) == ""
    assert mount_points(conf.base) == [new]
    assert os.listdir(new) == []


@pytest.mark.fuse
def test_a_mount_that_was_unmounted_by_other_means(node: Node, conf: Cli) -> None:
    point = node.mount("conf")
    pid = node.daemon("conf")
    unmount(point, lazy=True)
    wait_until(lambda: has_ended(pid), "the daemon's end")
    assert "conf is not running" in conf.fails("unmount", "conf")
    assert conf("list").split("\t")[1] == "stopped"


@pytest.mark.fuse
def test_a_server_that_takes_long_to_end_is_not_attached_to(node: Node, conf: Cli) -> None:
    point = node.mount("conf")
    node.kill("conf")
    former = node.server("conf")
    os.kill(former, signal.SIGSTOP)
    subprocess.run(["umount", "--lazy", point], check=True)
    node.mount("conf")
    os.kill(former, signal.SIGCONT)
    wait_until(lambda: has_ended(former), "the former server's end")
    (point / "f").write_text("x")
    # A daemon finds the new one where the former one was.
    node.kill("conf")
    node.mount("conf")
    assert (point / "f").read_text() == "x" and conf("cat", "conf:/f") == "x"


@pytest.mark.fuse
def test_a_mount_in_use_stays_unless_told_otherwise(node: Node, conf: Cli) -> None:
    point = node.mount("conf")
    pid = node.daemon("conf")
    with (point / "open").open("w") as file:
        assert "is in use: close the files" in conf.fails("unmount", "conf")
        assert mount_points(conf.base) == [point]
        file.write("still here")
        file.flush()
        assert "ends when the last file" in conf.empty("unmount", "conf", "--lazy")
        assert mount_points(conf.base) == []
    wait_until(lambda: has_ended(pid), "the daemon's end")
    with conf.replica("conf") as replica:
        assert replica.read((b"open",)) == b"still here"


@pytest.mark.fuse
def test_a_copy_of_the_home_leaves_the_mount_of_the_first_alone(conf: Cli, node: Node) -> None:
    """A backup that was made while it was mounted, restored beside it: its files name the same mount point."""
    point = node.mount("conf")
    (point / "file").write_text("here")
    copy = Node(conf.base / "copy")
    shutil.copytree(node.home, copy.home, ignore=shutil.ignore_patterns("*.sock"))
    for target, code in (("conf", 1), (str(point), 2)):
        done = copy.spawn("unmount", target)
        assert (done.returncode, done.stderr.count("\n")) == (code, 1)
    assert copy.spawn("show", str(point)).returncode == 2
    assert (point / "file").read_text() == "here"
    assert node.summary("conf")["state"] == "mounted"
    assert copy.summary("conf")["state"] == "stopped"
    assert "conf is intact" in copy.spawn("check", "conf").stderr


@pytest.mark.fuse
def test_a_mount_of_a_daemon_that_is_stopped_can_be_detached(node: Node, conf: Cli) -> None:
    point = node.mount("conf")
    pid = node.daemon("conf")
    os.kill(pid, signal.SIGSTOP)
    try:
        # A signal takes effect when the process runs next.
        wait_until(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED, "the daemon is stopped")
        assert f"'kill -CONT {pid}' lets it go on" in conf.fails("unmount", "conf")
        assert mount_points(conf.base) == [point]
        conf.empty("unmount", "conf", "--lazy")
        assert mount_points(conf.base) == []
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: has_ended(pid), "the daemon's end")


@pytest.mark.fuse
def test_those_who_use_a_mount_are_named(node: Node, conf: Cli) -> None:
    point = node.mount("conf")
    with subprocess.Popen(["sleep", "1000"], cwd=point) as user:
        try:
            message = conf.fails("unmount", "conf")
            assert message.endswith(f"or add --lazy; used by process {user.pid} (sleep)\n")

            code, _, err = conf.run("unmount", "--lazy", "--timeout", "0", "conf")
            assert code == 0 and f"still used by process {user.pid} (sleep)" in err
            (row,) = json.loads(conf("list", "--json"))
            assert (row["state"], row["mountpoint"]) == ("ending", str(point))
            assert f"ending, process {row['pid']}: its daemon ends when the last file" in conf("status", "conf")
            for arguments in (("mount", "-s", "conf", point), ("run", "-s", "conf")):
                error = node.spawn(*arguments).stderr
                assert f"conf was unmounted and has not ended, process {row['pid']}: " in error
            err = conf.run("unmount", "--timeout", "1.5", "conf")[2]
            assert err.startswith("basefs: waiting for conf: its daemon ends when the last file") and "1.5 s" in err
        finally:
            user.kill()
    wait_until(lambda: has_ended(row["pid"]), "the daemon's end")
    assert json.loads(conf("list", "--json"))[0]["state"] == "stopped"


# The namespace holds copies of the mounts of other tests as well, whose unmount would say so.
@pytest.mark.alone
@pytest.mark.fuse
@pytest.mark.root
def test_a_copy_in_another_mount_namespace_is_named(node: Node, conf: Cli) -> None:
    node.mount("conf")
    command = ["unshare", "--mount", "--propagation", "private", "sleep", "1000"]
    with subprocess.Popen(command) as user:
        try:
            wait_until(lambda: "sleep" in Path(f"/proc/{user.pid}/comm").read_text(), "its namespace")
            code, _, err = conf.run("unmount", "--timeout", "2", "conf")
            holder = f"process {user.pid} (sleep) in another mount namespace"
            first, last = err.splitlines()
            assert code == 1
            # Another program may have made a namespace meanwhile, too.
            assert first.startswith("basefs: waiting for conf: process ") and holder in first
            assert "has not ended after 2 s: process " in last and holder in last
            assert holder in node.spawn("mount", "-s", "conf", node.mountpoint).stderr
        finally:
            user.kill()
    wait_until(lambda: json.loads(conf("list", "--json"))[0]["state"] == "stopped", "the daemon's end")


@pytest.mark.fuse
def test_what_a_full_disk_kept_from_being_published_is_told(cli: Cli) -> None:
    disk, point = cli.base / "disk", cli.base / "point"
    disk.mkdir()
    point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", disk], check=True)
    try:
        node = Node(disk)
        node.basefs("genkey")
        node.basefs("bootstrap", "conf")
        node.basefs("mount", "conf", point, "-s")
        (point / "before").write_text("x")
        assert "not published" not in node.spawn("unmount", "conf").stderr, "nothing to tell"
        node.basefs("mount", "conf", point, "-s")
        fill(disk / "ballast")
        for number in range(3):
            (point / f"new{number}").mkdir()
        (point / "before").unlink()
        done = node.spawn("unmount", "conf")
        left = "4 changed names of conf are not published"
        assert (done.returncode, done.stdout) == (0, "")
        told = [line for line in done.stderr.splitlines() if "not published" in line]
        assert len(told) == 1 and told[0].startswith(f"basefs: {left}; no other machine has them, ")
        assert f"{left}: mount it once more" in node.spawn("remove", "conf").stderr
        (disk / "ballast").unlink()
        node.basefs("mount", "conf", point, "-s")
        assert sorted(os.listdir(point)) == ["new0", "new1", "new2"]
        # It may wait for a test beside this one, whose mount namespace has a copy of the mount.
        assert "not published" not in node.spawn("unmount", "conf").stderr
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def fill(path: Path) -> None:
    """Take all the room of a disk."""
    with pytest.raises(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
