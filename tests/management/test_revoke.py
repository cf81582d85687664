"""`basefs revoke`."""

from __future__ import annotations

import json

import pytest

from basefs.errors import PermissionDenied
from basefs.log.entries import Action
from basefs.log.keys import SigningKey
from basefs.management.output import SHORT
from basefs.replica.replica import Applied
from tests.support.commands import Cli
from tests.support.helpers import ALICE, BOB, CAROL, path
from tests.support.node import Node


@pytest.fixture
def tree(conf: Cli) -> Cli:
    """Alice may write on /d and has let Bob write on /d/e; both have used it."""
    with conf.replica("conf") as replica:
        replica.commit(lambda author: author.make_directory(path("/d")))
        replica.commit(lambda author: author.write(path("/d/shared"), b"root's"))
        replica.commit(lambda author: author.grant(path("/d"), b"alice", ALICE.public))
    with conf.replica("conf", ALICE) as replica:
        replica.commit(lambda author: author.make_directory(path("/d/e")))
        replica.commit(lambda author: author.write(path("/d/e/hers"), b"alice's"))
        replica.commit(lambda author: author.write(path("/d/shared"), b"alice's"))
        replica.commit(lambda author: author.grant(path("/d/e"), b"bob", BOB.public))
    with conf.replica("conf", BOB) as replica:
        replica.commit(lambda author: author.write(path("/d/e/his"), b"bob's"))
    return conf


def shown(cli: Cli) -> dict[str, bytes]:
    with cli.replica("conf") as replica:
        return {
            "/".join(name.decode() for name in names): replica.read(names)
            for names, kind in replica.live_paths()
            if kind.value == "file"
        }


def granted(cli: Cli) -> set[bytes]:
    with cli.replica("conf") as replica:
        return {grant.entry.name for names, _ in replica.live_paths() for grant in replica.grants(names)} - {
            grant.entry.name for grant in replica.grants(())
        }


def test_by_name_what_falls_is_printed_and_what_was_written_stays(tree: Cli) -> None:
    before = shown(tree)
    assert tree("revoke", "conf:/d/e", "bob").splitlines() == ["revoked: bob at /d/e"]
    assert granted(tree) == {b"alice"}
    assert shown(tree) == before


def test_by_fingerprint_and_its_beginning(tree: Cli) -> None:
    tree("revoke", "conf:/d/e", BOB.fingerprint.hex())
    tree("revoke", "conf:/d", ALICE.fingerprint.hex()[:8].upper())
    assert granted(tree) == set()
    assert "no key" in tree.fails("revoke", "conf:/d", ALICE.fingerprint.hex()[:7])


def test_what_the_key_granted_falls_with_it(tree: Cli) -> None:
    assert tree("revoke", "conf:/d", "alice").splitlines() == ["revoked: alice at /d", "fallen with it: bob at /d/e"]
    assert granted(tree) == set()
    files = shown(tree)
    assert (files["d/shared"], files["d/e/hers"]) == (b"alice's", b"alice's")


def test_discard_drops_what_the_key_wrote(tree: Cli) -> None:
    assert tree("revoke", "conf:/d", "alice", "--discard").splitlines() == [
        "revoked: alice at /d",
        "fallen with it: bob at /d/e",
    ]
    assert shown(tree) == {".cluster": b"", "d/shared": b"root's"}


@pytest.mark.parametrize("options", [(), ("--keep-new",)])
def test_what_was_discarded_comes_back_with_the_tree(tree: Cli, options: tuple[str, ...]) -> None:
    before = shown(tree)
    last = json.loads(tree("log", "-r", "conf", "--json", "-n", "1", "--arrival"))[0]["entry"]
    tree("revoke", "conf:/d", "alice", "--discard")
    tree("revert", "conf", "--at", last, *options)
    assert shown(tree) == before


def test_what_was_discarded_comes_back_one_by_one(tree: Cli) -> None:
    before = shown(tree)
    tree("revoke", "conf:/d", "alice", "--discard")
    while listed := json.loads(tree("conflicts", "conf", "--ignored", "--json")):
        # What was in a directory is listed once that is back.
        assert tree.run(*listed[0]["command"].split()[1:])[0] == 0
    assert shown(tree) == before


