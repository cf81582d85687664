"""Keys that a command signs with itself: passphrases, keys of SSH, and an SSH agent."""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from basefs.log.keys import SigningKey, parse_public_key
from tests.support.commands import Cli
from tests.support.helpers import BOB, CAROL


def ssh_key(path: Path, passphrase: str = "") -> Path:
    """A key as users of SSH have it."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", "a b", "-f", path], check=True)
    return path


def public(path: Path) -> str:
    return parse_public_key(path.with_name(path.name + ".pub").read_text()).hex()


def names(cli: Cli) -> dict[str, str]:
    return {row["name"]: row["granted_by_name"] for row in json.loads(cli("keys", "conf", "--json"))}


@pytest.fixture
def agent(base: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The socket of a running SSH agent, which the environment names."""
    path = base / "agent"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL)
    try:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
        # It is there once its socket answers.
        while subprocess.run(["ssh-add", "-l"], capture_output=True, check=False).returncode == 2:
            assert process.poll() is None
        yield path
    finally:
        process.terminate()
        process.wait()


def typed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


# -- keys of SSH -------------------------------------------------------------------------------------------------------


def test_a_public_key_of_ssh_is_granted_as_a_file_and_as_a_line(conf: Cli) -> None:
    ann, bob = ssh_key(conf.base / "ann"), ssh_key(conf.base / "bob")
    conf("grant", "conf", "ann", f"{ann}.pub")
    conf("grant", "conf", "bob", Path(f"{bob}.pub").read_text())
    granted = {row["name"]: row["public"] for row in json.loads(conf("keys", "conf", "--json"))}
    assert (granted["ann"], granted["bob"]) == (public(ann), public(bob))


def test_the_private_key_of_ssh_signs(conf: Cli) -> None:
    ann = ssh_key(conf.base / "ann")
    conf("grant", "conf", "ann", f"{ann}.pub")
    conf("grant", "conf", "bob", BOB.public.hex(), "-k", ann)
    assert names(conf)["bob"] == "ann"


@pytest.mark.parametrize(
    ("kind", "error"),
    [("rsa", "a key of the kind ssh-rsa cannot sign here"), ("ecdsa", "a key of the kind ecdsa-sha2-nistp256 cannot")],
)
def test_other_kinds_of_ssh_keys_are_refused(conf: Cli, kind: str, error: str) -> None:
    path = conf.base / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", path], check=True)
    assert error in conf.fails("grant", "conf", "ann", f"{path}.pub", code=2)
    assert "is not an Ed25519 key" in conf.fails("grant", "conf", "ann", BOB.public.hex(), "-k", path, code=2)


@pytest.mark.parametrize("rest", ["", " AAAA", " AAAAC3NzaC1lZDI1NTE5AAAAIAB", " \udcff"])
def test_a_damaged_line_is_refused(conf: Cli, rest: str) -> None:
    refused = conf.fails("grant", "conf", "ann", f"ssh-ed25519{rest}", code=2)
    assert "not whole: give all of the file" in refused or "neither a file nor a public key" in refused


#: An answer of the right form, whose signature is not one.
WRONG = b"\0\0\0\x58\x0e\0\0\0\x53\0\0\0\x0bssh-ed25519\0\0\0\x40" + bytes(64)


# -- an agent ----------------------------------------------------------------------------------------------------------


def test_an_agent_signs_for_a_public_key(conf: Cli, agent: Path) -> None:
    ann = ssh_key(conf.base / "ann")
    conf("grant", "conf", "ann", f"{ann}.pub")
    refused = conf.fails("grant", "conf", "bob", BOB.public.hex(), "-k", f"{ann}.pub", code=2)
    assert f"the SSH agent at {agent} does not have that key: add it with 'ssh-add'" in refused
    subprocess.run(["ssh-add", "-q", ann], check=True)
    ann.unlink()
    conf("grant", "conf", "bob", BOB.public.hex(), "-k", f"{ann}.pub")
    assert names(conf)["bob"] == "ann"
    conf("revoke", "conf", "bob", "-k", f"{ann}.pub")
    assert "bob" not in names(conf)


def test_without_an_agent_it_says_what_to_do(conf: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    ann = ssh_key(conf.base / "ann")
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    assert "SSH_AUTH_SOCK names no agent" in conf.fails("revoke", "conf", "x", "-k", f"{ann}.pub", code=2)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(conf.base / "nothing"))
    conf("grant", "conf", "ann", f"{ann}.pub")
    refused = conf.fails("grant", "conf", "bob", BOB.public.hex(), "-k", f"{ann}.pub", code=2)
    assert "cannot ask the SSH agent at" in refused and "No such file" in refused


