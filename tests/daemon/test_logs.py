"""What daemons log."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from basefs.daemon import logs
from tests.support.commands import Cli
from tests.support.mounts import wait_until
from tests.support.node import COMMAND, Node

_PROGRAM = """
import logging, sys
from basefs.daemon import logs
logs.configure("conf", debug=True, style={style!r}, file=None)
log = logging.getLogger("basefs.x")
for level in (10, 20, 30, 40, 50):
    log.log(level, "level %d", level)
try:
    1 / 0
except ZeroDivisionError:
    log.exception("two\\nlines")
"""


def logged(style: str | None, journal: bool = False) -> list[str]:
    """The lines that a process logs to its stderr."""
    reading, writing = os.pipe()
    facts = os.fstat(writing)
    environment = {**os.environ, "JOURNAL_STREAM": f"{facts.st_dev}:{facts.st_ino + (not journal)}"}
    subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(style=style)], stderr=writing, env=environment, check=True, timeout=60
    )
    os.close(writing)
    with os.fdopen(reading) as stream:
        return stream.read().splitlines()


@pytest.mark.parametrize(("style", "journal"), [(None, True), ("journal", False)])
def test_the_journal_gets_priorities(style: str | None, journal: bool) -> None:
    lines = logged(style, journal)
    assert lines[:5] == [
        "<7>basefs.x: level 10",
        "<6>basefs.x: level 20",
        "<4>basefs.x: level 30",
        "<3>basefs.x: level 40",
        "<2>basefs.x: level 50",
    ]
    assert lines[5:7] == ["<3>basefs.x: two\\nlines", "<3>  Traceback (most recent call last):"]
    assert all(line.startswith("<3>") for line in lines[5:])


def test_text_where_nobody_asked_for_more() -> None:
    lines = logged(None)
    assert lines[1].endswith(" INFO basefs.x: level 20")
    assert lines[0][:4].isdecimal()
    assert logged("text", journal=True)[1].endswith(" INFO basefs.x: level 20")


def test_json_is_one_object_a_line() -> None:
    rows = [json.loads(line) for line in logged("json")]
    assert [row["level"] for row in rows] == ["debug", "info", "warning", "error", "critical", "error"]
    assert rows[0].keys() == {"time", "level", "filesystem", "logger", "message"}
    assert rows[-1]["message"] == "two\nlines"
    assert "ZeroDivisionError" in rows[-1]["exception"]
    assert {row["filesystem"] for row in rows} == {"conf"}


def test_a_file_does_not_grow_without_end(tmp_path: Path) -> None:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    root.handlers.clear()
    try:
        logs.configure("conf", debug=False, style=None, file=tmp_path / "log")
        for _ in range(100):
            root.info("x" * 100_000)
        root.handlers[0].close()
    finally:
        root.handlers[:], level = before
        root.setLevel(level)
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert sizes.keys() == {"log", "log.1"}
    assert max(sizes.values()) <= logs.MAX_BYTES


def test_a_daemon_in_front_and_behind(node: Node, conf: Cli) -> None:
    node.basefs("run", "conf", "-s", "-d", "--log-format", "json")
    node.basefs("unmount", "conf")
    for line in node.log("conf").splitlines():
        assert json.loads(line)["filesystem"] == "conf"
    in_front = subprocess.Popen(
        [COMMAND, "run", "conf", "-sf", "-d", "--log-format", "journal"],
        env=node.environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: node.summary("conf")["state"] == "running", "the daemon runs")
    node.basefs("unmount", "conf")
    _, err = in_front.communicate(timeout=60)
    assert all(line.startswith("<") for line in err.splitlines())


_HOSTILE = """
import logging, sys
from basefs.daemon import logs
logs.configure("conf", debug=True, style={style!r}, file=None)
forged = {forged!r}
log = logging.getLogger("basefs.x")
log.warning("handler %s", forged)
log.warning(forged)
log.warning("%r %s", forged, OSError(2, forged, forged))
try:
    raise ValueError(forged) from KeyError(forged)
except ValueError:
    log.exception("failed: %s", forged)
"""


@pytest.mark.parametrize("style", logs.FORMATS)
def test_nothing_that_is_logged_forges_a_line_or_controls_a_terminal(style: str) -> None:
    controls = "".join(map(chr, [*range(32), *range(127, 160), 0x2028, 0x2029, 0x202E, 0x2066, 0xDCFF]))
    forged = "".join(f"{one}2026-01-01 00:00:00,000 INFO basefs.x: forged{one}<0>forged" for one in controls)
    program = _HOSTILE.format(style=style, forged=forged)
    done = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, check=True, timeout=60)
    lines = done.stderr.decode().split("\n")[:-1]
    assert len(lines) > 3 and all(line.isprintable() for line in lines)
    if style == "json":
        assert len([json.loads(line) for line in lines]) == 4
        return
    messages = [line for line in lines if not re.match(r"(<\d>)?  ", line)]
    assert len(messages) == 4
    beginning = r"<[34]>basefs.x: " if style == "journal" else r"\S+ \S+ (WARNING|ERROR) basefs.x: "
    assert all(re.match(beginning, line) for line in messages)
    assert all(line.startswith("<3>  ") for line in lines[4:]) or style == "text"
