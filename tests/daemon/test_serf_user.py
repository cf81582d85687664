"""Serf as a user of its own: it works, over restarts as well, and reaches nothing of the node."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from basefs.gossip.account import NAME
from tests.support.node import COMMAND, Node, has_ended
from tests.support.patience import DEADLINE
from tests.support.ports import free_port
from tests.support.wait import wait_until

#: An id that no system gives to anybody.
UID = 64_123
pytestmark = [pytest.mark.root, pytest.mark.serf, pytest.mark.process]

#: Prints those of its arguments that it can read or list.
_LOOK = """
import os, sys
for path in sys.argv[1:]:
    try:
        os.listdir(path) if os.path.isdir(path) else open(path, "rb").close()
        print(path)
    except OSError:
        pass
"""


class Machine:
    """A node in a mount namespace in which there is the user."""

    def __init__(self, node: Node, passwd: Path) -> None:
        self.node = node
        self._passwd = passwd

    def command(self, *arguments: str | Path) -> list[str | Path]:
        """A command line of `basefs` on this machine."""
        script = f'mount --bind {self._passwd} /etc/passwd && exec "$@"'
        return ["unshare", "--mount", "sh", "-c", script, "sh", COMMAND, *arguments]

    def basefs(self, *arguments: str | Path) -> str:
        """Run a command, which must succeed."""
        environment = self.node.environment
        done = subprocess.run(self.command(*arguments), env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done
        return done.stdout

    @contextmanager
    def running(self) -> Iterator[psutil.Process]:
        """Run the node; gives the process of Serf."""
        arguments = ["run", "-f", "conf", "-b", self.node.endpoint, "--profile", "local"]
        with (self.node.base / "said").open("a") as said:
            daemon = subprocess.Popen(self.command(*arguments), env=self.node.environment, stderr=said)
        try:
            yield self.serf(daemon.pid)
            if daemon.poll() is None:
                daemon.send_signal(signal.SIGTERM)
                assert daemon.wait(DEADLINE) == 0
        finally:
            daemon.kill()
            daemon.wait()

    def serf(self, daemon: int) -> psutil.Process:
        """The agent of a daemon, as soon as it is Serf and answers."""

        def found() -> Any:
            try:
                return [each for each in psutil.Process(daemon).children() if each.name() == "serf"]
            except psutil.Error:
                return []

        wait_until(found, DEADLINE, "Serf runs")
        wait_until(self._answers, DEADLINE, "Serf answers")
        return found()[0]

    def _answers(self) -> bool:
        done = self.node.spawn("members", "conf", "--json")
        return done.returncode == 0 and '"alive"' in done.stdout


@pytest.fixture
def machine(base: Path) -> Iterator[Machine]:
    """A node of root's, whose home Serf's user cannot enter."""
    base.chmod(0o755)
    passwd = base / "passwd"
    passwd.write_text(Path("/etc/passwd").read_text() + f"{NAME}:x:{UID}:{UID}::{base}/serf:/usr/sbin/nologin\n")
    with Node.temporary(base) as node:
        node.address, node.port = "127.0.0.1", free_port()
        node.basefs("bootstrap", "conf")
        yield Machine(node, passwd)


def test_serf_is_another_user_who_reaches_nothing_of_the_node(machine: Machine) -> None:
    home, own = machine.node.home, machine.node.base / "serf"
    with machine.running() as serf:
        status = Path(f"/proc/{serf.pid}/status").read_text()
        ids = dict(line.split(":", 1) for line in status.splitlines())
        assert ids["Uid"].split() == ids["Gid"].split() == [str(UID)] * 4
        assert ids["Groups"].split() == [] and int(ids["CapEff"], 16) == int(ids["CapPrm"], 16) == 0
        assert len(list(own.glob("conf-*/serf.json"))) == len(list(own.glob("conf-*/state/serf.snapshot"))) == 1
        # What it has open and what it reaches: its own, and of the node nothing.
        opened = [os.readlink(link) for link in Path(f"/proc/{serf.pid}/fd").iterdir()]
        assert not [path for path in opened if path.startswith(str(home))]
        paths = [str(path) for root in (home, own) for path in (root, *root.rglob("*"))]
        intruder = ("setpriv", "--reuid", str(UID), "--regid", str(UID), "--clear-groups")
        command = [*intruder, sys.executable, "-I", "-c", _LOOK, *paths]
        reached = set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines())
        assert reached and all(path.startswith(f"{own}/conf-") for path in reached)
        # It can put nothing in place of its configuration, and other users read none of it.
        for path in (own, *own.glob("conf-*"), *own.glob("conf-*/serf.json")):
            assert path.stat().st_uid == 0 and not path.stat().st_mode & 0o026
        assert all(not path.stat().st_mode & 0o007 for path in own.glob("conf-*"))
        assert "members" in machine.basefs("serf", "conf", "info") or machine.basefs("serf", "conf", "members")
    assert "Traceback" not in (machine.node.base / "said").read_text()


def test_restarts_keep_the_snapshot_also_that_of_an_agent_of_root(machine: Machine) -> None:
    node = machine.node
    # Before there was the user.
    node.basefs("run", "conf", "-b", node.endpoint, "--profile", "local")
    node.basefs("unmount", "conf")
    former = (node.home / "fs" / "conf" / "serf.snapshot").read_text()
    assert former
    with machine.running():
        (snapshot,) = (node.base / "serf").glob("conf-*/state/serf.snapshot")
        assert snapshot.read_text().startswith(former) and snapshot.stat().st_uid == UID
    # An agent that ran as root left files of root; a link to a file elsewhere is left alone.
    os.chown(snapshot, 0, 0)
    secret = node.base / "secret"
    secret.write_text("x")
    secret.chmod(0o600)
    (snapshot.parent / "hard").hardlink_to(secret)
    (snapshot.parent / "soft").symlink_to(secret)
    with machine.running() as serf:
        assert serf.uids().real == UID and snapshot.stat().st_uid == UID
        assert secret.stat().st_uid == 0
    machine.basefs("remove", "conf", "-y")
    assert list((node.base / "serf").iterdir()) == []


def test_it_ends_with_a_daemon_that_is_killed_and_is_started_again_when_it_dies(machine: Machine) -> None:
    with machine.running() as serf:
        os.kill(serf.pid, signal.SIGKILL)
        parent = machine.node.daemon("conf")
        children = psutil.Process(parent).children
        wait_until(lambda: any(each.pid != serf.pid for each in children()), DEADLINE, "another agent")
        again = machine.serf(parent)
        assert again.uids().real == UID
        machine.node.kill("conf")
        wait_until(lambda: has_ended(again.pid), DEADLINE, "the end of Serf")


def test_a_home_that_is_not_roots_alone_is_refused(machine: Machine) -> None:
    (machine.node.base / "serf").mkdir()
    os.chown(machine.node.base / "serf", UID, UID)
    command = machine.command("run", "-f", "conf", "-b", machine.node.endpoint)
    done = subprocess.run(command, env=machine.node.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "is not root's alone: type 'chown root:root" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
