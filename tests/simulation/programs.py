"""What programs do on a mount: on the paths on which users of other nodes write, each call at a moment of its own."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from typing import TypeVar

from basefs.fs.staging.workingset import NOTE_SECONDS

from basefs.errors import BaseFSError, NotFound, NotPermitted, PathError
from basefs.fs.filesystem import Filesystem
from basefs.path import Path, display
from tests.simulation.ledger import File, Ledger, Other
from tests.simulation.node import Killed, Node
from tests.simulation.users import DIRECTORIES, FILES
from tests.support.helpers import noise

T = TypeVar("T")

#: Names besides those of users: one that looks temporary, and one that never leaves the node.
TEMPORARY: list[Path] = [(b"a.tmp",), (b"d", b"b.tmp"), (b"g", b"a.new")]
SCRATCH: list[Path] = [(b"a~",), (b"d", b"a~")]
#: Bytes of contents: in the journal, in a file beside it, in several blocks.
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
    "unlink": 3.0,
    "mkdir": 2.0,
    "rmdir": 1.0,
    "mode": 2.0,
    "times": 1.0,
}


class Program:
    """A program on the mount of one node, which begins again whenever the node does."""

    def __init__(self, node: Node, rng: random.Random, weights: dict[str, float]) -> None:
        """`weights`: how often it does what."""
        self._node = node
        self._rng = rng
        self._kinds = list(weights)
        self._weights = list(weights.values())

    async def act(self) -> None:
        """Do something, which may be refused, and which ends with the process."""
        kind = self._rng.choices(self._kinds, self._weights)[0]
        self._process, self._mount = self._node.process, self._node.mount
        try:
            text = await getattr(self, f"_{kind}")()
        except Killed:
            text = f"{kind}: killed"
        except BaseFSError as error:
            text = f"{kind}: {error}"
        self._node.note(f"program: {text}")

    # -- calls --------------------------------------------------------------------------------------------------------

    @property
    def _fs(self) -> Filesystem:
        return self._mount.fs

    @property
    def _ledger(self) -> Ledger:
        return self._node.ledger

    def _call(self, call: Callable[[], T], done: Callable[[T], object] = lambda _: None) -> T:
        """One call; `done` is called if it succeeds."""
        if self._node.process is not self._process or not self._node.running:
            raise Killed
        return self._node.use(call, done)

    async def _pause(self) -> None:
        if seconds := self._rng.choice(PAUSES):
            await asyncio.sleep(seconds)

    def _content(self) -> bytes:
        size = self._rng.choices(SIZES, [8, 4, 3, 3, 1])[0]
        return noise(self._rng.randrange(1 << 40), size)

    def _file(self, path: Path) -> File:
        return self._mount.file_at(path, self._ledger)

    def _open_at(self, path: Path) -> list[File]:
        """The open files under a name: what it is now, and older versions that others have replaced."""
        now, ledger = self._file(path), self._ledger
        return [
            file
            for file in self._mount.files()
            if file.handles and (file is now or (file.home == path and not file.is_lost and not ledger.paths(file)))
        ]

    def _hide(self, path: Path) -> bool:
        """What libfuse does before a name under which something is open is removed; whether that is so."""
        fs, now, opened = self._fs, self._file(path), self._open_at(path)
        if not opened:
            return False
        if fs.metadata.stat(path).links > 1:
            raise NotPermitted(f"{display(path)} is open and has other names")
        hidden = (*path[:-1], b".fuse_hidden%016d" % self._rng.randrange(10**16))

        def done(_: None) -> None:
            for file in opened:
                # Others have given the name to another file: this one goes on under the names that remain to it.
                name = None if file is now else self._mount.name_of(file)
                file.hidden, file.is_lost, file.home = hidden, name is None, name or path
            self._ledger.hide(path)
            # What makes it durable is due by then.
            self._node.later(2 * NOTE_SECONDS, lambda: self._ledger.hidden(path))

        self._call(lambda: fs.namespace.rename(path, hidden), done)
        return True

    def _opened(self, path: Path, handle: int) -> File:
        file = self._mount.file_of(handle, path, self._ledger)
        file.handles += 1
        file.writers += 1
        return file

    def _open(self, path: Path, flags: int) -> tuple[int, File]:
        opened: list[File] = []

        def done(handle: int) -> None:
            opened.append(self._opened(path, handle))
            if flags & os.O_TRUNC and self._fs.files.inode_of(handle).written:
                self._written(opened[0])

        handle = self._call(lambda: self._fs.files.open(path, os.O_RDWR | flags), done)
        return handle, opened[0]

    def _create(self, path: Path, mode: int) -> tuple[int, File]:
        """open(2) with O_CREAT and O_TRUNC."""
        try:
            self._fs.metadata.stat(path)
        except PathError:
            pass
        else:
            return self._open(path, os.O_TRUNC)
        opened: list[File] = []

        def done(handle: int) -> None:
            opened.append(self._opened(path, handle))
            over = self._ledger.names.get(path)
            opened[0].over = over if isinstance(over, Other) else None
            self._ledger.made(path, opened[0])

        return self._call(lambda: self._fs.files.create(path, mode), done), opened[0]

    def _written(self, file: File) -> None:
        self._ledger.written(file, self._mount.is_replaced)

    def _write(self, handle: int, file: File, data: bytes, at: int) -> None:
        def write() -> None:
            self._fs.files.write(handle, data, at)
            assert self._fs.files.read(handle, len(data), at) == data

        self._call(write, lambda _: self._written(file))

    def _whole(self, handle: int) -> bytes:
        return self._call(lambda: self._fs.files.read(handle, 1 << 30, 0))

    def _contents(self, handle: int) -> tuple[bytes, bytes | None]:
        """What a file has, and what it has in the log."""
        return self._whole(handle), self._mount.published(handle)

    async def _close(self, handle: int, file: File, *, sync: bool) -> None:
        """close(2), maybe after fsync(2)."""
        try:
            if sync:
                contents = self._contents(handle)
                self._call(lambda: self._fs.files.sync(handle), lambda _: self._synced(file, *contents))
                self._node.synced()
                await self._pause()
            contents = self._contents(handle)
            self._call(lambda: self._fs.files.flush(handle), lambda wrote: self._flushed(file, *contents, wrote=wrote))
        finally:
            self._release(handle, file)

    def _synced(self, file: File, content: bytes, published: bytes | None) -> None:
        if not file.is_lost and self._ledger.paths(file):
            self._ledger.closed(file, content, published)

    def _flushed(self, file: File, content: bytes, published: bytes | None, *, wrote: bool) -> None:
        if wrote or (not file.is_lost and file.closed is None and self._ledger.paths(file)):
            self._ledger.closed(file, content, published)

    def _release(self, handle: int, file: File) -> None:
        contents = self._contents(handle)
        self._call(lambda: self._fs.files.release(handle), lambda _: self._released(file, *contents))
        hidden = file.hidden
        if hidden is not None and not any(other.handles for other in self._mount.files() if other.hidden == hidden):
            self._call(lambda: self._fs.namespace.unlink(hidden))

    def _released(self, file: File, content: bytes, published: bytes | None) -> None:
        file.handles -= 1
        file.writers -= 1
        if not file.writers and not file.is_lost and self._ledger.paths(file) and file.is_own:
            self._ledger.closed(file, content, published)

    # -- deeds --------------------------------------------------------------------------------------------------------

    async def _fill(self, handle: int, file: File, content: bytes) -> None:
        """Write a content in some pieces, and close."""
        try:
            pieces = self._rng.choice((1, 1, 2, 3))
            size = -(-len(content) // pieces)
            for at in range(0, len(content), size):
                self._write(handle, file, content[at : at + size], at)
                await self._pause()
        finally:
            if self._node.process is self._process and self._node.running:
                await self._close(handle, file, sync=self._rng.random() < 0.3)

    async def _prepare(self, path: Path) -> None:
        """Make the directories above that are missing, mostly."""
        for depth in range(1, len(path)):
            if self._mount.look(path[:depth]) == Other.GONE.value and self._rng.random() < 0.8:
                self._make(path[:depth])
                await self._pause()

    async def _save(self) -> str:
        path, content = self._rng.choice([*FILES, *FILES, *SCRATCH]), self._content()
        await self._prepare(path)
        handle, file = self._create(path, 0o644)
        await self._fill(handle, file, content)
        return f"saved {display(path)} {len(content)}"

    async def _replace(self) -> str:
        path, content = self._rng.choice(FILES), self._content()
        temporary = self._rng.choice([*TEMPORARY, (*path[:-1], path[-1] + b"2")])
        await self._prepare(path)
        await self._prepare(temporary)
        handle, file = self._create(temporary, 0o600)
        await self._fill(handle, file, content)
        await self._pause()
        self._move_file(temporary, path)
        return f"replaced {display(path)} by {display(temporary)} {len(content)}"

    async def _backup(self) -> str:
        path, content = self._rng.choice(FILES), self._content()
        aside = (*path[:-1], path[-1] + b"~")
        self._move_file(path, aside)
        await self._pause()
        handle, file = self._create(path, 0o644)
        await self._fill(handle, file, content)
        await self._pause()
        if self._rng.random() < 0.7:
            self._unlink_file(aside)
        return f"saved {display(path)} with a backup {len(content)}"

    async def _append(self) -> str:
        path, content = self._rng.choice([*FILES, *SCRATCH]), self._content()
        handle, file = self._open(path, 0)
        try:
            self._write(handle, file, content, self._fs.files.inode_of(handle).size)
            await self._pause()
        finally:
            if self._node.process is self._process and self._node.running:
                await self._close(handle, file, sync=self._rng.random() < 0.3)
        return f"appended {len(content)} to {display(path)}"

    async def _hold(self) -> str:
        """Write long after others have had time to change the file."""
        path, content = self._rng.choice(FILES), self._content()
        handle, file = self._open(path, 0)
        try:
            await asyncio.sleep(self._rng.uniform(0.1, 4.0))
            self._write(handle, file, content, 0)
        finally:
            if self._node.process is self._process and self._node.running:
                await self._close(handle, file, sync=self._rng.random() < 0.3)
        return f"held {display(path)} and wrote {len(content)}"

    async def _truncate(self) -> str:
        path, length = self._rng.choice(FILES), self._rng.choice((0, 5, 5000, 20_000))
        handle, file = self._open(path, 0)
        try:
            self._call(lambda: self._fs.files.truncate(path, length, handle), lambda _: self._written(file))
        finally:
            await self._close(handle, file, sync=False)
        return f"truncated {display(path)} to {length}"

    def _move_file(self, source: Path, target: Path, *, exchange: bool = False) -> None:
        ledger = self._ledger
        one = self._file(source)
        other = self._file(target) if exchange or self._mount.look(target) == "file" else None
        if not exchange and other is not None and other is not one:
            self._hide(target)

        older = [(file, target) for file in self._open_at(source) if file is not one]
        older += [(file, source) for file in self._open_at(target) if file is not other] if exchange else []

        def done(_: None) -> None:
            # Two names of one file both stay.
            if other is one:
                return
            for file, home in older:
                file.home, file.is_lost = home, not self._mount.is_at(file, home)
            if not exchange:
                ledger.part(target)
            one.home = target
            ledger.put(target, one)
            if exchange and other is not None:
                other.home = source
                ledger.put(source, other)
            else:
                ledger.put(source, Other.GONE)

        self._call(lambda: self._fs.namespace.rename(source, target, exchange=exchange), done)

    def _unlink_file(self, path: Path) -> None:
        if self._hide(path):
            return

        def done(_: None) -> None:
            self._ledger.part(path)
            self._ledger.put(path, Other.GONE)

        self._call(lambda: self._fs.namespace.unlink(path), done)

    async def _rename(self) -> str:
        source, target = self._rng.sample([*FILES, *SCRATCH], 2)
        self._move_file(source, target)
        return f"renamed {display(source)} to {display(target)}"

    async def _exchange(self) -> str:
        source, target = self._rng.sample(FILES, 2)
        self._move_file(source, target, exchange=True)
        return f"exchanged {display(source)} and {display(target)}"

    async def _move(self) -> str:
        """Move a directory."""
        source, target = self._rng.sample([*DIRECTORIES, (b"h",)], 2)

        def done(_: None) -> None:
            for file in self._mount.files():
                if file.home[: len(source)] == source:
                    file.home = (*target, *file.home[len(source) :])
            self._ledger.move(source, target)
            self._ledger.put(source, Other.GONE)
            self._ledger.put(target, Other.DIRECTORY)

        if self._mount.look(source) != Other.DIRECTORY.value:
            raise NotFound(f"{display(source)} is no directory")
        self._call(lambda: self._fs.namespace.rename(source, target), done)
        return f"moved {display(source)} to {display(target)}"

    async def _link(self) -> str:
        target, path = self._rng.sample(FILES, 2)
        self._file(target)

        def done(_: None) -> None:
            # As it is known by now, so that whoever opens it by its other name has the same.
            self._ledger.put(path, self._file(target))

        self._call(lambda: self._fs.namespace.make_link(path, target), done)
        return f"linked {display(path)} to {display(target)}"

    async def _unlink(self) -> str:
        path = self._rng.choice([*FILES, *SCRATCH])
        self._unlink_file(path)
        return f"removed {display(path)}"

    async def _mkdir(self) -> str:
        path = self._rng.choice([*DIRECTORIES, (b"h",)])
        self._make(path)
        return f"made {display(path)}"

    def _make(self, path: Path) -> None:
        self._call(
            lambda: self._fs.namespace.make_directory(path, 0o755),
            lambda _: self._ledger.put(path, Other.DIRECTORY),
        )

    async def _rmdir(self) -> str:
        path = self._rng.choice([*DIRECTORIES, (b"h",)])
        self._call(lambda: self._fs.namespace.remove_directory(path), lambda _: self._ledger.put(path, Other.GONE))
        return f"removed {display(path)}"

    def _changed(self, path: Path) -> None:
        """Attributes were changed: the name is staged if none of its file was."""
        if path not in self._ledger.names:
            is_directory = self._mount.look(path) == Other.DIRECTORY.value
            thing = Other.DIRECTORY if is_directory else self._file(path)
            if not isinstance(thing, File) or not self._ledger.paths(thing):
                self._ledger.put(path, thing)

    async def _mode(self) -> str:
        path, mode = self._rng.choice([*FILES, *DIRECTORIES]), self._rng.choice((0o600, 0o644, 0o755))
        self._call(lambda: self._fs.metadata.set_mode(path, mode), lambda _: self._changed(path))
        return f"mode of {display(path)} is {mode:o}"

    async def _times(self) -> str:
        path, time = self._rng.choice([*FILES, *DIRECTORIES]), self._rng.randrange(1 << 31)
        self._call(lambda: self._fs.metadata.set_times(path, time * 10**9), lambda _: self._changed(path))
        return f"time of {display(path)} is {time}"
