"""Subscribers hear everything in order, whichever thread tells them."""

from __future__ import annotations

import itertools
import logging
import threading

import pytest

from basefs.replica.feed import Publisher


def test_many_threads_and_one_order() -> None:
    publisher: Publisher[int] = Publisher()
    heard: list[int] = []
    publisher.subscribe(heard.append)
    order = threading.Lock()
    numbers = itertools.count()

    def publish() -> None:
        for _ in range(500):
            with order:
                mine = next(numbers)
                publisher.put(mine)
            publisher.deliver()
            # Told before the call returns, be it by another thread.
            assert mine in heard[-2000:]

    threads = [threading.Thread(target=publish) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert heard == list(range(2000))


def test_what_a_subscriber_puts_comes_after_what_it_is_hearing() -> None:
    publisher: Publisher[int] = Publisher()
    first: list[int] = []
    second: list[int] = []

    def answer(item: int) -> None:
        first.append(item)
        if item < 3:
            publisher.put(item + 1)
            publisher.deliver()

    publisher.subscribe(answer)
    publisher.subscribe(second.append)
    publisher.put(0)
    publisher.deliver()
    assert first == second == [0, 1, 2, 3]


def test_a_bug_in_one_subscriber_is_told_and_harms_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    publisher: Publisher[int] = Publisher()
    heard: list[int] = []
    publisher.subscribe(lambda item: 1 // item)  # type: ignore[arg-type,return-value]
    publisher.subscribe(heard.append)
    with caplog.at_level(logging.ERROR):
        publisher.put(0)
        publisher.put(1)
        publisher.deliver()
    assert heard == [0, 1]
    assert caplog.records[0].exc_info is not None


def test_what_is_about_to_be_put_is_untold_and_told_to_nobody() -> None:
    publisher: Publisher[int] = Publisher()
    heard: list[tuple[int, list[int]]] = []
    publisher.subscribe(lambda item: heard.append((item, publisher.untold())))
    publisher.prepare(1)
    publisher.deliver()
    assert heard == []
    assert publisher.untold() == [1]
    publisher.put(1)
    publisher.deliver()
    assert heard == [(1, [1])]
    assert publisher.untold() == []
