"""What the service manager hears, on a real socket."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from basefs.notify import ServiceManager
from tests.support.mounts import temporary_directory


@pytest.fixture(params=["path", "abstract"])
def listener(request: pytest.FixtureRequest) -> Iterator[tuple[str, socket.socket]]:
    """An address as in the environment, and the socket behind it."""
    with temporary_directory() as directory, closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as manager:
        manager.settimeout(30)
        path = str(directory / "notify")
        manager.bind("\0" + path if request.param == "abstract" else path)
        yield ("@" + path if request.param == "abstract" else path), manager


def test_what_it_hears(listener: tuple[str, socket.socket], monkeypatch: pytest.MonkeyPatch) -> None:
    address, manager = listener
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    service = ServiceManager.from_environment()
    assert "NOTIFY_SOCKET" not in os.environ
    assert service.listens
    service.ready()
    for text in ("one", "one", "two é"):
        service.status(text)
    service.stopping()
    heard = [manager.recv(1000).decode() for _ in range(4)]
    assert heard == ["READY=1", "STATUS=one", "STATUS=two é", "STOPPING=1"]


def test_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    silent = ServiceManager.from_environment()
    assert not silent.listens
    silent.ready()


@pytest.mark.slow
def test_a_manager_that_is_gone_or_does_not_listen_ends_nothing(tmp_path: Path) -> None:
    ServiceManager(str(tmp_path / "missing")).ready()
    with temporary_directory() as directory, closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as deaf:
        deaf.bind(str(directory / "notify"))
        service = ServiceManager(str(directory / "notify"))
        start = time.monotonic()
        for number in range(13):
            # The queue of a socket takes some, and then nothing.
            service.status(str(number))
        assert time.monotonic() - start < 60
