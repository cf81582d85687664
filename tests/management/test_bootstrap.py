"""`basefs bootstrap`."""

from __future__ import annotations

import json
import socket

import pytest

from basefs.log.keys import SigningKey
from tests.management.terminal import on_a_terminal
from tests.support.commands import Cli
from tests.support.helpers import BOB
from tests.support.node import Node


def grants(cli: Cli) -> list[dict[str, object]]:
    return json.loads(cli("keys", "conf", "--json"))


def test_a_new_filesystem_and_its_key(cli: Cli) -> None:
    name, identity = cli("bootstrap", "conf").split()
    with cli.replica("conf") as replica:
        assert (name, identity) == ("conf", replica.identity.hex())
        assert replica.read((b".cluster",)) == b""
    found = {row["name"]: (row["path"], row["public"], row["granted_by_name"], row["own"]) for row in grants(cli)}
    keys = {"root": cli.home.root_key("conf"), socket.gethostname(): cli.home.default_key}
    assert found == {
        name: ("/", SigningKey.load(path).public.hex(), "root", path == cli.home.default_key)
        for name, path in keys.items()
    }
    assert cli.home.root_key("conf").stat().st_mode & 0o777 == 0o600


def test_the_root_key_can_be_kept_elsewhere_and_revokes_the_node(cli: Cli) -> None:
    cli("bootstrap", "conf")
    kept = cli.base / "drawer"
    cli.home.root_key("conf").rename(kept)
    assert "granted: two may write" in cli("grant", "conf", "two", BOB.public.hex())
    assert "no key two" not in cli("revoke", "conf", socket.gethostname(), "-k", kept)
    assert {row["name"] for row in grants(cli)} == {"root"}
    assert "no key of this node may write at /" in cli.fails("grant", "conf", "two", BOB.public.hex())
    assert "granted: two may write" in cli("grant", "conf", "two", BOB.public.hex(), "-k", kept)
    assert "cannot be revoked" in cli.fails("revoke", "conf", "root", "-k", kept)


def test_a_new_filesystem_of_the_name_keeps_the_root_key_of_the_old_one(cli: Cli) -> None:
    cli("bootstrap", "conf")
    first = cli.home.root_key("conf").read_bytes()
    _, _, err = cli.run("bootstrap", "conf", "-f")
    assert cli.home.root_key("conf").read_bytes() != first
    (kept,) = cli.home.path.glob("conf.root.key.old-*")
    assert kept.read_bytes() == first and f"kept the former root key as {kept}" in err


@pytest.mark.parametrize(("option", "is_open"), [([], False), (["--open"], True)])
def test_who_may_read_is_fixed_from_the_beginning(cli: Cli, option: list[str], *, is_open: bool) -> None:
    cli("bootstrap", "conf", *option)
    with cli.replica("conf") as replica:
        assert replica.is_open == is_open
    assert cli("status", "conf").count("open: anyone who can reach the sync port") == is_open


def test_addresses_go_to_the_cluster_file(cli: Cli) -> None:
    cli("bootstrap", "conf", "-i", "10.0.0.1", "-i", "10.0.0.2:7000", "-i", "2001:db8::1", "-i", "[2001:db8::2]:9")
    with cli.replica("conf") as replica:
        expected = b"10.0.0.1:18374\n10.0.0.2:7000\n[2001:db8::1]:18374\n[2001:db8::2]:9\n"
        assert replica.read((b".cluster",)) == expected


def test_several_root_keys_are_named_after_their_files(cli: Cli) -> None:
    for name in ("alice", "bob"):
        cli("genkey", cli.base / name)
    cli("bootstrap", "conf", "-k", cli.base / "alice", "-k", cli.base / "bob")
    keys = {name: SigningKey.load(cli.base / name) for name in ("alice", "bob")}
    found = {(grant["name"], grant["fingerprint"], grant["granted_by"]) for grant in grants(cli)}
    signer = keys["alice"].fingerprint.hex()
    assert found == {(name, key.fingerprint.hex(), signer) for name, key in keys.items()}
    assert not cli.home.default_key.exists()


@pytest.mark.parametrize("address", ["10.0.0.1:0", "10.0.0.1:65535", "10.0.0.1:port", ":1", ""])
def test_a_bad_address(cli: Cli, address: str) -> None:
    assert "is not an address" in cli.fails("bootstrap", "conf", "-i", address, code=2)
    assert cli.empty("list").startswith("no filesystem here")


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "..", "x" * 65, "sp ace", "new\nline", "-"])
def test_a_bad_name(cli: Cli, name: str) -> None:
    assert "is not a filesystem name" in cli.fails("bootstrap", "--", name, code=2)


def test_a_missing_key(cli: Cli) -> None:
    assert "no key at" in cli.fails("bootstrap", "conf", "-k", cli.base / "nothing", code=2)
    assert cli.home.names() == []


def test_the_same_key_twice(cli: Cli) -> None:
    cli("genkey", cli.base / "k")
    assert "given twice" in cli.fails("bootstrap", "conf", "-k", cli.base / "k", "-k", cli.base / "k", code=2)


def test_an_existing_filesystem_is_replaced_only_on_request(conf: Cli) -> None:
    with conf.replica("conf") as replica:
        before = replica.identity
    assert "there is a filesystem conf already" in conf.fails("bootstrap", "conf")
    with conf.replica("conf") as replica:
        assert replica.identity == before
    conf("bootstrap", "conf", "-f")
    with conf.replica("conf") as replica:
        assert replica.identity != before
    assert [path.name for path in (conf.home.path / "fs").iterdir()] == ["conf"]


def test_a_running_filesystem_is_not_replaced(conf: Cli, node: Node) -> None:
    node.basefs("run", "conf", "-s")
    assert "conf is running" in conf.fails("bootstrap", "conf", "-f")
    node.basefs("unmount", "conf")
    conf("bootstrap", "conf", "-f")


def test_a_terminal_gets_the_next_command_and_what_to_keep(node: Node, cli: Cli) -> None:
    shown = on_a_terminal(node, "bootstrap", "conf")
    assert "basefs mount conf DIR" in shown
    assert "basefs invite conf" in shown
    assert f"root key:    {cli.home.root_key('conf')}; move it" in shown
