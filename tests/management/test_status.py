"""`basefs status`, as far as it needs no cluster."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from typing import Any

import pytest

from basefs.daemon.keyfiles import default_keys
from basefs.management.errors import ExitCode
from basefs.management.output import counted, size, span
from tests.support.commands import Cli
from tests.support.helpers import copy_replica, noise
from tests.support.names import make_link, rename
from tests.support.node import Node


def lines(printed: str) -> dict[str, str]:
    """What was printed, by the name in front."""
    return dict(line.split("\t") for line in printed.splitlines())


def told(cli: Cli) -> dict[str, Any]:
    """The JSON of the filesystem `conf`."""
    found: dict[str, Any] = json.loads(cli("status", "conf", "--json"))
    return found


def test_without_a_filesystem(cli: Cli) -> None:
    assert "basefs bootstrap NAME" in cli.empty("status")
    assert json.loads(cli("status", "--json")) == []
    assert "there is no filesystem conf" in cli.fails("status", "conf")


def test_of_what_does_not_run(conf: Cli) -> None:
    found = lines(conf("status", "conf"))
    assert len(found) == 11
    assert found["access"] == "closed: members only"
    assert found["conf"] == json.loads(conf("list", "--json"))[0]["identity"]
    assert "basefs mount conf DIR" in found["state"]
    assert found["contents"] == "4 entries, 0 blocks"
    assert re.fullmatch(r"gossip_key of / by \S+ at \d{4}-\d\d-\d\d [\d:]{8}, arrived \d+ s ago", found["last change"])
    assert (found["conflicts"], found["may write"]) == ("none", "/")
    assert found["disk"].startswith("log ") and " free of " in found["disk"]


def test_large_contents_in_the_cache_are_the_cache(conf: Cli) -> None:
    before = told(conf)["disk"]
    large = conf.home.directory("conf") / "cache.db.d" / "content"
    large.parent.mkdir(exist_ok=True)
    large.write_bytes(noise(1, 1_000_000))
    after = told(conf)["disk"]
    assert after["cache"] - before["cache"] >= 1_000_000
    assert after["other"] == before["other"]


@pytest.mark.parametrize("command", ["status", "members", "blocks"])
def test_a_path_is_refused_where_all_of_it_is_meant(conf: Cli, command: str) -> None:
    assert "not a path: write conf\n" in conf.fails(command, "conf:/web", code=2)


def test_of_all(conf: Cli) -> None:
    conf("bootstrap", "other")
    first, second = conf("status").split("\n\n")
    assert next(iter(lines(first))) == "conf" and next(iter(lines(second))) == "other"
    assert [row["name"] for row in json.loads(conf("status", "--json"))] == ["conf", "other"]


def test_what_lost_and_what_is_incomplete(conf: Cli) -> None:
    with conf.replica("conf") as here:
        other = copy_replica(here, conf.base / "other", default_keys(conf.home))
        here.commit(lambda author: author.write((b"both",), b"here"))
        there = other.commit(lambda author: author.write((b"both",), b"there"))
        partly = other.commit(lambda author: author.write((b"partly",), noise(1, 2000)))
        other.close()
        here.apply(there.entries, there.blocks)
        here.apply(partly.entries, partly.blocks[:-1])
    found = told(conf)
    assert (found["conflicts"], found["incomplete"]) == (1, 1)
    assert found["latest"]["path"] == "/partly"
    shown = lines(conf("status", "conf"))
    assert "basefs conflicts conf" in shown["conflicts"]
    assert "1 content incomplete: 'basefs blocks conf'" in shown["contents"]
    # What it counts is what the other command lists.
    assert len(json.loads(conf("conflicts", "conf", "--json"))) == 1


def test_the_last_change_is_what_arrived_last_and_not_what_was_signed_last(conf: Cli) -> None:
    keys = default_keys(conf.home)
    with conf.replica("conf") as here:
        other = copy_replica(here, conf.base / "other", keys)
        before = other.commit(lambda author: author.write((b"early",), b"there"))
        other.close()
        here.commit(lambda author: author.write((b"late",), b"here"))
        here.apply(before.entries, before.blocks)
    found = told(conf)["latest"]
    assert found["path"] == "/early" and found["arrived"] > found["time"]
    assert lines(conf("status", "conf"))["last change"].startswith("write of /early by ")


def test_the_last_change_is_called_what_the_log_calls_it(conf: Cli) -> None:
    with conf.replica("conf") as here:
        other = copy_replica(here, conf.base / "other", default_keys(conf.home))
        here.commit(lambda author: author.write((b"both",), b"here"))
        there = other.commit(lambda author: author.write((b"both",), b"there"))
        other.close()
        here.apply(there.entries, there.blocks)
    conf("conflicts", "conf", "--accept", "--all")
    seen = [_last_change(conf, "/both")]
    with conf.replica("conf") as here:
        here.commit(lambda author: author.write((b"both",), b"again"))
    conf("revert", "conf:/both", "--at", there.entries[0].hash.hex())
    seen.append(_last_change(conf, "/both"))
    with conf.replica("conf") as here:
        here.commit(lambda author: make_link(author, (b"more",), (b"both",)))
    seen.append(_last_change(conf, "/more"))
    with conf.replica("conf") as here:
        here.commit(lambda author: rename(author, (b"both",), (b"moved",)))
    # A rename ends with the removal of the old name.
    seen.append(_last_change(conf, "/both"))
    assert seen == ["accept", "revert", "link", "delete"]


def _last_change(conf: Cli, path: str) -> str:
    """What `status` calls the last change, which is of this path; what `log` calls it."""
    latest = told(conf)["latest"]
    assert latest["path"] == path
    rows = {row["entry"]: row["action"] for row in json.loads(conf("log", f"conf:{path}", "--json"))}
    assert rows[latest["entry"]] == latest["action"]
    assert lines(conf("status", "conf"))["last change"].startswith(f"{latest['action']} of {path} by ")
    return str(latest["action"])


def test_without_a_key_that_may_write(conf: Cli) -> None:
    assert conf.run("genkey", "-f")[0] == 0
    assert told(conf)["may_write"] == []
    assert ": basefs grant conf:/" in lines(conf("status", "conf"))["may write"]
    conf.home.default_key.unlink()
    assert "'basefs genkey' makes one" in lines(conf("status", "conf"))["may write"]


def test_of_a_log_that_cannot_be_read(conf: Cli) -> None:
    (conf.home.directory("conf") / "log.db").write_bytes(b"this is no database")
    assert told(conf)["state"] in ("damaged", "unreadable")
    assert lines(conf("status", "conf"))["state"].startswith(told(conf)["state"] + ": ")


def test_of_what_runs_and_of_what_died(node: Node, conf: Cli) -> None:
    node.basefs("run", "conf", "-s", "--handler", "/web/**=false", "--handler", "true")
    shown = lines(conf("status", "conf"))
    assert shown["state"].startswith("running without a mount for ")
    assert shown["members"].startswith("none: ")
    assert shown["handlers"] == "0 done, 0 failed, 0 running, 0 waiting; on each change: /web/**=false; true"
    assert told(conf)["handlers"]["rules"] == ["/web/**=false", "true"]
    assert told(conf)["pid"] == node.daemon("conf")
    node.kill("conf")
    code, printed, _ = conf.run("status", "conf", "--json")
    assert (code, json.loads(printed)["state"]) == (ExitCode.FAILED, "dead")
    code, printed, _ = conf.run("status", "conf")
    assert code == ExitCode.FAILED and "has died" in lines(printed)["state"]
    # A list of all is no question about one of them.
    assert "has died" in lines(conf("status"))["state"]


def test_a_daemon_that_is_stopped_keeps_nobody_waiting(node: Node, conf: Cli) -> None:
    """It says which one, what to do, and how the others are."""
    conf("bootstrap", "other")
    node.basefs("run", "conf", "-s")
    pid = node.daemon("conf")
    os.kill(pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        first, second = conf("status").split("\n\n")
        rows = json.loads(conf("list", "--json"))
        error = conf.fails("log", "conf:/")
        assert conf.fails("unmount", "conf") == error
        assert time.monotonic() - began < 120  # each of the three would wait as long
    finally:
        os.kill(pid, signal.SIGCONT)
    stopped = f"the daemon of conf is stopped by a signal: 'kill -CONT {pid}' lets it go on"
    assert lines(first)["state"] == f"silent: {stopped}"
    assert lines(second)["state"].startswith("not running")
    assert [row["state"] for row in rows] == ["silent", "stopped"]
    assert stopped in error


@pytest.mark.fuse
def test_of_what_is_mounted(node: Node, conf: Cli) -> None:
    point = node.mount("conf")
    (point / "new").write_text("x")
    # Who asks hears of what was just saved.
    found = told(conf)
    assert (found["state"], found["mountpoint"], found["latest"]["path"]) == ("mounted", str(point), "/new")
    assert lines(conf("status", str(point)))["state"].startswith(f"mounted on {point} for ")


def test_units() -> None:
    assert [span(seconds) for seconds in (-1, 0.5, 59, 60, 7199, 86400)] == [
        "0 s",
        "0 s",
        "59 s",
        "1 min",
        "1 h",
        "1 d",
    ]
    assert [counted(1, "entry"), counted(2, "entry"), counted(0, "block")] == ["1 entry", "2 entries", "0 blocks"]
    assert size(1_500_000) == "1.5 MB"
