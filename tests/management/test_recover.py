"""`basefs recover`."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from basefs.log.keys import SigningKey
from basefs.management.output import SHORT
from tests.management.terminal import on_a_terminal
from tests.support.commands import Cli
from tests.support.helpers import ALICE, BOB, STRANGER, path
from tests.support.node import Node

GUARDIANS = ("ann", "bob", "eve")


@pytest.fixture
def conf(cli: Cli) -> Cli:
    """A filesystem with two of three recovery keys; the root key has been moved to `stolen`."""
    for name in (*GUARDIANS, "new", "second"):
        cli("genkey", cli.base / name)
    cli("bootstrap", "conf", *recovery(cli, *GUARDIANS))
    cli.home.root_key("conf").rename(cli.base / "stolen")
    return cli


def recovery(cli: Cli, *names: str) -> list[object]:
    return [word for name in names for word in ("--recovery", cli.base / f"{name}.pub")]


def signed(cli: Cli, *names: str) -> list[object]:
    return [word for name in names for word in ("-k", cli.base / name)]


def public(cli: Cli, name: str) -> str:
    return (cli.base / f"{name}.pub").read_text().strip()


def fingerprint(cli: Cli, name: str) -> str:
    return SigningKey.load(cli.base / name).fingerprint.hex()


def granted(cli: Cli) -> set[tuple[str, str]]:
    return {(row["name"], row["path"]) for row in json.loads(cli("keys", "conf", "--json"))}


def test_bootstrap_says_what_replaces_the_root_key(conf: Cli, node: Node) -> None:
    def said(*arguments: object) -> str:
        return on_a_terminal(node, "bootstrap", "-f", "other", *map(str, arguments))

    assert "move it to a safe place, its recovery keys can replace it, 2 of 3" in said(*recovery(conf, *GUARDIANS))
    one = said("-k", conf.base / "new", *recovery(conf, "ann"), "--threshold", 1)
    assert "keep it in a safe place, its recovery keys can replace it, 1 of 1" in one
    assert "nothing can replace it" in said()


def test_keys_lists_the_root_key_and_the_recovery_keys(conf: Cli) -> None:
    lines = conf("keys", "conf").splitlines()
    assert lines[-2] == f"root key:      {fingerprint(conf, 'stolen')[:SHORT]}"
    assert lines[-1].startswith("recovery keys: 2 of ")
    assert {fingerprint(conf, name)[:SHORT] for name in GUARDIANS} == set(lines[-1][20:].split(", "))
    conf("bootstrap", "other")
    assert "recovery" not in conf("keys", "other")


@pytest.mark.parametrize(
    ("names", "more", "error"),
    [
        (("ann", "ann"), (), "the same key was given twice with --recovery"),
        (("ann", "bob"), ("--threshold", 3), "--threshold is from 1 to 2"),
        (("ann", "bob"), ("--threshold", 0), "--threshold is from 1 to 2"),
        ((), ("--threshold", 1), "give them with --recovery"),
        (("ann", "root"), ("-k", "root"), "the root key cannot be one of its recovery keys"),
    ],
)
def test_bootstrap_refuses_keys_that_make_no_sense(
    cli: Cli, names: tuple[str, ...], more: tuple[object, ...], error: str
) -> None:
    for name in ("ann", "bob", "root"):
        cli("genkey", cli.base / name)
    options = [cli.base / "root" if word == "root" else word for word in more]
    assert error in cli.fails("bootstrap", "conf", *recovery(cli, *names), *options, code=2)
    assert "is a private key" in cli.fails("bootstrap", "conf", "--recovery", cli.base / "ann", code=2)
    many = [word for number in range(16) for word in ("--recovery", SigningKey.generate().public.hex())]
    assert "at most 15 recovery keys" in cli.fails("bootstrap", "conf", *many, code=2)
    assert not cli.home.directory("conf").exists()


def test_two_of_three_replace_it_and_everything_goes_on(conf: Cli) -> None:
    conf("grant", "conf", "two", ALICE.public.hex(), "-k", conf.base / "stolen")
    before = granted(conf)
    with conf.replica("conf") as replica:
        tree = {names: replica.attributes(names).version for names, _ in replica.live_paths()}
    text = conf("recover", "conf", conf.base / "new", *signed(conf, "ann", "eve"))
    assert text.splitlines()[0] == f"root key of conf: {fingerprint(conf, 'new')[:SHORT]}, by recovery 1"
    assert "granted again: two at /" in text and "revoked: root at /" in text
    assert granted(conf) == before
    assert f"root key:      {fingerprint(conf, 'new')[:SHORT]}, by recovery 1" in conf("keys", "conf")
    with conf.replica("conf") as replica:
        assert {names for names, _ in replica.live_paths()} == tree.keys()
        assert replica.read((b".cluster",)) == b""
    # The former one can do nothing any more, and the new one everything.
    error = conf.fails("grant", "conf", "three", BOB.public.hex(), "-k", conf.base / "stolen")
    assert "the key that was given may not write" in error
    assert "cannot be revoked" in conf.fails("revoke", "conf", "root", "-k", conf.base / "new")
    conf("revoke", "conf", "two", "-k", conf.base / "new")
    assert ("two", "/") not in granted(conf)


def test_a_dry_run_changes_nothing(conf: Cli) -> None:
    before = conf("keys", "conf", "--json"), conf("status", "conf", "--json")
    text = conf("recover", "conf", conf.base / "new", *signed(conf, "ann", "eve"), "--dry-run")
    assert "acknowledged" in text and "/.cluster" in text and "grant gained" in text and "grant fallen" in text
    assert conf("keys", "conf", "--json") == before[0]


def test_what_the_thief_was_granted_is_dropped(conf: Cli) -> None:
    conf("grant", "conf", "thief", STRANGER.public.hex(), "-k", conf.base / "stolen")
    with conf.replica("conf", STRANGER) as replica:
        replica.commit(lambda author: author.write(path("/theirs"), b"thief's"))
    error = conf.fails("recover", "conf", conf.base / "new", *signed(conf, "ann", "eve"), "--drop", "theif")
    assert "no key theif is granted (did you mean thief?)" in error
    text = conf("recover", "conf", conf.base / "new", *signed(conf, "ann", "eve"), "--drop", "thief")
    assert "revoked: thief at /" in text and "granted again: thief" not in text
    assert ("thief", "/") not in granted(conf)
    with conf.replica("conf") as replica:
        assert replica.read(path("/theirs")) == b"thief's"


def test_discard_drops_what_the_thief_wrote(conf: Cli) -> None:
    conf("grant", "conf", "thief", STRANGER.public.hex(), "-k", conf.base / "stolen")
    with conf.replica("conf", STRANGER) as replica:
        replica.commit(lambda author: author.write(path("/theirs"), b"thief's"))
    arguments = (*signed(conf, "ann", "eve"), "--drop", "thief", "--discard")
    code, _, err = conf.run("recover", "conf", conf.base / "new", *arguments)
    assert code == 0 and "/theirs was deleted" in err
    with conf.replica("conf") as replica:
        assert {names for names, _ in replica.live_paths()} == {(), (b".cluster",)}


def test_shares_of_keys_on_other_machines(conf: Cli) -> None:
    code, out, err = conf.run("recover", "conf", conf.base / "new.pub", "--sign", *signed(conf, "ann"))
    assert code == 0 and "share for recovery 1 of conf" in err
    (share,) = out.split()
    assert conf.run("recover", "conf", public(conf, "new"), "--sign", *signed(conf, "ann"))[1] == out
    # Too few, and the same one twice.
    for more in ([], ["--share", share], signed(conf, "ann")):
        arguments = ("recover", "conf", conf.base / "new", "--share", share, *more)
        assert "it takes 2 recovery keys, and 1 signed" in conf.fails(*arguments, code=2)
    text = conf("recover", "conf", conf.base / "new", "--share", f" {share[:40]}\n{share[40:]}", *signed(conf, "bob"))
    assert fingerprint(conf, "new")[:SHORT] in text
    # Nothing can be done with them once more.
    arguments = ("recover", "conf", conf.base / "new", "--share", share, *signed(conf, "bob"))
    assert "that is the root key already" in conf.fails(*arguments, code=2)


def changed(share: str) -> str:
    return share[:50] + ("a" if share[50] != "a" else "b") + share[51:]


def elsewhere(cli: Cli, name: str) -> str:
    """A share of a key for another filesystem with the same recovery keys."""
    cli("bootstrap", "other", "-f", *recovery(cli, *GUARDIANS))
    return cli.run("recover", "other", cli.base / "new.pub", "--sign", *signed(cli, name))[1].strip()


def for_another_key(cli: Cli, name: str) -> str:
    return cli.run("recover", "conf", cli.base / "second.pub", "--sign", *signed(cli, name))[1].strip()


def cut(cli: Cli, name: str) -> str:
    return cli.run("recover", "conf", cli.base / "new.pub", "--sign", *signed(cli, name))[1].strip()[:-3]


def damaged(cli: Cli, name: str) -> str:
    return changed(cli.run("recover", "conf", cli.base / "new.pub", "--sign", *signed(cli, name))[1].strip())


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (elsewhere, "a share is for another filesystem"),
        (for_another_key, "a share is for another new root key"),
        (cut, "a share is damaged or cut off"),
        (damaged, "a share is damaged or cut off"),
        (lambda cli, name: "rubbish", "that is no share: it begins with share1-"),
    ],
    ids=["another filesystem", "another key", "cut", "damaged", "rubbish"],
)
def test_shares_that_are_no_use(conf: Cli, make: Callable[[Cli, str], str], error: str) -> None:
    share = make(conf, "ann")
    found = conf.fails("recover", "conf", conf.base / "new", "--share", share, *signed(conf, "bob"), code=2)
    assert error in found
    assert fingerprint(conf, "stolen")[:SHORT] in conf("keys", "conf")


def test_shares_of_an_old_recovery(conf: Cli) -> None:
    share = conf.run("recover", "conf", conf.base / "second.pub", "--sign", *signed(conf, "ann"))[1].strip()
    conf("recover", "conf", conf.base / "new", *signed(conf, "ann", "eve"))
    arguments = ("recover", "conf", conf.base / "second", "--share", share)
    assert "the shares are for recovery 1, and number 1 is there already" in conf.fails(
        *arguments, *signed(conf, "bob"), code=2
    )
    fresh = conf.run("recover", "conf", conf.base / "second.pub", "--sign", *signed(conf, "bob"))[1].strip()
    assert "different numbers" in conf.fails(*arguments, "--share", fresh, code=2)
    conf("recover", "conf", conf.base / "second", "--share", fresh, *signed(conf, "ann"))
    assert f"{fingerprint(conf, 'second')[:SHORT]}, by recovery 2" in conf("keys", "conf")


def test_what_cannot_be_done(conf: Cli) -> None:
    new = conf.base / "new"
    assert "is no recovery key of this filesystem" in conf.fails(
        "recover", "conf", new, *signed(conf, "stolen", "ann"), code=2
    )
    assert "it takes 2 recovery keys, and 1 signed" in conf.fails("recover", "conf", new, *signed(conf, "ann"), code=2)
    assert "it takes 2 recovery keys, and 0 signed" in conf.fails("recover", "conf", new, code=2)
    assert "that is the root key already" in conf.fails(
        "recover", "conf", conf.base / "stolen", *signed(conf, "ann", "bob"), code=2
    )
    assert "no key at" in conf.fails("recover", "conf", conf.base / "none", *signed(conf, "ann", "bob"), code=2)
    assert "no recovery key signs" in conf.fails("recover", "conf", f"{new}.pub", "--sign", code=2)
    assert "--sign takes recovery keys alone" in conf.fails(
        "recover", "conf", f"{new}.pub", "--sign", "--drop", "x", *signed(conf, "ann"), code=2
    )
    conf("bootstrap", "plain")
    assert "was made without recovery keys" in conf.fails("recover", "plain", new, *signed(conf, "ann", "bob"))


def test_a_recovery_key_with_a_passphrase(conf: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ann", "bob"):
        SigningKey.load(conf.base / name).save(conf.base / f"safe {name}", passphrase=f"{name}'s")
    monkeypatch.setattr("sys.stdin", Lines("ann's", "bob's"))
    conf("recover", "conf", conf.base / "new", *signed(conf, "safe ann", "safe bob"))
    assert f"{fingerprint(conf, 'new')[:SHORT]}, by recovery 1" in conf("keys", "conf")


class Lines:
    """A standard input with these lines, and no terminal."""

    def __init__(self, *lines: str) -> None:
        self._lines = list(lines)

    def isatty(self) -> bool:
        return False

    def readline(self) -> str:
        return self._lines.pop(0) + "\n"


def test_on_a_running_filesystem(conf: Cli, node: Node) -> None:
    node.basefs("run", "conf", "-s")
    plan = json.loads(conf("recover", "conf", conf.base / "new", *signed(conf, "ann", "eve"), "--json"))
    assert {one["name"] for one in plan["fallen"]} == {"root"} and plan["acks"]
    assert f"{fingerprint(conf, 'new')[:SHORT]}, by recovery 1" in conf("keys", "conf")
    node.basefs("unmount", "conf")
