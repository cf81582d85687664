"""What programs do on a mount: on the paths on which users of other nodes write, each call at a moment of its own."""

from __future__ import annotations

import asyncio
import ctypes
import os
import random
import stat
from collections.abc import Callable
from pathlib import Path as Place
from typing import Protocol, TypeVar

from basefs.fs.channel import Flags
from basefs.path import Path, display
from tests.simulation.mount import NOTHING, Mount
from tests.simulation.users import DIRECTORIES, FILES
from tests.support.helpers import noise

T = TypeVar("T")

_library = ctypes.CDLL(None, use_errno=True)
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2

#: Names besides those of users: one that looks temporary, and one that never leaves the node.
TEMPORARY: list[Path] = [(b"a.tmp",), (b"d", b"b.tmp"), (b"g", b"a.new")]
SCRATCH: list[Path] = [(b"a~",), (b"d", b"a~")]
#: Bytes of contents: in an entry, in a block, in several blocks.
SIZES = (10, 300, 3000, 9000, 60_000)
#: Seconds between two calls of one program.
PAUSES = (0.0, 0.0, 0.0005, 0.003, 0.015, 0.06, 0.4, 1.5)

#: How often programs do what.
DEEDS = {
    "save": 6.0,
    "replace": 5.0,
    "backup": 1.5,
    "append": 3.0,
    "truncate": 1.0,
    "hold": 2.0,
    "rename": 2.0,
    "exchange": 1.0,
    "move": 1.0,
    "link": 1.0,
    "symlink": 0.5,
    "unlink": 3.0,
    "mkdir": 2.0,
    "rmdir": 1.0,
    "mode": 2.0,
    "times": 1.0,
}


class Used(Protocol):
    """Where programs run: a node, or a plain directory."""

    @property
    def mount(self) -> Mount:
        """The directory."""

    def note(self, text: str) -> None:
        """Take notice of what a program has done, and of the error that it got."""


