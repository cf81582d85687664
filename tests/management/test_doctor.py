"""`basefs doctor`: each thing that it finds is really wrong here."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import sqlite3
import subprocess
import time
from typing import Any

import pytest

from basefs.daemon.config import SYNC_PORT_OFFSET
from basefs.log.entries import Action
from basefs.log.keys import SigningKey
from tests.support.commands import Cli
from tests.support.mounts import wait_until
from tests.support.node import COMMAND, Node
from tests.support.ports import free_port

#: A new /dev without /dev/fuse, and one in which it is no device.
_NEW_DEV = (
    "mount -t tmpfs none /dev; mknod -m 666 /dev/null c 1 3; mknod -m 666 /dev/zero c 1 5; "
    + "mknod -m 666 /dev/urandom c 1 9"
)


def findings(cli: Cli, *arguments: object) -> dict[str, list[dict[str, Any]]]:
    """What it finds in this process, by subject; problems and notes."""
    _, out, _ = cli.run("doctor", *arguments, "--json")
    return _by_subject(out)


def in_namespace(node: Node, prepare: str, *arguments: str, prefix: str = "") -> dict[str, list[dict[str, Any]]]:
    """What it finds in a mount namespace in which something was changed before."""
    script = f"{prepare}; exec {prefix} {shlex.join([str(COMMAND), 'doctor', *arguments, '--json'])}"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-ec", script],
        env=node.environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in done.stderr
    found = _by_subject(done.stdout)
    assert done.returncode == any(row["severity"] == "problem" for rows in found.values() for row in rows)
    return found


def _by_subject(out: str) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in json.loads(out):
        assert row["what"] and row["remedy"]
        found.setdefault(row["subject"], []).append(row)
    return found


def only(found: dict[str, list[dict[str, Any]]], subject: str, severity: str = "problem") -> str:
    """The one finding about something, in words."""
    (row,) = found[subject]
    assert row["severity"] == severity
    return f"{row['what']} | {row['remedy']}"


@pytest.fixture
def well(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """A node on a machine on which nothing is wrong, as far as it concerns this test."""
    cli("genkey")
    cli("bootstrap", "conf")
    return cli


class TestWell:
    @pytest.mark.fuse
    @pytest.mark.serf
    def test_nothing_is_wrong(self, node: Node, well: Cli) -> None:
        port = free_port()
        for target in ((), ("conf",)):
            found = findings(well, *target, "-b", f"127.0.0.1:{port}")
            # Whether anything sets the clock is the machine's business.
            assert set(found) <= {"clock"}
            assert all(row["severity"] == "note" for rows in found.values() for row in rows)
        code, out, err = well.run("doctor", "conf", "-b", f"127.0.0.1:{port}")
        assert code == 0 and (out == "") == (err == "all is well\n")
        node.basefs("run", "conf", "-b", f"127.0.0.1:{port}")
        assert set(findings(well, "conf")) <= {"clock", "disk"}

    def test_what_is_not_there(self, cli: Cli) -> None:
        assert "there is no filesystem conf" in cli.fails("doctor", "conf")
        assert "is not an address" in cli.fails("doctor", "-b", "x:y", code=2)


@pytest.mark.fuse
class TestFuse:
    def test_no_device(self, node: Node, well: Cli) -> None:
        assert "modprobe fuse" in only(in_namespace(node, _NEW_DEV), "fuse")

    def test_what_is_no_device(self, node: Node, well: Cli) -> None:
        assert "/dev/fuse is not a device" in only(in_namespace(node, f"{_NEW_DEV}; touch /dev/fuse"), "fuse")

    def test_no_permission(self, node: Node, well: Cli) -> None:
        # Somebody else's device, and without root's right to open whatever it likes.
        prepare = f"{_NEW_DEV}; mknod -m 600 /dev/fuse c 10 229; chown 65534 /dev/fuse"
        found = in_namespace(node, prepare, prefix="setpriv --bounding-set -dac_override,-dac_read_search")
        assert "/dev/fuse cannot be opened: Permission denied" in only(found, "fuse")

    @staticmethod
    def without_helper(well: Cli) -> str:
        # A file of its own: a mode that is set through a bind mount is that of what is mounted.
        empty = well.base / "helper"
        empty.write_bytes(b"")
        return f"mount --bind {empty} $(readlink -f $(command -v fusermount3))"

    def test_no_helper(self, node: Node, well: Cli) -> None:
        found = only(in_namespace(node, self.without_helper(well)), "fuse")
        assert "fusermount3 is missing" in found and "apt-get install fuse3" in found

    def test_what_a_mount_says_without_the_helper(self, node: Node, well: Cli) -> None:
        (node.base / "mnt").mkdir()
        script = f"{self.without_helper(well)}; exec {COMMAND} mount -s conf {node.base / 'mnt'}"
        command = ["unshare", "--mount", "sh", "-ec", script]
        done = subprocess.run(command, env=node.environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        assert "apt-get install fuse3" in done.stderr


class TestSerf:
    def test_none(self, well: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(well.base))
        assert "basefs installserf" in only(findings(well, "-b", f"127.0.0.1:{free_port()}"), "serf")

    @pytest.mark.parametrize("text,what", [("echo Serf v0.7.9", "0.8.0 or later"), ("exit 0", "is not Serf")])
    def test_too_old_or_something_else(self, well: Cli, monkeypatch: pytest.MonkeyPatch, text: str, what: str) -> None:
        serf = well.base / "serf"
        serf.write_text(f"#!/bin/sh\n{text}\n")
        serf.chmod(0o755)
        monkeypatch.setenv("PATH", f"{well.base}:{os.environ['PATH']}")
        assert what in only(findings(well, "-b", f"127.0.0.1:{free_port()}"), "serf")


class TestPorts:
    @pytest.mark.parametrize(
        "kind,offset,name", [("tcp", 0, "tcp"), ("udp", 0, "udp"), ("tcp", SYNC_PORT_OFFSET, "tcp")]
    )
    def test_taken(self, well: Cli, kind: str, offset: int, name: str) -> None:
        port = free_port()
        with socket.socket(type=socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM) as taken:
            taken.bind(("127.0.0.1", port + offset))
            if kind == "tcp":
                taken.listen()
            said = only(findings(well, "-b", f"127.0.0.1:{port}"), "port")
        assert f"port {port + offset}/{name} is taken by " in said and f"process {os.getpid()}" in said

    def test_an_address_of_another_machine(self, well: Cli) -> None:
        rows = findings(well, "-b", "192.0.2.1")["port"]
        assert "192.0.2.1 is not an address of this machine" in rows[0]["what"]

    def test_a_node_that_uses_them_itself(self, node: Node, well: Cli) -> None:
        port = free_port()
        well("bootstrap", "other")
        node.basefs("run", "other", "-b", f"127.0.0.1:{port}")
        assert "port" not in findings(well, "-b", f"127.0.0.1:{port}")


class TestHome:
    def test_written_by_others(self, well: Cli) -> None:
        well.home.path.chmod(0o777)
        well.home.default_key.chmod(0o644)
        rows = findings(well, "-b", f"127.0.0.1:{free_port()}")["home"]
        assert [row["remedy"].split()[1] for row in rows] == ["700", "600"]

    @pytest.mark.root
    def test_of_somebody_else(self, well: Cli) -> None:
        os.chown(well.home.path, 65534, 65534)
        assert "chown -R" in only(findings(well, "-b", f"127.0.0.1:{free_port()}"), "home")

    def test_settings_with_which_nothing_starts(self, well: Cli) -> None:
        (well.home.path / "config").write_text("[basefs]\nfull_sync_interval = 5s\n")
        said = only(findings(well, "-b", f"127.0.0.1:{free_port()}"), "home")
        assert "full_sync_interval is a number of seconds" in said and f"correct {well.home.path}/config" in said

    @pytest.mark.fuse
    @pytest.mark.parametrize(("fill", "how"), [("3900k", "nearly full"), ("4060k", "full")])
    def test_a_disk_that_fills_up(self, node: Node, well: Cli, fill: str, how: str) -> None:
        small = well.base / "small"
        small.mkdir()
        prepare = f"mount -t tmpfs -o size=4m none {small}; head -c {fill} /dev/zero > {small}/fill"
        prepare += f"; export BASEFS_HOME={small}"
        assert f"the disk of {small} is {how}: " in only(in_namespace(node, prepare), "disk")


class TestLog:
    def test_no_database(self, well: Cli) -> None:
        (well.home.directory("conf") / "log.db").write_bytes(b"this is no database" * 100)
        assert "cannot be read" in only(findings(well), "log")

    def test_damaged(self, well: Cli) -> None:
        with well.replica("conf") as replica:
            for number in range(300):
                replica.commit(lambda author, number=number: author.write((b"f%d" % number,), b"x"))
        path = well.home.directory("conf") / "log.db"
        with path.open("r+b") as file:
            # Some pages in the middle, as a bad disk loses them.
            file.seek(path.stat().st_size // 2 // 4096 * 4096)
            file.write(b"\xff" * 3 * 4096)
        assert "basefs check --repair conf" in only(findings(well), "log")

    def test_of_another_format(self, well: Cli) -> None:
        with sqlite3.connect(well.home.directory("conf") / "log.db") as db:
            db.execute("PRAGMA user_version = 99")
        db.close()
        assert "upgrade BaseFS" in only(findings(well), "log")

    @pytest.mark.logs("is damaged")
    def test_damage_that_a_daemon_has_met(self, node: Node, well: Cli) -> None:
        with well.replica("conf") as replica:
            replica.commit(lambda author: author.write((b"f",), b"x"))
        with sqlite3.connect(well.home.directory("conf") / "log.db") as db:
            db.execute("DROP TRIGGER entries_no_update")
            db.execute(
                "UPDATE entries SET data = CAST(data || x'00' AS BLOB) WHERE seq = (SELECT max(seq) FROM entries)"
            )
        db.close()
        assert "basefs check --repair conf" in only(findings(well, "-b", f"127.0.0.1:{free_port()}"), "log")


class TestKeys:
    def test_none(self, well: Cli) -> None:
        well.home.default_key.unlink()
        assert "basefs genkey" in only(findings(well, "-b", f"127.0.0.1:{free_port()}"), "keys")

    def test_one_that_is_granted_nowhere(self, node: Node, well: Cli) -> None:
        assert well.run("genkey", "-f")[0] == 0
        assert "basefs grant conf:/" in only(findings(well, "-b", f"127.0.0.1:{free_port()}"), "keys")
        node.basefs("run", "conf", "-s")
        # Without a mount nobody can write anyway.
        assert "basefs grant conf:/" in only(findings(well), "keys", "note")


class TestClock:
    def test_entries_that_came_before_their_time(self, well: Cli) -> None:
        other = SigningKey.generate()
        with well.replica("conf") as replica:
            replica.commit(lambda author: author.key_holder.grant((), b"other", other.public).draft)
            root = replica.plan(lambda author: author.node(())).outcome.tips[0]
            entry = other.sign(root.hash, time.time_ns() + 7200 * 10**9, Action.MKDIR, b"later")
            assert replica.apply([entry], []).entries
        rows = findings(well, "-b", f"127.0.0.1:{free_port()}")["clock"]
        (row,) = (row for row in rows if other.fingerprint.hex()[:12] in row["what"])
        assert row["severity"] == "note" and "up to 7" in row["what"]


@pytest.mark.fuse
class TestMounts:
    def test_a_dead_one(self, node: Node, well: Cli) -> None:
        point = node.mount("conf")
        node.kill("conf")
        node.kill_server("conf")
        found = findings(well, "-b", f"127.0.0.1:{free_port()}")
        assert f"basefs unmount {point}" in only(found, "mount")
        assert "has died" in only(found, "daemon")

    def test_one_that_hangs(self, node: Node, well: Cli) -> None:
        node.mount("conf")
        pids = node.daemon("conf"), node.server("conf")
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            # In a process of its own: what waits for a mount that hangs ends with it.
            done = node.spawn("doctor", "conf", "--json")
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        found = _by_subject(done.stdout)
        daemon, server = pids
        assert f"kill -CONT {daemon}" in only(found, "daemon")
        assert f"kill -CONT {server}" in only(found, "mount")


@pytest.mark.fuse
def test_handlers_that_fail(node: Node, well: Cli) -> None:
    point = node.mount("conf", "--handler", "false")
    (point / "f").touch()
    wait_until(lambda: node.status("conf")["handlers"]["failed"] > 0, "a handler that fails")
    assert "have failed" in only(findings(well, "conf"), "handlers", "note")


@pytest.mark.root
def test_people_read_it_line_by_line(well: Cli) -> None:
    well.home.default_key.chmod(0o644)
    code, out, err = well.run("doctor", "-b", f"127.0.0.1:{free_port()}")
    (line,) = (line for line in out.splitlines() if "\thome\t" in line)
    severity, _, what, remedy = line.split("\t")
    assert (code, severity, remedy) == (1, "problem", f"chmod 600 {well.home.default_key}")
    assert "is readable by other users" in what
    assert err == "basefs: 1 problem found\n"
