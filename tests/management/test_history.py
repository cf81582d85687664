"""`basefs log`, `basefs revert` and `basefs conflicts`."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from basefs.log.entries import Action
from basefs.log.extensions import Extensions
from basefs.log.keys import SigningKey
from basefs.view.author import Author
from basefs.view.draft import Draft
from basefs.view.states import Kind, Owner
from tests.management.terminal import on_a_terminal
from tests.support.commands import Cli
from tests.support.helpers import ALICE, path
from tests.support.names import make_symlink
from tests.support.node import Node


@pytest.fixture
def edited(conf: Cli) -> Cli:
    """`/f` was written, written again, and deleted; `/b` holds bytes that are no text."""
    with conf.replica("conf") as replica:
        replica.commit(lambda author: author.write(path("/f"), b"one\n"))
        replica.commit(lambda author: author.write(path("/f"), b"one\ntwo"))
        replica.commit(lambda author: author.remove(path("/f"), directory=False))
        replica.commit(lambda author: author.write(path("/b"), b"\xff\x00"))
    return conf


def revisions(cli: Cli, target: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(cli("log", target, "--json"))
    return found


def test_log_lists_the_newest_first(edited: Cli) -> None:
    rows = revisions(edited, "conf:/f")
    assert [(row["action"], row["size"], row["standing"]) for row in rows] == [
        ("delete", None, "current"),
        ("write", 7, "last"),
        ("write", 4, "past"),
    ]
    lines = [line.split("\t") for line in edited("log", "conf:/f").splitlines()]
    assert [line[0] for line in lines] == [row["entry"][:12] for row in rows]
    assert {line[3] for line in lines} == {rows[0]["key"]}


def test_log_of_what_never_was(edited: Cli) -> None:
    assert "the log has nothing at /g" in edited.fails("log", "conf:/g")


def test_revert_brings_a_deleted_file_back(edited: Cli) -> None:
    _, second, _ = (row["entry"] for row in revisions(edited, "conf:/f"))
    assert edited("revert", "conf:/f", second[:12]) == "1 created\n"
    with edited.replica("conf") as replica:
        assert replica.read(path("/f")) == b"one\ntwo"
    current = revisions(edited, "conf:/f")[0]
    assert (current["action"], current["standing"]) == ("revert", "current")
    said = edited.empty("revert", "conf:/f", current["entry"])
    assert said == "nothing to do: conf:/f is in that state already\n"


def test_revert_says_why_it_cannot(edited: Cli) -> None:
    other = revisions(edited, "conf:/b")[0]["entry"]
    assert "not of /f" in edited.fails("revert", "conf:/f", other)
    assert "is not a hash: give at least 8 digits" in edited.fails(
        "revert", "conf:/f", revisions(edited, "conf:/f")[1]["entry"][:7], code=2
    )
    assert "there is no entry ffff0000" in edited.fails("revert", "conf:/f", "ffff0000")
    root = revisions(edited, "conf:/")[-1]["entry"]
    assert "the root directory" in edited.fails("revert", "conf:/", root)


def test_conflicts_tells_what_lost_and_how_to_bring_it_back(conf: Cli) -> None:
    assert "no conflicts" in conf.empty("conflicts", "conf")
    with conf.replica("conf") as replica:
        key = replica.keys[0]
        replica.commit(lambda author: author.write(path("/f"), b"one"))
        replica.commit(lambda author: _write_beside(author, key))
    (row,) = json.loads(conf("conflicts", "conf", "--json"))
    assert (row["path"], row["rule"]) == ("/f", "the higher hash")
    assert conf("conflicts", "conf:/f").split("\t")[0] == "/f"
    assert "no conflicts" in conf.empty("conflicts", "conf:/.cluster")
    before = "".join(conf("cat", "conf:/f", "--at", row[side]["entry"]) for side in ("won", "lost"))
    assert sorted([before[:3], before[3:]]) == ["one", "two"]
    conf("revert", "conf:/f", row["lost"]["entry"])
    with conf.replica("conf") as replica:
        assert replica.read(path("/f")).decode() == before[3:]
    assert "the log has nothing at /nowhere" in conf.fails("conflicts", "conf:/nowhere")


def test_what_won_is_accepted(conf: Cli) -> None:
    with conf.replica("conf") as replica:
        key = replica.keys[0]
        replica.commit(lambda author: author.write(path("/f"), b"one"))
        replica.commit(lambda author: _write_beside(author, key))
        shown = replica.read(path("/f"))
    assert "no conflicts" in conf.empty("conflicts", "conf:/.cluster", "--accept")
    assert len(json.loads(conf("conflicts", "conf", "--json"))) == 1
    assert "need a path, or --all" in conf.fails("conflicts", "conf", "--accept", code=2)
    assert "--all needs --accept or --restore" in conf.fails("conflicts", "conf", "--all", code=2)
    (before,) = json.loads(conf("conflicts", "conf", "--json"))
    what, at, stays, settled = conf("conflicts", "conf:/f", "--accept").rstrip("\n").split("\t")
    assert (what, at) == ("accepted", "/f")
    assert stays.split()[0] == before["won"]["entry"][:12] and settled.split()[0] == before["lost"]["entry"][:12]
    assert "no conflicts" in conf.empty("conflicts", "conf")
    assert "no conflicts" in conf.empty("conflicts", "conf", "--accept", "--all")
    rows = {row["entry"]: (row["action"], row["standing"]) for row in revisions(conf, "conf:/f")}
    assert rows.pop(before["won"]["entry"]) == ("write", "current")
    assert rows.pop(before["lost"]["entry"]) == ("write", "lost")
    assert list(rows.values()) == [("accept", "past")]
    with conf.replica("conf") as replica:
        assert replica.read(path("/f")) == shown


def test_a_directory_that_was_brought_back_on_another_branch_is_current_once(conf: Cli) -> None:
    with conf.replica("conf") as replica:
        key = replica.keys[0]
        (made,) = replica.commit(lambda author: author.make_directory(path("/t"))).entries
        replica.commit(lambda author: author.write(path("/t/x"), b"x"))
        (saved,) = replica.commit(lambda author: author.write(path("/g"), b"new")).entries
        beside = next(
            entry
            for moment in range(1000)
            if (entry := key.sign(made.parent, moment, Action.WRITE, b"t", saved.content, saved.extensions)).hash
            > made.hash
        )
        replica.apply([beside], [])
    assert conf("revert", "conf:/t", made.hash.hex()).startswith("1 ")
    standings = [(row["action"], row["standing"]) for row in revisions(conf, "conf:/t")]
    assert standings == [("revert", "current"), ("mkdir", "past"), ("write", "past")]
    assert "no conflicts" in conf.empty("conflicts", "conf")
    assert conf("cat", "conf:/t/x") == "x"
    with conf.replica("conf") as replica:
        replica.commit(lambda author: author.remove(path("/t/x"), directory=False))
        replica.commit(lambda author: author.remove(path("/t"), directory=True))
    assert [row["standing"] for row in revisions(conf, "conf:/t")].count("current") == 1
    assert "no conflicts" in conf.empty("conflicts", "conf")


def test_what_was_changed_while_its_directory_was_removed_is_listed_and_comes_back(conf: Cli) -> None:
    """By a key of less authority: no edit is lost to a removal by an equal."""
    with conf.replica("conf") as replica:
        replica.commit(lambda author: author.make_directory(path("/d")))
        replica.commit(lambda author: author.grant(path("/d"), b"alice", ALICE.public))
        (written,) = replica.commit(lambda author: author.write(path("/d/f"), b"old")).entries
        saved = replica.commit(lambda author: author.write(path("/g"), b"new"))
        changed = ALICE.sign(written.hash, 0, Action.WRITE, b"f", saved.entries[0].content, Extensions(3))
        replica.commit(lambda author: author.remove(path("/d/f"), directory=False))
        replica.commit(lambda author: author.remove(path("/d"), directory=True))
        replica.apply([changed], [])
    (row,) = json.loads(conf("conflicts", "conf", "--json"))
    assert (row["path"], row["lost"]["entry"], row["won"]["kind"]) == ("/d/f", changed.hash.hex(), "absent")
    conf(*row["command"].split()[1:])
    with conf.replica("conf") as replica:
        assert replica.read(path("/d/f")) == b"new"
    assert "no conflicts" in conf.empty("conflicts", "conf")


def _write_beside(author: Author, key: SigningKey) -> Draft:
    """A second first version of `/f`, as another node makes it that has not seen the first one."""
    draft = author.write(path("/g"), b"two")
    written = draft.entries[0]
    beside = key.sign(written.parent, written.made, written.action, b"f", written.content, written.extensions)
    return Draft([beside], draft.blocks)


@pytest.fixture
def removed(conf: Cli) -> Cli:
    """`/d`, with a directory, a file and a link in it, that was removed with all of it, and is another one now."""
    with conf.replica("conf") as replica:
        for text in ("/d", "/d/e"):
            replica.commit(lambda author, text=text: author.make_directory(path(text)))
        replica.commit(lambda author: author.write(path("/d/e/f"), b"first", mode=0o600))
        replica.commit(lambda author: make_symlink(author, path("/d/l"), b"e/f"))
        for text, directory in (("/d/l", False), ("/d/e/f", False), ("/d/e", True), ("/d", True)):
            replica.commit(lambda author, t=text, d=directory: author.remove(path(t), directory=d))
        replica.commit(lambda author: author.make_directory(path("/d")))
        replica.commit(lambda author: author.write(path("/d/new"), b"new"))
    return conf


def contents(cli: Cli) -> dict[str, bytes]:
    with cli.replica("conf") as replica:
        assert replica.check_view() == []
        return {
            b"/".join(names).decode(): b"" if kind is Kind.DIRECTORY else replica.read(names)
            for names, kind in replica.live_paths()
            if names[:1] == (b"d",)
        }


def test_a_directory_comes_back_with_all_below_it(removed: Cli) -> None:
    link = next(row for row in json.loads(removed("log", "-r", "conf:/d", "--json")) if row["action"] == "slink")
    assert removed("revert", "conf:/d", "--at", link["entry"][:12]) == "3 created, 1 changed, 1 deleted\n"
    assert contents(removed) == {"d": b"", "d/e": b"", "d/e/f": b"first", "d/l": b"e/f"}
    with removed.replica("conf") as replica:
        assert replica.attributes(path("/d/e/f")).mode == 0o600
    assert "nothing to do" in removed.empty("revert", "conf:/d", "--at", link["entry"])


def test_a_directory_that_comes_back_by_a_hash_is_empty_and_says_so(removed: Cli) -> None:
    with removed.replica("conf") as replica:
        replica.commit(lambda author: author.remove(path("/d/new"), directory=False))
        replica.commit(lambda author: author.remove(path("/d"), directory=True))
    made = next(row for row in json.loads(removed("log", "conf:/d", "--json")) if row["action"] == "mkdir")
    code, out, err = removed.run("revert", "conf:/d", made["entry"])
    assert (code, out) == (0, "1 created\n")
    assert err == "this is the directory alone: revert with --at to restore what was in it\n"


def test_a_tree_can_be_reverted_to_a_time_and_back(removed: Cli) -> None:
    before = contents(removed)
    deleted = next(row for row in json.loads(removed("log", "-r", "conf:/d", "--json")) if row["path"] == "/d/new")
    with removed.replica("conf") as replica:
        replica.commit(lambda author: author.reverter.tree(path("/d"), 6))
    assert contents(removed) != before
    removed("revert", "conf:/d", "--at", deleted["entry"])
    assert contents(removed) == before


def test_times(removed: Cli) -> None:
    assert "is in the future" in removed.fails("revert", "conf:/d", "--at", "2106-01-01", code=2)
    message = removed.fails("revert", "conf:/d", "--at", "1999-12-31 23:59")
    assert "this node has no history before" in message and message.count("\n") == 1
    assert "nothing to do: conf:/d is" in removed.empty("revert", "conf:/d", "--at", "now")
    # The name alone is all of it, which the answer says.
    assert "nothing to do: conf:/ is" in removed.empty("revert", "conf", "--at", "now")
    assert "is not a time: write 15m" in removed.fails("revert", "conf:/d", "--at", "some day", code=2)
    assert "this node has no history before" in removed.fails("revert", "conf:/d", "--at", "yesterday")
    assert "give either" in removed.fails("revert", "conf:/d", code=2)
    assert "give either" in removed.fails("revert", "conf:/d", "abcd", "--at", "1h", code=2)
    assert "nothing was" in removed.fails("revert", "conf:/never", "--at", "now")


def test_a_hash_of_another_path_is_refused_with_what_was_meant(removed: Cli) -> None:
    """The hash of a file does not take back all that came into its directory after it."""
    other = json.loads(removed("log", "conf:/.cluster", "--json"))[0]["entry"]
    said = removed.fails("revert", "conf:/d", other)
    assert f"is a revision of /.cluster, not of /d: 'basefs revert conf:/.cluster {other[:12]}'" in said
    link = next(row for row in json.loads(removed("log", "-r", "conf:/d", "--json")) if row["action"] == "slink")
    before = contents(removed)
    said = removed.fails("revert", "conf:/d", link["entry"], code=2)
    assert "is a revision of /d/l, not of /d" in said and contents(removed) == before
    one, all = re.findall(r"'basefs (revert .*?)'", said)
    assert all.endswith(" --dry-run") and len(removed(*all.split()).splitlines()) == 5
    assert contents(removed) == before
    all = all.removesuffix(" --dry-run")
    # It belongs to the directory of that name that was removed.
    assert f"with '--at {link['entry'][:12]} --keep-new'" in removed.fails(*one.split())
    assert removed(*all.split()) == "3 created, 1 changed, 1 deleted\n"
    assert contents(removed) == {"d": b"", "d/e": b"", "d/e/f": b"first", "d/l": b"e/f"}


def test_one_of_the_commands_that_were_meant_brings_back_one_file(conf: Cli) -> None:
    with conf.replica("conf") as replica:
        replica.commit(lambda author: author.make_directory(path("/d")))
        (first,) = replica.commit(lambda author: author.write(path("/d/a b"), b"old")).entries
        replica.commit(lambda author: author.write(path("/d/a b"), b"changed"))
        replica.commit(lambda author: author.write(path("/d/later"), b"later"))
    said = conf.fails("revert", "conf:/d", first.hash.hex(), code=2)
    one = re.findall(r"'basefs (revert '.*?' \w+)'", said)[0]
    assert conf(*shlex.split(one)) == "1 changed\n"
    assert contents(conf) == {"d": b"", "d/a b": b"old", "d/later": b"later"}


def test_a_whole_filesystem_is_named_when_it_is_reverted(removed: Cli) -> None:
    row = json.loads(removed("log", "-r", "conf", "--json", "-n", "1"))[0]
    with removed.replica("conf") as replica:
        replica.commit(lambda author: author.write(path("/later"), b"x"))
    assert removed("revert", "conf", "--at", row["entry"]) == "1 deleted in all of conf\n"


def test_a_dry_run_lists_what_is_created_changed_and_deleted(removed: Cli) -> None:
    with removed.replica("conf") as replica:
        replica.commit(lambda author: make_symlink(author, path("/d/l"), b"elsewhere"))
    link = next(row for row in json.loads(removed("log", "-r", "conf:/d", "--json")) if row["path"] == "/d/e/f")
    entry = next(row["entry"] for row in json.loads(removed("log", "conf:/d/l", "--json")) if row["action"] == "delete")
    before = contents(removed)
    arguments = ("revert", "conf:/d", "--at", entry, "--dry-run")
    lines = [line.split("\t")[:2] for line in removed(*arguments).splitlines()]
    assert link["standing"] == "gone", "its delete"
    # The directory is the one that was removed, again.
    assert lines == [
        ["changed", "/d"],
        ["created", "/d/e"],
        ["deleted", "/d/l"],
        ["deleted", "/d/new"],
        ["created", "/d/e/f"],
    ]
    outcome = json.loads(removed(*arguments, "--json"))
    assert not outcome["reverted"] and contents(removed) == before
    assert [one["became"] for one in outcome["changed"]] == ["changed", "created", "deleted", "deleted", "created"]
    kinds = [(one["path"], one["before"] and one["before"]["kind"]) for one in outcome["changed"][1:]]
    assert kinds == [("/d/e", None), ("/d/l", "symlink"), ("/d/new", "file"), ("/d/e/f", None)]
    assert json.loads(removed(*arguments[:-1], "--json"))["reverted"]


def test_a_dry_run_says_what_changes_in_a_path(conf: Cli) -> None:
    with conf.replica("conf") as replica:
        replica.commit(lambda author: author.make_directory(path("/d"), mode=0o755))
        for name in ("content", "longer", "mode", "owner", "time", "both", "kind"):
            replica.commit(lambda author, n=name: author.write(path(f"/d/{n}"), b"1\n", mtime=10**9))
        (made,) = replica.commit(lambda author: make_symlink(author, path("/d/link"), b"mode")).entries
        replica.commit(lambda author: author.write(path("/d/content"), b"2\n"))
        replica.commit(lambda author: author.write(path("/d/longer"), b"and more\n"))
        replica.commit(lambda author: author.set_attributes(path("/d/mode"), mode=0o600))
        replica.commit(lambda author: author.set_attributes(path("/d/owner"), owner=Owner(b"root", b"adm", 0, 4)))
        replica.commit(lambda author: author.set_attributes(path("/d/time"), mtime=2 * 10**9))
        replica.commit(lambda author: author.write(path("/d/both"), b"2\n", mode=0o600))
        replica.commit(lambda author: author.remove(path("/d/kind"), directory=False))
        replica.commit(lambda author: author.make_directory(path("/d/kind")))
        replica.commit(lambda author: make_symlink(author, path("/d/link"), b"owner", replace=True))
        replica.commit(lambda author: author.set_attributes(path("/d"), mode=0o700))
    at = ("revert", "conf:/d", "--at", made.hash.hex(), "--dry-run")
    assert [line.split("\t") for line in conf(*at).splitlines()] == [
        ["changed", "/d", "mode 0700 -> 0755"],
        ["changed", "/d/both", "mode 0600 -> 0644, other content of 2 B"],
        ["changed", "/d/content", "other content of 2 B"],
        ["changed", "/d/kind", "directory -> file of 2 B"],
        ["changed", "/d/link", "target owner -> mode"],
        ["changed", "/d/longer", "content of 9 B -> 2 B"],
        ["changed", "/d/mode", "mode 0600 -> 0644"],
        ["changed", "/d/owner", "owner root:adm -> -"],
        ["changed", "/d/time", f"mtime {datetime.fromtimestamp(2)} -> {datetime.fromtimestamp(1)}"],
    ]
    found = {one["path"]: one for one in json.loads(conf(*at, "--json"))["changed"]}
    mode, owner = found["/d/mode"], found["/d/owner"]
    assert (mode["before"]["mode"], mode["after"]["mode"]) == ("0600", "0644")
    assert (owner["before"]["owner"], owner["after"]["owner"]) == ("root:adm", None)
    assert found["/d/content"]["before"]["content"] != found["/d/content"]["after"]["content"]


def test_what_is_new_can_be_kept(removed: Cli) -> None:
    entry = next(row for row in json.loads(removed("log", "-r", "conf:/d", "--json")) if row["action"] == "slink")
    removed("revert", "conf:/d", "--at", entry["entry"], "--keep-new")
    assert contents(removed) == {"d": b"", "d/e": b"", "d/e/f": b"first", "d/l": b"e/f", "d/new": b"new"}
    assert "--keep-new needs --at" in removed.fails("revert", "conf:/d", entry["entry"], "--keep-new", code=2)


def test_a_file_that_took_the_place_of_a_directory_is_kept_as_well(conf: Cli) -> None:
    with conf.replica("conf") as replica:
        replica.commit(lambda author: author.make_directory(path("/d")))
        replica.commit(lambda author: author.make_directory(path("/d/e")))
        replica.commit(lambda author: author.write(path("/d/e/f"), b"old"))
        (made,) = replica.commit(lambda author: author.write(path("/d/g"), b"old")).entries
        for text, directory in (("/d/e/f", False), ("/d/e", True), ("/d/g", False)):
            replica.commit(lambda author, t=text, d=directory: author.remove(path(t), directory=d))
        replica.commit(lambda author: author.write(path("/d/e"), b"a file now"))
        replica.commit(lambda author: author.make_directory(path("/d/g")))
        replica.commit(lambda author: author.write(path("/d/g/in"), b"new"))
        replica.commit(lambda author: author.write(path("/d/h"), b"new"))
    now = contents(conf)
    for options in ((), ("--dry-run",)):
        said = conf.empty("revert", "conf:/d", "--at", made.hash.hex(), "--keep-new", *options)
        assert said == "kept 2 paths, where a directory and something else have changed places: /d/e, /d/g\n"
    outcome = json.loads(conf.run("revert", "conf:/d", "--at", made.hash.hex(), "--keep-new", "--json")[1])
    assert outcome["kept"] == ["/d/e", "/d/g"]
    assert contents(conf) == now
    conf("revert", "conf:/d", "--at", made.hash.hex())
    assert contents(conf) == {"d": b"", "d/e": b"", "d/e/f": b"old", "d/g": b"old"}


@pytest.fixture
def many(conf: Cli) -> tuple[Cli, str]:
    """21 files, and the last entry before them."""
    with conf.replica("conf") as replica:
        (made,) = replica.commit(lambda author: author.make_directory(path("/d"))).entries
        for number in range(21):
            replica.commit(lambda author, n=number: author.write(path(f"/d/{n}"), b"x"))
    return conf, made.hash.hex()


def test_many_deletions_need_a_yes(many: tuple[Cli, str]) -> None:
    conf, made = many
    before = contents(conf)
    for options in ((), ("--json",)):
        said = conf.fails("revert", "conf:/d", "--at", made, *options, code=2)
        assert "this deletes 21 paths" in said and "-y" in said and "nothing was changed" in said
    assert contents(conf) == before
    assert len(conf("revert", "conf:/d", "--at", made, "--dry-run").splitlines()) == 21
    assert conf("revert", "conf:/d", "--at", made, "-y") == "21 deleted\n"
    assert contents(conf) == {"d": b""}


@pytest.mark.process
def test_many_deletions_are_asked_for_on_a_terminal(node: Node, many: tuple[Cli, str]) -> None:
    conf, made = many
    before = contents(conf)
    arguments = ("revert", "conf:/d", "--at", made)
    said = on_a_terminal(node, *arguments, typed="n\n", code=3)
    assert "this deletes 21 paths" in said and "[y/N]" in said and "nothing was changed" in said
    assert contents(conf) == before
    assert "21 deleted" in on_a_terminal(node, *arguments, typed="y\n")
    assert contents(conf) == {"d": b""}


@pytest.mark.process
def test_what_arrives_after_the_question_is_asked_for_as_well(node: Node, many: tuple[Cli, str]) -> None:
    conf, made = many

    def typed() -> Iterator[str]:
        with conf.replica("conf") as replica:
            replica.commit(lambda author: author.write(path("/d/late"), b"late"))
        yield "y\n"
        assert len(contents(conf)) == 23, "nothing was deleted yet"
        yield "n\n"

    said = on_a_terminal(node, "revert", "conf:/d", "--at", made, typed=typed(), code=3)
    assert "this deletes 21 paths" in said and "this deletes 22 paths" in said and "nothing was changed" in said
    assert len(contents(conf)) == 23


@pytest.mark.fuse
def test_a_daemon_reverts_as_a_command_does(node: Node, conf: Cli) -> None:
    point = node.mount("conf")
    (point / "d").mkdir()
    (point / "d" / "one").write_text("one")
    first = node.query("log", "conf:/d/one")[0]["entry"]
    for number in range(21):
        (point / "d" / str(number)).write_text("x")
    refused = node.spawn("revert", "conf:/d", "--at", first)
    assert refused.returncode == 2 and "this deletes 21 paths" in refused.stderr
    assert node.spawn("revert", "conf:/d", first).stderr.startswith(f"basefs: {first[:12]} is a revision of /d/one")
    assert node.basefs("revert", "conf:/d", "--at", first, "-k", "-n") == ""
    assert node.basefs("revert", "conf:/d", "--at", first, "-y") == "21 deleted\n"
    assert sorted(path.name for path in (point / "d").iterdir()) == ["one"]


def test_log_of_all_below(removed: Cli) -> None:
    rows = json.loads(removed("log", "-r", "conf:/d", "--json"))
    assert [(row["action"], row["path"]) for row in rows][:3] == [
        ("write", "/d/new"),
        ("mkdir", "/d"),
        ("delete", "/d"),
    ]
    assert removed("log", "--recursive", "conf:/d").splitlines()[0].split("\t")[-1] == "/d/new"


def test_conflicts_of_deleted_paths_are_told_with_the_command(conf: Cli) -> None:
    with conf.replica("conf") as replica:
        replica.commit(lambda author: author.write(path("/f"), b"one"))
        replica.commit(lambda author: author.grant(path("/f"), b"alice", ALICE.public))
        written = replica.commit(lambda author: author.write(path("/f"), b"two")).entries[-1]
        edit = ALICE.sign(written.hash, 0, Action.WRITE, b"f", written.content, Extensions(3))
        replica.commit(lambda author: author.remove(path("/f"), directory=False))
        replica.apply([edit], [])
    (row,) = json.loads(conf("conflicts", "conf", "--json"))
    assert row["command"] == f"basefs revert conf:/f {row['lost']['entry'][:12]}"
    assert (row["lost"]["kind"], row["won"]["kind"]) == ("file", "absent")
    conf(*row["command"].split()[1:])
    with conf.replica("conf") as replica:
        assert replica.read(path("/f")) == b"two"


def test_newer_paths_that_are_kept_are_no_earlier_state(conf: Cli) -> None:
    with conf.replica("conf") as replica:
        replica.commit(lambda author: author.make_directory(path("/d")))
        (made,) = replica.commit(lambda author: author.write(path("/d/a"), b"old")).entries
        for text in ("/d/b", "/d/c"):
            replica.commit(lambda author, text=text: author.write(path(text), b"new"))
    said = conf.empty("revert", "conf:/d", "--at", made.hash.hex(), "--keep-new")
    assert said == "nothing to do: only newer paths differ (2), and --keep-new keeps them\n"
