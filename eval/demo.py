"""`make demo`: three nodes on this machine, and what a change on one looks like on the others."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from tests.support.node import CommandFailed, Node
from tests.support.wait import wait_until

NAME = "demo"
FIRST_PORT = 18374
#: Each node takes its gossip port and the next one.
PORT_STEP = 2


def main() -> None:
    """Run the demonstration until Ctrl-C."""
    done = threading.Event()
    # Being told to stop while nodes run must clean up as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: done.set())
    directory = Path(tempfile.mkdtemp(prefix="basefs-demo-"))
    ports = (port for port in range(FIRST_PORT, 65000, PORT_STEP) if _is_free(port))
    nodes = [Node(directory / f"node{number}", "127.0.0.1", next(ports)) for number in (1, 2, 3)]
    try:
        _start(nodes)
        _write_a_file(nodes)
        _copy_etc(nodes)
        _invite(nodes)
        done.wait()
    except KeyboardInterrupt:
        pass
    except (CommandFailed, TimeoutError, OSError) as error:
        sys.exit(f"The demonstration failed: {error}")
    finally:
        # A second Ctrl-C must not leave a mount behind.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _say("\nStopping the nodes ...")
        _stop(nodes)
        shutil.rmtree(directory)
        _say("Nothing is left behind.")


def _is_free(port: int) -> bool:
    """Whether the two ports of a node are free; another node may run on this machine."""
    for number in range(port, port + PORT_STEP):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", number))
            except OSError:
                return False
    return True


def _say(text: str) -> None:
    print(text, flush=True)


def _start(nodes: list[Node]) -> None:
    first, *others = nodes
    _say("Three nodes on this machine, each with a key, a Serf agent and a mount point of its own.\n")
    first.basefs("genkey")
    first.basefs("bootstrap", NAME, "-i", first.endpoint)
    first.mount(NAME, "--owners", "--profile", "lan")
    _say(f"  node 1  {first.endpoint}   {first.mountpoint}   made the filesystem")
    for number, node in enumerate(others, start=2):
        node.base.mkdir(parents=True, exist_ok=True)
        invitation = node.base / "invitation"
        invitation.touch(0o600)
        invitation.write_text(first.basefs("invite", NAME, "--name", f"node{number}"))
        node.basefs("join", NAME, invitation)
        invitation.unlink()
        node.mount(NAME, "--owners", "--profile", "lan")
        _say(f"  node {number}  {node.endpoint}   {node.mountpoint}   joined by an invitation")
    for node in nodes:
        wait_until(lambda node=node: node.alive(NAME) == len(nodes), 60, "all nodes know each other")  # type: ignore[misc]


def _write_a_file(nodes: list[Node]) -> None:
    _say("\nA file written on one node, until the other two have it:\n")
    text = f"written at {time.ctime()}\n"
    for number, node in enumerate(nodes, start=1):
        _say(f"  {_milliseconds(_spread(node, nodes, text + str(number))):>8}   written on node {number}")


def _spread(writer: Node, nodes: list[Node], text: str) -> float:
    start = time.monotonic()
    (writer.mountpoint / "hello.txt").write_text(text)
    for node in nodes:
        path = node.mountpoint / "hello.txt"
        wait_until(lambda path=path: path.read_text() == text, 60, f"{path} has the new text")  # type: ignore[misc]
    return time.monotonic() - start


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"


def _copy_etc(nodes: list[Node]) -> None:
    first, *others = nodes
    # Every member reads everything and a log forgets nothing, so private files stay out of it.
    source = copy_readable(Path("/etc"), first.home.parent / "etc")
    start = time.monotonic()
    done = subprocess.run(["cp", "-a", source, first.mountpoint], capture_output=True, text=True, check=False)
    copied = time.monotonic() - start
    if done.returncode != 0:
        _say(f"\ncp says: {done.stderr.strip().splitlines()[-1]}")
    count = sum(1 for _ in source.rglob("*"))
    _say(f"\nCopied the public part of /etc, {count} paths, on node 1 with cp -a: {copied:.1f} s.")
    _say("Equal to the source, seconds after the copy began:\n")
    for number, node in enumerate(others, start=2):
        target = node.mountpoint / "etc"
        wait_until(lambda target=target: _is_equal(source, target), 120, f"{target} equals {source}")  # type: ignore[misc]
        _say(f"  {time.monotonic() - start:6.1f} s   node {number}")


def copy_readable(source: Path, target: Path) -> Path:
    """A copy of a directory with its owners, modes and links, without what not every user of this machine may read."""

    def hidden(directory: str, names: list[str]) -> list[str]:
        return [name for name in names if not _is_public(Path(directory, name))]

    shutil.copytree(source, target, symlinks=True, ignore=hidden)
    for path in (target, *target.rglob("*")):
        status = (source / path.relative_to(target)).lstat()
        os.lchown(path, status.st_uid, status.st_gid)
    return target


def _is_public(path: Path) -> bool:
    mode = path.lstat().st_mode
    if stat.S_ISDIR(mode):
        return mode & 0o005 == 0o005
    return stat.S_ISLNK(mode) or (stat.S_ISREG(mode) and bool(mode & 0o004))


def _is_equal(left: Path, right: Path) -> bool:
    command = ["diff", "-r", "--no-dereference", "-q", str(left), str(right)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _invite(nodes: list[Node]) -> None:
    _say("\nThe nodes stay up.  Edit a file in one of the mount points and look at it in another one:\n")
    for node in nodes:
        _say(f"  {node.mountpoint}")
    command = Path(sys.executable).with_name("basefs")
    _say(f"\n  BASEFS_HOME={nodes[0].home} {command} members {NAME}\n\nCtrl-C stops them and removes everything.")


def _stop(nodes: list[Node]) -> None:
    # All at once: each tells the others that it leaves, which takes some seconds.
    leaving = [threading.Thread(target=node.spawn, args=("unmount", NAME)) for node in nodes]
    for thread in leaving:
        thread.start()
    for thread in leaving:
        thread.join()
    for node in nodes:
        with contextlib.suppress(OSError):
            node.clean_up()


if __name__ == "__main__":
    main()
