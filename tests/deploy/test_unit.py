"""The systemd unit: how exposed it is, and that a node works under what it forbids.

`systemd-analyze` judges the unit, and `tests.deploy.confined` applies what a process can apply to itself.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.confined import settings_of
from tests.support.commands import Cli
from tests.support.node import COMMAND, Node
from tests.support.patience import DEADLINE
from tests.support.ports import free_port
from tests.support.project import ROOT
from tests.support.wait import wait_until

UNIT, MOUNT_UNIT = ROOT / "deploy" / "basefs@.service", ROOT / "deploy" / "basefs-mount@.service"
#: Ten times what `systemd-analyze security` calls the exposure.  What is left would end the network or the handlers, or
#: have the daemon run as another user (docs/security.md).
MOST_EXPOSURE = 32
#: The same of the mount server: it mounts, and opens files for programs of all users, but has no network.
MOST_EXPOSURE_OF_THE_MOUNT = 62


@pytest.mark.process
def test_the_exposure_of_the_units() -> None:
    tool = shutil.which("systemd-analyze")
    assert tool is not None, "apt-get install systemd"
    for unit, most in ((UNIT, MOST_EXPOSURE), (MOUNT_UNIT, MOST_EXPOSURE_OF_THE_MOUNT)):
        command = [tool, "security", "--offline=yes", "--no-pager", f"--threshold={most}", str(unit)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_limits_are_set_and_a_handler_that_takes_too_much_ends_alone() -> None:
    for unit in (UNIT, MOUNT_UNIT):
        settings = settings_of(unit)
        assert re.fullmatch(r"\d+[MG]", settings["MemoryMax"][0]) and int(settings["TasksMax"][0]) > 0
        assert int(settings["LimitNOFILE"][0]) > 4096
    assert settings_of(UNIT)["OOMPolicy"] == ["continue"]


@pytest.mark.fuse
@pytest.mark.serf
def test_a_node_with_serf_and_handlers_works_under_the_unit(node: Node, conf: Cli) -> None:
    """The mount, Serf, a handler that gives a file away, and the end."""
    point = conf.base / "mnt"
    point.mkdir()
    conf.base.chmod(0o755)
    made = conf.base / "made"
    node.address, node.port = "127.0.0.1", free_port()
    handler = f'umask; cp "$BASEFS_MOUNTPOINT$BASEFS_EVENT_PATH" {made} && chown 65534:65534 {made} && chmod 640 {made}'
    arguments = ["mount", "-f", "conf", point, "-b", node.endpoint, "--profile", "local", "--handler", handler]
    arguments.append("--serve-only")
    command = [sys.executable, "-m", "tests.deploy.confined", UNIT, COMMAND, *arguments]
    with (conf.base / "said").open("w") as said:
        daemon = subprocess.Popen(command, env=node.environment, cwd=ROOT, stdout=said, stderr=said)
    server = subprocess.Popen([COMMAND, "mount", "--mount-only", "conf", point], env=node.environment)
    try:
        wait_until(point.is_mount, DEADLINE, "the mount")
        wait_until(lambda: node.spawn("members", "conf").returncode == 0, DEADLINE, "the daemon has its mount")
        wait_until(lambda: node.alive("conf") == 1, DEADLINE, "Serf runs")
        (point / "file").write_text("hello")
        os.chown(point / "file", 65534, 65534)
        (point / "file").chmod(0o600)
        wait_until(lambda: made.exists() and made.stat().st_uid == 65534, DEADLINE, "the handler ran")
        assert (point / "file").read_text() == "hello"
        status = Path(f"/proc/{node.daemon('conf')}/status").read_text()
        assert re.search(r"^NoNewPrivs:\t1$", status, re.MULTILINE) and re.search(
            r"^Seccomp:\t2$", status, re.MULTILINE
        )
        assert node.daemon("conf") == daemon.pid
        node.basefs("unmount", "conf")
        assert daemon.wait(DEADLINE) == 0 and server.wait(DEADLINE) == 0
    finally:
        daemon.kill()
        daemon.wait()
        server.kill()
        server.wait()
    written = (conf.base / "said").read_text()
    assert "Traceback" not in written and "WARNING" not in written and "ERROR" not in written, written
    assert not point.is_mount()
