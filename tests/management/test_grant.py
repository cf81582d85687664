"""`basefs grant`."""

from __future__ import annotations

import pytest

from basefs.log.entries import Action
from basefs.log.keys import SigningKey
from tests.support.commands import Cli
from tests.support.helpers import ALICE, BOB, path
from tests.support.names import rename
from tests.support.node import Node


@pytest.fixture
def tree(conf: Cli) -> Cli:
    with conf.replica("conf") as replica:
        replica.commit(lambda author: author.make_directory(path("/d")))
    return conf


def granted(cli: Cli, text: str) -> list[tuple[bytes, bytes]]:
    with cli.replica("conf") as replica:
        return [(grant.entry.name, grant.entry.content) for grant in replica.grants(path(text))]


def test_a_public_key_in_hex(tree: Cli) -> None:
    assert tree("grant", "conf:/d", "alice", ALICE.public.hex()) == "granted: alice may write at /d and below\n"
    assert granted(tree, "/d") == [(b"alice", ALICE.public)]


def test_a_file_with_a_public_key(tree: Cli) -> None:
    tree("genkey", tree.base / "bob")
    tree("grant", "conf:/d", "bob", tree.base / "bob.pub")
    assert granted(tree, "/d") == [(b"bob", SigningKey.load(tree.base / "bob").public)]


def test_on_a_file(tree: Cli) -> None:
    tree("grant", "conf:/.cluster", "alice", ALICE.public.hex())
    assert granted(tree, "/.cluster") == [(b"alice", ALICE.public)]


def test_on_a_file_that_was_renamed(tree: Cli) -> None:
    with tree.replica("conf") as replica:
        replica.commit(lambda author: author.write(path("/d/old"), b"x"))
        replica.commit(lambda author: rename(author, path("/d/old"), path("/d/new")))
    tree("grant", "conf:/d/new", "alice", ALICE.public.hex())
    assert granted(tree, "/d/new") == [(b"alice", ALICE.public)]
    with tree.replica("conf") as replica:
        tip = replica.attributes(path("/d/new")).entry
        assert replica.apply([ALICE.sign(tip, 1, Action.WRITE, b"new")], []).entries
        assert replica.read(path("/d/new")) == b""
    tree("revoke", "conf:/d/new", "alice")
    assert granted(tree, "/d/new") == []


def test_several_keys_on_one_path(tree: Cli) -> None:
    for name, key in (("alice", ALICE), ("bob", BOB)):
        tree("grant", "conf:/d", name, key.public.hex())
    assert set(granted(tree, "/d")) == {(b"alice", ALICE.public), (b"bob", BOB.public)}


def test_what_was_moved_out_of_the_directory_stays_out_of_reach(tree: Cli) -> None:
    with tree.replica("conf") as replica:
        (last,) = replica.commit(lambda author: author.write(path("/d/f"), b"good")).entries
        replica.commit(lambda author: rename(author, path("/d/f"), path("/f")))
    tree("grant", "conf:/d", "alice", ALICE.public.hex())
    with tree.replica("conf") as replica:
        assert replica.apply([ALICE.sign(last.hash, 1, Action.WRITE, b"f")], []).entries
        assert replica.read(path("/f")) == b"good"


def test_on_a_running_filesystem(tree: Cli, node: Node) -> None:
    node.basefs("run", "conf", "-s")
    tree("grant", "conf:/d", "alice", ALICE.public.hex())
    assert "alice" in tree("keys", "conf:/d")
    node.basefs("unmount", "conf")
    assert granted(tree, "/d") == [(b"alice", ALICE.public)]


def test_a_private_key_is_refused(tree: Cli) -> None:
    tree("genkey", tree.base / "bob")
    message = tree.fails("grant", "conf:/d", "bob", tree.base / "bob", code=2)
    assert "is a private key" in message
    assert f"{tree.base}/bob.pub" in message
    assert granted(tree, "/d") == []


@pytest.mark.parametrize("text", ["", "xyz", "00" * 31, "00" * 33, "no/such/file.pub"])
def test_what_is_no_public_key(tree: Cli, text: str) -> None:
    assert "64 hexadecimal digits" in tree.fails("grant", "conf:/d", "x", text, code=2)


def test_a_file_that_holds_something_else(tree: Cli) -> None:
    (tree.base / "binary").write_bytes(b"\xff\xfe")
    assert "is not a public key" in tree.fails("grant", "conf:/d", "x", tree.base / "binary", code=2)
    (tree.base / "text").write_text("hello")
    assert "64 hexadecimal digits" in tree.fails("grant", "conf:/d", "x", tree.base / "text", code=2)


