"""Subscribers hear everything in order, whichever thread tells them."""

from __future__ import annotations

import itertools
import logging
import threading

import pytest

from basefs.replica.applied import Applied
from basefs.replica.feed import CommitFeed


def commit(number: int) -> Applied:
    return Applied((), (), (), local=True, commit=number)


def test_many_threads_and_one_order() -> None:
    feed = CommitFeed()
    heard: list[int] = []
    feed.subscribe(lambda item: heard.append(item.commit))
    order = threading.Lock()
    numbers = itertools.count()

    def publish() -> None:
        for _ in range(500):
            with order:
                mine = next(numbers)
                feed.put(commit(mine))
            feed.deliver()
            # Told before the call returns, be it by another thread.
            assert mine in heard[-2000:]

    threads = [threading.Thread(target=publish) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert heard == list(range(2000))


def test_what_a_subscriber_puts_comes_after_what_it_is_hearing() -> None:
    feed = CommitFeed()
    first: list[int] = []
    second: list[int] = []

    def answer(item: Applied) -> None:
        first.append(item.commit)
        if item.commit < 3:
            feed.put(commit(item.commit + 1))
            feed.deliver()

    feed.subscribe(answer)
    feed.subscribe(lambda item: second.append(item.commit))
    feed.put(commit(0))
    feed.deliver()
    assert first == second == [0, 1, 2, 3]


def test_a_bug_in_one_subscriber_is_told_and_harms_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    feed = CommitFeed()
    heard: list[int] = []
    feed.subscribe(lambda item: [1 // item.commit].clear())
    feed.subscribe(lambda item: heard.append(item.commit))
    with caplog.at_level(logging.ERROR):
        feed.put(commit(0))
        feed.put(commit(1))
        feed.deliver()
    assert heard == [0, 1]
    assert caplog.records[0].exc_info is not None
