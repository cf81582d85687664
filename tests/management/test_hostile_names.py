"""Names and words of others on a terminal and in a log: none of them moves the cursor or adds a line."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from basefs.daemon.config import SYNC_PORT_OFFSET
from basefs.errors import BaseFSError
from basefs.gossip.agent import Agent
from basefs.gossip.config import AgentConfig
from tests.management.terminal import on_a_terminal
from tests.support.commands import Cli
from tests.support.node import Node
from tests.support.patience import DEADLINE
from tests.support.ports import free_port
from tests.support.wait import wait_until

#: Clears a screen, sets the title of a window, and goes on as a message of the daemon would: forms of the same attack.
FORGED = "\x1b[2J\x1b[5m\x1b]0;owned\x07\r\u2028\u202e\x85\n2026-01-01 00:00:00,000 INFO basefs.forged: all is well"
#: As a file's name, which has at most 255 bytes; what is no UTF-8 as well.
NAME = FORGED.encode() + b"\xff\x9b31m"
#: The beginning of a line of a daemon's log.
_BEGINNING = re.compile(r"\d{4}-\d\d-\d\d [\d:,]+ [A-Z]+ [a-z]")


def check_log(text: str) -> None:
    """Each line of a log is a message, or a line of a traceback; none of them is forged, or controls a terminal."""
    assert text
    for line in text.split("\n")[:-1]:
        assert line.startswith("  ") or _BEGINNING.match(line), line
        assert " INFO basefs.forged" not in line[:60], line
        assert line.isprintable(), line


def check_shown(text: str) -> None:
    """What a terminal gets is lines and, of control sequences, styles."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    # A progress line erases itself.
    plain = re.sub(r"\r[^\x1b\n]*\x1b\[K", "", plain)
    assert all(line.isprintable() for line in plain.replace("\r\n", "\n").split("\n")), plain
    assert not re.search(r"^2026-01-01 00:00:00,000", plain, re.MULTILINE), plain
    assert "\x1b[5m" not in text


@pytest.mark.fuse
def test_names_of_files_and_keys_and_the_words_of_handlers(node: Node, conf: Cli) -> None:
    handler = """printf '%s\\n%s' "$BASEFS_EVENT_PATH" "$BASEFS_EVENT_PATH" >&2; exit 3"""
    point = node.mount("conf", "-d", "--handler", handler)
    (point / NAME.decode(errors="surrogateescape")).write_text("x")
    node.basefs("genkey", conf.base / "guest")
    node.basefs("grant", "conf:/", FORGED, conf.base / "guest.pub")
    node.basefs("unmount", "conf")
    # Another key's version of the same name, in a conflict, and of a name that nothing has.
    point = node.mount("conf", "-d", "-k", conf.base / "guest")
    (point / NAME.decode(errors="surrogateescape")).write_text("y")
    (point / "d").mkdir()
    (point / "d" / NAME.decode(errors="surrogateescape")).symlink_to(FORGED)
    node.settle("conf")
    target = "conf:/" + NAME.decode(errors="surrogateescape")
    commands = (
        *("show conf", "show -l conf", "log -r conf", "log -r -p conf", "keys conf", "diff conf", "conflicts conf"),
        *(
            "status conf",
            "members conf",
            "doctor conf",
            "list",
            "check conf",
            "log TARGET",
            "diff TARGET",
            "cat TARGETno",
        ),
        *("log conf:/FORGED", "revert --dry-run TARGET --at 1h", "revoke --dry-run conf:/ FORGED", "keys FORGED"),
        *("grant --dry-run conf:/ FORGED KEY", "status FORGED", "unmount FORGED", "mount FORGED FORGED", "FORGED"),
        "cat --FORGED",
    )
    meant = {"TARGET": target, "FORGED": FORGED, "KEY": str(conf.home.path / "key.pub")}
    for command in commands:
        words = [re.sub("TARGET|FORGED|KEY", lambda found: meant[found[0]], word) for word in command.split()]
        check_shown(on_a_terminal(node, *words, code=None))
    wait_until(lambda: "failed with exit code 3" in node.log("conf"), DEADLINE, "the handler's end is logged")
    check_log(node.log("conf"))


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """A program at the port of sync that says the same to everybody; gives its address for `get`."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(answer)
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(4096):
                        pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1] - SYNC_PORT_OFFSET}"
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.mark.process
@pytest.mark.parametrize(
    "answer",
    [
        b"CLOSE NO failure %1B[2J%0A2026-01-01%2000:00:00,000%1B[31m%C2%9B\n",
        FORGED.encode() + b"\n",
        b"HASH " + FORGED.encode().replace(b"\n", b"%0A") + b"\n",
        b"\x1b[2J\x1b[31m" * 10,
    ],
)
def test_what_a_peer_answers(node: Node, cli: Cli, answer: bytes) -> None:
    with answering(answer) as address:
        check_shown(on_a_terminal(node, "get", "conf", address, code=1))
        check_shown(on_a_terminal(node, "get", "conf", address, FORGED, code=None))


@pytest.mark.serf
@pytest.mark.logs("Unknown child process pid")
def test_what_a_node_calls_itself_in_the_cluster(node: Node, cli: Cli) -> None:
    cli("bootstrap", "conf", "--open")
    node.address, node.port = "127.0.0.1", free_port()
    node.basefs("run", "conf", "-b", node.endpoint, "-d", "--profile", "local")
    joined = threading.Event()
    done = threading.Event()

    async def rogue() -> None:
        own = AgentConfig(FORGED, f"127.0.0.1:{free_port()}", profile="local", join=(node.endpoint,))
        agent = await Agent.start(own, cli.base / "rogue")
        try:
            async with await agent.connect() as client:
                await client.join([node.endpoint])
                joined.set()
                while not done.is_set():
                    await asyncio.sleep(0.02)
        finally:
            await agent.kill()

    def main() -> None:
        try:
            asyncio.run(rogue())
        except BaseFSError:
            joined.set()

    thread = threading.Thread(target=main)
    thread.start()
    try:
        assert joined.wait(DEADLINE)
        wait_until(lambda: "forged" in node.basefs("members", "conf"), DEADLINE, "the member is seen")
        for command in ("members", "status", "doctor", "list", "show"):
            check_shown(on_a_terminal(node, command, *([] if command == "list" else ["conf"]), code=None))
    finally:
        done.set()
        thread.join()
    wait_until(lambda: node.alive("conf") == 1, DEADLINE, "the member has gone")
    check_log(node.log("conf"))
    node.basefs("unmount", "conf")
    check_log(node.log("conf"))
