"""The feed: streams at their readers' pace, whatever happens to the journal."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from basefs.errors import StoreError
from basefs.fs.events.feed import Feed
from basefs.fs.events.journal import JOURNAL_FILE, Live
from basefs.replica.replica import Replica
from basefs.view.events import shape_of
from tests.support.helpers import make_replica, path
from tests.support.mounts import temporary_directory
from tests.support.patience import DEADLINE

Scenario = Callable[[Feed], Awaitable[None]]


@pytest.fixture
def replica() -> Iterator[Replica]:
    with temporary_directory() as directory:
        made = make_replica(directory / "log")
        yield made
        made.close()


def save(replica: Replica, text: str, content: bytes) -> None:
    replica.commit(lambda author: author.write(path(text), content))


def play(replica: Replica, scenario: Scenario, before: Callable[[int], object] = lambda number: None) -> None:
    """Run a scenario on a feed of the replica; `before` is called before each portion of the tree is told."""

    def tree() -> Iterator[Live]:
        for number, portion in enumerate(replica.observed()):
            before(number)
            yield from (Live(names, shape_of(state), entry) for names, state, entry in portion)

    async def main() -> None:
        feed = Feed(replica.directory, tree, lambda: 1_000_000_000.0)
        replica.subscribe(lambda applied: feed.changed(applied.changes))
        feed.start()
        try:
            await asyncio.wait_for(scenario(feed), DEADLINE)
        finally:
            feed.stop()

    asyncio.run(main())


async def take(feed: Feed, since: str | None, count: int, below: str = "/") -> tuple[list[str], str]:
    """The first changes of a stream, and the last token."""
    found: list[str] = []
    last = since or ""
    async with contextlib.aclosing(feed.follow(since, path(below))) as stream:  # type: ignore[type-var]
        async for token, record in stream:
            last = token
            if record is not None:
                found.append(f"{record.type.value} /{b'/'.join(record.path).decode()}")
            if len(found) >= count:
                break
    return found, last


def test_every_change_once_for_every_reader(replica: Replica) -> None:
    async def scenario(feed: Feed) -> None:
        _, start = await take(feed, None, 0)
        readers = [asyncio.ensure_future(take(feed, start, 1000)) for _ in range(3)]
        for number in range(1000):
            save(replica, f"/f{number % 10}", b"%d" % number)
            if number % 100 == 0:
                await asyncio.sleep(0)
        expected = [f"{'create' if number < 10 else 'modify'} /f{number % 10}" for number in range(1000)]
        for reader in readers:
            found, token = await reader
            assert found == expected
        assert token.endswith("-1000")

    play(replica, scenario)


def test_what_came_while_no_feed_was_there_is_told_as_one_change_a_path(replica: Replica) -> None:
    tokens: list[str] = []

    async def first(feed: Feed) -> None:
        tokens.append((await take(feed, None, 0))[1])

    async def second(feed: Feed) -> None:
        assert (await take(feed, tokens[0], 2))[0] == ["create /a", "create /b"]

    save(replica, "/old", b"")
    play(replica, first)
    save(replica, "/a", b"one")
    save(replica, "/a", b"two")
    save(replica, "/b", b"one")
    play(replica, second)


def test_without_a_reader_nothing_is_written(replica: Replica) -> None:
    async def scenario(feed: Feed) -> None:
        save(replica, "/a", b"")
        await asyncio.sleep(0)
        assert not (replica.directory / JOURNAL_FILE).exists()

    play(replica, scenario)


def test_a_stream_moves_its_token_though_nothing_happens_where_it_looks(replica: Replica) -> None:
    async def scenario(feed: Feed) -> None:
        _, start = await take(feed, None, 0)
        for number in range(500):
            save(replica, f"/f{number}", b"")
        save(replica, "/d", b"")
        found, token = await take(feed, start, 1, "/d")
        assert found == ["create /d"]
        assert token.endswith("-501")

    play(replica, scenario)


def test_a_reader_ends_with_the_feed(replica: Replica) -> None:
    async def scenario(feed: Feed) -> None:
        _, start = await take(feed, None, 0)
        reader = asyncio.ensure_future(take(feed, start, 1))
        await asyncio.sleep(0)
        feed.stop()
        assert (await reader)[0] == []

    play(replica, scenario)


def test_a_journal_that_cannot_be_opened_fails_who_asks_and_nobody_else(
    replica: Replica, caplog: pytest.LogCaptureFixture
) -> None:
    journal: Path = replica.directory / JOURNAL_FILE

    async def scenario(feed: Feed) -> None:
        save(replica, "/a", b"")
        with pytest.raises(StoreError, match="it may be deleted"):
            await take(feed, None, 0)
        journal.unlink()
        assert (await take(feed, None, 0))[1].endswith("-0")

    journal.write_bytes(b"rubbish" * 1000)
    play(replica, scenario)
    assert "it may be deleted" in caplog.text


def test_the_event_loop_goes_on_while_the_tree_is_told_and_nothing_is_missed(replica: Replica) -> None:
    for name in ("/d", "/e"):
        replica.commit(lambda author, name=name: author.make_directory(path(name)))  # type: ignore[misc]
    begun, may_go_on = threading.Event(), threading.Event()

    def wait(number: int) -> None:
        # The root was told and what is in it, and what is in /d comes now.
        if number == 2:
            begun.set()
            assert may_go_on.wait(DEADLINE)

    async def scenario(feed: Feed) -> None:
        reader = asyncio.ensure_future(take(feed, None, 3))
        await asyncio.to_thread(begun.wait, DEADLINE)
        for name in ("/a", "/d/f", "/e/f"):
            save(replica, name, b"one")
        save(replica, "/a", b"two")
        await asyncio.sleep(0)
        may_go_on.set()
        while feed._journal is None:
            await asyncio.sleep(0.01)
        for name in ("/a", "/d/f", "/e/f"):
            save(replica, name, b"three")
        found, token = await reader
        assert found == ["modify /a", "modify /d/f", "modify /e/f"]
        # What came into a directory before that was told was there from the beginning.
        found, _ = await take(feed, f"{token.partition('-')[0]}-0", 5)
        assert found == ["create /a", "create /d/f", "modify /a", "modify /d/f", "modify /e/f"]

    play(replica, scenario, wait)


def test_a_daemon_that_ends_meanwhile_begins_again(replica: Replica) -> None:
    begun, ended = threading.Event(), threading.Event()

    def wait(number: int) -> None:
        begun.set()
        assert ended.wait(DEADLINE)

    async def first(feed: Feed) -> None:
        opening = asyncio.ensure_future(take(feed, None, 0))
        await asyncio.to_thread(begun.wait, DEADLINE)
        feed.stop()
        ended.set()
        with pytest.raises(asyncio.CancelledError):
            await opening

    async def second(feed: Feed) -> None:
        # Not as if all of it had just been made.
        assert (await take(feed, None, 0))[1].endswith("-0")

    save(replica, "/old", b"")
    play(replica, first, wait)
    play(replica, second)
