"""The daemon as a service: its messages to systemd, and the installed unit."""

from __future__ import annotations

import shutil
import socket
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.commands import Cli
from tests.support.node import COMMAND, Node
from tests.support.patience import DEADLINE
from tests.support.project import ROOT

UNITS = [ROOT / "deploy" / name for name in ("basefs@.service", "basefs-mount@.service")]


@pytest.mark.fuse
@pytest.mark.parametrize("mounted", [True, False])
def test_what_the_manager_hears(node: Node, conf: Cli, mounted: bool) -> None:
    point = conf.base / "mnt"
    point.mkdir()
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as manager:
        manager.bind(str(conf.base / "notify"))
        manager.settimeout(DEADLINE)
        environment = {**node.environment, "NOTIFY_SOCKET": str(conf.base / "notify")}
        arguments = ["mount", "-sf", "conf", point] if mounted else ["run", "-sf", "conf"]
        daemon = subprocess.Popen([COMMAND, *arguments], env=environment)
        try:
            heard = []
            while "READY=1" not in heard or not any(text.startswith("STATUS=") for text in heard):
                heard.append(manager.recv(1000).decode())
            # It answers from that moment on.
            assert node.summary("conf")["state"] == ("mounted" if mounted else "running")
            assert point.is_mount() == mounted
            where = str(point) if mounted else "not mounted"
            assert f"STATUS={where}, single node, 4 entries" in heard
            daemon.terminate()
            while "STOPPING=1" not in heard:
                heard.append(manager.recv(1000).decode())
            assert daemon.wait(DEADLINE) == 0
        finally:
            daemon.kill()
            daemon.wait()
    assert not point.is_mount()


@pytest.mark.process
def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    tool = shutil.which("systemd-analyze")
    assert tool is not None, "apt-get install systemd"
    for unit in UNITS:
        # What it names must be there; here that is the program of this installation.
        text = unit.read_text().replace("/usr/bin/basefs", str(COMMAND))
        lines = (line for line in text.splitlines() if not line.startswith("Documentation="))
        (tmp_path / unit.name).write_text("\n".join(lines))
    instance = tmp_path / "basefs@conf.service"
    instance.symlink_to(tmp_path / "basefs@.service")
    done = subprocess.run([tool, "verify", "--man=no", str(instance)], capture_output=True, text=True, check=False)
    assert (done.returncode, [line for line in done.stderr.splitlines() if "basefs" in line]) == (0, [])
