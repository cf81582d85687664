"""`basefs expel`."""

from __future__ import annotations

import json

import pytest

from tests.support.commands import Cli
from tests.support.helpers import ALICE, BOB, CAROL, path


@pytest.fixture
def tree(conf: Cli) -> Cli:
    """Alice is granted on `/d` and on `/gone`, which was removed, and admitted at `/`; Bob is granted by Alice."""
    with conf.replica("conf") as replica:
        for name in ("/d", "/gone"):
            replica.commit(lambda author, name=name: author.make_directory(path(name)))  # type: ignore[misc]
            replica.commit(lambda author, name=name: author.grant(path(name), b"alice", ALICE.public))  # type: ignore[misc]
        replica.commit(lambda author: author.admit((), b"alice", ALICE.public))
        replica.commit(lambda author: author.remove(path("/gone"), directory=True))
    with conf.replica("conf", ALICE) as replica:
        replica.commit(lambda author: author.grant(path("/d"), b"bob", BOB.public))
        replica.commit(lambda author: author.write(path("/d/hers"), b"alice's"))
    return conf


def members(cli: Cli) -> frozenset[bytes]:
    with cli.replica("conf") as replica:
        return replica.members()


@pytest.mark.parametrize("key", ["alice", ALICE.fingerprint.hex()[:10].upper()])
def test_a_key_is_revoked_everywhere(tree: Cli, key: str) -> None:
    assert {ALICE.public, BOB.public} < members(tree)
    assert set(tree("expel", "conf", key).splitlines()) == {
        "revoked: alice at /",
        "revoked: alice at /d",
        "fallen with it: bob at /d",
        "revoked: alice at /gone",
        f"alice ({ALICE.fingerprint.hex()[:12]}) is no member of conf any more; its machine is "
        "forgotten once gossip has lost it",
    }
    assert members(tree).isdisjoint({ALICE.public, BOB.public})
    with tree.replica("conf") as replica:
        assert replica.read(path("/d/hers")) == b"alice's"
    assert "no key alice is granted in conf" in tree.fails("expel", "conf", "alice")


def test_discard_drops_what_it_has_written(tree: Cli) -> None:
    tree("expel", "conf", "alice", "--discard")
    with tree.replica("conf") as replica:
        assert (b"d", b"hers") not in dict(replica.live_paths())


def test_keys_that_are_not_meant(tree: Cli) -> None:
    assert "no key carol" in tree.fails("expel", "conf", "carol")
    with tree.replica("conf") as replica:
        replica.commit(lambda author: author.grant(path("/d"), b"alice", CAROL.public))
    assert "more than one key is named alice" in tree.fails("expel", "conf", "alice", code=2)


def test_where_this_node_lacks_the_authority_it_says_what_is_left(tree: Cli) -> None:
    with tree.replica("conf") as replica:
        root = replica.keys[0].fingerprint.hex()
    code, _, err = tree.run("expel", "conf", root)
    assert code == 1 and "cannot be revoked" in err and "is still granted at /" in err


def test_who_may_grant_in_a_directory_names_no_key_of_the_root(conf: Cli) -> None:
    """Else `expel gamma`, typed once more, would take the administrator's grants back."""
    with conf.replica("conf") as replica:
        own = replica.keys[0]
        replica.commit(lambda author: author.make_directory(path("/d")))
        replica.commit(lambda author: author.grant(path("/d"), b"alice", ALICE.public))
        replica.commit(lambda author: author.grant((), b"gamma", CAROL.public))
        replica.commit(lambda author: author.admit((), b"reader", BOB.public))
    with conf.replica("conf", ALICE) as replica:
        replica.commit(lambda author: author.grant(path("/d"), b"gamma", own.public))
        replica.commit(lambda author: author.grant(path("/d"), b"gamma", BOB.public))
    conf("expel", "conf", "gamma")
    assert members(conf) >= {own.public, ALICE.public, BOB.public} and CAROL.public not in members(conf)
    assert "no key gamma is granted in conf" in conf.fails("expel", "conf", "gamma")
    assert members(conf) >= {own.public, ALICE.public, BOB.public}


def test_the_key_of_this_node_is_expelled_by_its_fingerprint_only(cli: Cli) -> None:
    cli("bootstrap", "conf")
    (own,) = (row for row in json.loads(cli("keys", "conf", "--json")) if row["own"])
    refused = cli.fails("expel", "conf", own["name"], "-k", cli.home.root_key("conf"), code=2)
    assert "is the key of this node: give its fingerprint" in refused
    cli("expel", "conf", own["fingerprint"][:12], "-k", cli.home.root_key("conf"))
    assert len(members(cli)) == 1


def test_a_dry_run_lists_what_would_fall_and_changes_nothing(tree: Cli) -> None:
    before = members(tree)
    shown = tree("expel", "conf", "alice", "--dry-run")
    assert "grant fallen" in shown and "bob" in shown
    assert members(tree) == before


def test_what_comes_back_with_a_key_that_is_granted_again_is_said(tree: Cli) -> None:
    tree("expel", "conf", "alice")
    _, _, err = tree.run("grant", "conf:/d", "alice", ALICE.public.hex())
    assert "valid again: bob at /d, granted by that key" in err
