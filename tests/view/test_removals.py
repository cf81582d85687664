"""An edit against a removal, a rename, and both of its directory, by keys that are equal, higher and lower.

The table in docs/authority.md is what is played here, by three nodes: two that change, and one that receives.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from basefs.log.keys import SigningKey
from basefs.path import Path as Names
from basefs.replica.replica import Applied, Replica
from basefs.view.states import Kind
from tests.support.helpers import ALICE, BOB, ROOT_KEY, copy_replica, make_replica, path
from tests.support.names import rename
from tests.support.project import ROOT

#: Who edits `/d/f`, which the root key or Bob, whose key is for `/d`, removes or moves at the same time.
EDITORS = {"equal": (ALICE, ROOT_KEY), "higher": (ROOT_KEY, BOB), "lower": (BOB, ROOT_KEY)}
#: What the other node does, and what all nodes show then, by the editor.
TABLE: dict[str, dict[str, dict[str, bytes]]] = {
    "rm d/f": {"equal": {"/d/f": b"edit"}, "higher": {"/d/f": b"edit"}, "lower": {}},
    "mv d/f d/g": {
        "equal": {"/d/f": b"edit", "/d/g": b"old"},
        "higher": {"/d/f": b"edit", "/d/g": b"old"},
        "lower": {"/d/g": b"old"},
    },
    "rm -r d": {"equal": {"/d/f": b"edit"}, "higher": {"/d/f": b"edit"}, "lower": {}},
    "mv d e": {
        "equal": {"/d/f": b"edit", "/e/f": b"old"},
        "higher": {"/d/f": b"edit", "/e/f": b"old"},
        "lower": {"/e/f": b"old"},
    },
}


@pytest.fixture
def nodes(tmp_path: Path, editor: str) -> Iterator[tuple[Replica, Replica, Replica]]:
    """The node that edits, the one that removes or moves, and one without a key."""
    begin = make_replica(tmp_path / "begin", (ROOT_KEY,))
    begin.commit(lambda author: author.grant((), b"alice", ALICE.public))
    begin.commit(lambda author: author.make_directory(path("/d")))
    # Bob may make `/e`, with no more authority than in `/d`.
    for text in ("/d", "/e"):
        if text == "/e":
            begin.commit(lambda author: author.make_directory(path("/e")))
        begin.commit(lambda author, text=text: author.grant(path(text), b"bob", BOB.public))  # type: ignore[misc]
    begin.commit(lambda author: author.write(path("/d/f"), b"old"))
    begin.close()
    keys: list[tuple[SigningKey, ...]] = [(key,) for key in EDITORS[editor]]
    made = [copy_replica(begin, tmp_path / str(number), held) for number, held in enumerate((*keys, ()))]
    yield made[0], made[1], made[2]
    for replica in made:
        replica.close()


def does(replica: Replica, what: str) -> list[Applied]:
    """The other node's user types it."""
    names: Names = path("/d/f")
    moved = {"mv d/f d/g": path("/d/g"), "mv d e": path("/e/f")}.get(what)
    if moved is not None:
        done = [replica.commit(lambda author: rename(author, names, moved))]
    else:
        done = [replica.commit(lambda author: author.remove(names, directory=False))]
    if what in ("rm -r d", "mv d e"):
        done.append(replica.commit(lambda author: author.remove(path("/d"), directory=True)))
    return done


@pytest.mark.parametrize("editor", EDITORS)
@pytest.mark.parametrize("what", TABLE)
def test_all_nodes_show_what_the_table_says(nodes: tuple[Replica, Replica, Replica], what: str, editor: str) -> None:
    first, second, third = nodes
    edited = first.commit(lambda author: author.write(path("/d/f"), b"edit"))
    others = does(second, what)
    for target, changes in ((first, others), (second, [edited]), (third, [*others, edited])):
        for applied in changes:
            assert not target.apply(applied.entries, applied.blocks).rejected
    for replica in nodes:
        shown = {names: replica.read(names) for names, kind in replica.live_paths() if kind is Kind.FILE}
        assert shown == {path(text): content for text, content in TABLE[what][editor].items()}
        assert replica.check_view() == []


def test_the_document_has_this_table() -> None:
    def cell(files: dict[str, bytes]) -> str:
        return ", ".join(f"`{text}` {content.decode()}" for text, content in files.items()) or "nothing"

    lines = [f"| `{what}` | {' | '.join(cell(row[editor]) for editor in EDITORS)} |" for what, row in TABLE.items()]
    assert "\n".join(lines) in (ROOT / "docs" / "authority.md").read_text(encoding="utf-8")