def test_discard_leaves_the_acks_out(tree: Cli) -> None:
    applied: list[Applied] = []
    with tree.replica("conf") as replica:
        replica.subscribe(applied.append)
        key = ALICE.fingerprint
        replica.commit(lambda author: author.revoke(path("/d"), b"alice", key, discard=True))
    assert [entry.action for entry in applied[0].entries] == [Action.REVOKE, Action.GOSSIP_KEY]


def test_what_others_built_on_stays_in_spite_of_discard(tree: Cli) -> None:
    with tree.replica("conf") as replica:
        replica.commit(lambda author: author.write(path("/d/e/hers"), b"alice's, continued"))
    tree("revoke", "conf:/d", "alice", "--discard")
    assert shown(tree)["d/e/hers"] == b"alice's, continued"


def test_on_a_running_filesystem(tree: Cli, node: Node) -> None:
    node.basefs("run", "conf", "-s")
    assert tree("revoke", "conf:/d", "alice", "--discard").splitlines() == [
        "revoked: alice at /d",
        "fallen with it: bob at /d/e",
    ]
    assert "alice" not in tree("keys", "conf")
    node.basefs("unmount", "conf")
    assert shown(tree) == {".cluster": b"", "d/shared": b"root's"}


def test_an_unknown_key_or_path(tree: Cli) -> None:
    assert "no key carol is granted at /d" in tree.fails("revoke", "conf:/d", "carol")
    assert "no key alice is granted at /d/e" in tree.fails("revoke", "conf:/d/e", "alice")
    assert "no key alice is granted at /nothing" in tree.fails("revoke", "conf:/nothing", "alice")
    assert "there is no filesystem other" in tree.fails("revoke", "other:/", "alice")
    assert "no key alic is granted at /d (did you mean alice?)" in tree.fails("revoke", "conf:/d", "alic")
    assert granted(tree) == {b"alice", b"bob"}


def test_a_name_that_two_keys_have(tree: Cli) -> None:
    tree("grant", "-f", "conf:/d", "alice", CAROL.public.hex())
    assert "more than one key is named alice" in tree.fails("revoke", "conf:/d", "alice", code=2)
    tree("revoke", "conf:/d", CAROL.fingerprint.hex())
    assert tree("revoke", "conf:/d", "alice").splitlines()[0] == "revoked: alice at /d"


def test_the_root_key_cannot_be_revoked(tree: Cli) -> None:
    fingerprint = SigningKey.load(tree.home.default_key).fingerprint.hex()
    assert "cannot be revoked" in tree.fails("revoke", "conf:/", fingerprint)
    assert fingerprint[:SHORT] in tree("keys", "conf:/")


def test_without_authority_over_the_key(tree: Cli) -> None:
    tree("grant", "conf:/d", "carol", CAROL.public.hex())
    CAROL.save(tree.home.default_key, overwrite=True)
    assert "has authority over it" in tree.fails("revoke", "conf:/d", "alice")
    assert b"alice" in granted(tree)


def test_without_permission(tree: Cli) -> None:
    assert tree.run("genkey", "-f")[0] == 0
    assert "no key of this node may write at /d" in tree.fails("revoke", "conf:/d", "alice")


def test_names_that_would_break_lines(tree: Cli) -> None:
    tree("grant", "conf:/d", "new\nline", CAROL.public.hex())
    assert tree("revoke", "conf:/d", CAROL.fingerprint.hex()) == "revoked: new\\nline at /d\n"


def test_a_dry_run_lists_what_would_change_and_changes_nothing(tree: Cli) -> None:
    before = shown(tree), granted(tree)
    lines = [line.split("\t") for line in tree("revoke", "conf:/d", "alice", "--dry-run").splitlines()]
    assert [line[:2] for line in lines if line[0] == "grant fallen"] == [
        ["grant fallen", "/d"],
        ["grant fallen", "/d/e"],
    ]
    assert ["acknowledged", "/d/e/hers", ""] in lines
    told = json.loads(tree("revoke", "conf:/d", "alice", "--discard", "--dry-run", "--json"))
    (hers,) = (change for change in told["changed"] if change["path"] == "/d/e/hers")
    assert told["acks"] == [] and (hers["before"]["kind"], hers["after"]) == ("file", None)
    assert "/d/e/hers\tfile of 7 B" in tree("revoke", "conf:/d", "alice", "--discard", "-n")
    assert (shown(tree), granted(tree)) == before
    assert json.loads(tree("revoke", "conf:/d", "alice", "--json"))["fallen"][0]["name"] == "alice"


