"""Handlers as real processes."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import re
import time
from collections.abc import Awaitable, Callable

import psutil
import pytest

from basefs.fs.events.queue import CONFLICT, Event
from basefs.fs.events.rules import Rule
from basefs.fs.events.runner import HandlerSettings, Runner
from basefs.replica.replica import Applied
from tests.fs.events.conftest import Local
from tests.support.helpers import path
from tests.support.names import make_symlink
from tests.support.node import has_ended
from tests.support.patience import DEADLINE
from tests.support.wait import wait_until

Scenario = Callable[[Local, Runner], Awaitable[None]]


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait in the event loop."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"still waiting for {what}"
        await asyncio.sleep(0.01)


def play(local: Local, scenario: Scenario, *commands: str, capacity: int = 1000, **settings: float) -> None:
    """Run a scenario with handlers for everything that changes."""

    async def main() -> None:
        rules = [Rule.parse(command) for command in commands]
        runner = Runner(
            HandlerSettings(
                rules, int(settings.get("at_most", 4)), settings.get("timeout", DEADLINE), settings.get("delay", 0.0)
            ),
            {"WHERE": str(local.replica.directory)},
            local.replica.key_names,
            capacity=capacity,
        )

        def tell(applied: Applied) -> None:
            runner.changed(applied.changes)

        local.replica.subscribe(tell)
        local.replica.observe()
        try:
            await scenario(local, runner)
        finally:
            await runner.stop()

    asyncio.run(main())


def lines(local: Local) -> list[str]:
    """What the handlers of a test have written."""
    output = local.replica.directory / "out"
    return output.read_text().splitlines() if output.exists() else []


NOTE = 'echo "$BASEFS_EVENT_TYPE $BASEFS_EVENT_PATH $BASEFS_EVENT_KIND" >> "$WHERE/out"'


COUNT = 'echo "$BASEFS_EVENT_TYPE $BASEFS_EVENT_PATH $BASEFS_EVENT_CHANGES" >> "$WHERE/out"'


def test_a_burst_of_changes_is_one_run(local: Local) -> None:
    async def scenario(local: Local, runner: Runner) -> None:
        local.do(lambda author: author.make_directory(path("/d"), mode=0o755))
        for number in range(30):
            local.save(f"/d/{number}", b"x")
        local.save("/other", b"x")
        runner.report([Event(CONFLICT, path("/d/f"), "file")])
        await until(lambda: len(lines(local)) == 1, "the conflict, which waits for nothing")
        assert lines(local) == ["conflict /d/f 1"]
        await until(lambda: len(lines(local)) == 2, "the run for all others")
        local.save("/d/0", b"alone")
        await until(lambda: len(lines(local)) == 3, "the next one")

    play(local, scenario, f"/d/*={COUNT}", delay=0.5)
    assert lines(local)[1:] == ["several /d 30", "modify /d/0 1"]


def test_changes_that_never_stop_do_not_keep_a_handler_from_running(local: Local) -> None:
    async def scenario(local: Local, runner: Runner) -> None:
        local.save("/f", b"")
        numbers = itertools.count()

        def has_run_after_another_change() -> bool:
            local.save("/f", b"%d" % next(numbers))
            return bool(lines(local))

        await until(has_run_after_another_change, "a run")

    play(local, scenario, COUNT, delay=0.1)
    assert re.fullmatch(r"create /f \d+", lines(local)[0])


def test_each_kind_of_change_is_told_once(local: Local) -> None:
    async def scenario(local: Local, runner: Runner) -> None:
        local.do(lambda author: author.make_directory(path("/d"), mode=0o755))
        local.save("/d/f", b"one")
        await until(lambda: len(lines(local)) == 2, "two handlers")
        local.save("/d/f", b"two")
        local.do(lambda author: author.set_attributes(path("/d/f"), mode=0o600))
        local.do(lambda author: make_symlink(author, path("/s"), b"d"))
        local.do(lambda author: author.remove(path("/d/f"), directory=False))
        await until(lambda: len(lines(local)) == 6, "all handlers")

    play(local, scenario, NOTE)
    found = lines(local)
    assert sorted(found[:2]) == ["create /d directory", "create /d/f file"]
    assert [line for line in found if "/d/f" in line] == [
        "create /d/f file",
        "modify /d/f file",
        "attributes /d/f file",
        "delete /d/f file",
    ]
    assert "create /s symlink" in found


def test_a_name_that_is_no_text_arrives_as_it_is(local: Local) -> None:
    async def scenario(local: Local, runner: Runner) -> None:
        local.save("/plain", b"")
        local.do(lambda author: author.write((b"\xff\n x",), b""))
        await until(lambda: (local.replica.directory / "out").exists(), "the handler")
        await until(lambda: runner.status()["running"] == 0, "its end")

    play(local, scenario, '/*x=printf %s "$BASEFS_EVENT_PATH" > "$WHERE/out"')
    assert (local.replica.directory / "out").read_bytes() == b"/\xff\n x"


def test_globs_select(local: Local) -> None:
    async def scenario(local: Local, runner: Runner) -> None:
        for name in ("/a.conf", "/b.txt", "/c.conf"):
            local.save(name, b"")
        await until(lambda: len(lines(local)) == 2, "the handlers")

    play(local, scenario, f"*.conf={NOTE}")
    assert sorted(lines(local)) == ["create /a.conf file", "create /c.conf file"]


def test_output_and_failures_are_logged(local: Local, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(local: Local, runner: Runner) -> None:
        local.save("/f", b"")
        await until(lambda: runner.status()["failed"] == 1, "the failure")
        assert runner.status() == {"queued": 0, "running": 0, "done": 0, "failed": 1, "coalesced": 0, "dropped": 0}

    with caplog.at_level(logging.INFO):
        play(local, scenario, "echo said; echo warned >&2; exit 3")
    text = caplog.text
    assert "said" in text
    assert "warned" in text
    assert "failed with exit code 3" in text


def test_a_hanging_handler_is_ended_with_all_that_it_started(local: Local, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(local: Local, runner: Runner) -> None:
        local.save("/f", b"")
        await until(lambda: runner.status()["failed"] == 1, "its end")

    noted = local.replica.directory / "pid"
    # On a busy machine it takes a while to hang.
    for timeout in (0.5, 5.0, DEADLINE / 2):
        with caplog.at_level(logging.INFO):
            play(local, scenario, 'sleep 1000 & echo $! > "$WHERE/pid"; wait', timeout=timeout)
        if noted.exists() and noted.read_text():
            break
    pid = int(noted.read_text())
    wait_until(lambda: has_ended(pid), DEADLINE, "the end of what was killed")
    assert "--handler-timeout" in caplog.text


def test_what_a_handler_leaves_behind_lives_on_and_delays_nobody(local: Local) -> None:
    async def scenario(local: Local, runner: Runner) -> None:
        local.save("/f", b"")
        await until(lambda: runner.status()["done"] == 1, "its end")
        os.kill(int((local.replica.directory / "pid").read_text()), 9)

    play(local, scenario, 'sleep 1000 & echo $! > "$WHERE/pid"')


def test_no_more_than_allowed_run_at_a_time_and_hanging_ones_delay_no_others(local: Local) -> None:
    async def scenario(local: Local, runner: Runner) -> None:
        for number in range(6):
            local.save(f"/f{number}", b"")
        local.save("/quick", b"")
        await until(lambda: runner.status()["running"] == 3, "as many as may run")
        assert runner.status()["queued"] == 4
        (local.replica.directory / "go").touch()
        await until(lambda: runner.status()["done"] == 7, "all of them")

    play(local, scenario, 'until [ -e "$WHERE/go" ]; do sleep 0.02; done', at_most=3)


def test_a_full_queue_says_so(local: Local, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(local: Local, runner: Runner) -> None:
        for number in range(10):
            local.save(f"/f{number}", b"")
        await until(lambda: runner.status()["dropped"] > 0, "the overflow")
        (local.replica.directory / "go").touch()
        await until(lambda: runner.status()["queued"] == runner.status()["running"] == 0, "an empty queue")

    with caplog.at_level(logging.INFO):
        command = f'until [ -e "$WHERE/go" ]; do sleep 0.02; done; {NOTE}'
        play(local, scenario, command, at_most=1, capacity=3)
    assert "handler queue full" in caplog.text
    assert "overflow / directory" in lines(local)


def test_a_large_output_is_cut_and_stops_nobody(local: Local, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(local: Local, runner: Runner) -> None:
        local.save("/f", b"")
        await until(lambda: runner.status()["done"] == 1, "its end")

    with caplog.at_level(logging.INFO):
        play(local, scenario, "head -c 10000000 /dev/zero | tr '\\0' 'x'")
    assert 10_000 < len(caplog.text) < 40_000


def test_handlers_that_run_end_with_the_daemon(local: Local) -> None:
    async def scenario(local: Local, runner: Runner) -> None:
        local.save("/f", b"")
        await until(lambda: (local.replica.directory / "pid").exists(), "the handler")
        await until(lambda: (local.replica.directory / "pid").read_text().endswith("\n"), "its number")

    play(local, scenario, 'echo $$ > "$WHERE/pid"; exec sleep 1000')
    assert not psutil.pid_exists(int((local.replica.directory / "pid").read_text()))
