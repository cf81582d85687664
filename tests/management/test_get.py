"""`basefs get`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import stat
import threading
from collections.abc import Iterator

import pytest

from basefs.daemon.api.inspection import known_peers
from basefs.daemon.config import SYNC_PORT_OFFSET
from basefs.replica.replica import Replica
from basefs.sync.net.service import SyncService
from basefs.sync.net.tls import Credentials
from basefs.sync.net.transport import SessionContext
from tests.fs.local import Local
from tests.support.commands import Cli
from tests.support.helpers import ROOT_KEY, path
from tests.support.node import Node
from tests.support.patience import DEADLINE


@contextlib.contextmanager
def served(replica: Replica, host: str = "127.0.0.1", shared: SessionContext | None = None) -> Iterator[str]:
    """Serve a log on this machine; gives the address for `get`.  `shared`: of a closed filesystem."""
    loop = asyncio.new_event_loop()
    service = SyncService(replica, (host, 0), peers=list, max_sessions=16, shared=shared)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(service.start(), loop).result(DEADLINE)
        yield f"{host}:{service.port - SYNC_PORT_OFFSET}"
    finally:
        asyncio.run_coroutine_threadsafe(service.stop(), loop).result(DEADLINE)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture
def remote(cli: Cli) -> Iterator[Local]:
    """A filesystem on another node."""
    made = Local.bootstrap(cli.base / "remote")
    made.save("/small", b"content")
    made.save("/large", bytes(range(256)) * 1000)
    made.mkdir("/d", 0o700)
    made.publish()
    yield made
    made.replica.close()


@pytest.fixture
def unused() -> Iterator[str]:
    """An address at which nobody listens, for as long as the test runs."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1] - SYNC_PORT_OFFSET}"


def leftovers(cli: Cli) -> list[str]:
    return [entry.name for entry in (cli.home.path / "fs").iterdir()]


def test_all_of_it(cli: Cli, remote: Local) -> None:
    identity = remote.replica.identity.hex()
    totals = remote.replica.totals()
    with served(remote.replica) as address:
        expected = f"conf {identity} {totals['entries']} entries, {totals['blocks']} blocks\n"
        assert cli("get", "conf", address) == expected
    with cli.replica("conf", ROOT_KEY) as replica:
        assert replica.root_hash() == remote.replica.root_hash()
        assert replica.read(path("/large")) == remote.load("/large")
        assert replica.missing_blocks(1) == []
        assert replica.check_view() == []
    assert leftovers(cli) == ["conf"]
    # The key that it made, and whom a mount looks for.
    assert len(cli("keys").splitlines()) == 1
    assert known_peers(cli.home, "conf") == [address]


def test_what_was_fetched_is_elsewhere_until_it_is_changed(cli: Cli, remote: Local) -> None:
    with served(remote.replica) as address:
        cli("get", "conf", address)
    assert "no other machine" not in cli.run("remove", "conf")[2]
    with cli.replica("conf", ROOT_KEY) as replica:
        replica.commit(lambda author: author.write(path("/only here"), b"x"))
    text = "no other machine has confirmed that it has all of conf since it was used last"
    assert text in cli.run("remove", "conf")[2]


def test_who_had_everything_has_it_still_if_nothing_was_added(cli: Cli, remote: Local, node: Node) -> None:
    with served(remote.replica) as address:
        cli("get", "conf", address)
    node.basefs("run", "conf", "-s")
    assert "no other machine" not in node.spawn("unmount", "conf").stderr


