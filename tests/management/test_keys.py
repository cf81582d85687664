"""`basefs keys`."""

from __future__ import annotations

import json

from basefs.log.keys import SigningKey
from basefs.management.output import SHORT
from tests.support.commands import Cli
from tests.support.helpers import ALICE, BOB, path


def test_no_key_yet(cli: Cli) -> None:
    assert "'basefs genkey' makes one" in cli.empty("keys")
    assert json.loads(cli("keys", "--json")) == []


def test_the_default_key(cli: Cli) -> None:
    cli("genkey")
    key = SigningKey.load(cli.home.default_key)
    expected = [str(cli.home.default_key), key.fingerprint.hex()[:12], key.public.hex()]
    assert cli("keys").rstrip("\n").split("\t") == expected


def test_those_of_a_filesystem_and_those_that_count_at_a_path(conf: Cli) -> None:
    with conf.replica("conf") as replica:
        for text in ("/a", "/b"):
            replica.commit(lambda author, text=text: author.make_directory(path(text)))
        replica.commit(lambda author: author.grant(path("/a"), b"alice", ALICE.public))
        replica.commit(lambda author: author.grant(path("/b"), b"bob\n\xff", BOB.public))
    root = SigningKey.load(conf.home.default_key)
    rows = json.loads(conf("keys", "-d", "conf", "--json"))
    assert [(row["path"], row["fingerprint"], row["own"]) for row in rows] == [
        ("/", root.fingerprint.hex(), True),
        ("/a", ALICE.fingerprint.hex(), False),
        ("/b", BOB.fingerprint.hex(), False),
    ]
    assert {row["granted_by"] for row in rows} == {root.fingerprint.hex()}
    for text, expected in (("/", ["/", "/a", "/b"]), ("/a", ["/", "/a"]), ("/b", ["/", "/b"]), ("/.cluster", ["/"])):
        assert [row["path"] for row in json.loads(conf("keys", "-d", f"conf:{text}", "--json"))] == expected
    lines = conf("keys", "conf").splitlines()
    assert len(lines) == 3
    assert conf("keys", "-d", "conf").splitlines()[1].split("\t")[:2] == ["/a", "alice"]
    assert lines[0].split("\t") == ["alice", ALICE.fingerprint.hex()[:SHORT], "no", "1", "valid", rows[0]["name"], "/a"]


def test_an_unknown_path_or_filesystem(conf: Cli) -> None:
    assert "/nothing does not exist" in conf.fails("keys", "conf:/nothing")
    assert "there is no filesystem other" in conf.fails("keys", "other")


def test_a_default_key_that_cannot_be_read(cli: Cli) -> None:
    cli.home.path.mkdir()
    cli.home.default_key.write_text("this is no key")
    assert "is not a private key" in cli.fails("keys", code=2)


def test_those_that_do_not_count_any_more(conf: Cli) -> None:
    with conf.replica("conf") as replica:
        replica.commit(lambda author: author.make_directory(path("/a")))
        replica.commit(lambda author: author.grant(path("/a"), b"alice", ALICE.public))
    conf("revoke", "conf:/a", "alice")
    assert "alice" not in conf("keys", "conf")
    (row,) = (row for row in json.loads(conf("keys", "--all", "conf", "--json")) if row["name"] == "alice")
    assert (row["standing"], row["depth"]) == ("revoked", None)
    conf("grant", "conf:/a", "alice", ALICE.public.hex())
    standings = [row["standing"] for row in json.loads(conf("keys", "-a", "conf", "--json")) if row["name"] == "alice"]
    assert standings == ["revoked", "valid"]
