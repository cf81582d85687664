"""The control socket."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from basefs.errors import DaemonError, NotFound, NotRunning, UsageError
from basefs.management.control import ControlServer, call
from tests.mounts import DEADLINE


async def handle(command: str, arguments: dict[str, Any]) -> Any:
    if command == "missing":
        raise NotFound("nothing there\udcff")
    if command == "bug":
        raise ZeroDivisionError
    return {"command": command, **arguments}


@pytest.fixture
def path(base: Path) -> Iterator[Path]:
    """The socket of a server that answers in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    path = base / "name.sock"
    # Left by a daemon that was killed.
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    server = ControlServer(path, handle)
    asyncio.run_coroutine_threadsafe(server.start(), loop).result(DEADLINE)
    yield path
    asyncio.run_coroutine_threadsafe(server.stop(), loop).result(DEADLINE)
    assert not path.exists()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_answers_keep_every_byte_and_any_size(path: Path) -> None:
    arguments = {"text": "\udcff\n", "large": "x" * 1_000_000}
    assert call(path, "echo", arguments) == {"command": "echo", **arguments}


def test_only_its_owner_may_connect(path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_errors_keep_their_class(path: Path) -> None:
    with pytest.raises(NotFound, match="nothing there\udcff"):
        call(path, "missing", {})


def test_a_bug_is_in_the_log_of_the_daemon(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR), pytest.raises(DaemonError, match="a bug in the daemon"):
        call(path, "bug", {})
    assert caplog.records[0].exc_info is not None


@pytest.mark.parametrize("line", [b"no json\n", b"[]\n", b'{"command": "echo"}\n', b'{"command": 1, "arguments": 2}\n'])
def test_rubbish_is_answered_and_the_server_goes_on(path: Path, caplog: pytest.LogCaptureFixture, line: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as connection, connection.makefile("rb") as stream:
        connection.connect(str(path))
        connection.sendall(line)
        assert json.loads(stream.readline())["error"] == "DaemonError"
    assert call(path, "echo", {}) == {"command": "echo"}


def test_a_caller_that_says_nothing_holds_up_nobody(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(path))
        assert call(path, "echo", {}) == {"command": "echo"}


def test_nobody_listens(base: Path) -> None:
    with pytest.raises(NotRunning, match="name is not running"):
        call(base / "name.sock", "echo", {})
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(base / "name.sock"))
    with pytest.raises(NotRunning):
        call(base / "name.sock", "echo", {})


def test_a_daemon_that_hangs_up_without_an_answer(base: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(base / "name.sock"))
        server.listen()
        thread = threading.Thread(target=lambda: server.accept()[0].close())
        thread.start()
        with pytest.raises(DaemonError, match="did not answer"):
            call(base / "name.sock", "echo", {})
        thread.join()


def test_an_unknown_class_of_error_is_a_daemon_error(base: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(base / "name.sock"))
        server.listen()

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b'{"error": "FromTheFuture", "message": "what"}\n')

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(DaemonError, match="what"):
            call(base / "name.sock", "echo", {})
        thread.join()


def test_a_path_that_is_too_long_for_a_socket(base: Path) -> None:
    async def start() -> None:
        await ControlServer(base / ("n" * 200), handle).start()

    with pytest.raises(DaemonError, match="cannot open the control socket"):
        asyncio.run(start())


def test_a_command_that_the_daemon_does_not_know(base: Path) -> None:
    from basefs.management.services import LogServices
    from tests.fs.local import Local

    local = Local.bootstrap(base / "log")
    with pytest.raises(UsageError, match="does not know the command 'dance'"):
        LogServices(local.replica).call("dance", {})
    local.replica.close()
