"""pjdfstest and fsx, two public test programs that `cargo install` brings."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from eval.posix.outcome import Outcome, Status, one_line, passed_if, run

#: Two users whom every Debian system has, each with the group that is its own.
_USERS = (("nobody", "nogroup"), ("daemon", "daemon"))
#: Operations of one run of fsx.
FSX_OPERATIONS = 100_000
#: Not with an msync after each mapped write, 17 000 in all: on a disk that takes a quarter of an hour and tests nothing
#: more.
_FSX_CONFIG = """
nomsyncafterwrite = true
[weights]
close_open = 1
read = 10
write = 10
mapread = 10
mapwrite = 10
invalidate = 1
truncate = 5
fsync = 0.2
fdatasync = 0.2
sendfile = 2
posix_fadvise = 1
copy_file_range = 2
posix_fallocate = 2
punch_hole = 2
"""
_LINE = re.compile(r"^(?P<case>\S+::\S+)\s+(?P<status>ok|FAILED|skipped)$")
_STATUS = {"ok": Status.PASSED, "FAILED": Status.FAILED, "skipped": Status.SKIPPED}


def find(name: str) -> Path | None:
    """A program that cargo installed: in this environment, on PATH, or where cargo puts it."""
    beside = Path(sys.executable).with_name(name)
    found = shutil.which(name, path=f"{beside.parent}:{Path.home() / '.cargo' / 'bin'}") or shutil.which(name)
    return None if found is None else Path(found)


def pjdfstest(place: Path, scratch: Path) -> list[Outcome]:
    """Every case of pjdfstest, as root, with the second filesystem that some need."""
    config = scratch / "pjdfstest.toml"
    users = ", ".join(f'["{user}", "{group}"]' for user, group in _USERS)
    config.write_text(
        "[features]\nposix_fallocate = {}\nrename_ctime = {}\nutimensat = {}\nutime_now = {}\n"
        "[settings]\nnaptime = 0.05\nallow_remount = false\nexpected_failures = []\n"
        f"[dummy_auth]\nentries = [{users}]\n"
    )
    second = scratch / "second"
    second.mkdir(exist_ok=True)
    program = find("pjdfstest")
    assert program is not None
    command: list[str | Path] = [program, "-c", config, "-p", place, "-s", second]
    done = run(command, place, timeout=3600, NO_COLOR="1", RUST_BACKTRACE="0")
    (scratch / "pjdfstest.log").write_text(done.stdout)
    found: list[Outcome] = []
    for line in done.stdout.splitlines():
        match = _LINE.match(line)
        if match is not None:
            found.append(Outcome(match["case"], _STATUS[match["status"]]))
        elif found and line.startswith("\t") and not found[-1].detail:
            found[-1] = Outcome(found[-1].case, found[-1].status, one_line(line))
    return found or [Outcome("pjdfstest", Status.FAILED, one_line(done.stdout[-300:]))]


def fsx(place: Path, scratch: Path) -> list[Outcome]:
    """One file under random operations, each read checked."""
    config = scratch / "fsx.toml"
    config.write_text(_FSX_CONFIG)
    program = find("fsx")
    assert program is not None
    done = run(
        [program, "-N", str(FSX_OPERATIONS), "-S", "1", "-f", config, "-P", scratch, place / "fsx"],
        place,
        timeout=3600,
    )
    (scratch / "fsx.log").write_text(done.stdout)
    return [passed_if(f"{FSX_OPERATIONS} operations", done.returncode == 0, done.stdout[-300:])]