@pytest.mark.parametrize("name", ["n" * 256, "nul"])
def test_a_name_that_a_key_cannot_have(tree: Cli, name: str) -> None:
    name = name.replace("nul", "\0")
    assert "name" in tree.fails("grant", "conf:/d", name, ALICE.public.hex())
    assert granted(tree, "/d") == []


def test_the_name_of_an_invitation(tree: Cli) -> None:
    name = "invite bob until 2099-01-01T00:00:00Z"
    assert "is a name for invitations" in tree.fails("grant", "conf:/d", name, ALICE.public.hex(), code=2)
    assert granted(tree, "/d") == []


def test_an_unknown_path(tree: Cli) -> None:
    assert "/nothing does not exist" in tree.fails("grant", "conf:/nothing", "alice", ALICE.public.hex())
    assert "there is no filesystem other" in tree.fails("grant", "other:/", "alice", ALICE.public.hex())


def test_a_name_alone_is_its_root(tree: Cli) -> None:
    tree("grant", "conf", "alice", ALICE.public.hex())
    assert granted(tree, "/")[-1] == (b"alice", ALICE.public)


def test_without_permission(tree: Cli) -> None:
    assert tree.run("genkey", "-f")[0] == 0
    assert "no key of this node may write at /d" in tree.fails("grant", "conf:/d", "alice", ALICE.public.hex())
    tree.home.default_key.unlink()
    assert "no key of this node may write at /d" in tree.fails("grant", "conf:/d", "alice", ALICE.public.hex())
    assert granted(tree, "/d") == []


def test_a_dry_run_and_a_grant_that_is_there_already(tree: Cli) -> None:
    line = tree("grant", "conf:/d", "alice", ALICE.public.hex(), "-n")
    assert line == f"grant gained\t/d\talice {ALICE.fingerprint.hex()[:12]}\n"
    assert granted(tree, "/d") == []
    tree("grant", "conf:/d", "alice", ALICE.public.hex())
    assert "nothing to do" in tree.empty("grant", "conf:/d", "alice", ALICE.public.hex())
    assert len(granted(tree, "/d")) == 1


def test_a_name_that_another_key_has(tree: Cli) -> None:
    tree("grant", "conf:/d", "alice", ALICE.public.hex())
    for where in ("conf:/d", "conf:/"):
        message = tree.fails("grant", where, "alice", BOB.public.hex())
        assert f"alice is the name of the key {ALICE.fingerprint.hex()[:8]} at /d" in message
        assert "-f" in message and "another name" in message
    assert "the name of the key" in tree.fails("grant", "-n", "conf:/", "alice", BOB.public.hex())
    assert granted(tree, "/d") == [(b"alice", ALICE.public)]
    tree("grant", "-f", "conf:/", "alice", BOB.public.hex())
    assert granted(tree, "/")[-1] == (b"alice", BOB.public)


def test_a_second_name_for_a_key(tree: Cli) -> None:
    tree("grant", "conf:/d", "alice", ALICE.public.hex())
    for where in ("conf:/d", "conf:/"):
        message = tree.fails("grant", where, "zed", ALICE.public.hex())
        assert "that key is named alice at /d" in message and "-f" in message
    tree("grant", "conf:/", "alice", ALICE.public.hex())
    tree("grant", "--force", "conf:/.cluster", "zed", ALICE.public.hex())
    assert granted(tree, "/.cluster") == [(b"zed", ALICE.public)]
    # Both names are taken by this key now: neither is a new one.
    tree("grant", "conf:/d", "zed", ALICE.public.hex())
    root = SigningKey.load(tree.home.default_key)
    assert "that key is named" in tree.fails("grant", "conf:/d", "intern", root.public.hex())


def test_the_name_of_a_revoked_key_is_free_again(tree: Cli) -> None:
    tree("grant", "conf:/d", "alice", ALICE.public.hex())
    tree("revoke", "conf:/d", "alice")
    tree("grant", "conf:/d", "alice", BOB.public.hex())
    assert granted(tree, "/d") == [(b"alice", BOB.public)]


def test_the_daemon_refuses_names_as_well(tree: Cli, node: Node) -> None:
    node.basefs("run", "conf", "-s")
    tree("grant", "conf:/d", "alice", ALICE.public.hex())
    assert "the name of the key" in tree.fails("grant", "conf:/d", "alice", BOB.public.hex())
    assert "that key is named alice" in tree.fails("grant", "conf:/", "zed", ALICE.public.hex())
    node.basefs("unmount", "conf")
    assert granted(tree, "/d") == [(b"alice", ALICE.public)]
