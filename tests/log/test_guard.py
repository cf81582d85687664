"""The lock of a replica: waiting for it, and giving way to others."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator

import pytest

from basefs.errors import StoreError
from basefs.log.guard import Guard
from tests.support.patience import DEADLINE


@pytest.fixture
def guard() -> Iterator[Guard]:
    """A lock, free again at the end."""
    guard = Guard(lambda error: StoreError(str(error)))
    yield guard
    with guard:
        assert not guard.is_wanted


def until_wanted(guard: Guard) -> None:
    """Wait until a thread waits for a lock."""
    deadline = time.monotonic() + DEADLINE
    while not guard.is_wanted:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_holder_knows_that_somebody_waits(guard: Guard) -> None:
    waiting = threading.Thread(target=lambda: guard.__enter__() or guard.__exit__(None, None, None))  # type: ignore[func-returns-value]
    with guard, guard:
        assert not guard.is_wanted
        waiting.start()
        until_wanted(guard)
    waiting.join(DEADLINE)
    assert not waiting.is_alive()


def test_whoever_takes_it_again_and_again_lets_others_in(guard: Guard) -> None:
    """Without that, a waiting thread wakes up only to find the lock taken again."""
    for number in range(100):
        had: list[int] = []

        def wait(had: list[int] = had, number: int = number) -> None:
            with guard:
                had.append(number)

        waiting = threading.Thread(target=wait)
        with guard:
            waiting.start()
            until_wanted(guard)
        guard.let_others()
        with guard:
            assert had == [number]
        waiting.join(DEADLINE)


def test_letting_others_in_waits_for_nobody_where_nobody_waits(guard: Guard) -> None:
    guard.let_others()
    with guard:
        pass


def test_what_sqlite_raises_leaves_it_as_an_error_of_ours(guard: Guard) -> None:
    with pytest.raises(StoreError, match="locked"), guard:
        raise sqlite3.OperationalError("database is locked")
