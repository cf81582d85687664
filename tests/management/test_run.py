"""`basefs run`."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import basefs
from basefs.daemon.lock import LOCK_FILE, exclusive
from tests.support.commands import Cli
from tests.support.helpers import ALICE
from tests.support.mounts import wait_until
from tests.support.node import COMMAND, Node
from tests.support.patience import DEADLINE
from tests.support.ports import free_port


def test_it_answers_when_the_command_returns(node: Node, conf: Cli) -> None:
    assert node.basefs("run", "conf", "-s") == ""
    assert conf("list").split("\t")[:3] == ["conf", "running", "-"]
    assert "/.cluster" in conf("show", "conf")


def test_twice(node: Node, conf: Cli) -> None:
    node.basefs("run", "conf", "-s")
    done = node.spawn("run", "conf", "-s")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "conf is running already" in done.stderr


@pytest.mark.serf
@pytest.mark.parametrize("taken", [0, 1], ids=["gossip", "sync"])
def test_a_port_that_is_taken_is_named_with_two_that_are_free(node: Node, conf: Cli, taken: int) -> None:
    port = free_port()
    with contextlib.ExitStack() as stack:
        # The next pair is not free either.
        for number in (port + taken, port + 3):
            listener = stack.enter_context(socket.socket())
            listener.bind(("127.0.0.1", number))
            listener.listen()
        done = node.spawn("run", "conf", "-b", f"127.0.0.1:{port}")
    found = re.search(r"with -b (127\.0\.0\.1:\d+)", done.stderr)
    assert done.returncode == 1 and found is not None, done.stderr
    assert f"cannot listen on 127.0.0.1:{port + taken}: Address already in use; " in done.stderr
    assert int(found[1].rpartition(":")[2]) >= port + 4
    node.basefs("run", "conf", "-b", found[1])


def test_errors(conf: Cli) -> None:
    assert "there is no filesystem other" in conf.fails("run", "other", "-s")
    assert "-b takes an IP address" in conf.fails("run", "conf", "-s", "-b", "example.org", code=2)
    assert "no such option" in conf.misused("run", "conf", "--owners")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_in_front_until_a_signal(node: Node, conf: Cli, number: signal.Signals) -> None:
    with subprocess.Popen(
        [COMMAND, "run", "conf", "-s", "-f"], env=node.environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as front:
        try:
            wait_until((conf.home.run_directory() / "conf.json").exists, "the daemon in front")
            wait_until(lambda: conf("list").split("\t")[1] == "running", "its answers")
            # What logrotate and others send to all means nothing.
            front.send_signal(signal.SIGHUP)
            assert conf("list").split("\t")[1] == "running"
            front.send_signal(number)
            _, err = front.communicate(timeout=DEADLINE)
        finally:
            front.kill()
    assert front.returncode == 0
    assert b"Traceback" not in err
    assert list(conf.home.run_directory().iterdir()) == []


def test_a_killed_daemon_keeps_what_was_committed_and_starts_again(node: Node, conf: Cli) -> None:
    node.basefs("run", "conf", "-s")
    conf("grant", "conf:/", "alice", ALICE.public.hex())
    node.kill("conf")
    assert "alice" in conf("keys", "conf")
    node.basefs("run", "conf", "-s")
    assert "alice" in conf("keys", "conf")


def test_the_daemon_has_left_the_session_of_who_started_it(node: Node, conf: Cli) -> None:
    node.basefs("run", "conf", "-s")
    assert os.getsid(node.daemon("conf")) == node.daemon("conf") != os.getsid(0)


def test_the_daemon_keeps_nothing_open_for_which_who_started_it_may_wait(node: Node, conf: Cli) -> None:
    reading, writing = os.pipe()
    command = [COMMAND, "run", "conf", "-s"]
    done = subprocess.run(
        command, env=node.environment, pass_fds=[writing], capture_output=True, check=True, timeout=DEADLINE
    )
    os.close(writing)
    with open(reading, "rb") as pipe:
        assert select.select([pipe], [], [], DEADLINE)[0] and pipe.read() == b""
    assert (done.stdout, done.stderr) == (b"", b"")
    assert conf("list").split("\t")[1] == "running"


def test_who_hangs_up_in_the_middle_of_an_answer_ends_nothing(node: Node, conf: Cli) -> None:
    with conf.replica("conf") as replica:
        for number in range(300):
            replica.commit(lambda author, number=number: author.write((b"f%d" % number,), b""))  # type: ignore[misc]
    node.basefs("run", "conf", "-s")
    pid = node.daemon("conf")
    for _ in range(20):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(conf.home.run_directory() / "conf.sock"))
            connection.sendall(b'{"command": "show", "arguments": {"path": "/"}}\n')
    assert "/f299" in conf("show", "conf")
    assert node.daemon("conf") == pid


def test_a_command_waits_for_a_daemon_that_is_just_starting(node: Node, conf: Cli) -> None:
    # The daemon has the log before its socket is there; nobody may write behind its back.
    with exclusive(conf.home.existing("conf"), "conf"):
        waiting = subprocess.Popen([COMMAND, "grant", "conf:/", "alice", ALICE.public.hex()], env=node.environment)
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(1.0)
    assert waiting.wait(DEADLINE) == 0
    assert "alice" in conf("keys", "conf")


def test_a_command_that_looks_at_the_log_stops_no_daemon_from_starting(node: Node, conf: Cli) -> None:
    directory = conf.home.existing("conf")

    def runs_after_a_look() -> bool:
        """Whether it runs; it has given up where this machine stood still for seconds before the lock was free."""
        nonlocal daemon
        with exclusive(directory, "conf"):
            daemon = subprocess.Popen([COMMAND, "run", "conf", "-sf"], env=node.environment)
            wait_until(lambda: daemon.poll() is not None or directory / LOCK_FILE in _open_files(daemon.pid), "a try")
        wait_until(lambda: daemon.poll() is not None or node.summary("conf")["state"] == "running", "the daemon runs")
        return daemon.poll() is None

    daemon: subprocess.Popen[bytes]
    assert any(runs_after_a_look() for _ in range(5))
    node.basefs("unmount", "conf")
    assert daemon.wait(DEADLINE) == 0


def _open_files(pid: int) -> set[Path]:
    found = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.add(link.readlink())
    return found


def test_nothing_is_imported_from_where_somebody_runs_it(node: Node, conf: Cli) -> None:
    for module in ("basefs", "click", "sqlite3"):
        (conf.base / "here" / module).mkdir(parents=True)
        (conf.base / "here" / module / "__init__.py").write_text("raise SystemExit('imported from here')\n")
    for command in ([COMMAND], [sys.executable, Path(basefs.__file__).with_name("__main__.py")]):
        subprocess.run([*command, "run", "conf", "-s"], cwd=conf.base / "here", env=node.environment, check=True)
        node.basefs("unmount", "conf")


def test_a_node_whose_key_is_no_member_says_what_to_do(conf: Cli, node: Node) -> None:
    other = conf.base / "other"
    ALICE.save(other)
    done = node.spawn("run", "conf", "-s", "-k", other)
    assert done.returncode == 0 and done.stdout == ""
    assert "no key of this node is a member of conf" in done.stderr and "'basefs grant conf' on a member" in done.stderr
    assert done.stderr.count("\n") == 1
    node.basefs("unmount", "conf")
    assert node.spawn("run", "conf", "-s").stderr == ""
