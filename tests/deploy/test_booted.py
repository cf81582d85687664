"""The systemd unit under a real systemd: init of a process namespace of its own, over a copy of this system."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from basefs.gossip.account import NAME as SERF_USER
from tests.support.node import COMMAND
from tests.support.patience import DEADLINE
from tests.support.project import ROOT
from tests.support.wait import wait_until

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.serf, pytest.mark.process]

#: Becomes init: $1 is an empty directory, the others are places on other disks.  What is written goes into memory.
_BOOT = r"""
set -eu
base=$1 root=$1/root
mount --make-rprivate /
mount -t tmpfs tmpfs "$base"
mkdir "$base/upper" "$base/work" "$root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$base/upper,workdir=$base/work" "$root"
shift
mount -t tmpfs tmpfs "$root/tmp"
for place in "$@"; do mkdir -p "$root$place"; mount --rbind "$place" "$root$place"; done
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/dev"
for name in null zero full random urandom tty fuse; do
    touch "$root/dev/$name"; mount --bind "/dev/$name" "$root/dev/$name"
done
mkdir "$root/dev/shm"
touch "$root/dev/console"
ln -s pts/ptmx "$root/dev/ptmx"
mount -t sysfs sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
rm -rf "$root/var/lib/basefs" "$root"/etc/systemd/system/*.wants
mkdir -p "$root/etc/basefs"
for unit in basefs@ basefs-mount@; do
    mkdir -p "$root/etc/systemd/system/${unit}conf.service.d"
    cp "$SOURCE/deploy/$unit.service" "$root/etc/systemd/system/"
    printf '[Service]\nEnvironment=PYTHONPATH=%s\nStandardError=append:/var/log/conf\n' "$SOURCE" \
        > "$root/etc/systemd/system/${unit}conf.service.d/test.conf"
done
printf 'OPTIONS=--bind 127.0.0.1:18374 --profile local --handler /var/tmp/handler\n' > "$root/etc/basefs/conf.conf"
printf '#!/bin/sh\nid -u > /var/tmp/handled\nchown %s /var/tmp/handled\n' "$SERF_USER" > "$root/var/tmp/handler"
printf '#!/bin/sh\nexec %s "$@"\n' "$COMMAND" > "$root/usr/bin/basefs"
chmod 755 "$root/var/tmp/handler" "$root/usr/bin/basefs"
printf '[Unit]\nDescription=Nothing but BaseFS\nWants=basefs@conf.service\n' > "$root/etc/systemd/system/alone.target"
cd "$root"
pivot_root . mnt
umount -l /mnt
mount --make-rshared /
ip link set lo up
useradd --system --user-group --no-create-home --home-dir /var/lib/basefs-serf "$SERF_USER"
install -d -m 700 /var/lib/basefs
BASEFS_HOME=/var/lib/basefs PYTHONPATH=$SOURCE basefs bootstrap conf
exec env -i container=lxc PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system --unit=alone.target \
    --log-target=null --show-status=no --default-standard-output=null
"""


class Machine:
    """A running systemd."""

    def __init__(self, init: int) -> None:
        self.init = init

    def run(self, *command: str) -> str:
        """What a command prints there, however it ends."""
        inside = ("nsenter", f"--target={self.init}", "--mount", "--pid", "--uts", "--ipc", "--net", "--root", "--wd")
        environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "BASEFS_HOME": "/var/lib/basefs",
            "PYTHONPATH": str(ROOT),
        }
        done = subprocess.run([*inside, *command], env=environment, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    def settings(self, *names: str) -> dict[str, str]:
        """Properties of the service."""
        lines = self.run("systemctl", "show", "basefs@conf", *(f"--property={name}" for name in names)).splitlines()
        return dict(line.split("=", 1) for line in lines)

    def status(self, pid: str) -> dict[str, str]:
        """proc(5) of a process."""
        lines = self.run("cat", f"/proc/{pid}/status").splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

    def stop(self) -> None:
        """Stop the service, and wait until nothing needs its mount."""
        self.run("systemctl", "stop", "basefs@conf")
        wait_until(lambda: "basefs:conf" not in self.run("findmnt", "-n", "-o", "SOURCE"), DEADLINE, "it is unmounted")
        ended = lambda: self.run("systemctl", "is-active", "basefs-mount@conf") in ("inactive", "failed")  # noqa: E731
        wait_until(ended, DEADLINE, "the mount server has ended")

    @property
    def log(self) -> str:
        """What the daemon has logged."""
        return self.run("cat", "/var/log/conf")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine that has booted, with one filesystem and the user for Serf."""
    place = next(
        (Path(line.split()[1]) for line in Path("/proc/mounts").read_text().splitlines() if " cgroup2 " in line), None
    )
    assert place is not None, "no cgroup2 is mounted, which systemd needs"
    cgroup = place / f"basefs-test-{os.getpid()}"
    cgroup.mkdir()
    # What is on other disks than / is not in a copy of it, and /tmp is empty there.
    device = os.stat("/").st_dev
    wanted = {str(ROOT), sys.prefix, sys.base_prefix}
    others = [path for path in sorted(wanted) if os.stat(path).st_dev != device or path.startswith("/tmp/")]
    environment = {**os.environ, "SOURCE": str(ROOT)}
    environment |= {"COMMAND": str(COMMAND), "SERF_USER": SERF_USER}
    environment.pop("BASEFS_HOME", None)
    namespaces = ("--mount", "--pid", "--fork", "--uts", "--ipc", "--cgroup", "--net", "--kill-child")
    # Its shell is in the cgroup before it gets a namespace that begins there.
    enter = f'echo $$ > {cgroup}/cgroup.procs && exec unshare {" ".join(namespaces)} sh -c "$0" sh "$@"'
    with (tmp_path / "said").open("w") as said:
        outer = subprocess.Popen(
            ["sh", "-c", enter, _BOOT, tmp_path, *others],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
        )
    try:

        def booted() -> bool:
            assert outer.poll() is None, (tmp_path / "said").read_text()
            return [each.name() for each in psutil.Process(outer.pid).children()] == ["systemd"]

        wait_until(booted, DEADLINE, "systemd runs")
        yield Machine(psutil.Process(outer.pid).children()[0].pid)
    finally:
        outer.kill()
        outer.wait()
        wait_until(lambda: not _processes(cgroup), DEADLINE, "all processes have ended")
        for directory, _, _ in os.walk(cgroup, topdown=False):
            Path(directory).rmdir()


def _processes(cgroup: Path) -> list[str]:
    return [pid for file in cgroup.rglob("cgroup.procs") for pid in file.read_text().split()]


def test_a_mount_that_fails_leaves_nothing(machine: Machine) -> None:
    """Something else is mounted there, which must stay."""
    wait_until(lambda: machine.settings("ActiveState") == {"ActiveState": "active"}, DEADLINE, "the service is active")
    machine.stop()
    machine.run("mount", "-t", "tmpfs", "other", "/srv/basefs/conf")
    machine.run("systemctl", "start", "basefs@conf")
    assert "something is mounted on /srv/basefs/conf already" in machine.log
    machine.stop()
    assert machine.run("findmnt", "-n", "-o", "SOURCE", "/srv/basefs/conf") == "other"
    machine.run("umount", "/srv/basefs/conf")
    machine.run("systemctl", "start", "basefs@conf")
    assert machine.settings("ActiveState") == {"ActiveState": "active"}
    # A mount in use is detached, and the daemon ends.
    machine.run("sh", "-c", "cd /srv/basefs/conf && exec sleep 100 > /dev/null 2>&1 &")
    machine.stop()
    assert machine.settings("Result", "ActiveState") == {"Result": "success", "ActiveState": "inactive"}
    # An administrator may unmount.
    machine.run("systemctl", "start", "basefs@conf")
    assert machine.settings("ActiveState") == {"ActiveState": "active"}
    machine.run("basefs", "unmount", "conf")
    wait_until(lambda: machine.settings("ActiveState")["ActiveState"] == "inactive", DEADLINE, "the service has ended")
    assert (
        machine.settings("Result") == {"Result": "success"} and machine.run("findmnt", "-n", "/srv/basefs/conf") == ""
    )
    assert "Traceback" not in machine.log


def test_the_unit_works_as_it_is(machine: Machine) -> None:
    wait_until(lambda: machine.settings("ActiveState") == {"ActiveState": "active"}, DEADLINE, "the service is active")
    # Everybody sees the mount, not the service alone.
    mounted = "findmnt", "-n", "-o", "SOURCE", "/srv/basefs/conf"
    assert machine.run(*mounted) == "basefs:conf"
    machine.run("sh", "-c", "echo hello > /srv/basefs/conf/file")
    wait_until(lambda: machine.run("stat", "-c", "%U", "/var/tmp/handled") == SERF_USER, DEADLINE, "the handler ran")
    machine.run("chmod", "644", "/srv/basefs/conf/file")
    assert machine.run("setpriv", "--reuid=65534", "--clear-groups", "cat", "/srv/basefs/conf/file") == "hello"
    main = machine.settings("MainPID")["MainPID"]
    status = machine.status(main)
    assert (status["NoNewPrivs"], status["Seccomp"], status["Uid"].split()) == ("1", "2", ["0"] * 4)
    # It serves the mount, and could not make it: CAP_SYS_ADMIN is 21.
    assert not int(status["CapBnd"], 16) >> 21 & 1
    assert machine.settings("MemoryMax", "TasksMax") == {"MemoryMax": str(2**30), "TasksMax": "512"}
    wait_until(lambda: machine.run("pgrep", "-x", "serf", "-u", SERF_USER) != "", DEADLINE, "Serf runs")
    serf = machine.status(machine.run("pgrep", "-x", "serf", "-u", SERF_USER))
    assert (serf["NoNewPrivs"], serf["Seccomp"], int(serf["CapEff"], 16)) == ("1", "2", 0)
    # A program that has a file open sees no error while the daemon is killed, started again, and restarted.
    appender = "exec 3>>/srv/basefs/conf/kept; while echo line >&3 && cat /srv/basefs/conf/file; do sleep 0.05; done"
    machine.run("sh", "-c", f"({appender}; echo failed > /var/tmp/failed) > /dev/null 2>&1 &")
    machine.run("kill", "-KILL", main)
    wait_until(lambda: machine.settings("NRestarts") == {"NRestarts": "1"}, DEADLINE, "it is started again")
    wait_until(lambda: machine.settings("ActiveState") == {"ActiveState": "active"}, DEADLINE, "the service is active")
    machine.run("systemctl", "restart", "basefs@conf")
    wait_until(lambda: machine.settings("ActiveState") == {"ActiveState": "active"}, DEADLINE, "the service is active")
    assert machine.run("cat", "/var/tmp/failed", "/srv/basefs/conf/file") == "hello"
    # A mount server that is killed is started again, and the daemon attaches to it.
    server = machine.run("systemctl", "show", "basefs-mount@conf", "--property=MainPID", "--value")
    machine.run("kill", "-KILL", server)
    wait_until(lambda: machine.run("cat", "/var/tmp/failed") == "failed", DEADLINE, "the mount is gone")
    wait_until(lambda: machine.run("cat", "/srv/basefs/conf/file") == "hello", DEADLINE, "the mount is back")
    machine.run("sh", "-c", "echo again > /srv/basefs/conf/file")
    wait_until(lambda: "again" in machine.run("basefs", "cat", "conf:/file"), DEADLINE, "the daemon publishes")
    machine.stop()
    assert machine.settings("Result", "ActiveState") == {"Result": "success", "ActiveState": "inactive"}
    assert machine.run("pgrep", "-x", "serf") == ""
    assert "Traceback" not in machine.log
