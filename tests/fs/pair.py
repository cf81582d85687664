"""Two mounts of one filesystem beside a plain directory each, and what happens on them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.mounts import wait_until
from tests.support.patience import DEADLINE

#: kind, mode, content or target
Tree = dict[str, tuple[str, int, bytes]]


def tree_of(root: Path) -> Tree:
    """Everything below a directory, each size held against the content."""
    found: Tree = {}
    for base, directories, files in os.walk(root):
        for name in directories + files:
            where = os.path.join(base, name)
            status = os.lstat(where)
            content = b""
            if stat.S_ISLNK(status.st_mode):
                content = os.fsencode(os.readlink(where))
            elif stat.S_ISREG(status.st_mode):
                content = Path(where).read_bytes()
                assert status.st_size == len(content), where
            kind = {stat.S_IFDIR: "DIRECTORY", stat.S_IFREG: "FILE", stat.S_IFLNK: "SYMLINK"}[
                stat.S_IFMT(status.st_mode)
            ]
            mode = 0 if kind == "SYMLINK" else stat.S_IMODE(status.st_mode)
            found[os.path.relpath(where, root)] = (kind, mode, content)
    return found


def make_equal(target: Path, source: Path) -> None:
    """Make a plain directory what another one is, as another node's changes arrive: a changed file is a new one."""
    for name in sorted({*os.listdir(target), *os.listdir(source)}):
        new, old = source / name, target / name
        kinds = [stat.S_IFMT(path.lstat().st_mode) if os.path.lexists(path) else None for path in (old, new)]
        if kinds[0] != kinds[1] or (kinds[1] == stat.S_IFLNK and os.readlink(old) != os.readlink(new)):
            if kinds[0] == stat.S_IFDIR:
                shutil.rmtree(old)
            elif kinds[0] is not None:
                old.unlink()
            if kinds[1] == stat.S_IFDIR:
                old.mkdir()
            elif kinds[1] == stat.S_IFLNK:
                old.symlink_to(os.readlink(new))
        if kinds[1] == stat.S_IFDIR:
            make_equal(old, new)
        elif kinds[1] == stat.S_IFREG and (kinds[0] != kinds[1] or old.read_bytes() != new.read_bytes()):
            old.unlink(missing_ok=True)
            old.write_bytes(new.read_bytes())
        if kinds[1] in (stat.S_IFDIR, stat.S_IFREG):
            old.chmod(stat.S_IMODE(new.stat().st_mode))


@dataclass
class Opened:
    """A file that is held open.

    Attributes:
        where: below the mount.
        file: descriptor on the mount.
        model: descriptor in the plain directory, `None` where there is none.
        writes: whether it is open for writing.
    """

    where: str
    file: int
    model: int | None
    writes: bool

    def content(self) -> bytes:
        """What the mount shows, which must be as long as it says."""
        content = os.pread(self.file, 1 << 20, 0)
        assert os.fstat(self.file).st_size == len(content), self.where
        return content

    def write(self, content: bytes, offset: int) -> None:
        """Write to both."""
        for file in (self.file, self.model):
            if file is not None:
                os.pwrite(file, content, offset)

    def check(self) -> None:
        """The mount shows what the plain directory shows."""
        if self.model is not None:
            assert self.content() == os.pread(self.model, 1 << 20, 0), self.where

    def close(self) -> None:
        """Close it on both."""
        os.close(self.file)
        if self.model is not None:
            os.close(self.model)


class Side:
    """One of the mounts.

    Attributes:
        mount: where it is.
        model: the plain directory beside it.
        opened: what is held open.
    """

    def __init__(self, base: Path, key: str) -> None:
        self.mount, self.model = base / "mount", base / "model"
        for directory in (self.mount, self.model):
            directory.mkdir(parents=True)
        self.opened: list[Opened] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fs.served", base / "log", self.mount, key],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait(self) -> None:
        """Until it is mounted."""
        wait_until(lambda: self._process.poll() is not None or os.path.ismount(self.mount), "the mount")
        assert self._process.poll() is None

    def ask(self, command: str, *arguments: Any) -> Any:
        """See `tests.fs.served`."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps([command, *arguments]), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        assert line, f"{command} has failed: its traceback is in the output"
        return json.loads(line)

    def publish(self) -> int:
        """Publish what was closed; how many names stay unpublished."""
        return int(self.ask("publish", len(self.opened)))

    def view(self) -> Tree:
        """What the log says."""
        return {
            where: (kind, mode, bytes.fromhex(content)) for where, (kind, mode, content) in self.ask("tree").items()
        }

    def both(self, where: str, act: Callable[[Path], Any]) -> None:
        """Do something on the mount and in the plain directory, with the same outcome."""
        expected = outcome(act, self.model / where)
        assert outcome(act, self.mount / where) == expected, where

    def open(self, where: str, flags: int, *, has_model: bool) -> None:
        """Open a file and keep it open; nothing where there is none, or a directory."""
        opened = outcome(lambda path: os.open(path, flags, 0o644), self.mount / where)
        model = outcome(lambda path: os.open(path, flags, 0o644), self.model / where) if has_model else None
        if has_model:
            assert min(opened, 0) == min(model, 0), where  # type: ignore[type-var]
        if opened < 0:
            return
        self.opened.append(Opened(where, opened, model, flags & os.O_ACCMODE != os.O_RDONLY))
        if stat.S_ISDIR(os.fstat(opened).st_mode):
            self.opened.pop().close()

    def close(self, chosen: Callable[[Opened], bool] = lambda opened: True) -> None:
        """Close what is held open."""
        for opened in [opened for opened in self.opened if chosen(opened)]:
            self.opened.remove(opened)
            opened.close()

    def check(self, tops: str) -> None:
        """What is below these directories, and what is held open, is what the plain directory has."""
        for top in tops:
            assert tree_of(self.mount / top) == tree_of(self.model / top)
        self.check_opened()

    def check_opened(self) -> None:
        """What is held open is what the plain directory has."""
        for opened in self.opened:
            opened.check()

    def end(self) -> None:
        """Unmount."""
        for opened in self.opened:
            with contextlib.suppress(OSError):
                opened.close()
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(DEADLINE)
        finally:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()


def outcome(act: Callable[[Path], Any], path: Path) -> Any:
    """What a call returns, or the number of its error."""
    try:
        return act(path)
    except OSError as error:
        return -(error.errno or 0)


@contextlib.contextmanager
def two_mounts(base: Path) -> Iterator[tuple[Side, Side]]:
    """Two mounts of a filesystem in which nothing is."""
    with contextlib.ExitStack() as stack:
        sides = []
        for key in ("root", "bob"):
            side = Side(base / key, key)
            stack.callback(side.end)
            sides.append(side)
        for side in sides:
            side.wait()
        yield sides[0], sides[1]
