"""The control socket."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import resource
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from basefs import __version__
from basefs.daemon.api.control import call, stream
from basefs.daemon.api.messages import ListLivePaths, Ping, decode_request
from basefs.daemon.api.server import ControlServer
from basefs.daemon.api.services import LogServices
from basefs.errors import DaemonError, DaemonGone, NotFound, NotRunning, OtherVersion, UsageError
from tests.fs.local import Local
from tests.support.mounts import wait_until
from tests.support.patience import DEADLINE


async def handle(command: str, arguments: dict[str, Any]) -> Any:
    if command == "missing":
        raise NotFound("nothing there\udcff")
    if command == "bug":
        raise ZeroDivisionError
    if command == "stream":
        return count(**arguments)
    return {"command": command, **arguments}


#: How many items of endless streams were made, and how many streams were closed.
made: list[int] = []
closed: list[bool] = []


async def count(until: int, wait: bool = False, fail: bool = False) -> AsyncIterator[Any]:
    """Numbers; then the end, an error, or nothing ever again."""
    try:
        for number in range(until):
            made.append(number)
            yield number
        if wait:
            await asyncio.Event().wait()
        if fail:
            raise NotFound("no more")
    finally:
        closed.append(True)


#: As the command line has it, a closed pipe ends this process; a connection that was closed must not.
_IMPATIENT = """
import signal, sys
from pathlib import Path
from basefs.daemon.api.control import call
from basefs.errors import BaseFSError
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
for _ in range(200):
    try:
        call(Path(sys.argv[1]), "x" * 1_000_000, {})
    except BaseFSError:
        pass
"""


def test_a_daemon_that_hangs_up_is_no_broken_pipe(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.fspath(tmp_path / "socket"))
        server.listen()

        def hang_up() -> None:
            with contextlib.suppress(OSError):
                while True:
                    server.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        command = [sys.executable, "-c", _IMPATIENT, tmp_path / "socket"]
        assert subprocess.run(command, timeout=DEADLINE, check=False).returncode == 0
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


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


def test_who_has_many_files_open_is_answered(path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 2048), max(limits[1], 2048)))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        assert call(path, "echo", {}, waiting=lambda: None) == {"command": "echo"}
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


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
                answered = {"version": __version__, "error": "FromTheFuture", "message": "what"}
                connection.sendall(json.dumps(answered).encode() + b"\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(DaemonError, match="what"):
            call(base / "name.sock", "echo", {})
        thread.join()


@pytest.mark.parametrize("says", [{}, {"version": "99.1"}])
def test_a_daemon_of_another_version(base: Path, says: dict[str, str]) -> None:
    """One that was started before an upgrade: it must be possible to end it, and nothing else is believed."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(base / "name.sock"))
        server.listen()

        def answer() -> None:
            for line in ({"result": None}, {"result": 1}, {"error": "UsageError", "message": "what?"}, {"item": 1}):
                connection, _ = server.accept()
                with connection, connection.makefile("rb") as lines:
                    lines.readline()
                    connection.sendall(json.dumps({**says, **line}).encode() + b"\n")

        thread = threading.Thread(target=answer)
        thread.start()
        assert call(base / "name.sock", "stop", {}) is None
        for ask in (call, call, lambda *request: list(stream(*request))):
            with pytest.raises(OtherVersion, match="'basefs unmount name'"):
                ask(base / "name.sock", "echo", {})
        thread.join()


def test_a_path_that_is_too_long_for_a_socket(base: Path) -> None:
    async def start() -> None:
        await ControlServer(base / ("n" * 200), handle).start()

    with pytest.raises(DaemonError, match="cannot open the control socket"):
        asyncio.run(start())


def test_a_stream_comes_whole_and_ends(path: Path) -> None:
    assert list(stream(path, "stream", {"until": 3000})) == list(range(3000))
    assert list(stream(path, "stream", {"until": 0})) == []


def test_a_stream_that_fails_keeps_the_class_of_its_error(path: Path) -> None:
    items = stream(path, "stream", {"until": 1, "fail": True})
    assert next(items) == 0
    with pytest.raises(NotFound, match="no more"):
        next(items)
    with pytest.raises(NotFound):
        list(stream(path, "missing", {}))


def test_a_stream_that_nobody_reads_on_is_closed(path: Path) -> None:
    closed.clear()
    items = stream(path, "stream", {"until": 1, "wait": True})
    assert next(items) == 0
    items.close()  # type: ignore[attr-defined]
    wait_until(lambda: closed == [True], "the stream is closed")


@pytest.mark.slow
def test_a_stream_is_made_no_faster_than_it_is_read(path: Path) -> None:
    made.clear()
    items = stream(path, "stream", {"until": 10_000_000})
    assert next(items) == 0
    before = -1
    while before != len(made):
        before = len(made)
        # Half a second without progress: it waits for its reader.
        time.sleep(0.5)
    assert len(made) < 1_000_000
    assert [next(items) for _ in range(100_000)] == list(range(1, 100_001))
    items.close()  # type: ignore[attr-defined]


def test_streams_end_with_the_server(base: Path) -> None:
    async def scenario() -> None:
        server = ControlServer(base / "name.sock", handle)
        await server.start()
        waiting = asyncio.ensure_future(
            asyncio.to_thread(lambda: list(stream(base / "name.sock", "stream", arguments)))
        )
        arguments = {"until": 1, "wait": True}
        made.clear()
        while not made:
            await asyncio.sleep(0.01)
        await server.stop()
        with pytest.raises(DaemonGone, match="has ended"):
            await waiting

    asyncio.run(asyncio.wait_for(scenario(), DEADLINE))


@pytest.mark.parametrize(
    ("command", "arguments", "why"),
    [
        ("dance", {}, "does not know the command 'dance'"),
        ("show", {}, "does not understand the command 'show'"),
        ("show", {"path": "/", "extra": 1}, None),
    ],
)
def test_commands_that_the_daemon_does_not_know(command: str, arguments: dict[str, Any], why: str | None) -> None:
    if why is None:
        assert decode_request(command, arguments) == ListLivePaths("/")
    else:
        with pytest.raises(UsageError, match=why):
            decode_request(command, arguments)


def test_what_only_a_running_daemon_answers(base: Path) -> None:
    local = Local.bootstrap(base / "log")
    with pytest.raises(UsageError, match="only a running daemon"):
        LogServices(local.replica).answer(Ping())
    local.replica.close()
