"""A disk that loses what was not synced.

What a system promises its programs (POSIX, `fsync`): the bytes and the size of a file that was synced, and the names in
a directory that was.  All else may be on the disk or not: each sector or page of a file by itself, up to any of the
writes to it, the size for itself, and of the names in a directory each change for itself, or all up to one of them.  A
rename is one change.
"""

from __future__ import annotations

import bisect
import enum
import posixpath
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.power.trace import Call

#: The suffix of files that no process uses after a power cut.
_VOLATILE = b"-shm"


class Left(enum.Enum):
    """What is left of what was not synced."""

    NOTHING = "nothing"
    ALL = "all"
    #: Of a file: its pages, or sectors, each up to some write.  Of a directory: each change or not.
    PAGES = 4096
    SECTORS = 512
    #: All up to some moment.
    BEGINNING = "beginning"


@dataclass(frozen=True, slots=True)
class Fate:
    """What is left of a disk.

    Attributes:
        seed: of what is left to chance.
        names: what is left of names.
        data: what is left of the bytes of files, by the kind of file that `kind_of` tells.
    """

    seed: int
    names: Left
    data: Mapping[str, Left]


def any_fate(chance: random.Random, kinds: Sequence[str]) -> Fate:
    """One of the fates that a disk may have: all alike, one kind unlike the others, or each by itself."""
    seed = chance.getrandbits(32)
    how = chance.randrange(6)
    if how < 2:
        left = (Left.NOTHING, Left.ALL)[how]
        return Fate(seed, left, dict.fromkeys(kinds, left))
    if how == 2:
        usual, odd = chance.sample((Left.NOTHING, Left.ALL), 2)
        one = chance.randrange(len(kinds) + 1)
        data = {kind: odd if number == one else usual for number, kind in enumerate(kinds)}
        return Fate(seed, odd if one == len(kinds) else usual, data)
    every = list(Left)
    return Fate(seed, chance.choice(every), {kind: chance.choice(every) for kind in kinds})


def kind_of(path: bytes) -> str:
    """Files of one kind are written by the same code."""
    name = posixpath.basename(path).decode("utf-8", "replace")
    stem, dot, suffix = name.rpartition(".")
    return suffix if dot and stem.isdecimal() else name


@dataclass(slots=True)
class _Change:
    """A change of a file: bytes at an offset, or `None` and a size."""

    at: int
    offset: int
    data: bytes | None


@dataclass(slots=True)
class _Naming:
    """A change of names: what each is afterwards, `None` for nothing."""

    at: int
    names: tuple[tuple[int, bytes, int | None], ...]


@dataclass(slots=True)
class _Node:
    """A file or directory.

    Attributes:
        path: what it was called first.
        content: of a file, before all changes; `None` for a directory.
        changes: of a file.
        syncs: when it was synced, and up to which change.
    """

    path: bytes
    content: bytes | None
    changes: list[_Change] = field(default_factory=list)
    syncs: list[tuple[int, int]] = field(default_factory=list)

    def synced(self, cut: int) -> int:
        """All changes before this one are durable."""
        return max((covers for at, covers in self.syncs if at < cut), default=0)


