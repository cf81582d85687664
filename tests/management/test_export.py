"""`basefs export` and `basefs import`."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from basefs.log.archive.records import ArchiveReader
from basefs.log.keys import SigningKey
from basefs.management.output import size
from basefs.replica.replica import LOG_FILE
from tests.support.capture import Haystack
from tests.support.commands import Cli
from tests.support.helpers import noise, path
from tests.support.node import COMMAND, Node


@pytest.fixture
def archive(conf: Cli) -> Path:
    """All of a filesystem with some files."""
    with conf.replica("conf") as replica:
        replica.commit(lambda author: author.make_directory(path("/d")))
        replica.commit(lambda author: author.write(path("/d/f"), noise(1, 100_000)))
        replica.commit(lambda author: author.write(path("/g"), b"one\n"))
        replica.commit(lambda author: author.write(path("/g"), b"two\n"))
    file = conf.base / "archive"
    said = conf("export", "conf", file)
    assert re.fullmatch(rf"conf 7 entries, \d+ blocks, {size(file.stat().st_size)}\n", said)
    return file


def summary(cli: Cli, name: str) -> dict[str, object]:
    found: dict[str, object] = next(row for row in json.loads(cli("list", "--json")) if row["name"] == name)
    return found


def same(cli: Cli, one: str, other: str) -> bool:
    """Whether two filesystems have the same entries and blocks, but for the gossip key, which no archive has."""
    found = []
    for name in (one, other):
        file = cli.home.path / f"{name} to compare"
        cli("export", name, file)
        with file.open("rb") as stream:
            found.append(set(ArchiveReader(stream).records()))
        file.unlink()
    return summary(cli, one)["identity"] == summary(cli, other)["identity"] and found[0] == found[1]


def names(cli: Cli) -> list[str]:
    return sorted(entry.name for entry in (cli.home.path / "fs").iterdir())


def test_a_fresh_filesystem(conf: Cli, archive: Path) -> None:
    assert archive.stat().st_mode & 0o777 == 0o600
    identity = summary(conf, "conf")["identity"]
    assert conf("import", "copy", archive, "--id", identity) == f"copy {identity} 7 entries, 7 new\n"
    assert same(conf, "conf", "copy")
    assert conf("import", "copy", archive) == f"copy {identity} 7 entries, 0 new\n"
    with conf.replica("copy") as replica:
        assert replica.read(path("/d/f")) == noise(1, 100_000)
        assert replica.check_view() == []


def test_no_private_key_is_in_it(conf: Cli, archive: Path) -> None:
    """Nor in a file beside it; the public key is, in each form that a search knows."""
    key = SigningKey.load(conf.home.default_key)
    (pem,) = re.findall(rb"-\n(.+)\n-", conf.home.default_key.read_bytes())
    seed = base64.b64decode(pem)[-32:]
    assert SigningKey.from_seed(seed).public == key.public
    found = Haystack([archive.read_bytes()])
    assert found.find(key.public) == ["raw"]
    assert found.find(seed) == found.find(pem) == []
    assert not [file for file in conf.base.glob("archive*") if file != archive]


def test_what_is_missing_is_added(conf: Cli, archive: Path) -> None:
    conf("import", "copy", archive)
    with conf.replica("conf") as replica:
        replica.commit(lambda author: author.write(path("/g"), b"three\n"))
    conf("export", "conf", archive)
    assert "8 entries, 1 new" in conf("import", "copy", archive)
    assert same(conf, "conf", "copy")


def test_a_path(conf: Cli, archive: Path) -> None:
    conf("export", "conf:/d", archive)
    assert noise(1, 1000) in archive.read_bytes()
    conf("import", "part", archive)
    with conf.replica("part") as replica:
        assert replica.names_in(()).keys() == {b"d"}
        assert replica.read(path("/d/f")) == noise(1, 100_000)
    assert "the log has nothing at /x" in conf.fails("export", "conf:/x", archive)
    # What was there before is still whole.
    conf("import", "part", archive)


def test_damaged_files(conf: Cli, archive: Path) -> None:
    before = archive.read_bytes()
    for damaged in (before[:-1], before[:5000], before + b"x", before[:5000] + b"x" + before[5001:]):
        archive.write_bytes(damaged)
        assert str(archive) in conf.fails("import", "copy", archive)
        assert names(conf) == ["conf"]
        assert str(archive) in conf.fails("import", "conf", archive)
        assert "conf is intact" in conf.empty("check", "conf")
    code, out, err = conf.run("import", "copy", archive, "--salvage")
    assert (code, err.count("\n")) == (0, 1)
    assert "is damaged, " in err
    assert "copy" in out
    assert "copy is intact" in conf.empty("check", "copy")
    archive.write_bytes(before[:60])
    assert "nothing was imported" in conf.fails("import", "other", archive, "--salvage")
    assert names(conf) == ["conf", "copy"]


def test_errors(conf: Cli, archive: Path) -> None:
    conf("bootstrap", "other")
    assert "import it under another name" in conf.fails("import", "other", archive)
    assert "not the one of --id" in conf.fails("import", "copy", archive, "--id", "ab" * 28)
    assert "56 hexadecimal digits" in conf.fails("import", "copy", archive, "--id", "ab", code=2)
    assert "No such file" in conf.fails("import", "copy", archive.with_name("missing"))
    assert "not an archive of 'basefs export'" in conf.fails("import", "copy", conf.home.default_key)
    assert "there is no filesystem nothing" in conf.fails("export", "nothing", archive)
    missing = archive.parent / "missing" / "archive"
    assert conf.fails("export", "conf", missing) == f"basefs: No such file or directory: {missing}\n"
    assert "is not a filesystem name" in conf.fails("import", "a/b", archive, code=2)
    assert conf.misused("export", "conf") == "basefs: missing argument 'FILE': see 'basefs export --help'"


def test_a_damaged_log_replaces_no_archive(conf: Cli, archive: Path) -> None:
    before = archive.read_bytes()
    log = conf.home.existing("conf") / LOG_FILE
    data = log.read_bytes()
    at = data.rindex(noise(1, 100_000)[50_000:50_100])
    log.write_bytes(data[:at] + b"XXXX" + data[at + 4 :])
    assert "basefs check" in conf.fails("export", "conf", archive)
    assert archive.read_bytes() == before
    assert [entry.name for entry in archive.parent.iterdir() if entry.name.startswith(".")] == []


@pytest.mark.fuse
def test_no_room(conf: Cli, archive: Path) -> None:
    disk = conf.base / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk], check=True)
    try:
        (disk / "archive").write_bytes(b"the old one")
        with conf.replica("conf") as replica:
            replica.commit(lambda author: author.write(path("/large"), noise(2, 300_000)))
        message = conf.fails("export", "conf", disk / "archive")
        assert "No space left on device" in message
        assert str(disk / "archive") in message
        # What was there is as it was, and nothing else is.
        assert (disk / "archive").read_bytes() == b"the old one"
        assert [entry.name for entry in disk.iterdir()] == ["archive"]
        assert "No space left on device: /dev/full" in conf.fails("export", "conf", "/dev/full")
        conf("export", "conf", archive)
        done = subprocess.run(
            [COMMAND, "import", "conf", archive],
            env={**os.environ, "BASEFS_HOME": str(disk / "home")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        assert "is full: free some space" in done.stderr
        assert list((disk / "home" / "fs").iterdir()) == []
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_through_pipes(conf: Cli, archive: Path) -> None:
    environment = {**os.environ, "BASEFS_HOME": str(conf.home.path)}
    pipeline = f"{COMMAND} export conf - | {COMMAND} import copy -"
    done = subprocess.run(["sh", "-c", pipeline], env=environment, capture_output=True, text=True, check=True)
    assert "7 entries, 7 new" in done.stdout
    assert done.stderr.startswith("conf 7 entries")
    assert same(conf, "conf", "copy")
    conf("export", "conf", "/dev/null")
    assert Path("/dev/null").is_char_device()


def test_while_it_runs(node: Node, conf: Cli, archive: Path) -> None:
    node.basefs("run", "conf", "-s")
    node.basefs("export", "conf", archive)
    node.basefs("import", "copy", archive)
    assert same(conf, "conf", "copy")
    with conf.replica("copy") as replica:
        for number in range(300):
            replica.commit(lambda author, n=number: author.write(path(f"/f{n}"), noise(n, 5000)))  # type: ignore[misc]
    node.basefs("export", "copy", archive)
    assert "308 entries, 300 new" in node.basefs("import", "conf", archive)
    assert same(conf, "conf", "copy")
    archive.write_bytes(archive.read_bytes()[:-1])
    done = node.spawn("import", "conf", archive)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert same(conf, "conf", "copy")


@pytest.mark.fuse
def test_what_was_just_saved_is_in_it(node: Node, conf: Cli, archive: Path) -> None:
    point = node.mount("conf")
    for number in range(20):
        (point / "g").write_text(f"{number}\n")
        node.basefs("export", f"{point}/g", archive)
    node.basefs("import", "copy", archive)
    assert conf("cat", "copy:/g") == "19\n"


def test_a_restored_home_goes_on_writing(conf: Cli, archive: Path) -> None:
    """The home is lost, the key was kept: what was exported is all there, and can be written."""
    key = SigningKey.load(conf.home.default_key)
    conf("import", "copy", archive)
    with conf.replica("copy", key) as replica:
        replica.commit(lambda author: author.write(path("/d/f"), b"again"))
        assert replica.read(path("/d/f")) == b"again"
