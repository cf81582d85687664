"""What the view does for one entry: counted in the paths that are resolved and the statements that SQLite runs."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from basefs.log.entries import Entry
from basefs.log.hashes import Fingerprint
from basefs.log.placement import Placed
from basefs.path import Path
from basefs.replica.replica import Replica
from basefs.view.author import Author
from basefs.view.draft import Draft
from basefs.view.resolution import Ancestry, Resolver
from tests.support.helpers import BOB, ROOT_KEY, copy_replica, make_replica, path
from tests.view.stories import Story


@contextmanager
def counted(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """Count resolved paths and SQL statements."""
    counts = {"paths": 0, "statements": 0}
    original = Resolver.path

    def path_(self: Resolver, *arguments: object) -> object:
        counts["paths"] += 1
        return original(self, *arguments)  # type: ignore[arg-type]

    def statement(_: str) -> None:
        counts["statements"] += 1

    monkeypatch.setattr(Resolver, "path", path_)
    replica._store.database.main.set_trace_callback(statement)
    try:
        yield counts
    finally:
        replica._store.database.main.set_trace_callback(None)
        monkeypatch.undo()


@pytest.fixture(scope="module")
def born(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Replica]:
    """Closed replicas with so many files, to begin with copies of them."""
    return {files: grow(tmp_path_factory.mktemp("born"), files) for files in (3, 30, 300)}


def grow(directory: pathlib.Path, files: int) -> Replica:
    """A closed replica with `/d`, which holds many files, and `/e` with one."""
    replica = make_replica(directory)

    def make(author: Author) -> Iterator[Draft]:
        yield author.make_directory((b"d",))
        yield author.make_directory((b"e",))
        yield author.write(path("/e/f"), b"")
        for number in range(files):
            yield author.write((b"d", b"%d" % number), b"")

    replica.commit(make)
    replica.close()
    return replica


def looked_at(born: Replica, directory: pathlib.Path) -> Replica:
    """A copy, all of which has been looked at."""
    replica = copy_replica(born, directory, (ROOT_KEY,))
    replica.observe()
    return replica


def cost(
    born: Replica, directory: pathlib.Path, make: Callable[[Author], Draft], monkeypatch: pytest.MonkeyPatch
) -> dict[str, int]:
    replica = looked_at(born, directory)
    applied = replica.plan(make)
    with counted(replica, monkeypatch) as counts:
        replica.apply(applied.entries, applied.blocks)
    assert replica.check_view() == []
    replica.close()
    return dict(counts)


CHANGES: list[Callable[[Author], Draft]] = [
    lambda author: author.write(path("/e/f"), b"changed"),
    lambda author: author.write(path("/e/g"), b""),
    lambda author: author.remove(path("/e/f"), directory=False),
    lambda author: author.set_attributes(path("/d"), mode=0o700),
    lambda author: author.make_directory(path("/e/h")),
]


@pytest.mark.parametrize("make", CHANGES)
def test_one_entry_costs_its_path_only(
    born: dict[int, Replica], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Author], Draft]
) -> None:
    few = cost(born[3], tmp_path / "few", make, monkeypatch)
    many = cost(born[300], tmp_path / "many", make, monkeypatch)
    assert few == many
    assert many["paths"] <= 2 and many["statements"] > 0


def test_a_write_behind_the_current_one_resolves_nothing(
    born: dict[int, Replica], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cost(born[30], tmp_path / "copy", CHANGES[0], monkeypatch)["paths"] == 0


def test_a_first_look_at_a_directory_reads_its_files_together(
    born: dict[int, Replica], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = []
    for files in (3, 300):
        replica = copy_replica(born[files], tmp_path / str(files), (ROOT_KEY,))
        with counted(replica, monkeypatch) as counts:
            assert sum(map(len, replica.observed())) > files
        costs.append(counts["statements"])
        replica.close()
    assert costs[0] == costs[1] > 0


def test_a_grant_and_a_revoke_cost_their_subtree(
    born: dict[int, Replica], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = looked_at(born[300], tmp_path / "copy")
    for make in (
        lambda author: author.grant((b"e",), b"bob", BOB.public),
        lambda author: author.revoke((b"e",), b"bob", BOB.fingerprint),
    ):
        draft = replica.plan(make)
        with counted(replica, monkeypatch) as counts:
            replica.apply(draft.entries, draft.blocks)
        # The directory, its file, and nothing of the three hundred beside it.
        assert counts["paths"] <= 4
    draft = replica.plan(lambda author: author.grant((b"d",), b"bob", BOB.public))
    with counted(replica, monkeypatch) as counts:
        replica.apply(draft.entries, draft.blocks)
    assert 300 <= counts["paths"] <= 304
    replica.close()


def placed_at(replica: Replica, names: Path) -> Placed:
    node = replica._tree.find(names)
    assert node is not None
    return replica._store.entries_at(node.path_id)[0]


def test_the_keys_above_an_entry_follow_each_grant(tmp_path: pathlib.Path) -> None:
    replica = make_replica(tmp_path)
    for length in (1, 2, 3):
        replica.commit(lambda author, length=length: author.make_directory(path("/a/b/c")[:length]))  # type: ignore[misc]
    replica.commit(lambda author: author.write(path("/a/b/c/f"), b""))
    placed = placed_at(replica, path("/a/b/c/f"))
    resolver = replica._tree.resolver
    ancestry = Ancestry(replica._store)

    def valid() -> dict[Fingerprint, int]:
        authority, depth = ancestry.authority(placed, resolver.root_authority())
        assert depth == 4
        return dict(authority.depths)

    assert BOB.fingerprint not in valid()
    replica.commit(lambda author: author.grant(path("/a/b"), b"bob", BOB.public))
    assert valid()[BOB.fingerprint] == 2
    replica.commit(lambda author: author.grant(path("/a"), b"bob", BOB.public))
    assert valid()[BOB.fingerprint] == 1
    replica.commit(lambda author: author.revoke(path("/a"), b"bob", BOB.fingerprint))
    assert valid()[BOB.fingerprint] == 2
    replica.commit(lambda author: author.revoke(path("/a/b"), b"bob", BOB.fingerprint))
    assert BOB.fingerprint not in valid()
    replica.close()


def test_a_file_in_a_directory_that_was_made_again_and_again_costs_the_same(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = make_replica(tmp_path)
    replica.observe()
    decoded: list[int] = []
    decode = Entry.decode
    monkeypatch.setattr(Entry, "decode", lambda data: decoded.append(len(data)) or decode(data))
    costs = []
    for _ in range(12):
        replica.commit(lambda author: author.make_directory((b"d",)))
        decoded.clear()
        replica.commit(lambda author: author.write(path("/d/f"), b"x"))
        assert replica.attributes(path("/d/f")).size == 1
        costs.append(len(decoded))
        replica.commit(lambda author: author.remove(path("/d/f"), directory=False))
        replica.commit(lambda author: author.remove(path("/d"), directory=True))
    assert costs[-1] == costs[1]
    replica.close()


@pytest.mark.parametrize("kind", ["removed", "of a revoked key"])
def test_directories_in_one_another_are_asked_once_what_is_in_them(
    kind: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them are there because of a file in the last one."""
    costs = []
    for depth in (30, 60):
        story = Story(tmp_path / str(depth))
        grant = story.grant(ROOT_KEY, story.keys, BOB)
        chain = [story.root]
        for _ in range(depth):
            chain.append(story.mkdir(BOB, chain[-1], "d"))
        story.write(ROOT_KEY, chain[-1], b"", "f")
        for made in reversed(chain[1:]):
            story.delete(BOB, made)
        if kind == "of a revoked key":
            story.revoke(ROOT_KEY, grant, BOB)
        replica = make_replica(tmp_path / str(depth), born=[])
        replica.apply(story.entries, [])
        with counted(replica, monkeypatch) as counts:
            assert len(replica.live_paths()) == depth + 2
        costs.append(counts["statements"])
        assert replica.check_view() == []
        replica.close()
    assert costs[1] <= 2.3 * costs[0]
