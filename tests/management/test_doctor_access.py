"""`basefs doctor` where peers and this node do not let each other in: each reason, told by a real server."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from basefs.daemon.config import SYNC_PORT_OFFSET
from basefs.daemon.keyfiles import default_keys
from basefs.gossip.members import PEERS_FILE, PeerBook
from basefs.log.keys import SigningKey
from basefs.replica.replica import Replica
from basefs.sync.net.parties import Parties
from basefs.sync.net.peers import PenaltyBox
from basefs.sync.net.tls import Credentials
from basefs.sync.net.transport import SessionContext
from basefs.sync.wire.limits import VERSION
from tests.fs.local import Local
from tests.management.test_doctor import findings
from tests.management.test_get import served
from tests.support.commands import Cli
from tests.support.helpers import ALICE, BOB, STRANGER
from tests.support.node import Node
from tests.support.patience import DEADLINE
from tests.support.ports import free_port

#: An address of this machine that no interface lists, so that it counts as another machine's.
PEER = "127.0.0.2"

#: Policies under which OpenSSL has no Ed25519 at all, and none in TLS.
_FIPS = """openssl_conf = init
[init]
providers = all_providers
alg_section = algorithms
[all_providers]
default = default_provider
[default_provider]
activate = 1
[algorithms]
default_properties = fips=yes
"""
_CRYPTO_POLICY = """openssl_conf = init
[init]
ssl_conf = ssl
[ssl]
system_default = tls
[tls]
SignatureAlgorithms = ECDSA+SHA256:RSA-PSS+SHA256
"""


def note_peer(cli: Cli, address: str) -> None:
    """Have a node at an address be a known peer of conf."""
    book = PeerBook(cli.home.directory("conf") / PEERS_FILE)
    book.add([address])
    book.save()


def findings_of_peers(cli: Cli, address: str) -> list[str]:
    """What doctor says of the peer at an address, in words, but that Serf does not run there."""
    note_peer(cli, address)
    rows = findings(cli, "conf", "-b", f"127.0.0.1:{free_port()}")["peers"]
    assert all(address in row["what"] and row["severity"] == "problem" for row in rows)
    return [f"{row['what']} | {row['remedy']}" for row in rows if "answers, but not on" not in row["what"]]


def own_key(cli: Cli) -> SigningKey:
    return default_keys(cli.home)[0]


@contextlib.contextmanager
def peer(
    cli: Cli, *, key: SigningKey | None = None, trusts: tuple[SigningKey, ...] = (), bans: SigningKey | None = None
) -> Iterator[str]:
    """A node with the log of conf as it is now, at an address of its own.

    `key`: that it shows, under TLS; `trusts`: that it lets in; `bans`: one of these, which it has banned.
    """
    directory = cli.base / "peer"
    shutil.copytree(cli.home.directory("conf"), directory)
    penalties = PenaltyBox(first=DEADLINE)
    if bans is not None:
        penalties.punish(Parties().of(PEER, bans.public), time.monotonic())
    credentials = None if key is None else Credentials(key, [each.public for each in trusts])
    shared = SessionContext(credentials=credentials, penalties=penalties)
    with contextlib.closing(Replica(directory, [])) as replica, served(replica, PEER, shared) as address:
        yield address


@contextlib.contextmanager
def answering(answer: Callable[[bytes], bytes]) -> Iterator[str]:
    """A program that answers the first bytes of each connection."""
    with socket.create_server((PEER, 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection, contextlib.suppress(OSError):
                        connection.settimeout(DEADLINE)
                        if data := connection.recv(65536):
                            connection.sendall(answer(data))

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"{PEER}:{server.getsockname()[1] - SYNC_PORT_OFFSET}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.fixture
def closed(cli: Cli) -> Cli:
    """A closed filesystem conf in which Alice has a key as well."""
    cli("genkey")
    cli("bootstrap", "conf")
    cli("grant", "conf:/", "alice", ALICE.public.hex())
    return cli


@pytest.fixture
def is_open(cli: Cli) -> Cli:
    """An open filesystem conf."""
    cli("genkey")
    cli("bootstrap", "conf", "--open")
    return cli


class TestClosed:
    def test_peers_that_let_each_other_in(self, closed: Cli) -> None:
        with peer(closed, key=ALICE, trusts=(own_key(closed),)) as address:
            assert findings_of_peers(closed, address) == []

    def test_a_member_that_is_not_known_there(self, closed: Cli) -> None:
        with peer(closed, key=ALICE, trusts=(BOB,)) as address:
            (said,) = findings_of_peers(closed, address)
        digits = own_key(closed).fingerprint.hex()[:12]
        assert f"{address} does not know the key {digits} of this node: it was revoked, or its grant has not" in said
        assert said.endswith(" | run there: basefs keys conf --all")

    def test_a_key_that_never_was_a_member(self, closed: Cli) -> None:
        closed.run("genkey", "-f")
        with peer(closed, key=ALICE, trusts=(BOB,)) as address:
            (said,) = findings_of_peers(closed, address)
        assert "turns this node away: only members read conf, and the key" in said
        assert "basefs grant conf:/ " in said and "invite" not in said

    def test_a_node_that_is_no_member_needs_a_grant(self, closed: Cli) -> None:
        closed.run("genkey", "-f")
        (row,) = (row for row in findings(closed, "conf")["keys"] if "no key of this node" in row["what"])
        shown = closed("status", "conf")
        assert row["what"] == "no key of this node is a member of conf"
        assert f"may write\tnowhere: no key of this node is a member; {row['remedy']}\n" in shown
        assert row["remedy"].startswith("on a node with the key ") and ": basefs grant conf:/ " in row["remedy"]
        assert "accept" not in shown and "invit" not in shown

    def test_a_key_that_was_revoked(self, closed: Cli) -> None:
        key = own_key(closed).fingerprint.hex()
        name = next(row["name"] for row in json.loads(closed("keys", "conf", "--json")) if row["fingerprint"] == key)
        closed("expel", "conf", key, "-k", closed.home.root_key("conf"))
        with peer(closed, key=ALICE, trusts=(BOB,)) as address:
            (said,) = findings_of_peers(closed, address)
        assert f"turns this node away, since its key {key[:12]} was revoked | " in said
        # By the name that it had, since a key has one.
        assert f"basefs grant conf:/ {name} " in said

    def test_a_peer_whose_key_is_not_known_here(self, closed: Cli) -> None:
        with peer(closed, key=STRANGER, trusts=(own_key(closed),)) as address:
            (said,) = findings_of_peers(closed, address)
        assert "shows a key that is not known here" in said
        (row,) = json.loads(closed("list", "--json"))
        assert f"'basefs list' there must print {row['identity']}" in said
        assert f"members conf --forget {address}" in said

    def test_a_peer_whose_key_was_revoked(self, closed: Cli) -> None:
        closed("revoke", "conf:/", "alice")
        with peer(closed, key=ALICE, trusts=(own_key(closed),)) as address:
            (said,) = findings_of_peers(closed, address)
        assert f"shows the key alice ({ALICE.fingerprint.hex()[:12]}), which is no member any more" in said

    def test_another_filesystem_with_the_same_members(self, closed: Cli) -> None:
        other = Local.bootstrap(closed.base / "other").replica
        shared = SessionContext(credentials=Credentials(ALICE, [own_key(closed).public]))
        with contextlib.closing(other), served(other, PEER, shared) as address:
            (said,) = findings_of_peers(closed, address)
        assert f"{address} serves another filesystem than conf: {other.identity.hex()}" in said

    def test_a_peer_without_tls(self, closed: Cli) -> None:
        other = Local.bootstrap(closed.base / "other").replica
        with contextlib.closing(other), served(other, PEER) as address:
            (said,) = findings_of_peers(closed, address)
        assert f"{address} does not speak TLS, and conf is closed: an open filesystem or another program" in said
        assert "'basefs list' there must print " in said

    def test_another_program(self, closed: Cli) -> None:
        with answering(lambda data: b"SSH-2.0-OpenSSH_9.2\r\n") as address:
            (said,) = findings_of_peers(closed, address)
        assert f"{address} does not speak TLS" in said

    def test_a_ban(self, closed: Cli) -> None:
        with peer(closed, key=ALICE, trusts=(own_key(closed),), bans=own_key(closed)) as address:
            (said,) = findings_of_peers(closed, address)
        assert (
            f"{address} has banned this node for a while, because it broke the protocol | the ban ends by itself"
            in said
        )


class TestOpen:
    def test_peers_that_let_each_other_in(self, is_open: Cli) -> None:
        with peer(is_open) as address:
            assert findings_of_peers(is_open, address) == []

    def test_a_peer_with_tls(self, is_open: Cli) -> None:
        with peer(is_open, key=ALICE, trusts=(BOB,)) as address:
            (said,) = findings_of_peers(is_open, address)
        assert f"{address} speaks TLS only, and conf is open: a closed filesystem is there" in said

    def test_another_filesystem(self, is_open: Cli) -> None:
        other = Local.bootstrap(is_open.base / "other").replica
        with contextlib.closing(other), served(other, PEER) as address:
            (said,) = findings_of_peers(is_open, address)
        assert f"{address} serves another filesystem than conf: {other.identity.hex()}" in said

    def test_another_version(self, is_open: Cli) -> None:
        def newer(greeting: bytes) -> bytes:
            return greeting.replace(b"HASH %d " % VERSION, b"HASH %d " % (VERSION + 1))

        with answering(newer) as address:
            (said,) = findings_of_peers(is_open, address)
        assert f"{address} speaks another version of the sync protocol | install the same version" in said


class TestPolicies:
    """OpenSSL under a policy of the machine, as an administrator writes it."""

    @staticmethod
    def under(
        node: Node, monkeypatch: pytest.MonkeyPatch, policy: str, *words: str
    ) -> subprocess.CompletedProcess[str]:
        path = node.base / "openssl.cnf"
        path.write_text(policy)
        with monkeypatch.context() as patch:
            patch.setenv("OPENSSL_CONF", str(path))
            done = node.spawn(*words)
        assert "Traceback" not in done.stderr
        return done

    @pytest.mark.process
    def test_no_ed25519_at_all(self, node: Node, closed: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
        found = self.under(node, monkeypatch, _FIPS, "doctor", "--json")
        (row,) = (row for row in json.loads(found.stdout) if row["subject"] == "openssl")
        assert "takes no Ed25519 keys" in row["what"] and "FIPS" in row["what"] and "fips-mode-setup" in row["remedy"]
        for words in (["run", "conf", "-s"], ["genkey", str(node.base / "other")], ["show", "conf"]):
            failed = self.under(node, monkeypatch, _FIPS, *words)
            assert failed.returncode and failed.stderr.count("\n") == 1 and "Ed25519" in failed.stderr, words

    @pytest.mark.process
    def test_none_in_tls(self, node: Node, closed: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
        with peer(closed, key=ALICE, trusts=(own_key(closed),)) as address:
            note_peer(closed, address)
            found = self.under(node, monkeypatch, _CRYPTO_POLICY, "doctor", "conf", "--json")
        rows = [row for row in json.loads(found.stdout) if row["subject"] in ("openssl", "peers")]
        assert [row["subject"] for row in rows] == ["openssl"], "and nothing that follows from it"
        assert "makes no TLS connection with Ed25519 keys" in rows[0]["what"]
        assert "update-crypto-policies" in rows[0]["remedy"]


def test_known_peers_that_do_not_answer_are_counted(conf: Cli) -> None:
    one, other = (f"127.0.0.{number}:{free_port()}" for number in (2, 3))
    (line,) = findings_of_peers(conf, one)
    assert line.startswith(f"{one}, the only known peer of conf, does not answer | ")
    (line,) = findings_of_peers(conf, other)
    assert line.startswith("none of the 2 known peers of conf answers (") and one in line
