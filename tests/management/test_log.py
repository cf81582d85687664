"""`basefs log`: who has changed what, and when."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

from basefs.daemon.keyfiles import default_keys
from basefs.log.entries import Action
from basefs.log.keys import SigningKey
from basefs.replica.replica import Replica
from basefs.view.events import EventType
from basefs.view.states import Owner
from tests.support.commands import Cli
from tests.support.helpers import path
from tests.support.names import rename
from tests.support.node import Node


def rows(cli: Cli, *arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(cli("log", *arguments, "--json"))
    return found


def words(cli: Cli, *arguments: str) -> list[tuple[str, str, str]]:
    return [(row["action"], row["standing"], row["path"]) for row in rows(cli, *arguments)]


@pytest.fixture
def other() -> SigningKey:
    return SigningKey.generate()


@pytest.fixture
def shared(conf: Cli, other: SigningKey) -> Cli:
    """`/f`, which the key of this node wrote twice and another one, `bob`, in between."""
    conf("grant", "conf:/", "bob", other.public.hex())
    for number, key in enumerate((None, other, None)):
        with conf.replica("conf", *([] if key is None else [key])) as replica:
            replica.commit(lambda author, n=number: author.write(path("/f"), f"{n}\n".encode()))
    return conf


def test_the_time_is_that_of_the_change_and_not_of_the_file(conf: Cli) -> None:
    before = time.time()
    with conf.replica("conf") as replica:
        replica.commit(lambda author: author.write(path("/f"), b"x", mtime=1_000_000_000))
        replica.commit(lambda author: author.set_attributes(path("/f"), mode=0o600))
    for row in rows(conf, "conf:/f"):
        assert before - 1 <= row["time"] <= row["arrived"] <= time.time()
    assert "2001-09-09" not in conf("log", "conf:/f")


def test_it_says_whom_a_grant_and_a_revoke_were_about(conf: Cli, other: SigningKey) -> None:
    whom = other.fingerprint.hex()
    conf("grant", "conf:/", "bob", other.public.hex())
    conf("revoke", "conf:/", "bob")
    found = [(row["action"], row["about"], row["about_fingerprint"]) for row in rows(conf, "conf:/") if row["about"]]
    assert found[:2] == [("revoke", "bob", whom), ("grant", "bob", whom)]
    assert conf("log", "conf:/").count("/ for bob") == 2
    assert conf("log", "conf:/", "-p").count("  / for bob\n") == 2


def test_what_was_signed_before_comes_before_although_it_arrived_after(conf: Cli) -> None:
    with conf.replica("conf") as replica:
        replica.commit(lambda author: author.make_directory(path("/new")))
        hour_ago = time.time_ns() - 3600 * 10**9
        entry = replica.keys[0].sign(replica.identity, hour_ago, Action.MKDIR, b"old")
        assert replica.apply([entry], []).entries
    assert rows(conf, "-r", "conf:/")[0]["path"] == "/new"
    assert rows(conf, "-r", "conf:/", "--arrival")[0]["path"] == "/old"
    (row,) = rows(conf, "conf:/old")
    assert row["time"] == pytest.approx(hour_ago / 10**9) and row["arrived"] - row["time"] > 3500
    assert rows(conf, "-r", "conf:/", "--until", "30min") == [row]
    assert "no revisions" in conf.empty("log", "-r", "conf:/", "--until", "30min", "--arrival")


def test_a_number_of_revisions(shared: Cli) -> None:
    everything = rows(shared, "conf:/f")
    assert rows(shared, "conf:/f", "-n", "2") == everything[:2]
    assert len(shared("log", "conf:/f", "-n", "1").splitlines()) == 1
    assert "not in the range" in shared.misused("log", "conf:/f", "-n", "0")


def test_revisions_by_a_key(shared: Cli, other: SigningKey) -> None:
    (row,) = rows(shared, "conf:/f", "--by", "bob")
    assert row["fingerprint"] == other.fingerprint.hex()
    assert rows(shared, "conf:/f", "--by", other.fingerprint.hex()[:8]) == [row]
    assert len(rows(shared, "-r", "conf:/", "--by", "bob")) == 1
    assert shared.empty("log", "conf:/f", "--by", "bob", "--until", "1h") == "no revisions\n"
    assert shared.empty("log", "conf:/f", "--by", "nobody") == "no key nobody has signed a revision here\n"
    assert "has signed a revision here (did you mean bob?)" in shared.empty("log", "conf:/f", "--by", "bobb")
    # Seven digits may be a name.
    seven = other.fingerprint.hex()[:7]
    assert shared.empty("log", "conf:/f", "--by", seven) == f"no key {seven} has signed a revision here\n"


def test_revisions_of_a_time(shared: Cli) -> None:
    newest, _, oldest = (row["arrived"] for row in rows(shared, "conf:/f"))
    assert len(rows(shared, "conf:/f", "--since", f"@{newest - 0.0001:f}", "--arrival")) == 1
    assert len(rows(shared, "conf:/f", "--until", f"@{oldest + 0.0001:f}", "--arrival")) == 1
    assert len(rows(shared, "conf:/f", "--since", "1h", "--until", "now")) == 3
    assert "no revisions" in shared.empty("log", "conf:/f", "--until", "1h")
    assert "is not a time" in shared.fails("log", "conf:/f", "--since", "some day", code=2)


def test_revisions_with_what_they_changed(shared: Cli) -> None:
    shown = shared("log", "conf:/f", "-p", "-n", "2").splitlines()
    assert shown[0].split("  ")[2:] == ["write", shown[0].split("  ")[3], "current", "/f"]
    assert shown[1] == "changed file /f" and shown[4:7] == ["@@ -1 +1 @@", "-1", "+2"]
    assert [line for line in shown if line.startswith(("-", "+")) and line[1] not in "-+"] == ["-1", "+2", "-0", "+1"]
    first = rows(shared, "conf:/f", "-p")[-1]
    assert first["patch"]["became"] == "created" and first["patch"]["diff"].endswith("+0\n")


def test_a_rename_is_a_link_and_a_delete(conf: Cli) -> None:
    with conf.replica("conf") as replica:
        replica.commit(lambda author: author.make_directory(path("/d")))
        replica.commit(lambda author: author.write(path("/old"), b"one\n"))
        replica.commit(lambda author: rename(author, path("/old"), path("/d/new")))
        replica.commit(lambda author: author.write(path("/d/new"), b"two\n"))
    assert words(conf, "conf:/d/new") == [("write", "current", "/d/new"), ("link", "past", "/d/new")]
    assert [row["source"] for row in rows(conf, "conf:/d/new")] == [None, "/old"]
    assert conf("log", "conf:/d/new").splitlines()[1].endswith("\t/d/new from /old")
    shown = conf("log", "conf:/d/new", "-p")
    assert re.findall(r"^[+-](?![+-]).*", shown, re.MULTILINE) == ["-one", "+two", "+one"]
    assert words(conf, "conf:/old") == [("delete", "current", "/old"), ("write", "last", "/old")]


def test_the_last_live_revision_of_what_is_gone_is_marked_and_comes_back(conf: Cli) -> None:
    with conf.replica("conf") as replica:
        replica.commit(lambda author: author.make_directory(path("/d")))
        for content in (b"one", b"four"):
            replica.commit(lambda author, c=content: author.write(path("/d/f"), c))
        replica.commit(lambda author: author.remove(path("/d/f"), directory=False))
    assert [word for _, word, _ in words(conf, "conf:/d/f")] == ["current", "last", "past"]
    with conf.replica("conf") as replica:
        replica.commit(lambda author: author.remove(path("/d"), directory=True))
    found = rows(conf, "conf:/d/f")
    assert [(row["standing"], row["size"], row["kind"]) for row in found] == [
        ("gone", None, "absent"),
        ("last", 4, "file"),
        ("gone", 3, "file"),
    ]
    conf("revert", "conf:/d/f", found[1]["entry"])
    assert conf("cat", "conf:/d/f") == "four"


def test_no_revision_is_listed_before_one_that_it_builds_on(shared: Cli) -> None:
    for arguments in (("-r", "conf:/"), ("-r", "conf:/", "--arrival")):
        listed = [row["entry"] for row in reversed(rows(shared, *arguments))]
        with shared.replica("conf") as replica:
            parents = {row.entry: row.parent for row in _tree(replica)}
        assert set(listed) == set(parents)
        assert all(parents[entry] not in listed[number:] for number, entry in enumerate(listed))


def _tree(replica: Any) -> Any:
    return [
        type("Row", (), {"entry": placed.entry.hash.hex(), "parent": placed.entry.parent.hex()})
        for text in ("/", "/f", "/.cluster")
        for placed in replica.survey(path(text)).entries
    ]


def test_temporary_names_never_leave_the_node(conf: Cli) -> None:
    for name in ("foo~", ".foo.swp"):
        assert f"/{name} never leaves this node" in conf.fails("log", f"conf:/{name}")
        assert "never leaves this node" in conf.fails("cat", f"conf:/{name}")
    assert "never leaves" not in conf.fails("log", "conf:/foo")


def test_what_a_revoked_key_wrote_meanwhile_is_listed_and_comes_back(shared: Cli, other: SigningKey) -> None:
    """A node that was away writes with a key that was revoked meanwhile."""
    with shared.replica("conf") as replica:
        (first,) = replica.commit(lambda author: author.write(path("/f"), b"first")).entries
        saved = replica.commit(lambda author: author.write(path("/elsewhere"), b"trailing")).entries[0]
    shared("revoke", "conf:/", "bob")
    assert "nothing is ignored" in shared.empty("conflicts", "conf", "--ignored")
    with shared.replica("conf") as replica:
        entry = other.sign(first.hash, time.time_ns(), Action.WRITE, b"f", saved.content, saved.extensions)
        assert replica.apply([entry], []).entries
    assert "no conflicts" in shared.empty("conflicts", "conf")
    (row,) = json.loads(shared("conflicts", "conf", "--ignored", "--json"))
    assert (row["path"], row["entry"], row["standing"]) == ("/f", entry.hash.hex(), "ignored")
    assert shared("conflicts", "conf:/f", "--ignored").split("\t")[0] == "/f"
    assert shared("cat", "conf:/f", "--at", row["entry"]) == "trailing"
    shared(*row["command"].split()[1:])
    assert shared("cat", "conf:/f") == "trailing"


def test_all_that_a_key_has_lost_comes_back(shared: Cli, other: SigningKey) -> None:
    """One side of a cut wins altogether, also the files that it deleted."""
    kept = {}
    names = [f"/d{number}" for number in range(6)]
    for name in names:
        with shared.replica("conf") as replica:
            (first,) = replica.commit(lambda author, at=name: author.write(path(at), b"first")).entries
            replica.commit(lambda author, at=name: author.write(path(at), b"ours"))
            theirs = other.sign(first.hash, time.time_ns(), Action.DELETE, name[1:].encode())
            replica.apply([theirs], [])
            kept[name] = _is_live(replica, name)
    lost = [one["path"] for one in json.loads(shared("conflicts", "conf", "--json")) if one["lost"]["key"] == "bob"]
    assert lost == [name for name in names if kept[name]]
    assert "need a path, or --all" in shared.fails("conflicts", "conf", "--restore", "bob", code=2)
    assert "has lost nothing there" in shared.empty("conflicts", "conf:/f", "--restore", "bob")
    if lost:
        assert shared("conflicts", "conf", "--restore", "bob", "--all") == f"{len(lost)} deleted\n"
    with shared.replica("conf") as replica:
        assert not any(_is_live(replica, name) for name in names)
    assert not [one for one in json.loads(shared("conflicts", "conf", "--json")) if one["lost"]["key"] == "bob"]


def test_many_deletions_that_a_key_has_lost_need_consent(shared: Cli, other: SigningKey) -> None:
    names = [f"/d{number}" for number in range(21)]
    for name in names:
        _lose(shared, other, name)
    error = shared.fails("conflicts", "conf", "--restore", "bob", "--all", code=2)
    assert "deletes 21 paths" in error and "-y deletes them; nothing was changed" in error
    assert shared.fails("conflicts", "conf", "--restore", "bob", "--all", "--json", code=2) == error
    with shared.replica("conf") as replica:
        assert all(_is_live(replica, name) for name in names)
    assert shared("conflicts", "conf", "--restore", "bob", "--all", "-y") == "21 deleted\n"


@pytest.mark.parametrize("arguments", [("--accept",), ("--restore", "bob")])
def test_where_one_conflict_may_not_be_settled_none_is(shared: Cli, other: SigningKey, arguments: tuple[str]) -> None:
    """The command would fail in the middle, and never say what it had done before."""
    with shared.replica("conf") as replica:
        for name in ("/allowed", "/denied"):
            replica.commit(lambda author, at=name: author.make_directory(path(at)))
    for name in ("/allowed/f", "/denied/f"):
        _lose(shared, other, name)
    shared("genkey", shared.base / "carol")
    shared("grant", "conf:/allowed", "carol", shared.base / "carol.pub")
    (shared.base / "carol").replace(shared.home.default_key)
    before = shared("conflicts", "conf")
    assert len(before.splitlines()) == 2
    assert "no key of this node may write at /denied" in shared.fails("conflicts", "conf", *arguments, "--all")
    assert shared("conflicts", "conf") == before
    shared("conflicts", "conf:/allowed", *arguments)
    assert shared("conflicts", "conf") == before.splitlines(keepends=True)[1]


def _lose(cli: Cli, key: SigningKey, name: str) -> None:
    """A file that this node has changed while another key deleted it; the deletion has lost."""
    with cli.replica("conf") as replica:
        (first,) = replica.commit(lambda author: author.write(path(name), b"first")).entries
        (ours,) = replica.commit(lambda author: author.write(path(name), b"ours")).entries
        while (theirs := key.sign(first.hash, time.time_ns(), Action.DELETE, path(name)[-1])).hash > ours.hash:
            pass
        replica.apply([theirs], [])


def _is_live(replica: Replica, name: str) -> bool:
    return path(name) in dict(replica.live_paths())


@pytest.mark.fuse
def test_a_daemon_lists_what_was_done_to_a_mount(node: Node, conf: Cli) -> None:
    assert default_keys(conf.home)
    point = node.mount("conf")
    before = time.time()
    (point / "f1").write_text("one\n")
    os.utime(point / "f1", (1_000_000_000, 1_000_000_000))
    node.basefs("show", "conf")
    (point / "f1").rename(point / "f2")
    node.basefs("show", "conf")
    (point / "f2").write_text("two\n")
    found = node.query("log", "conf:/f2")
    assert [(row["action"], row["path"], row["source"]) for row in found if row["action"] != "attributes"] == [
        ("write", "/f2", None),
        ("link", "/f2", "/f1"),
    ]
    assert all(row["time"] >= before - 1 for row in found)
    assert node.basefs("log", "conf:/f2", "-p").count("\n+two\n") == 1
    assert len(node.query("log", Path(point) / "f2", "-n", "1", "--by", found[0]["key"])) == 1


def test_another_mode_owner_or_time_is_called_as_events_call_it(conf: Cli) -> None:
    with conf.replica("conf") as replica:
        replica.commit(lambda author: author.write(path("/f"), b"x"))
        replica.commit(lambda author: author.set_attributes(path("/f"), mode=0o600))
        replica.commit(lambda author: author.set_attributes(path("/f"), owner=Owner(b"root", b"adm", 0, 4)))
        replica.commit(lambda author: author.set_attributes(path("/f"), mtime=10**9))
    word = EventType.ATTRIBUTES.value
    assert [row["action"] for row in json.loads(conf("log", "conf:/f", "--json"))] == [word, word, word, "write"]
    assert [line.split("\t")[2] for line in conf("show", "conf:/f").splitlines()] == ["write", word, word, word]
    assert json.loads(conf("status", "conf", "--json"))["latest"]["action"] == word
    assert f"{word} of /f by " in conf("status", "conf")