def test_a_revoke_that_fails_leaves_nothing_in_the_log(tree: Cli) -> None:
    tree("grant", "conf:/d", "carol", CAROL.public.hex())
    CAROL.save(tree.home.default_key, overwrite=True)
    with tree.replica("conf") as replica:
        before = replica.totals()["entries"]
    tree.fails("revoke", "conf:/d", "alice")
    with tree.replica("conf") as replica:
        assert replica.totals()["entries"] == before


def test_what_is_granted_on_a_removed_directory_is_listed_and_revoked(tree: Cli) -> None:
    with tree.replica("conf") as replica:
        for name in ("hers", "his"):
            replica.commit(lambda author, name=name: author.remove(path(f"/d/e/{name}"), directory=False))  # type: ignore[misc]
        replica.commit(lambda author: author.remove(path("/d/e"), directory=True))
    rows = {row["name"]: row["standing"] for row in json.loads(tree("keys", "conf", "--json")) if row["path"] != "/"}
    assert rows == {"alice": "valid", "bob": "reads"}
    assert tree("revoke", "conf:/d/e", "bob").splitlines() == ["revoked: bob at /d/e"]
    assert "bob" not in tree("keys", "conf")
    with tree.replica("conf") as replica:
        assert BOB.public not in replica.members()
    assert "no key bob is granted at /d/e" in tree.fails("revoke", "conf:/d/e", "bob")


def test_a_grant_on_a_removed_directory_keeps_none_of_today_from_being_revoked(conf: Cli) -> None:
    """On the directory that was removed the two are equals; on the one of today Alice has granted Bob."""
    with conf.replica("conf") as replica:
        for is_removed in (True, False):
            replica.commit(lambda author: author.make_directory(path("/d")))
            replica.commit(lambda author: author.grant(path("/d"), b"alice", ALICE.public))
            if is_removed:
                replica.commit(lambda author: author.grant(path("/d"), b"bob", BOB.public))
                replica.commit(lambda author: author.remove(path("/d"), directory=True))
    with conf.replica("conf", ALICE) as replica:
        replica.commit(lambda author: author.grant(path("/d"), b"bob", BOB.public))
        assert BOB.fingerprint in {one.fingerprint for one in replica.grants(path("/d"))}
        replica.commit(lambda author: author.key_holder.revoke(path("/d"), b"bob", BOB.fingerprint).draft)
        assert BOB.fingerprint not in {one.fingerprint for one in replica.grants(path("/d"))}
        # Only who has granted that, or has a higher key, ends the other one.
        assert BOB.public in replica.members()
        with pytest.raises(PermissionDenied):
            replica.plan(lambda author: author.key_holder.revoke(path("/d"), b"bob", BOB.fingerprint))


def test_the_key_of_this_node_is_revoked_only_where_it_is_meant(cli: Cli) -> None:
    """It would sign the acks, and take along all that it has written."""
    cli("genkey")
    assert cli.run("bootstrap", "conf")[0] == 0
    with cli.replica("conf") as replica:
        replica.commit(lambda author: author.write(path("/kept"), b"x"))
    ((name, fingerprint),) = (
        (row["name"], row["fingerprint"]) for row in json.loads(cli("keys", "conf", "--json")) if row["own"]
    )
    told = cli.fails("revoke", "conf:/", name, code=2)
    assert f"{name} is the key of this node: give its fingerprint, {fingerprint[:SHORT]}, if it is meant" in told
    assert "kept" in shown(cli)
    code, out, err = cli.run("revoke", "conf:/", fingerprint)
    assert (code, out) == (0, f"revoked: {name} at /\n")
    assert err.startswith("/kept was deleted: file of 1 B")
    assert "kept" not in shown(cli)
