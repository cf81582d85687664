"""Fetching a filesystem from a node, in this process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from basefs.daemon.api.creation import fetch
from basefs.daemon.config import SYNC_PORT_OFFSET, Home
from basefs.daemon.keyfiles import default_keys, ensure_default_key
from basefs.log.interface import LogState
from basefs.sync.net.server import SyncServer
from basefs.sync.net.tls import Credentials
from basefs.sync.net.transport import SessionContext
from tests.support.asynchronous import HOST
from tests.support.helpers import ROOT_KEY, make_replica
from tests.support.patience import DEADLINE


@contextlib.contextmanager
def serving(state: LogState, credentials: Credentials) -> Iterator[int]:
    """Serve a log in a thread; yields the port."""
    ports: list[int] = []
    ready, over = threading.Event(), threading.Event()

    async def serve() -> None:
        server = SyncServer(state, HOST, 0, max_sessions=4, shared=SessionContext(credentials=credentials))
        await server.start()
        ports.append(server.port)
        ready.set()
        await asyncio.to_thread(over.wait)
        await server.stop()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(DEADLINE)
        yield ports[0]
    finally:
        over.set()
        thread.join()


def test_a_key_that_was_granted_a_moment_ago_is_let_in(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The node is a member in the log, and its peer finds that out when it has refused it once."""
    home = Home(tmp_path / "home")
    ensure_default_key(home)
    credentials = Credentials(ROOT_KEY, [ROOT_KEY.public])
    refusals = []

    class Granting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            refusals.append(record.getMessage())
            credentials.update([ROOT_KEY.public, default_keys(home)[0].public])

    server_log, handler = logging.getLogger(SyncServer.__module__), Granting()
    server_log.addHandler(handler)
    caplog.set_level(logging.DEBUG, server_log.name)
    try:
        with (
            contextlib.closing(make_replica(tmp_path / "log")) as replica,
            serving(replica, credentials) as port,
        ):
            address = f"{HOST}:{port - SYNC_PORT_OFFSET}"
            found = fetch(home, "conf", address, None, lambda so_far: None, pytest.fail, "no member")
            assert found.identity == replica.identity.hex()
    finally:
        server_log.removeHandler(handler)
    assert len(refusals) == 1
