"""`--handler`: commands that a daemon runs for changes."""

from __future__ import annotations

import itertools
import shutil
import time

import pytest

from tests.support.commands import Cli
from tests.support.helpers import path
from tests.support.node import Node
from tests.support.patience import DEADLINE
from tests.support.wait import wait_until

NOTE = 'echo "$BASEFS_EVENT_TYPE $BASEFS_EVENT_PATH" >> {}'


def test_a_handler_without_a_command(conf: Cli) -> None:
    assert "write 'CMD' or 'GLOB=CMD'" in conf.fails("run", "conf", "-s", "--handler", "*.conf=", code=2)


@pytest.mark.fuse
def test_handlers_hear_what_is_written_into_the_mount_and_can_read_it(node: Node, conf: Cli) -> None:
    output = conf.base / "out"
    read = f'cat "$BASEFS_MOUNTPOINT$BASEFS_EVENT_PATH" > {conf.base}/content'
    point = node.mount("conf", "--handler", NOTE.format(output), "--handler", f"/d/*.conf={read}")
    (point / "d").mkdir()
    (point / "d" / "a.conf").write_text("hello")
    (point / "d" / "b.txt").write_text("not for the second one")
    wait_until(lambda: len(output.read_text().splitlines()) == 3, DEADLINE, "three changes are told")
    wait_until(lambda: (conf.base / "content").read_text() == "hello", DEADLINE, "the handler read the file")
    assert sorted(output.read_text().splitlines()) == ["create /d", "create /d/a.conf", "create /d/b.txt"]
    status = node.summary("conf")["handlers"]
    assert (status["queued"], status["running"], status["done"], status["failed"]) == (0, 0, 4, 0)


@pytest.mark.fuse
def test_handlers_of_a_daemon_without_a_mount_hear_what_changes_the_tree(node: Node, conf: Cli) -> None:
    output = conf.base / "out"
    point = node.mount("conf")
    for content in ("one", "two"):
        (point / "f").write_text(content)
        # Commands publish what was saved, so that these are two revisions.
        node.basefs("show", "conf:/f")
    node.basefs("unmount", "conf")
    first = node.query("log", "conf:/f")[-1]["entry"]
    node.basefs("run", "conf", "-s", "--handler", NOTE.format(output))
    node.basefs("genkey", conf.base / "other")
    node.basefs("grant", "conf:/", "other", conf.base / "other.pub")
    node.basefs("revert", "conf:/f", first)
    wait_until(lambda: output.read_text() == "modify /f\n", DEADLINE, "the revert is told")


@pytest.mark.fuse
def test_handlers_receive_who_has_signed_and_what(node: Node, conf: Cli) -> None:
    output = conf.base / "out"
    variables = ("KEY", "FINGERPRINT", "ENTRY", "PATH")
    note = "echo " + " ".join(f'"$BASEFS_EVENT_{name}"' for name in variables)
    point = node.mount("conf", "--handler", f"{note} >> {output}")
    (point / "f").write_text("hello")
    wait_until(lambda: output.exists() and output.read_text().count("\n") == 1, DEADLINE, "the handler")
    (row,) = node.query("log", "conf:/f")
    assert output.read_text().split() == [row["key"], row["fingerprint"], row["entry"], "/f"]


@pytest.mark.fuse
def test_a_conflict_that_begins_is_an_event_and_a_line_in_the_log(node: Node, conf: Cli) -> None:
    """The other side comes with an archive of a copy that was written on its own."""
    with conf.replica("conf") as replica:
        replica.commit(lambda author: author.write(path("/f"), b"first"))
        replica.commit(lambda author: author.write(path("/quiet"), b"first"))
    shutil.copytree(conf.home.existing("conf"), conf.home.directory("other"))
    for number in range(2):
        with conf.replica("other") as replica:
            replica.commit(lambda author, n=number: author.write(path("/f"), f"theirs {n}".encode()))
        conf("export", "other:/f", conf.base / f"archive{number}")
    with conf.replica("conf") as replica:
        replica.commit(lambda author: author.write(path("/f"), b"ours"))
    output = conf.base / "out"
    note = 'echo "$BASEFS_EVENT_PATH $BASEFS_EVENT_KIND $BASEFS_EVENT_ENTRY $BASEFS_EVENT_KEY"'
    point = node.mount("conf", "--handler", f'test "$BASEFS_EVENT_TYPE" != conflict || {note} >> {output}')
    node.basefs("import", "conf", conf.base / "archive0")
    wait_until(output.exists, DEADLINE, "the event")
    (row,) = node.query("conflicts", "conf")
    expected = f"/f file {row['lost']['entry']} {row['lost']['key']}\n"
    assert output.read_text() == expected
    line = f"conflict at /f: {row['lost']['entry'][:12]} by {row['lost']['key']} lost to {row['won']['entry'][:12]}"
    assert node.log("conf").count(line) == 1
    # More of the same branch, and a restart, are no new conflict.
    node.basefs("import", "conf", conf.base / "archive1")
    (point / "quiet").write_text("second")
    node.settle("conf")
    node.basefs("unmount", "conf")
    (node.mount("conf") / "f").read_text()
    node.basefs("unmount", "conf")
    assert node.log("conf").count("conflict at") == output.read_text().count("\n") == 1


@pytest.mark.fuse
def test_hanging_handlers_delay_nothing_and_end_with_the_daemon(node: Node, conf: Cli) -> None:
    point = node.mount("conf", "--handler", "sleep 1000", "--handler-jobs", "2")
    for number in range(5):
        (point / f"f{number}").write_text("x")
    assert [path.read_text() for path in sorted(point.glob("f*"))] == ["x"] * 5
    wait_until(lambda: node.summary("conf")["handlers"]["running"] == 2, DEADLINE, "two handlers run")
    assert node.summary("conf")["handlers"]["queued"] == 3
    start = time.monotonic()
    node.basefs("unmount", "conf")
    assert time.monotonic() - start < DEADLINE


@pytest.mark.fuse
def test_time_limits_and_failures_are_in_the_log_of_the_daemon(node: Node, conf: Cli) -> None:
    point = node.mount(
        "conf", "--handler", "*.slow=sleep 1000", "--handler", "*.bad=exit 7", "--handler-timeout", "0.2"
    )
    (point / "a.slow").touch()
    wait_until(lambda: "its time limit" in node.log("conf"), DEADLINE, "the time limit")
    numbers = itertools.count()

    def fails_at_once() -> bool:
        # On a busy machine even this takes longer than the time limit, now and then.
        (point / f"{next(numbers)}.bad").touch()
        node.settle("conf")
        wait_until(lambda: node.status("conf")["handlers"]["running"] == 0, DEADLINE, "its end")
        return "failed with exit code 7" in node.log("conf")

    wait_until(fails_at_once, DEADLINE, "the exit code")
    expected = 1 + next(numbers)
    wait_until(lambda: node.status("conf")["handlers"]["failed"] == expected, DEADLINE, "all of them failed, once each")
