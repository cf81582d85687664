"""What mount(8) runs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from basefs.errors import UsageError
from basefs.management.mounthelper import _options_of_mount, translate
from tests.support.commands import Cli
from tests.support.node import COMMAND, Node

KNOWN = _options_of_mount()


def translated(*arguments: str) -> list[str]:
    return translate([*arguments], KNOWN)[0]


def test_what_mount_says_becomes_a_command() -> None:
    words = translated("basefs:conf", "/mnt", "-o", "rw,single-node,bind=10.0.0.1:7000,ro,x-y=1", "-t", "fuse.basefs")
    assert words == ["mount", "conf", "/mnt", "--single-node", "--bind", "10.0.0.1:7000", "-o", "ro"]
    assert translated("conf", "/mnt", "-o", "defaults,_netdev,nofail,rw,x-systemd.automount", "-v", "-n") == [
        "mount",
        "conf",
        "/mnt",
    ]
    assert translated("conf", "/mnt", "-o", "no-owners,uid=5,max_read=4096,k=/root/key") == [
        *("mount", "conf", "/mnt", "--no-owners", "--uid", "5", "-o", "max_read=4096", "-k", "/root/key")
    ]


def test_a_home_and_a_rehearsal() -> None:
    assert translate(["conf", "/mnt", "-o", "home=/var/x"], KNOWN) == (["mount", "conf", "/mnt"], "/var/x")
    assert translate(["conf", "/mnt", "-f"], KNOWN) == ([], None)


@pytest.mark.parametrize(
    "arguments", [["conf"], ["a", "b", "c"], ["conf", "/mnt", "-q"], ["conf", "/mnt", "-o", "uid"]]
)
def test_what_makes_no_sense(arguments: list[str]) -> None:
    with pytest.raises(UsageError):
        translated(*arguments)
    done = subprocess.run(
        [COMMAND.with_name("mount.fuse.basefs"), *arguments], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


_SCRIPT = """
set -eu
# A mount namespace of its own, in which the helper is in its place, and only there.
cp -a /usr/sbin/. "$base/sbin"
ln -sf "$helper" "$base/sbin/mount.fuse.basefs"
mount --bind "$base/sbin" /usr/sbin
mount -t fuse.basefs basefs:conf "$base/mnt" -o single-node,noexec,"home=$base/home"
findmnt -n -o SOURCE,FSTYPE,OPTIONS "$base/mnt"
echo hello > "$base/mnt/file"
umount "$base/mnt"
printf 'basefs:conf %s fuse.basefs single-node,ro,nofail,_netdev,x-systemd.automount 0 0\\n' "$base/mnt" > "$base/fstab"
mount -a -T "$base/fstab"
# Once more changes nothing: it is there.
mount -a -T "$base/fstab"
cat "$base/mnt/file"
if echo no > "$base/mnt/file"; then exit 3; fi
umount "$base/mnt"
if mount -t fuse.basefs nothing "$base/mnt"; then exit 4; fi
"""


@pytest.mark.fuse
def test_with_mount_itself(node: Node, conf: Cli, tmp_path: Path) -> None:
    (conf.base / "mnt").mkdir()
    (conf.base / "sbin").mkdir()
    environment = {
        **node.environment,
        "base": str(conf.base),
        "helper": str(COMMAND.with_name("mount.fuse.basefs")),
    }
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", _SCRIPT],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.startswith("basefs:conf fuse.basefs ")
    assert "noexec" in first
    assert second == "hello"
    assert "there is no filesystem nothing" in done.stderr