class Disk:
    """Files and directories below a root, from the calls that have changed them.

    Attributes:
        ends: when each call ended, UNIX seconds.
    """

    def __init__(self, root: bytes, tree: Mapping[bytes, bytes | None]) -> None:
        """`tree`: the paths below `root` that are there durably, with their content, `None` for directories."""
        self._root = root
        self._nodes: list[_Node] = [_Node(b"", None)]
        self._paths: dict[bytes, int] = {b"": 0}
        self._first: dict[bytes, int] = {}
        self._namings: list[_Naming] = []
        self._offsets: dict[int, int] = {}
        self.ends: list[float] = []
        for path, content in sorted(tree.items()):
            self._first[path] = self._paths[path] = len(self._nodes)
            self._nodes.append(_Node(path, content))

    def play(self, calls: Iterable[Call]) -> None:
        """Take in what one process has done, all of it; another one may follow."""
        before = len(self.ends)
        self._offsets.clear()
        for call in calls:
            handler = getattr(self, f"_{call.name}", None)
            if handler is not None:
                handler(call, before + call.position)
            elif self._below(call):
                raise ValueError(f"a call that this disk does not know: {call.name}{call.arguments}")
            self.ends.append(call.ended)

    def _below(self, call: Call) -> bool:
        return any(self._root.hex() in argument.replace("\\x", "") for argument in call.arguments)

    # -- calls --------------------------------------------------------------------------------------------------------

    def _path(self, call: Call, index: int, directory: int | None = None) -> bytes | None:
        """A path argument, from the root; `None` elsewhere."""
        path = call.data(index)
        if not path.startswith(b"/"):
            above = None if directory is None else call.descriptor(directory)[1]
            if above is None:
                return None
            path = posixpath.normpath(posixpath.join(above, path))
        return self._inside(path)

    def _inside(self, path: bytes | None) -> bytes | None:
        if path is None or path.endswith(_VOLATILE):
            return None
        if path == self._root:
            return b""
        return path[len(self._root) + 1 :] if path.startswith(self._root + b"/") else None

    def _file(self, call: Call, index: int = 0) -> _Node | None:
        """What a descriptor leads to."""
        path = self._inside(call.descriptor(index)[1])
        return None if path is None else self._nodes[self._paths[path]]

    def _name(self, *names: tuple[bytes, int | None]) -> None:
        """Give names to nodes."""
        found = []
        for path, node in names:
            above, _, name = path.rpartition(b"/")
            found.append((self._paths[above], name, node))
        for path, node in names:
            if node is None:
                del self._paths[path]
            else:
                self._paths[path] = node
        self._namings.append(_Naming(len(self.ends), tuple(found)))

    def _make(self, path: bytes, content: bytes | None) -> None:
        self._nodes.append(_Node(path, content))
        self._name((path, len(self._nodes) - 1))

    def _openat(self, call: Call, position: int) -> None:
        self._opened(call, self._path(call, 1, 0), call.arguments[2])

    def _open(self, call: Call, position: int) -> None:
        self._opened(call, self._path(call, 0), call.arguments[1])

    def _opened(self, call: Call, path: bytes | None, flags: str) -> None:
        self._offsets[call.result] = 0
        if path is None or "O_TMPFILE" in flags:
            return
        if path not in self._paths and "O_CREAT" in flags:
            self._make(path, b"")
        elif "O_TRUNC" in flags:
            self._resize(self._nodes[self._paths[path]], 0)
        if "O_APPEND" in flags:
            raise ValueError(f"{path!r} is opened for appending")

    def _change(self, node: _Node | None, offset: int, data: bytes | None) -> None:
        if node is not None:
            node.changes.append(_Change(len(self.ends), offset, data))

    def _resize(self, node: _Node | None, size: int) -> None:
        self._change(node, size, None)

    def _lseek(self, call: Call, position: int) -> None:
        self._offsets[call.descriptor(0)[0]] = call.result

    def _write(self, call: Call, position: int) -> None:
        number = call.descriptor(0)[0]
        offset = self._offsets.get(number, 0)
        self._offsets[number] = offset + call.result
        node = self._file(call)
        if node is not None:
            self._change(node, offset, call.data(1)[: call.result])

    def _pwrite64(self, call: Call, position: int) -> None:
        node = self._file(call)
        if node is not None:
            self._change(node, call.number(3), call.data(1)[: call.result])

    def _ftruncate(self, call: Call, position: int) -> None:
        self._resize(self._file(call), call.number(1))

    def _truncate(self, call: Call, position: int) -> None:
        path = self._path(call, 0)
        self._resize(None if path is None else self._nodes[self._paths[path]], call.number(1))

    def _fallocate(self, call: Call, position: int) -> None:
        if self._file(call) is not None:
            if call.arguments[1] != "0":
                raise ValueError(f"a fallocate that does more than extend: {call.arguments}")
            self._change(self._file(call), call.number(2) + call.number(3), b"")

    def _fsync(self, call: Call, position: int) -> None:
        node = self._file(call)
        if node is not None:
            node.syncs.append((len(self.ends), position))

    _fdatasync = _fsync

    def _rename(self, call: Call, position: int) -> None:
        self._moved(call, self._path(call, 0), self._path(call, 1))

    def _renameat2(self, call: Call, position: int) -> None:
        if len(call.arguments) > 4 and call.arguments[4] not in ("0", "RENAME_NOREPLACE"):
            raise ValueError(f"a rename that does more than move: {call.arguments}")
        self._moved(call, self._path(call, 1, 0), self._path(call, 3, 2))

    _renameat = _renameat2

    def _moved(self, call: Call, source: bytes | None, target: bytes | None) -> None:
        if source is None or target is None:
            if source or target:
                raise ValueError(f"a rename across the border: {call.arguments}")
            return
        below = [path for path in self._paths if path.startswith(source + b"/")]
        self._name((source, None), (target, self._paths[source]))
        for path in below:
            self._paths[target + path[len(source) :]] = self._paths.pop(path)

    def _unlink(self, call: Call, position: int) -> None:
        self._remove(self._path(call, 0))

    _rmdir = _unlink

    def _unlinkat(self, call: Call, position: int) -> None:
        self._remove(self._path(call, 1, 0))

    def _remove(self, path: bytes | None) -> None:
        if path is not None:
            self._name((path, None))

    def _mkdir(self, call: Call, position: int) -> None:
        self._made(self._path(call, 0))

    def _mkdirat(self, call: Call, position: int) -> None:
        self._made(self._path(call, 1, 0))

    def _made(self, path: bytes | None) -> None:
        if path is not None:
            self._make(path, None)

    # -- cuts ---------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.ends)

    def interesting(self) -> list[int]:
        """The cuts right before and after something is made durable or loses its name."""
        found = {len(self)}
        for node in self._nodes:
            found.update(at for at, _ in node.syncs)
        found.update(naming.at for naming in self._namings)
        return sorted({cut for at in found for cut in (at, at + 1) if cut <= len(self)})

    def kinds(self) -> list[str]:
        """The kinds of files that there are."""
        return sorted({kind_of(node.path) for node in self._nodes if node.content is not None})

    def at(self, time: float) -> int:
        """How many calls had ended at a time, UNIX seconds."""
        return bisect.bisect_right(self.ends, time)

    def whole(self) -> dict[bytes, bytes | None]:
        """What is there while the power is on."""
        return self.after(len(self), Fate(0, Left.ALL, dict.fromkeys(self.kinds(), Left.ALL)))

    def after(self, cut: int, fate: Fate) -> dict[bytes, bytes | None]:
        """What is found after the power was cut behind so many calls: contents by path, `None` for directories."""
        chance = random.Random(fate.seed)
        names = self._names_after(cut, fate.names, chance)
        found: dict[bytes, bytes | None] = {}
        todo = [(b"", 0)]
        while todo:
            above, number = todo.pop()
            for (directory, name), child in sorted(names.items()):
                if directory != number:
                    continue
                path = above + b"/" + name if above else name
                node = self._nodes[child]
                if node.content is None:
                    found[path] = None
                    todo.append((path, child))
                else:
                    left = fate.data.get(kind_of(node.path), Left.NOTHING)
                    found[path] = _content_after(node, cut, left, chance)
        return found

    def _names_after(self, cut: int, left: Left, chance: random.Random) -> dict[tuple[int, bytes], int]:
        names: dict[tuple[int, bytes], int] = {}
        for path, node in self._first.items():
            above, _, name = path.rpartition(b"/")
            names[self._first.get(above, 0), name] = node
        synced = [node.synced(cut) for node in self._nodes]
        namings = [naming for naming in self._namings if naming.at < cut]
        end = chance.randint(0, cut) if left is Left.BEGINNING else cut
        for naming in namings:
            is_durable = any(naming.at < synced[directory] for directory, _, _ in naming.names)
            if not is_durable:
                if left is Left.NOTHING or naming.at > end:
                    continue
                if left in (Left.PAGES, Left.SECTORS) and chance.random() < 0.5:
                    continue
            for directory, name, child in naming.names:
                if child is None:
                    names.pop((directory, name), None)
                else:
                    names[directory, name] = child
        return names


