"""How programs save a file, and what each save costs and shows: the table in docs/saving.md.

The programs are the real ones; three that would bring half a system with them are played as they do it: emacs, dpkg and
ansible.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from eval.terminal import type_into

OLD = "first line\nold\nlast line\n"
NEW = "first line\nnew\nlast line\n"

#: The files that a program may change.
FILES = ("file", "second", "third")

#: Changes `file` in a directory from `OLD` to `NEW`; the second directory is elsewhere, for whatever it needs.
Save = Callable[[Path, Path], None]


@dataclass(frozen=True, slots=True)
class Program:
    """One way to save.

    Attributes:
        name: for the table.
        save: does it.
        files: how many files it changes.
    """

    name: str
    save: Save
    files: int = 1


def _run(*command: str | Path, where: Path | None = None) -> None:
    subprocess.run(
        [str(word) for word in command],
        cwd=where,
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull},
    )


def _source(elsewhere: Path) -> Path:
    source = elsewhere / "file"
    source.write_text(NEW)
    return source


def _vim(*settings: str) -> Save:
    def save(here: Path, elsewhere: Path) -> None:
        commands = [word for setting in settings for word in ("-c", setting)]
        keys = [":%s/old/new/\r", ":wq\r"]
        if type_into(["vim", "-u", "DEFAULTS", "-i", "NONE", *commands, "file"], keys, here) != 0:
            raise OSError("vim failed")

    return save


def _nano(here: Path, elsewhere: Path) -> None:
    # Down, delete the line, type another one, save, leave.
    keys = ["\x1b[B", "\x0b", "new\r", "\x0f", "\r", "\x18"]
    if type_into(["nano", "--ignorercfiles", "--backup", "file"], keys, here) != 0:
        raise OSError("nano failed")


def _emacs_like(here: Path, elsewhere: Path) -> None:
    """Lock, backup by renaming, write anew, unlock: the defaults of emacs for the first save of a file."""
    lock, backup = here / ".#file", here / "file~"
    lock.symlink_to("user@host.1234:1")
    (here / "#file#").write_text(NEW[:15])
    (here / "file").rename(backup)
    with (here / "file").open("w") as file:
        file.write(NEW)
        file.flush()
        os.fsync(file.fileno())
    (here / "#file#").unlink()
    lock.unlink()


def _write_and_rename(here: Path, elsewhere: Path) -> None:
    temporary = here / ".goutputstream-A1B2C3"
    temporary.write_text(NEW)
    temporary.rename(here / "file")


def _dpkg_like(here: Path, elsewhere: Path) -> None:
    """As dpkg unpacks over a file: write beside it, keep the old one by a link, rename, drop the link."""
    fresh, kept = here / "file.dpkg-new", here / "file.dpkg-tmp"
    with fresh.open("w") as file:
        file.write(NEW)
        file.flush()
        os.fsync(file.fileno())
    fresh.chmod(0o644)
    os.link(here / "file", kept)
    fresh.rename(here / "file")
    kept.unlink()


def _ansible_like(here: Path, elsewhere: Path) -> None:
    """As ansible's copy: the content waits elsewhere, is copied to a temporary name, gets its mode, is moved in."""
    source = _source(elsewhere)
    temporary = here / ".ansible_tmpk2v9x0file"
    shutil.copyfile(source, temporary)
    shutil.copystat(source, temporary)
    temporary.chmod(0o644)
    temporary.rename(here / "file")
    source.unlink()


def _git_checkout(here: Path, elsewhere: Path) -> None:
    """Three files differ between two commits; the repository itself is elsewhere."""
    git = ["git", f"--git-dir={elsewhere / 'git'}", f"--work-tree={here}", "-c", "user.name=a", "-c", "user.email=a@b"]
    tree = elsewhere / "tree"
    tree.mkdir()
    there = [*git[:2], f"--work-tree={tree}", *git[3:]]
    _run("git", "init", "-q", "--bare", elsewhere / "git")
    for content in (OLD, NEW):
        for name in FILES:
            (tree / name).write_text(content)
        _run(*there, "add", "-A")
        _run(*there, "commit", "-q", "-m", "c")
    # So that git knows that the files here are those of the first commit.
    _run(*git, "reset", "-q", "HEAD~1")
    _run(*git, "checkout", "-q", "-f", "ORIG_HEAD", "--", ".")


PROGRAMS = [
    Program("vim, default settings", _vim()),
    Program("vim, backup on", _vim("set backup")),
    Program("nano, backup on", _nano),
    Program("emacs (lock, autosave, backup)", _emacs_like),
    Program("write a temporary file, rename it", _write_and_rename),
    Program("`sed -i`", lambda here, _: _run("sed", "-i", "s/old/new/", "file", where=here)),
    Program("`perl -i`", lambda here, _: _run("perl", "-i", "-pe", "s/old/new/", "file", where=here)),
    Program("`>` in a shell", lambda here, _: _run("sh", "-c", f"printf '{NEW}' > file", where=here)),
    Program("`cp`", lambda here, elsewhere: _run("cp", _source(elsewhere), here / "file")),
    Program("`install -m 644`", lambda here, other: _run("install", "-m", "644", _source(other), here / "file")),
    Program("`rsync`", lambda here, elsewhere: _run("rsync", "-c", _source(elsewhere), here / "file")),
    Program("dpkg (`.dpkg-new`, link, rename)", _dpkg_like),
    Program("ansible's copy (written elsewhere, moved in)", _ansible_like),
    Program("`git checkout` of three changed files", _git_checkout, files=3),
]


def prepare(here: Path, program: Program) -> None:
    """The files as they are before the program saves."""
    here.mkdir()
    for name in FILES[: program.files]:
        (here / name).write_text(OLD)
