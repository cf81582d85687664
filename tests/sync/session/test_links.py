"""Links name entries of other paths, which a session brings in the order of paths: each waits for what it names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from basefs.view.author import Author
from basefs.view.draft import Draft
from tests.support.helpers import ROOT_KEY, copy_replica, make_replica, path, tree_of
from tests.support.names import rename
from tests.sync.helpers import Pair

#: More than a peer may have waiting in the log.
COUNT = 1500


@pytest.mark.parametrize(("source", "target"), [("/a", "/b"), ("/b", "/a")])
@pytest.mark.parametrize("is_new", [True, False], ids=["all of it", "the rename"])
def test_a_renamed_directory_arrives_whole(tmp_path: Path, source: str, target: str, is_new: bool) -> None:
    one = make_replica(tmp_path / "one", (ROOT_KEY,))
    other = copy_replica(one, tmp_path / "other")

    def make(author: Author) -> Iterator[Draft]:
        yield author.make_directory(path(source))
        for number in range(COUNT):
            yield author.write(path(f"{source}/{number}"), b"")

    made = one.commit(make)
    if not is_new:
        other.apply(made.entries, ())
    one.commit(lambda author: rename(author, path(source), path(target)))
    Pair(one, other).run()
    assert other.root_hash() == one.root_hash()
    assert tree_of(other) == tree_of(one)
    assert len(other.names_in(path(target))) == COUNT
    for replica in (one, other):
        replica.close()
