"""`basefs cat` and `basefs diff`: what was, and what differs."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from basefs.daemon.keyfiles import default_keys
from basefs.log import codecs
from basefs.log.entries import Action
from basefs.log.extensions import Extensions
from basefs.management.differences import MOST_COMPARED
from basefs.management.output import moment
from tests.management.terminal import on_a_terminal
from tests.support.commands import Cli
from tests.support.helpers import copy_replica, in_blocks, noise, path
from tests.support.names import make_symlink
from tests.support.node import Node


@pytest.fixture
def edited(conf: Cli) -> Cli:
    """`/f` was written, written again, and deleted; a tree beside it."""
    with conf.replica("conf") as replica:
        replica.commit(lambda author: author.write(path("/f"), b"one\n"))
        replica.commit(lambda author: author.write(path("/f"), b"one\ntwo"))
        replica.commit(lambda author: author.make_directory(path("/d")))
        replica.commit(lambda author: author.write(path("/d/binary"), b"\xff\x00"))
        replica.commit(lambda author: author.write(path("/d/latin"), b"caf\xe9\n"))
        replica.commit(lambda author: make_symlink(author, path("/d/link"), b"binary"))
        replica.commit(lambda author: author.remove(path("/f"), directory=False))
    return conf


def revisions(cli: Cli, *arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(cli("log", *arguments, "--json"))
    return found


def differences(cli: Cli, *arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(cli("diff", *arguments, "--json"))
    return found


def test_a_content_at_a_revision_and_now(edited: Cli) -> None:
    _, second, first = revisions(edited, "conf:/f")
    assert edited("cat", "conf:/f", "--at", second["entry"]) == "one\ntwo"
    assert edited("cat", "conf:/f", "--at", first["entry"][:8]) == "one\n"
    other = revisions(edited, "conf:/d")[0]["entry"]
    assert edited("cat", "conf:/f", "--at", other) == "one\ntwo", "what was there when that had arrived"
    found = json.loads(edited("cat", "conf:/f", "--at", first["entry"], "--json"))
    assert base64.b64decode(found["base64"]) == b"one\n"
    assert (found["path"], found["kind"], found["mode"], found["size"]) == ("/f", "file", "0644", 4)


def test_what_has_no_content(edited: Cli) -> None:
    deleted = revisions(edited, "conf:/f")[0]["entry"]
    assert edited.fails("cat", "conf:/f") == "basefs: nothing is at /f\n"
    assert "nothing was at /f" in edited.fails("cat", "conf:/f", "--at", deleted)
    assert "this node has no history before" in edited.fails("cat", "conf:/f", "--at", "1w")
    assert "nothing is at /g" in edited.fails("cat", "conf:/g")
    assert "there is no entry 01234567" in edited.fails("cat", "conf:/f", "--at", "01234567")
    assert "is not a time" in edited.fails("cat", "conf:/f", "--at", "nonsense", code=2)
    assert "/ is a directory" in edited.fails("cat", "conf")
    assert "/d is a directory" in edited.fails("cat", "conf:/d")
    assert "/d/link is a symbolic link to binary" in edited.fails("cat", "conf:/d/link")


def test_a_large_content_comes_in_pieces(conf: Cli) -> None:
    data = bytes(range(256)) * 40_000
    with conf.replica("conf") as replica:
        replica.commit(lambda author: author.write(path("/large"), data))
    assert base64.b64decode(json.loads(conf("cat", "conf:/large", "--json"))["base64"]) == data


def test_a_difference_of_a_file(edited: Cli) -> None:
    deleted, second, first = (row["entry"] for row in revisions(edited, "conf:/f"))
    shown = edited("diff", "conf:/f", first, second).splitlines()
    assert shown[0] == "changed file /f"
    assert shown[1:3] == [f"--- a/f\t{first[:12]}", f"+++ b/f\t{second[:12]}"]
    assert shown[3:] == ["@@ -1 +1,2 @@", " one", "+two", "\\ No newline at end of file"]
    # Without the second one: to what is there now, which is nothing.
    assert edited("diff", "conf:/f", first).splitlines()[0] == "deleted file /f (0644)"
    assert edited("diff", "conf:/f", first).splitlines()[2] == "+++ /dev/null"
    assert edited("diff", "conf:/f") == edited("diff", "conf:/f", second, deleted)
    assert "no differences" in edited.empty("diff", "conf:/f", second, second)
    assert edited("diff", "conf:/f", deleted, first).startswith("created file /f (0644)\n--- /dev/null\n+++ b/f")


def test_a_difference_of_a_tree(edited: Cli, tmp_path: Path) -> None:
    start = revisions(edited, "conf:/f")[-1]["entry"]
    with edited.replica("conf") as replica:
        replica.commit(lambda author: author.set_attributes(path("/d"), mode=0o700))
        replica.commit(lambda author: author.write(path("/d/sub"), b"a\nb\n", mode=0o600))
    found = {one["path"]: one for one in differences(edited, "conf:/", start)}
    assert {at: one["became"] for at, one in found.items()} == {
        "/d": "created",
        "/d/binary": "created",
        "/d/latin": "created",
        "/d/link": "created",
        "/d/sub": "created",
        "/f": "deleted",
    }
    assert found["/d/binary"]["diff"] is None
    assert found["/d/latin"]["diff"].endswith("+caf\udce9\n")
    assert found["/d/link"]["after"]["target"] == "binary"
    shown = edited("diff", "conf:/d/binary", start)
    assert shown == "created file /d/binary (0644)\nthe contents are not compared by lines: 2 B\n"
    assert edited("diff", "conf:/d/link", start) == "created symlink /d/link (0777)\ntarget binary\n"
    assert edited("diff", "conf:/d/sub", start).startswith("created file /d/sub (0600)\n--- /dev/null\n+++ b/d/sub\t")
    # The last change at or below a path, which is the directory's here.
    (one,) = differences(edited, "conf:/d")
    assert (one["path"], one["became"]) == ("/d/sub", "created")
    (one,) = differences(edited, "conf:/", start, revisions(edited, "conf:/f")[1]["entry"])
    assert (one["path"], one["became"], one["diff"]) == (
        "/f",
        "changed",
        "@@ -1 +1,2 @@\n one\n+two\n\\ No newline at end of file\n",
    )


def test_attributes_and_large_files(conf: Cli) -> None:
    with conf.replica("conf") as replica:
        replica.commit(lambda author: author.write(path("/f"), b"x\n"))
        (start,) = replica.commit(lambda author: author.write(path("/large"), b"x" * MOST_COMPARED)).entries
        replica.commit(lambda author: author.set_attributes(path("/f"), mode=0o600))
        replica.commit(lambda author: author.write(path("/large"), b"x" * (MOST_COMPARED + 1)))
    assert conf("diff", "conf:/", start.hash.hex()) == (
        "changed file /f\nmode 0644 -> 0600\n"
        "changed file /large\nthe contents are not compared by lines: 1.0 MB -> 1.0 MB\n"
    )


def test_a_difference_of_times_alone(conf: Cli, tmp_path: Path) -> None:
    with conf.replica("conf") as replica:
        replica.commit(lambda author: author.write(path("/f"), b"x\n", mtime=10**18))
        (other,) = replica.commit(lambda author: author.write(path("/g"), b"x\n", mtime=10**18)).entries
        replica.commit(lambda author: author.set_attributes(path("/f"), mtime=10**18 + 60 * 10**9))
        assert f"changed file /f\nmtime {moment(10**9)} -> {moment(10**9 + 60)}\n" == conf("diff", "conf:/f")
        replica.commit(lambda author: author.set_attributes(path("/f"), mtime=10**18 + 60 * 10**9 + 10**6))
        assert f"mtime {moment(10**9 + 60)}.000000 -> {moment(10**9 + 60)}.001000\n" in conf("diff", "conf:/f")
        assert conf("log", "-p", "-n", "1", "conf:/f").endswith(".001000\n\n")
        replica.commit(lambda author: author.write(path("/g"), b"y\n"))
    shown = conf("diff", "conf:/", other.hash.hex())
    assert shown.count("mtime") == 1, "not where the contents differ"
    (tmp_path / "g").write_bytes(b"x\n")
    subprocess.run(["patch", "-p1", "--fuzz=0"], cwd=tmp_path, input=shown.encode(), check=True, capture_output=True)
    assert (tmp_path / "g").read_bytes() == b"y\n"


def test_patch_takes_a_difference(conf: Cli, tmp_path: Path) -> None:
    old, new = b"1\n2\n3\n\x0cform feed\n", b"1\nzwei\n3\n\x0cform feed\nno newline"
    with conf.replica("conf") as replica:
        replica.commit(lambda author: author.make_directory(path("/d")))
        (start,) = replica.commit(lambda author: author.write(path("/d/f"), old)).entries
        replica.commit(lambda author: author.write(path("/d/f"), new))
        replica.commit(lambda author: author.write(path("/d/g"), b"new\n"))
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_bytes(old)
    shown = conf("diff", "conf:/", start.hash.hex())
    subprocess.run(["patch", "-p1", "--fuzz=0"], cwd=tmp_path, input=shown.encode(), check=True, capture_output=True)
    assert (tmp_path / "d" / "f").read_bytes() == new
    assert (tmp_path / "d" / "g").read_bytes() == b"new\n"


@pytest.mark.parametrize(
    "name", [b"tab\there", b"line\nfeed", b'say "so"', b"back\\\\slash", b"caf\xe9", b"sp ace", b"\x01"]
)
def test_patch_takes_a_difference_of_a_file_of_any_name(conf: Cli, tmp_path: Path, name: bytes) -> None:
    with conf.replica("conf") as replica:
        (start,) = replica.commit(lambda author: author.write((name,), b"old\n")).entries
        replica.commit(lambda author: author.write((name,), b"new\n"))
    file = tmp_path / os.fsdecode(name)
    file.write_bytes(b"old\n")
    shown = os.fsencode(conf("diff", "conf:/", start.hash.hex()))
    subprocess.run(["patch", "-p1", "--fuzz=0"], cwd=tmp_path, input=shown, check=True, capture_output=True)
    assert file.read_bytes() == b"new\n"


def test_a_directory_is_no_file_to_patch(conf: Cli) -> None:
    with conf.replica("conf") as replica:
        (file,) = replica.commit(lambda author: author.write(path("/d"), b"old\n")).entries
        replica.commit(lambda author: author.remove(path("/d"), directory=False))
        (directory,) = replica.commit(lambda author: author.make_directory(path("/d"))).entries
    before, after = file.hash.hex()[:12], directory.hash.hex()[:12]
    assert f"kind file -> directory\nmode 0644 -> 0755\n--- a/d\t{before}\n+++ /dev/null\n" in conf(
        "diff", "conf:/d", before, after
    )
    assert f"--- /dev/null\n+++ b/d\t{before}\n" in conf("diff", "conf:/d", after, before)


def test_a_version_of_a_directory_that_is_gone(conf: Cli) -> None:
    with conf.replica("conf") as replica:
        replica.commit(lambda author: author.make_directory(path("/d")))
        (made,) = replica.commit(lambda author: author.write(path("/d/f"), b"old\n")).entries
        replica.commit(lambda author: author.remove(path("/d/f"), directory=False))
        replica.commit(lambda author: author.remove(path("/d"), directory=True))
        replica.commit(lambda author: author.write(path("/d"), b"a file now"))
    assert conf("cat", "conf:/d/f", "--at", made.hash.hex()) == "old\n"


@pytest.mark.fuse
def test_a_daemon_answers_as_a_command_does_and_publishes_first(node: Node, conf: Cli) -> None:
    point = node.mount("conf")
    (point / "f").write_text("one\n")
    assert node.basefs("cat", "conf:/f") == "one\n"
    (point / "f").write_text("two\n")
    assert node.basefs("diff", "conf:/f").splitlines()[-2:] == ["-one", "+two"]
    assert node.spawn("diff", point / "f", "1h", "now").returncode == 1
    assert node.basefs("cat", "conf:/f", "--at", node.query("log", "conf:/f")[1]["entry"]) == "one\n"
    shown = {arguments: node.basefs(*arguments) for arguments in (("diff", "conf:/f"), ("cat", "conf:/f"))}
    (point / "latin").write_bytes(b"caf\xe9\n")
    assert node.basefs("diff", "conf:/latin").endswith("+caf\udce9\n"), "bytes as they are"
    node.basefs("unmount", "conf")
    assert {arguments: node.basefs(*arguments) for arguments in shown} == shown


@pytest.mark.process
def test_a_difference_cannot_colour_a_terminal(node: Node, conf: Cli) -> None:
    with conf.replica("conf") as replica:
        replica.commit(lambda author: author.write(path("/f"), b"\x1b[31mred\n\tindented\n"))
    shown = on_a_terminal(node, "diff", "conf:/f")
    assert "\\x1b[31mred" in shown and "+       indented" in shown
    assert "\x1b[32m" in shown


@pytest.mark.process
def test_the_lack_of_a_last_newline_is_a_line_of_its_own_on_a_terminal(node: Node, conf: Cli) -> None:
    with conf.replica("conf") as replica:
        replica.commit(lambda author: author.write(path("/f"), b"one\ntwo"))
    shown = re.sub(r"\x1b\[[0-9;]*m", "", on_a_terminal(node, "diff", "conf:/f")).splitlines()
    assert shown[-2:] == ["+two", "\\ No newline at end of file"]


@pytest.mark.parametrize("hostile", [True, False])
def test_what_takes_too_long_to_compare_ends_no_list(conf: Cli, hostile: bool) -> None:
    """Every second line of many is another one, or one near the beginning and one near the end."""
    lines = [b"%d" % number for number in range(20_000)]
    changed = [b"-" + line if at % 2 and (hostile or at in (1, 19_999)) else line for at, line in enumerate(lines)]
    with conf.replica("conf") as replica:
        for version in (lines, changed):
            replica.commit(lambda author, version=version: author.write(path("/f"), b"\n".join(version)))  # type: ignore[misc]
    newest, first = conf("log", "conf:/f", "-p").split("created file", 1)
    assert "+19998" in first
    assert ("the contents are not compared by lines" in newest) == hostile
    assert ("+-19999" in newest) != hostile


@pytest.mark.logs("cannot be read")
def test_a_content_that_cannot_be_read_ends_no_list(conf: Cli) -> None:
    """As a key holder may sign one."""
    named, blocks = in_blocks(b"rubbish", codecs.ZLIB.tag)
    (key,) = default_keys(conf.home)
    with conf.replica("conf") as replica:
        replica.commit(lambda author: author.write(path("/f"), b"first\n"))
        replica.commit(lambda author: author.write(path("/g"), b"one\n"))
        first = replica.attributes(path("/f")).entry
        bad = key.sign(first, 1, Action.WRITE, b"f", named, Extensions(9))
        assert replica.apply([bad], blocks).entries == (bad,)
        replica.commit(lambda author: author.write(path("/g"), b"two\n"))
    shown = conf("diff", "conf:/", first.hex())
    assert "the contents are not compared by lines: 6 B -> 9 B" in shown and "+two" in shown
    assert "+first" in conf("log", "conf:/f", "-p")
    assert "cannot be read" in conf.fails("cat", "conf:/f")


@pytest.fixture
def partly(conf: Cli) -> str:
    """A revision of `/f` of which a block has not arrived, after one that is complete."""
    with conf.replica("conf") as here:
        here.commit(lambda author: author.write(path("/f"), b"first\n"))
        other = copy_replica(here, conf.base / "other", default_keys(conf.home))
        applied = other.commit(lambda author: author.write(path("/f"), noise(1, 2000)))
        other.close()
        here.apply(applied.entries, applied.blocks[:-1])
    return applied.entries[0].hash.hex()


def test_a_content_that_has_not_arrived_ends_no_list(conf: Cli, partly: str) -> None:
    shown = conf("log", "conf:/f", "-p").splitlines()
    assert next(line for line in shown if "  write  " in line).startswith(partly[:12])
    assert "the contents are not here yet: 6 B -> 2.0 kB" in shown
    assert shown.count("+first") == 1, "the other revision is shown"
    assert [one["patch"]["contents_missing"] for one in revisions(conf, "conf:/f", "-p")] == [True, False]
    assert "are not here yet" in conf("diff", "conf:/f", partly)
    said = conf.fails("cat", "conf:/f", "--at", partly)
    assert f"the content of {partly[:12]} has not arrived yet: 'basefs blocks conf'" in said