@pytest.mark.parametrize(
    "answer", [b"", b"\0\0\0\x01\x05", b"\xff\xff\xff\xff" + bytes(5000), b"\0\0\0\x53\x0e" + bytes(82), WRONG]
)
def test_a_strange_agent_is_refused(conf: Cli, monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    ann = ssh_key(conf.base / "ann")
    conf("grant", "conf", "ann", f"{ann}.pub")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(conf.base / "strange"))
        server.listen()
        monkeypatch.setenv("SSH_AUTH_SOCK", str(conf.base / "strange"))

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        refused = conf.fails("grant", "conf", "bob", BOB.public.hex(), "-k", f"{ann}.pub", code=2)
        thread.join()
    assert "the SSH agent at" in refused
    assert "bob" not in names(conf)


# -- passphrases -------------------------------------------------------------------------------------------------------


def test_a_key_with_a_passphrase_founds_a_filesystem_and_grants(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    root = cli.base / "root"
    typed(monkeypatch, "a secret\n")
    cli("genkey", "--passphrase", root)
    assert b"ENCRYPTED" in root.read_bytes()
    for wrong in ("", "another\n"):
        typed(monkeypatch, wrong)
        assert f"that is not the passphrase of {root}" in cli.fails("bootstrap", "conf", "-k", root, code=2)
        assert cli.home.names() == []
    typed(monkeypatch, "a secret\n")
    cli("bootstrap", "conf", "-k", root)
    assert "no key of this node may write" in cli.fails("grant", "conf", "bob", BOB.public.hex())
    typed(monkeypatch, "a secret\n")
    cli("grant", "conf", "bob", BOB.public.hex(), "-k", root)
    typed(monkeypatch, "a secret\n")
    cli("expel", "conf", "bob", "-k", root)
    assert set(names(cli)) == {"root"}
    assert "a secret" not in cli("log", "conf", "--json")


def test_a_daemon_asks_for_no_passphrase(conf: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    protected = conf.base / "protected"
    typed(monkeypatch, "a secret\n")
    conf("genkey", "--passphrase", protected)
    refused = conf.fails("run", "conf", "-k", protected, code=2)
    assert "has a passphrase, which a daemon cannot ask for: use a key without one here" in refused
    for default in ((), (conf.home.default_key, "-f")):
        refused = conf.fails("genkey", "--passphrase", *default, code=2)
        assert "a daemon cannot ask for the passphrase of the default key" in refused
    typed(monkeypatch, "\n")
    assert "an empty passphrase protects nothing" in conf.fails("genkey", "--passphrase", conf.base / "x", code=2)
    assert not os.path.lexists(conf.base / "x")


def test_the_key_that_signs_counts_and_not_the_nodes(conf: Cli) -> None:
    stranger = conf.base / "stranger"
    SigningKey.generate().save(stranger)
    refused = conf.fails("grant", "conf", "carol", CAROL.public.hex(), "-k", stranger)
    assert "the key that was given may not write at /" in refused
    assert "carol" not in names(conf)


def test_a_key_comes_through_a_pipe(conf: Cli) -> None:
    ann = ssh_key(conf.base / "ann")
    conf("grant", "conf", "ann", f"{ann}.pub")
    reading, writing = os.pipe()
    os.write(writing, ann.read_bytes())
    os.close(writing)
    conf("grant", "conf", "bob", BOB.public.hex(), "-k", f"/dev/fd/{reading}")
    os.close(reading)
    assert names(conf)["bob"] == "ann"


def test_a_passphrase_that_is_too_long(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    typed(monkeypatch, "x" * 1024 + "\n")
    assert "a passphrase has at most 1023 bytes" in cli.fails("genkey", "--passphrase", cli.base / "x", code=2)


def test_an_agent_that_takes_long_is_given_up(conf: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many bytes it sends, one at a time: others wait for the log meanwhile."""
    ann = ssh_key(conf.base / "ann")
    conf("grant", "conf", "ann", f"{ann}.pub")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(conf.base / "slow"))
        server.listen()
        monkeypatch.setenv("SSH_AUTH_SOCK", str(conf.base / "slow"))
        given_up = threading.Event()

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                for byte in b"\0\0\x10\0" + bytes(4096):
                    if given_up.wait(0.5):
                        return
                    with contextlib.suppress(OSError):
                        connection.send(bytes([byte]))

        thread = threading.Thread(target=serve)
        thread.start()
        refused = conf.fails("grant", "conf", "bob", BOB.public.hex(), "-k", f"{ann}.pub", code=2)
        given_up.set()
        thread.join()
    assert "took more than 5 s" in refused