def _content_after(node: _Node, cut: int, left: Left, chance: random.Random) -> bytes:
    assert node.content is not None
    durable = node.synced(cut)
    content = bytearray(node.content)
    changes = [change for change in node.changes if change.at < cut]
    pending = [change for change in changes if change.at >= durable]
    for change in changes:
        if change.at < durable:
            _apply(content, change)
    if left is Left.NOTHING or not pending:
        return bytes(content)
    if left is Left.ALL or left is Left.BEGINNING:
        for change in pending if left is Left.ALL else pending[: chance.randint(0, len(pending))]:
            _apply(content, change)
        return bytes(content)
    # The size up to some change, each piece of that up to another one.
    sizes = [len(content)]
    for change in pending:
        sizes.append(change.offset if change.data is None else max(sizes[-1], change.offset + len(change.data)))
    whole = bytearray(content).ljust(max(sizes), b"\0")
    limits: dict[int, int] = {}
    step = left.value
    assert isinstance(step, int)
    for number, change in enumerate(pending):
        begin, end = change.offset, len(whole) if change.data is None else change.offset + len(change.data)
        for piece in range(begin // step, -(-end // step)):
            if piece not in limits:
                limits[piece] = chance.choice((0, len(pending), chance.randint(0, len(pending))))
            if number < limits[piece]:
                low, high = max(begin, piece * step), min(end, (piece + 1) * step)
                fresh = bytes(high - low) if change.data is None else change.data[low - begin : high - begin]
                whole[low:high] = fresh
    return bytes(whole[: chance.choice((sizes[-1], chance.choice(sizes)))])


def _apply(content: bytearray, change: _Change) -> None:
    if change.data is None:
        del content[change.offset :]
        content.extend(bytes(change.offset - len(content)))
        return
    end = change.offset + len(change.data)
    if len(content) < end:
        content.extend(bytes(end - len(content)))
    content[change.offset : end] = change.data
