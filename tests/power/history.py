"""What programs did to the files of a mount, when, and what they were promised."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

#: What is found of a file that was published and then renamed, of which the journal tells and not the log: another node
#: may have its content, so it waits for that.
ELSEWHERE = b"other nodes may have it"


@dataclass(frozen=True, slots=True)
class Version:
    """What a path was from some moment on.

    Attributes:
        content: `None` where nothing is; a directory is its own name.
        began: when the call began that made it so, UNIX seconds.
        is_synced: whether the content, if not the name, was promised to be durable before.
        others: what the content may be instead, of a file that was renamed after it was saved and not synced.
    """

    content: bytes | None
    began: float
    is_synced: bool = False
    others: tuple[bytes, ...] = ()

    def may_be(self, content: bytes | None) -> bool:
        """Whether this may be found of it."""
        return content == self.content or content in self.others


@dataclass(frozen=True, slots=True)
class Promise:
    """A version of a path, or a later one, is durable.

    Attributes:
        time: when the call returned that says so, UNIX seconds.
        path: whose.
        version: its number.
    """

    time: float
    path: str
    version: int


@dataclass(frozen=True, slots=True)
class Move:
    """A rename: what was at one path is at another one, whether that was synced or not.

    Attributes:
        source, gone: a path and the version that says that nothing is there.
        target, come: the other one, and the version that it has got.
    """

    source: str
    gone: int
    target: str
    come: int


class History:
    """What became of each path."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._versions: dict[str, list[Version]] = {}
        self._promises: list[Promise] = []
        self._moves: list[Move] = []

    # -- what programs do ---------------------------------------------------------------------------------------------

    def now(self) -> float:
        """UNIX seconds; ask before a call."""
        return self._clock()

    def set(self, path: str, content: bytes | None, began: float, *, is_synced: bool = False) -> None:
        """A path has a new content."""
        self._of(path).append(Version(content, began, is_synced))

    def synced(self, path: str) -> None:
        """What a path is was promised to be durable by a call that has returned."""
        versions = self._of(path)
        versions[-1] = replace(versions[-1], is_synced=True, others=())
        self._promises.append(Promise(self._clock(), path, len(versions) - 1))

    def synced_names(self, paths: Iterable[str]) -> None:
        """The names of these were promised to be durable; their contents only if they were before."""
        for path in paths:
            last = self._of(path)[-1]
            if last.is_synced or last.content is None:
                self.synced(path)

    def synced_all(self) -> None:
        """The daemon was stopped by who asked for it: all is durable."""
        for path in self.paths():
            self.synced(path)

    def moved(self, source: str, target: str, began: float) -> None:
        """A rename, of a directory with all in it."""
        for path in [path for path in self._versions if path == source or path.startswith(f"{source}/")]:
            last = self._of(path)[-1]
            if last.content is None:
                continue
            other = target + path[len(source) :]
            content = other.encode() if last.content == path.encode() else last.content
            self._of(other).append(Version(content, began, last.is_synced, self._before(path)))
            self.set(path, None, began)
            self._moves.append(Move(path, len(self._of(path)) - 1, other, len(self._of(other)) - 1))

    def _before(self, path: str) -> tuple[bytes, ...]:
        """What a path was since it was synced last."""
        found: list[bytes] = []
        for version in reversed(self._of(path)):
            found.extend(content for content in (version.content, *version.others) if content is not None)
            if version.is_synced or version.content is None:
                break
        return tuple(found)

    def _of(self, path: str) -> list[Version]:
        return self._versions.setdefault(path, [Version(None, 0.0)])

    def now_at(self) -> dict[str, bytes]:
        """What is there after all that was done."""
        return {path: last.content for path, (*_, last) in self._versions.items() if last.content is not None}

    def paths(self) -> list[str]:
        """All paths that were ever anything."""
        return sorted(self._versions)

    def promised(self) -> list[float]:
        """When promises were made, UNIX seconds."""
        return sorted({promise.time for promise in self._promises})

    # -- what is found ------------------------------------------------------------------------------------------------

    def broken(self, found: Mapping[str, bytes], cut: float) -> list[str]:
        """What of the promises is broken where this is found after a cut of the power at a time, UNIX seconds."""
        problems = []
        seen: dict[str, set[int]] = {}
        for path, versions in self._versions.items():
            last = max((p.version for p in self._promises if p.path == path and p.time < cut), default=0)
            begun = [number for number, version in enumerate(versions) if version.began < cut]
            content = found.get(path)
            if content == ELSEWHERE and last < max(begun):
                seen[path] = set(begun)
                continue
            seen[path] = {number for number in begun if versions[number].may_be(content)}
            if not seen[path]:
                what = "nothing" if content is None else f"{len(content)} bytes"
                problems.append(f"{path}: {what} that nobody has written")
            elif max(seen[path]) < last:
                problems.append(f"{path}: version {max(seen[path])}, and {last} was promised")
        for move in self._moves:
            if self._is_lost(move, found, seen, cut):
                problems.append(f"{move.source}: neither there nor at {move.target}")
        problems.extend(f"{path}: nobody has made it" for path in found if path not in self._versions)
        return problems

    def _is_lost(self, move: Move, found: Mapping[str, bytes], seen: Mapping[str, set[int]], cut: float) -> bool:  # type: ignore[valid-type]
        """Whether what was promised before it was renamed is at neither place."""
        was_promised = any(
            promise.path == move.source and promise.version == move.gone - 1 and promise.time < cut
            for promise in self._promises
        )
        if not was_promised or self._versions[move.source][move.gone].began >= cut:
            return False
        return found.get(move.source) is None and bool(seen[move.target]) and max(seen[move.target]) < move.come
