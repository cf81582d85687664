"""The words of JSON: one meaning and one type for each, over all commands, as docs/json.md lists them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any

import pytest

from basefs.daemon.api.client import Failure, Look
from basefs.daemon.api.joining import Invited, OpenInvitation
from basefs.daemon.api.messages import (
    BusiestKey,
    ClusterMember,
    ComparedView,
    HandlerCounts,
    LostContent,
    PartialContent,
    PeerLag,
    RunningNode,
    Version,
    WatchedChange,
    WatchItem,
    encode,
)
from basefs.daemon.serf.program import InstalledSerf
from basefs.log.entries import Action
from basefs.log.extensions import Extensions
from basefs.management import main
from basefs.management.resources import COLUMNS
from basefs.view.states import Kind
from tests.management.test_commands import WITHOUT_JSON
from tests.support.commands import Cli
from tests.support.helpers import ALICE, BOB, CAROL, path
from tests.support.names import make_node, make_symlink, rename
from tests.support.node import Node
from tests.support.project import ROOT

#: Command lines for a filesystem that does not run, in this order.
STOPPED = (
    "genkey other",
    "genkey -f other",
    "bootstrap new",
    "keys",
    "keys conf --all",
    "list",
    "status",
    "status conf",
    "doctor conf",
    "show conf",
    "show -l conf",
    "log -p conf:/f",
    "log -r conf",
    "log -p conf:/null",
    "diff conf:/f",
    "cat conf:/f",
    "diff conf:/link",
    "conflicts conf",
    "conflicts conf:/f --diff",
    "conflicts conf --ignored",
    "blocks conf",
    "check conf",
    "revert --dry-run conf:/f FIRST",
    "revoke --dry-run conf:/ bob",
    "grant --dry-run conf:/ carol CAROL",
    "export conf file",
    "import copy file",
    "conflicts conf:/f --accept",
    "expel conf bob",
)
#: And for one that runs without a network.
RUNNING = ("list", "status conf", "resources conf --once")
#: What only a cluster, a handler, a watch or a trouble brings about: as the commands encode it.
ENCODED = [
    ClusterMember(
        "n", "a", [], "alive", False, True, 1, True, PeerLag(False, 1, 0, 1.0), False, 1.0, 0, 0, 1.0, "", False
    ),
    {"handlers": HandlerCounts([], 0, 0, 0, 0, 0, 0)},
    PartialContent("/f", "00", "stalled", 0, 0, 0, 1.0),
    LostContent("/f", "00", True),
    WatchItem("t", WatchedChange("modify", "/f", "file", 1.0, "00", "alice", "00")),
    Version("block device", "0600", None, 0, 1.0, None, "8:1", [], None, "00"),
    Look("conf", "/mnt", failure=Failure("it is damaged")),
    RunningNode(1.0, False, [], BusiestKey("alice", "00", 1, 1, False)),
    [ComparedView("beta", "same")],
    Invited("basefs1-", "00", "/", "gamma", 1),
    [OpenInvitation("/", "gamma", "00", 1, "open", ["gamma"], ["00"], "alpha")],
    {
        "name": "conf",
        "identity": "00",
        "entries": 1,
        "blocks": 1,
        "path": "/",
        "key_name": "gamma",
        "key_fingerprint": "00",
    },
    InstalledSerf("/usr/bin/serf", "0.8.2", "found"),
    dict.fromkeys(COLUMNS, 1),
    {"findings": [{"table": "t", "row": "r", "problem": "p", "needs_peer": False}], "repaired": "/log.db.damaged"},
]
TYPES = {str: "string", bool: "boolean", int: "number", float: "number", list: "list", dict: "object"}
_ROW = re.compile(r"^\| `(\w+)` \| ([a-z, ]+) \| (.+) \|$", re.MULTILINE)

Words = set[tuple[str, str]]


def documented() -> dict[str, set[str]]:
    """Each word of the document, with the types that it can have."""
    rows = _ROW.findall((ROOT / "docs" / "json.md").read_text())
    assert len({word for word, _, _ in rows}) == len(rows), "a word stands in one row"
    assert [word for word, _, _ in rows] == sorted(word for word, _, _ in rows)
    return {word: set(types.split(", ")) for word, types, _ in rows}


def words(value: Any) -> Iterator[tuple[str, str]]:
    """Every key of JSON, with the type of its value; nothing of a null."""
    if isinstance(value, list):
        for item in value:
            yield from words(item)
    if isinstance(value, dict):
        for word, item in value.items():
            if item is not None:
                yield word, TYPES[type(item)]
            yield from words(item)


@pytest.fixture
def rich(conf: Cli, monkeypatch: pytest.MonkeyPatch) -> tuple[Cli, dict[str, str]]:
    """A filesystem with a conflict, a rename, a link and three keys, one of them revoked; and words for `STOPPED`."""
    conf("grant", "conf:/", "alice", ALICE.public.hex())
    with conf.replica("conf") as replica:
        key = replica.keys[0]
        replica.commit(lambda author: author.make_directory(path("/d")))
        (first,) = replica.commit(lambda author: author.write(path("/f"), b"one\n")).entries
        (other,) = replica.commit(lambda author: author.write(path("/g"), b"two\n")).entries
        replica.commit(lambda author: make_symlink(author, path("/link"), b"f"))
        replica.commit(lambda author: make_node(author, path("/null"), Kind.CHARACTER, os.makedev(1, 3)))
        replica.commit(lambda author: rename(author, path("/g"), path("/d/h")))
        replica.commit(lambda author: author.write(path("/f"), b"three\n"))
        beside = key.sign(first.hash, first.made, Action.WRITE, b"f", other.content, Extensions(4))
        assert replica.apply([beside], []).entries
        ignored = CAROL.sign(first.hash, first.made, Action.WRITE, b"f", other.content, Extensions(4))
        replica.commit(lambda author: author.grant(path("/"), b"carol", CAROL.public))
        replica.commit(lambda author: author.revoke(path("/"), b"carol", CAROL.fingerprint))
        assert replica.apply([ignored], []).entries
        replica.commit(lambda author: author.key_holder.grant(path("/"), b"bob", BOB.public).draft)
    monkeypatch.chdir(conf.base)
    return conf, {"FIRST": first.hash.hex(), "CAROL": CAROL.public.hex()}


def test_each_word_has_one_meaning_and_is_in_the_document(rich: tuple[Cli, dict[str, str]], node: Node) -> None:
    cli, stand_in = rich
    found: dict[str, Words] = {}

    def collect(line: str) -> None:
        code, out, err = cli.run(*(stand_in.get(word, word) for word in line.split()), "--json")
        assert code in (0, 1) and out, f"{line}: {err}"
        found[line] = set(words(json.loads(out)))

    for line in STOPPED:
        collect(line)
    node.basefs("run", "conf", "-s")
    for line in RUNNING:
        collect(f"{line} ")
    node.basefs("unmount", "conf")
    for number, value in enumerate(ENCODED):
        found[f"encoded {number}"] = set(words(_encoded(value)))
    known = documented()
    wrong = {line: {pair for pair in pairs if pair[1] not in known.get(pair[0], ())} for line, pairs in found.items()}
    assert not {line: pairs for line, pairs in wrong.items() if pairs}
    seen = {word for pairs in found.values() for word, _ in pairs}
    assert sorted(known.keys() - seen) == [], "the document has words that no command prints"


def _encoded(value: Any) -> Any:
    return {word: _encoded(item) for word, item in value.items()} if isinstance(value, dict) else encode(value)


def test_every_command_with_json_is_looked_at() -> None:
    asked = {line.split()[0] for line in STOPPED + RUNNING}
    # `get` prints words of `list`, `recover` those of `revoke`; the others print what stands in `ENCODED`.
    assert set(main.COMMANDS) - WITHOUT_JSON - asked == {
        *("get", "join", "invite", "members", "watch", "installserf", "recover")
    }
