"""The journal: everything is told once, whenever it is opened."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basefs.errors import StoreError, UsageError
from basefs.fs.events.journal import JOURNAL_FILE, ChangeJournal, Live, Record
from basefs.path import Path
from basefs.view.events import EventType, Shape, events_between
from basefs.view.states import Kind
from tests.support.examples import part
from tests.support.helpers import path
from tests.support.mounts import temporary_directory

FILE = Shape(Kind.FILE, b"one", b"644")
OTHER = Shape(Kind.FILE, b"two", b"644")
MODE = Shape(Kind.FILE, b"one", b"600")
DIRECTORY = Shape(Kind.DIRECTORY, b"", b"755")

names = st.sampled_from(["/a", "/b", "/d", "/d/e", "/d/e/f"]).map(path)
shapes = st.none() | st.sampled_from([FILE, OTHER, MODE, DIRECTORY])
changes = st.lists(st.builds(Live, names, shapes, st.none()), max_size=8)

Tree = dict[Path, Shape]


@pytest.fixture
def where() -> Iterator[pathlib.Path]:
    with temporary_directory() as directory:
        yield directory / JOURNAL_FILE


def update(tree: Tree, changed: list[Live]) -> None:
    """What a tree is after changes."""
    for live in changed:
        if live.shape is None:
            tree.pop(live.path, None)
        else:
            tree[live.path] = live.shape


def kinds(tree: Tree) -> dict[Path, Kind]:
    return {names: shape.kind for names, shape in tree.items()}


def replay(start: dict[Path, Kind], records: list[Record]) -> dict[Path, Kind]:
    """What who hears the records knows; fails where a record does not fit."""
    known = dict(start)
    for record in records:
        if record.type is EventType.CREATE:
            assert record.path not in known
            known[record.path] = record.kind
        else:
            assert known[record.path] is record.kind
            if record.type is EventType.DELETE:
                del known[record.path]
    return known


@part(3)
@given(st.lists(st.tuples(changes, st.sampled_from(["told", "missed", "restart"])), max_size=8), st.data())
def test_who_reads_on_from_any_token_knows_the_tree(history: list[tuple[list[Live], str]], data: st.DataObject) -> None:
    with temporary_directory() as directory:
        tree: Tree = {(): DIRECTORY}
        journal = ChangeJournal(directory / JOURNAL_FILE)
        journal.begin([Live((), DIRECTORY, None)])
        tokens = [(journal.token(0), kinds(tree))]
        for changed, how in history:
            update(tree, changed)
            if how == "told":
                journal.add(changed, now=1)
            else:
                # The daemon died before it could tell, or some changes came while it was not there.
                journal.close()
                journal = ChangeJournal(directory / JOURNAL_FILE)
                assert not journal.is_new
                journal.catch_up([Live(names, shape, None) for names, shape in tree.items()], now=1)
            tokens.append((journal.token(journal.last()), kinds(tree)))
        for token, known in tokens:
            records = journal.read(journal.place(token), 1000)
            assert replay(known, records) == kinds(tree)
        # Nothing is left to tell.
        last = journal.last()
        journal.catch_up([Live(names, shape, None) for names, shape in tree.items()], now=1)
        assert journal.last() == last
        journal.close()


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (None, None, []),
        (FILE, FILE, []),
        (None, FILE, [EventType.CREATE]),
        (FILE, None, [EventType.DELETE]),
        (FILE, OTHER, [EventType.MODIFY]),
        (FILE, MODE, [EventType.ATTRIBUTES]),
        (FILE, DIRECTORY, [EventType.DELETE, EventType.CREATE]),
    ],
)
def test_events(before: Shape | None, after: Shape | None, expected: list[EventType]) -> None:
    assert list(events_between(before, after)) == expected


def test_numbers_and_pages(where: pathlib.Path) -> None:
    journal = ChangeJournal(where)
    journal.begin([])
    journal.add([Live(path(f"/{number}"), FILE, None) for number in range(5)], now=7)
    first = journal.read(0, 2)
    assert [record.number for record in first] == [1, 2]
    assert [record.number for record in journal.read(2, 100)] == [3, 4, 5]
    assert journal.read(5, 100) == []
    assert first[0] == Record(1, 7, EventType.CREATE, path("/0"), Kind.FILE, b"", b"")
    journal.close()


def test_what_is_no_longer_kept_is_refused(where: pathlib.Path) -> None:
    journal = ChangeJournal(where, kept=10)
    journal.begin([])
    token = journal.token(0)
    for number in range(1500):
        journal.add([Live(path("/f"), Shape(Kind.FILE, b"%d" % number, b""), None)], now=1)
    with pytest.raises(UsageError, match="no longer kept, only the last 10"):
        journal.read(journal.place(token), 100)
    assert [record.number for record in journal.read(1490, 100)] == list(range(1491, 1501))
    journal.close()
    journal = ChangeJournal(where, kept=10)
    assert journal.last() == 1500
    journal.close()


def test_tokens_of_another_journal_do_not_count(where: pathlib.Path) -> None:
    journal = ChangeJournal(where)
    for token in ("", "x", "-1", "12345678-0", journal.token(1), f"{journal.token(0)}x", "ü-١"):
        with pytest.raises(UsageError, match="is not a token"):
            journal.place(token)
    assert journal.place(journal.token(0)) == 0
    journal.close()


def test_a_damaged_journal_says_that_it_may_go(where: pathlib.Path) -> None:
    where.write_bytes(b"no database " * 1000)
    with pytest.raises(StoreError, match="it may be deleted"):
        ChangeJournal(where)
