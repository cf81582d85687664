"""A Docker engine: the one that runs, or one of our own that ends with us."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import docker
from docker.errors import DockerException

from tests.support.wait import wait_until

#: Where an engine of our own keeps images, for the next run; may be deleted at any time.
DATA = Path(tempfile.gettempdir()) / "basefs-eval-docker"
#: Seconds for it to answer and to end.
_PATIENCE = 60.0


@contextlib.contextmanager
def engine() -> Iterator[docker.DockerClient]:
    """A client of the engine that the environment names, else of one that is started.  Raises OSError."""
    try:
        client = docker.from_env()
        client.ping()
    except DockerException:
        with tempfile.TemporaryDirectory(prefix="basefs-docker-") as text, _started(Path(text)) as client:
            yield client
        return
    with contextlib.closing(client):
        yield client


@contextlib.contextmanager
def _started(directory: Path) -> Iterator[docker.DockerClient]:
    """An engine that leaves the machine's network alone: containers get theirs from us."""
    socket = f"unix://{directory}/socket"
    network = ("--bridge=none", "--iptables=false", "--ip-masq=false", "--ip-forward=false")
    places = ("--data-root", DATA, "--exec-root", directory / "exec", "--pidfile", directory / "pid", "-H", socket)
    log = directory / "log"
    with (
        log.open("wb") as file,
        subprocess.Popen(["dockerd", *network, *places], stdout=file, stderr=subprocess.STDOUT) as daemon,
    ):
        try:
            wait_until(lambda: daemon.poll() is not None or _answers(socket), _PATIENCE, "dockerd answers")
            if daemon.poll() is not None:
                raise OSError(f"dockerd has ended: {log.read_text(errors='replace')[-500:]}")
            with contextlib.closing(docker.DockerClient(base_url=socket)) as client:
                yield client
        finally:
            daemon.terminate()
            daemon.wait(_PATIENCE)


def _answers(socket: str) -> bool:
    try:
        with contextlib.closing(docker.DockerClient(base_url=socket)) as client:
            return bool(client.ping())
    except (DockerException, OSError):
        return False
