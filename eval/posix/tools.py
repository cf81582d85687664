"""What people run on files: SQLite, git, make."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

from eval.posix.outcome import Outcome, passed_if, run

#: Transactions of each of the two processes that write to one database.
_TRANSACTIONS = 100
_WRITER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=120, isolation_level=None)
for number in range(int(sys.argv[3])):
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("UPDATE counter SET value = value + 1")
    connection.execute("INSERT INTO lines VALUES (?, ?, ?)", (sys.argv[2], number, "x" * 100))
    connection.execute("COMMIT")
"""
_SOURCES = 12


def sqlite(place: Path, scratch: Path) -> list[Outcome]:
    """Two processes write to one database, in rollback and in WAL mode."""
    return [_database(place / f"{mode}.db", mode) for mode in ("delete", "wal")]


def _database(path: Path, mode: str) -> Outcome:
    case = f"two writers, journal_mode={mode}"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        (chosen,) = connection.execute(f"PRAGMA journal_mode={mode}").fetchone()
        connection.executescript(
            "CREATE TABLE counter (value INTEGER); INSERT INTO counter VALUES (0);"
            "CREATE TABLE lines (writer TEXT, number INTEGER, text TEXT)"
        )
    command = [sys.executable, "-c", _WRITER, str(path)]
    writers = [
        subprocess.Popen([*command, writer, str(_TRANSACTIONS)], stderr=subprocess.PIPE, text=True) for writer in "ab"
    ]
    errors = [writer.communicate()[1] for writer in writers]
    with contextlib.closing(sqlite3.connect(path)) as connection:
        (integrity,) = connection.execute("PRAGMA integrity_check").fetchone()
        (value,) = connection.execute("SELECT value FROM counter").fetchone()
        (lines,) = connection.execute("SELECT count(DISTINCT writer || number) FROM lines").fetchone()
    found = (chosen, integrity, value, lines)
    expected = (mode, "ok", 2 * _TRANSACTIONS, 2 * _TRANSACTIONS)
    return passed_if(case, found == expected, f"{found} instead of {expected}; {errors}")


def git(place: Path, scratch: Path) -> list[Outcome]:
    """The life of a repository: clone, commit, merge, gc, fsck."""
    origin = scratch / "origin"
    _make_repository(origin)
    clone = place / "clone"
    alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    author = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "safe.directory=*"]
    steps: dict[str, list[str | Path]] = {
        "clone": ["clone", "-q", "--no-local", origin, clone],
        "status is clean": ["-C", clone, "diff", "--quiet", "HEAD"],
        "checkout -b": ["-C", clone, "checkout", "-q", "-b", "topic"],
        "commit": ["-C", clone, "commit", "-q", "--allow-empty", "-m", "topic"],
        "rm and commit": ["-C", clone, "rm", "-q", "directory/file3"],
        "commit the removal": ["-C", clone, "commit", "-q", "-m", "removal"],
        "checkout": ["-C", clone, "checkout", "-q", "main"],
        "merge": ["-C", clone, "merge", "-q", "--no-ff", "-m", "merge", "topic"],
        "gc": ["-C", clone, "gc", "-q", "--prune=now"],
        "fsck": ["-C", clone, "fsck", "--strict"],
        "nothing changed": ["-C", clone, "diff", "--exit-code", "HEAD"],
    }
    found = []
    for case, arguments in steps.items():
        done = run(["git", *author, *arguments], place, timeout=300, **alone)
        found.append(passed_if(case, done.returncode == 0, done.stdout))
    return found


def _make_repository(path: Path) -> None:
    if path.exists():
        return
    (path / "directory").mkdir(parents=True)
    for number in range(40):
        (path / "directory" / f"file{number}").write_text(f"{number}\n" * (number + 1))
    (path / "tool").write_text("#!/bin/sh\n")
    (path / "tool").chmod(0o755)
    (path / "link").symlink_to("directory/file1")
    git_here = ["git", "-C", str(path), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "init", "-q", "-b", "main", str(path)], check=True)
    subprocess.run([*git_here, "add", "-A"], check=True)
    subprocess.run([*git_here, "commit", "-q", "-m", "first"], check=True)


def make(place: Path, scratch: Path) -> list[Outcome]:
    """A small C project: build, run, nothing to do, and what one changed file rebuilds."""
    project = place / "project"
    _make_project(project)
    first = run(["make", "-j2"], project, timeout=300)
    ran = run([project / "program"], project, timeout=60) if first.returncode == 0 else first
    again = run(["make"], project, timeout=300)
    # Whole seconds tell make what is newer.
    time.sleep(1.1)
    (project / "part3.c").write_text("int part3(void) { return 1003; }\n")
    changed = run(["make"], project, timeout=300)
    after = run([project / "program"], project, timeout=60)
    cleaned = run(["make", "clean"], project, timeout=300)
    total = sum(range(_SOURCES))
    return [
        passed_if("build", first.returncode == 0, first.stdout),
        passed_if("run", ran.stdout == f"{total}\n", ran.stdout),
        passed_if("nothing to do", "up to date" in again.stdout, again.stdout),
        passed_if(
            "one file changed", changed.stdout.count(" -c ") == 1 and "part3.c" in changed.stdout, changed.stdout
        ),
        passed_if("the changed program", after.stdout == f"{total + 1000}\n", after.stdout),
        passed_if("clean", cleaned.returncode == 0 and not list(project.glob("*.o")), cleaned.stdout),
    ]


def _make_project(project: Path) -> None:
    project.mkdir()
    parts = [f"part{number}" for number in range(_SOURCES)]
    for number, part in enumerate(parts):
        (project / f"{part}.c").write_text(f"int {part}(void) {{ return {number}; }}\n")
    (project / "parts.h").write_text("".join(f"int {part}(void);\n" for part in parts))
    calls = " + ".join(f"{part}()" for part in parts)
    (project / "main.c").write_text(
        f'#include <stdio.h>\n#include "parts.h"\nint main(void) {{ printf("%d\\n", {calls}); return 0; }}\n'
    )
    (project / "Makefile").write_text(
        f"OBJECTS := main.o {' '.join(part + '.o' for part in parts)}\n"
        "program: $(OBJECTS)\n\t$(CC) -o $@ $(OBJECTS)\n"
        "%.o: %.c parts.h\n\t$(CC) -c -o $@ $<\n"
        "clean:\n\trm -f program $(OBJECTS)\n"
    )
