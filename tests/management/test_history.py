"""`basefs log`, `basefs revert` and `basefs conflicts`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from basefs.log.entries import Action
from basefs.log.keys import SigningKey
from basefs.view.author import Author
from basefs.view.draft import Draft
from basefs.view.states import Kind
from tests.support.commands import Cli
from tests.support.helpers import path


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
        ("delete", 0, "current"),
        ("write", 7, "past"),
        ("write", 4, "past"),
    ]
    lines = [line.split("\t") for line in edited("log", "conf:/f").splitlines()]
    assert [line[0] for line in lines] == [row["entry"][:12] for row in rows]
    assert {line[3] for line in lines} == {rows[0]["key"]}


def test_log_prints_a_content(edited: Cli) -> None:
    rows = json.loads(edited("log", "conf:/f", "--json"))
    assert edited("log", "conf:/f", "--cat", rows[1]["entry"]) == "one\ntwo"
    assert edited("log", "conf:/f", "--cat", rows[2]["entry"][:10]) == "one\n"


def test_log_prints_a_difference(edited: Cli) -> None:
    newest, second, first = (row["entry"] for row in revisions(edited, "conf:/f"))
    difference = edited("log", "conf:/f", "--diff", first, second)
    assert difference.splitlines()[2:] == ["@@ -1 +1,2 @@", " one", "+two", "\\ No newline at end of file"]
    assert "-one" in edited("log", "conf:/f", "--diff", first)
    assert edited("log", "conf:/f", "--diff", newest) == ""
    binary = revisions(edited, "conf:/b")[0]["entry"]
    assert "is not text" in edited.fails("log", "conf:/b", "--diff", binary, code=2)


def test_log_of_what_never_was(edited: Cli) -> None:
    assert "nothing was ever at /g" in edited.fails("log", "conf:/g")
    assert "there is no entry 0123" in edited.fails("log", "conf:/f", "--cat", "0123")
    assert "there is no entry nonsense" in edited.fails("log", "conf:/f", "--cat", "nonsense")
    assert "a path is missing" in edited.fails("log", "conf", code=2)


def test_revert_brings_a_deleted_file_back(edited: Cli) -> None:
    _, second, _ = (row["entry"] for row in revisions(edited, "conf:/f"))
    assert edited("revert", "conf:/f", second[:12]) == ""
    with edited.replica("conf") as replica:
        assert replica.read(path("/f")) == b"one\ntwo"
    current = revisions(edited, "conf:/f")[0]
    assert (current["action"], current["standing"]) == ("revert", "current")
    assert "nothing to do" in edited.empty("revert", "conf:/f", current["entry"])


def test_revert_says_why_it_cannot(edited: Cli) -> None:
    other = revisions(edited, "conf:/b")[0]["entry"]
    assert "is no revision of /f" in edited.fails("revert", "conf:/f", other)
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
    before = conf("log", "conf:/f", "--cat", row["won"]) + conf("log", "conf:/f", "--cat", row["lost"])
    assert sorted([before[:3], before[3:]]) == ["one", "two"]
    conf("revert", "conf:/f", row["lost"])
    with conf.replica("conf") as replica:
        assert replica.read(path("/f")).decode() == before[3:]
    assert "nothing was ever at /nowhere" in conf.fails("conflicts", "conf:/nowhere")


def test_what_won_is_accepted(conf: Cli) -> None:
    with conf.replica("conf") as replica:
        key = replica.keys[0]
        replica.commit(lambda author: author.write(path("/f"), b"one"))
        replica.commit(lambda author: _write_beside(author, key))
        shown = replica.read(path("/f"))
    assert "no conflicts" in conf.empty("conflicts", "conf:/.cluster", "--accept")
    assert len(json.loads(conf("conflicts", "conf", "--json"))) == 1
    assert conf("conflicts", "conf:/f", "--accept").split("\t")[0] == "/f"
    assert "no conflicts" in conf.empty("conflicts", "conf")
    assert "no conflicts" in conf.empty("conflicts", "conf", "--accept")
    with conf.replica("conf") as replica:
        assert replica.read(path("/f")) == shown


def test_what_was_changed_while_its_directory_was_removed_is_listed_and_comes_back(conf: Cli) -> None:
    with conf.replica("conf") as replica:
        key = replica.keys[0]
        replica.commit(lambda author: author.make_directory(path("/d")))
        (written,) = replica.commit(lambda author: author.write(path("/d/f"), b"old")).entries
        deleted = key.sign(written.hash, 0, Action.DELETE, b"f")
        saved = replica.commit(lambda author: author.write(path("/g"), b"new"))
        changed = next(
            entry
            for timestamp in range(1000)
            if (entry := key.sign(written.hash, timestamp, Action.WRITE, b"f", saved.entries[0].content, 3)).hash
            < deleted.hash
        )
        replica.commit(lambda author: Draft([deleted]))
        replica.commit(lambda author: author.remove(path("/d"), directory=True))
        replica.apply([changed], [])
    (row,) = json.loads(conf("conflicts", "conf", "--json"))
    assert (row["path"], row["lost"], row["won_kind"]) == ("/d/f", changed.hash.hex(), "absent")
    conf(*row["command"].split()[1:])
    with conf.replica("conf") as replica:
        assert replica.read(path("/d/f")) == b"new"
    assert "no conflicts" in conf.empty("conflicts", "conf")


def _write_beside(author: Author, key: SigningKey) -> Draft:
    """A second first version of `/f`, as another node makes it that has not seen the first one."""
    draft = author.write(path("/g"), b"two")
    written = draft.entries[0]
    beside = key.sign(written.parent, written.timestamp, written.action, b"f", written.content, written.size)
    return Draft([beside], draft.blocks)


@pytest.fixture
def removed(conf: Cli) -> Cli:
    """`/d`, with a directory, a file and a link in it, that was removed with all of it, and is another one now."""
    with conf.replica("conf") as replica:
        for text in ("/d", "/d/e"):
            replica.commit(lambda author, text=text: author.make_directory(path(text)))
        replica.commit(lambda author: author.write(path("/d/e/f"), b"first", mode=0o600))
        replica.commit(lambda author: author.make_symlink(path("/d/l"), b"e/f"))
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
    assert removed("revert", "conf:/d", link["entry"][:12]) == ""
    assert contents(removed) == {"d": b"", "d/e": b"", "d/e/f": b"first", "d/l": b"e/f"}
    with removed.replica("conf") as replica:
        assert replica.attributes(path("/d/e/f")).mode == 0o600
    assert "nothing to do" in removed.empty("revert", "conf:/d", link["entry"])


def test_a_tree_can_be_reverted_to_a_time_and_back(removed: Cli) -> None:
    before = contents(removed)
    deleted = next(row for row in json.loads(removed("log", "-r", "conf:/d", "--json")) if row["path"] == "/d/new")
    with removed.replica("conf") as replica:
        replica.commit(lambda author: author.reverter.tree(path("/d"), 6))
    assert contents(removed) != before
    removed("revert", "conf:/d", deleted["entry"])
    assert contents(removed) == before


def test_times(removed: Cli) -> None:
    assert "nothing to do" in removed.empty("revert", "conf:/d", "--at", "2106-01-01")
    message = removed.fails("revert", "conf:/d", "--at", "1999-12-31 23:59")
    assert "this node knew nothing before" in message and message.count("\n") == 1
    assert "is no time" in removed.fails("revert", "conf:/d", "--at", "yesterday", code=2)
    assert "give either" in removed.fails("revert", "conf:/d", code=2)
    assert "give either" in removed.fails("revert", "conf:/d", "abcd", "--at", "1h", code=2)
    assert "nothing was" in removed.fails("revert", "conf:/never", "--at", "2106-01-01")


def test_a_hash_from_elsewhere(removed: Cli) -> None:
    other = json.loads(removed("log", "conf:/.cluster", "--json"))[0]["entry"]
    assert "nor of anything below" in removed.fails("revert", "conf:/d", other)


def test_log_of_all_below(removed: Cli) -> None:
    rows = json.loads(removed("log", "-r", "conf:/d", "--json"))
    assert [(row["action"], row["path"]) for row in rows][:3] == [
        ("write", "/d/new"),
        ("mkdir", "/d"),
        ("delete", "/d"),
    ]
    assert removed("log", "--recursive", "conf:/d").splitlines()[0].split("\t")[-1] == "/d/new"
    assert "--cat or --diff" in removed.fails("log", "conf:/d", "abcd", code=2)


def test_conflicts_of_deleted_paths_are_told_with_the_command(conf: Cli) -> None:
    with conf.replica("conf") as replica:
        key = replica.keys[0]
        replica.commit(lambda author: author.write(path("/f"), b"one"))
        replica.commit(lambda author: _write_beside(author, key))
        replica.commit(lambda author: author.remove(path("/f"), directory=False))
    (row,) = json.loads(conf("conflicts", "conf", "--json"))
    assert row["command"] == f"basefs revert conf:/f {row['lost'][:12]}"
    assert (row["lost_kind"], row["won_kind"]) == ("file", "absent")
    conf(*row["command"].split()[1:])
    with conf.replica("conf") as replica:
        assert replica.read(path("/f")) in (b"one", b"two")