class Program:
    """A program on the mount of one node, which goes on while the node's daemon does not run."""

    def __init__(self, place: Used, rng: random.Random, weights: dict[str, float]) -> None:
        """`weights`: how often it does what."""
        self._mount, self._note = place.mount, place.note
        self._rng = rng
        self._kinds = list(weights)
        self._weights = list(weights.values())

    async def act(self) -> None:
        """Do something, which may be refused."""
        kind = self._rng.choices(self._kinds, self._weights)[0]
        try:
            text = await getattr(self, f"_{kind}")()
        except OSError as error:
            text = f"{kind}: {error.strerror}"
        self._note(text)

    # -- calls --------------------------------------------------------------------------------------------------------

    def _call(self, call: Callable[[], T], *paths: Path) -> T:
        """One call that changes these names, if this node may.  Raises `OSError`."""
        self._mount.require_writable(*paths)
        inode = self._inode(paths[-1])
        result = call()
        self._mount.tell(*paths, inode=self._inode(paths[-1]) or inode)
        return result

    def _inode(self, path: Path) -> int:
        try:
            return os.lstat(self._mount.place(path)).st_ino
        except OSError:
            return 0

    async def _pause(self) -> None:
        if seconds := self._rng.choice(PAUSES):
            await asyncio.sleep(seconds)

    def _content(self) -> bytes:
        size = self._rng.choices(SIZES, [8, 4, 3, 3, 1])[0]
        return noise(self._rng.randrange(1 << 40), size)

    def _gone(self, path: Path) -> None:
        """What is at a path is about to lose that name."""
        place = self._mount.place(path)
        try:
            found = os.lstat(place)
        except OSError:
            return
        if stat.S_ISREG(found.st_mode):
            self._mount.saves.seen(Place(place).read_bytes())
            self._mount.removed.add(found.st_ino)

    def _open(self, path: Path, flags: int, mode: int = 0o644) -> _File:
        self._mount.require_writable(path)
        if flags & os.O_CREAT:
            self._mount.require_room()
        return _File(
            self._mount, path, os.open(self._mount.place(path), os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | flags, mode)
        )

    # -- deeds --------------------------------------------------------------------------------------------------------

    async def _fill(self, file: _File, content: bytes) -> None:
        """Write a content in some pieces, and close."""
        try:
            file.truncate(0)
            pieces = self._rng.choice((1, 1, 2, 3))
            size = -(-len(content) // pieces)
            for at in range(0, len(content), size):
                file.write(content[at : at + size], at)
                await self._pause()
        finally:
            await self._close(file)

    async def _close(self, file: _File) -> None:
        if self._rng.random() < 0.3:
            file.sync()
            await self._pause()
        file.close()

    async def _prepare(self, path: Path) -> None:
        """Make the directories above that are missing, mostly."""
        for depth in range(1, len(path)):
            if not self._inode(path[:depth]) and self._rng.random() < 0.8:
                self._make(path[:depth])
                await self._pause()

    async def _save(self) -> str:
        path, content = self._rng.choice([*FILES, *FILES, *SCRATCH]), self._content()
        await self._prepare(path)
        await self._fill(self._open(path, os.O_CREAT), content)
        return f"saved {display(path)} {len(content)}"

    async def _replace(self) -> str:
        path, content = self._rng.choice(FILES), self._content()
        temporary = self._rng.choice([*TEMPORARY, (*path[:-1], path[-1] + b"2")])
        await self._prepare(path)
        await self._prepare(temporary)
        await self._fill(self._open(temporary, os.O_CREAT, 0o600), content)
        await self._pause()
        self._move_file(temporary, path)
        return f"replaced {display(path)} by {display(temporary)} {len(content)}"

    async def _backup(self) -> str:
        path, content = self._rng.choice(FILES), self._content()
        aside = (*path[:-1], path[-1] + b"~")
        self._move_file(path, aside)
        await self._pause()
        await self._fill(self._open(path, os.O_CREAT), content)
        await self._pause()
        if self._rng.random() < 0.7:
            self._unlink_file(aside)
        return f"saved {display(path)} with a backup {len(content)}"

    async def _append(self) -> str:
        path, content = self._rng.choice([*FILES, *SCRATCH]), self._content()
        file = self._open(path, 0)
        try:
            file.write(content, file.size)
            await self._pause()
        finally:
            await self._close(file)
        return f"appended {len(content)} to {display(path)}"

    async def _hold(self) -> str:
        """Write long after others have had time to change the file."""
        path, content = self._rng.choice(FILES), self._content()
        file = self._open(path, 0)
        try:
            await asyncio.sleep(self._rng.uniform(0.1, 4.0))
            file.write(content, 0)
        finally:
            await self._close(file)
        return f"held {display(path)} and wrote {len(content)}"

    async def _truncate(self) -> str:
        path, length = self._rng.choice(FILES), self._rng.choice((0, 5, 5000, 20_000))
        file = self._open(path, 0)
        try:
            file.truncate(length)
        finally:
            file.close()
        return f"truncated {display(path)} to {length}"

    def _move_file(self, source: Path, target: Path) -> None:
        one, other = self._mount.place(source), self._mount.place(target)
        if self._inode(source) != self._inode(target) and os.path.lexists(one):
            self._gone(target)
        self._call(lambda: os.rename(one, other), source, target)

    def _unlink_file(self, path: Path) -> None:
        self._mount.require_writable(path)
        self._gone(path)
        self._call(lambda: os.unlink(self._mount.place(path)), path)

    async def _rename(self) -> str:
        source, target = self._rng.sample([*FILES, *SCRATCH], 2)
        self._mount.require_writable(source, target)
        self._move_file(source, target)
        return f"renamed {display(source)} to {display(target)}"

    async def _exchange(self) -> str:
        source, target = self._rng.sample(FILES, 2)
        one, other = self._mount.place(source), self._mount.place(target)
        self._call(lambda: _exchange(one, other), source, target)
        return f"exchanged {display(source)} and {display(target)}"

    async def _move(self) -> str:
        """Move a directory."""
        source, target = self._rng.sample([*DIRECTORIES, (b"h",)], 2)
        one, other = self._mount.place(source), self._mount.place(target)
        self._call(lambda: os.rename(one, other), source, target)
        return f"moved {display(source)} to {display(target)}"

    async def _link(self) -> str:
        target, path = self._rng.sample(FILES, 2)
        one, other = self._mount.place(target), self._mount.place(path)
        self._mount.require_writable(target)
        self._call(lambda: os.link(one, other, follow_symlinks=False), path)
        return f"linked {display(path)} to {display(target)}"

    async def _symlink(self) -> str:
        path, target = self._rng.choice(FILES), self._rng.choice(("a", "../b", "/nowhere"))
        self._call(lambda: os.symlink(target, self._mount.place(path)), path)
        return f"made {display(path)} a symbolic link"

    async def _unlink(self) -> str:
        path = self._rng.choice([*FILES, *SCRATCH])
        self._unlink_file(path)
        return f"removed {display(path)}"

    async def _mkdir(self) -> str:
        path = self._rng.choice([*DIRECTORIES, (b"h",)])
        self._make(path)
        return f"made {display(path)}"

    def _make(self, path: Path) -> None:
        self._call(lambda: os.mkdir(self._mount.place(path), 0o755), path)

    async def _rmdir(self) -> str:
        path = self._rng.choice([*DIRECTORIES, (b"h",)])
        self._call(lambda: os.rmdir(self._mount.place(path)), path)
        return f"removed {display(path)}"

    async def _mode(self) -> str:
        path, mode = self._rng.choice([*FILES, *DIRECTORIES]), self._rng.choice((0o600, 0o644, 0o755))
        if not stat.S_ISLNK(os.lstat(self._mount.place(path)).st_mode):
            self._call(lambda: os.chmod(self._mount.place(path), mode), path)
        return f"mode of {display(path)} is {mode:o}"

    async def _times(self) -> str:
        path, time = self._rng.choice([*FILES, *DIRECTORIES]), self._rng.randrange(1 << 30)
        self._mount.require_writable(path)
        os.utime(self._mount.place(path), ns=(0, time * 10**9), follow_symlinks=False)
        self._mount.tell(path, inode=self._inode(path), flags=Flags.TIMED)
        return f"time of {display(path)} is {time}"


def _exchange(one: str, other: str) -> None:
    """renameat2(2).  Raises `OSError`."""
    if _library.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class _File:
    """A file that a program has open for writing."""

    def __init__(self, mount: Mount, path: Path, descriptor: int) -> None:
        self._mount, self._path, self._descriptor = mount, path, descriptor
        self._inode = os.fstat(descriptor).st_ino
        #: What was there already is rewritten, and published sooner.
        self._flags = Flags.URGENT if self.size else NOTHING
        self._wrote, self._restores = False, self._mount.restores
        self._mount.opened(path, self._inode)

    @property
    def size(self) -> int:
        """In bytes."""
        return os.fstat(self._descriptor).st_size

    def _whole(self) -> bytes:
        return os.pread(self._descriptor, self.size, 0)

    def write(self, data: bytes, at: int) -> None:
        """pwrite(2)."""
        self._mount.require_room()
        self._mount.saves.seen(self._whole())
        os.pwrite(self._descriptor, data, at)
        self._written()

    def truncate(self, length: int) -> None:
        """ftruncate(2)."""
        self._mount.saves.seen(self._whole())
        os.ftruncate(self._descriptor, length)
        self._written()

    def _written(self) -> None:
        self._wrote = True
        self._mount.tell(self._name, inode=self._inode, flags=Flags.WRITING)

    @property
    def _name(self) -> Path:
        """What it is called now."""
        return self._mount.name_of(self._inode) or self._path

    def sync(self) -> None:
        """fsync(2)."""
        os.fsync(self._descriptor)
        self._save()
        self._mount.tell(self._name, inode=self._inode, flags=Flags.CLOSED)

    def close(self) -> None:
        """close(2)."""
        self._save()
        os.close(self._descriptor)
        self._mount.released(self._name, self._inode, self._flags if self._wrote else NOTHING)

    def _save(self) -> None:
        is_gone = os.fstat(self._descriptor).st_nlink == 0 and self._inode in self._mount.removed
        if self._wrote and not is_gone and self._restores == self._mount.restores:
            self._mount.saves.closed(self._whole(), self._mount.host, self._path)