def test_a_name_whose_records_list_nodes(cli: Cli, remote: Local, unused: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are tried one after another; `tests/daemon/test_discovery.py` asks a real name server."""
    with served(remote.replica) as address:
        records = [b"v=spf1 -all", b"basefs=" + unused.encode(), b"basefs=" + address.encode()]
        monkeypatch.setattr("basefs.daemon.api.creation._records", lambda host, resolver: records)
        code, out, err = cli.run("get", "conf", "cluster.example", "--json")
    assert code == 0 and err.startswith(f"{unused}: cannot reach ") and err.endswith("; trying the next\n")
    assert json.loads(out)["identity"] == remote.replica.identity.hex()
    assert known_peers(cli.home, "conf") == [address]


def test_a_key_that_is_there_stays(cli: Cli, remote: Local) -> None:
    cli("genkey")
    key = cli.home.default_key.read_bytes()
    with served(remote.replica) as address:
        cli("get", "conf", address)
    assert cli.home.default_key.read_bytes() == key


def test_a_node_that_does_not_know_the_key_refuses_it_and_the_local_name_is_not_suggested_there(
    cli: Cli, remote: Local
) -> None:
    shared = SessionContext(credentials=Credentials(ROOT_KEY, [ROOT_KEY.public]))
    with served(remote.replica, shared=shared) as address:
        message = cli.fails("get", "mine", address)
    own = (cli.home.path / "key.pub").read_text().split()[0]
    assert "'basefs invite NAME' there, 'basefs join' here" in message and message.endswith(f" {own}\n")
    assert "basefs grant NAME:/ " in message and "mine" not in message


def test_the_identity_may_be_given(cli: Cli, remote: Local) -> None:
    with served(remote.replica) as address:
        cli("get", "conf", address, "--id", remote.replica.identity.hex())
        heard = remote.replica.identity.hex()
        for wanted in ("ab" * 28, "00" * 28):
            message = cli.fails("get", "other", address, "--id", wanted)
            assert message == f"basefs: {address}: another filesystem answers there: {heard}, not {wanted}\n"
    assert leftovers(cli) == ["conf"]
    assert stat.S_IMODE(cli.home.path.stat().st_mode) == 0o700


def test_a_node_that_has_the_right_identity_and_nothing_else(cli: Cli, remote: Local) -> None:
    """Such as one that is about to fetch it itself, or that only claims to have it."""
    identity = remote.replica.identity
    (cli.base / "empty").mkdir()
    with contextlib.closing(Replica.create(cli.base / "empty", identity)) as empty, served(empty) as address:
        message = cli.fails("get", "conf", address, "--id", identity.hex())
        assert message == f"basefs: {address} sent nothing: is a filesystem running there?\n"
    assert leftovers(cli) == []
    # Nor does the name mean anything since.
    assert not (cli.home.path / "identities").exists()
    with served(remote.replica) as address:
        cli("get", "conf", address, "--id", identity.hex())


def test_a_name_means_what_it_meant_the_last_time(cli: Cli, remote: Local) -> None:
    first = remote.replica.identity.hex()
    with served(remote.replica) as address:
        cli("get", "conf", address)
        cli.run("remove", "conf", "-y")
        assert leftovers(cli) == []
        # Another name is another filesystem.
        cli("get", "other", address)
    with contextlib.closing(Local.bootstrap(cli.base / "fake").replica) as fake, served(fake) as address:
        message = cli.fails("get", "conf", address)
        assert f"another filesystem answers there: {fake.identity.hex()}, not {first}, which conf was" in message
        assert "--id" in message
        assert leftovers(cli) == ["other"]
        cli("get", "conf", address, "--id", fake.identity.hex())
        cli.run("remove", "conf", "-y")
        # From then on that is what it means.
        cli("get", "conf", address)
    with served(remote.replica) as address:
        cli.run("remove", "conf", "-y")
        assert "another filesystem answers there" in cli.fails("get", "conf", address)


def test_a_list_of_identities_that_cannot_be_read_is_as_none(cli: Cli, remote: Local) -> None:
    cli.home.make()
    for content in (b"", b"conf\n", b"conf zz\n", b"conf 1234\n", b"\xff\0"):
        (cli.home.path / "identities").write_bytes(content)
        with served(remote.replica) as address:
            cli("get", "conf", address)
        cli.run("remove", "conf", "-y")


@pytest.mark.parametrize("identity", ["", "xyz", "ab" * 27, "ab" * 29])
def test_a_bad_identity(cli: Cli, unused: str, identity: str) -> None:
    assert "56 hexadecimal digits" in cli.fails("get", "conf", unused, "--id", identity, code=2)


def test_nobody_listens(cli: Cli, unused: str) -> None:
    assert cli.fails("get", "conf", unused).startswith(f"basefs: {unused}: ")
    assert leftovers(cli) == []


def test_it_exists(conf: Cli, unused: str) -> None:
    assert "there is a filesystem conf already" in conf.fails("get", "conf", unused)
    assert leftovers(conf) == ["conf"]


def test_bad_arguments(cli: Cli, unused: str) -> None:
    assert "is not a filesystem name" in cli.fails("get", "a/b", unused, code=2)
    assert "is not an address" in cli.fails("get", "conf", "host:port", code=2)
    assert cli.misused("get", "conf") == "basefs: missing argument 'ADDR[:PORT]': see 'basefs get --help'"
