"""What programs have made of names on one mount, as their calls have said: what must be staged there, or published."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from basefs.path import Path, display


def digest(content: bytes) -> str:
    """By which a content is known."""
    return f"{len(content)}:{hashlib.sha224(content).hexdigest()[:16]}"


class Other(enum.Enum):
    """What a name is that is no file."""

    DIRECTORY = "directory"
    GONE = "gone"


@dataclass(eq=False, slots=True)
class File:
    """A file that programs have changed.

    Attributes:
        closed: the digest of what was closed or synced last, `None` before that.
        published: likewise of what it had in the log then: a save of the same makes no entry.
        is_own: whether that was written here, so that it is nobody else's to change while it is staged.
        is_lost: whether it has no name any more.
        is_new: whether a program has made it here.
        home: the name under which it was found.
        found_at: when it was found first, under whichever name.
        handles, writers: open ones, and those that may write.
        hidden: what libfuse calls it, since it was open when it lost its name.
        over: what the name was, as long as nothing was closed: a crash leaves that.
        first: of a copy, the file itself.
    """

    closed: str | None = None
    published: str | None = None
    is_own: bool = False
    is_lost: bool = False
    is_new: bool = False
    home: Path = ()
    found_at: float = 0.0
    handles: int = 0
    writers: int = 0
    hidden: Path | None = None
    over: Other | None = None
    first: File | None = None

    def __str__(self) -> str:
        return self.closed or "not closed"


Thing = File | Other


class Ledger:
    """The names of one mount that differ from what the view shows, as far as programs know.

    Attributes:
        names: what was made of them.
        before: as it was before a change of which nobody knows whether it has happened.
    """

    def __init__(self, time: Callable[[], float]) -> None:
        """`time`: in seconds of any steady clock."""
        self._time = time
        self.names: dict[Path, Thing] = {}
        #: When that was.
        self._changed_at: dict[Path, float] = {}
        #: When a path was last given to a file that programs have made, or such a file was closed there.
        self._new_at: dict[Path, float] = {}
        #: Names that were removed, and since when nothing was made of them, or below.
        self.removed: dict[Path, float] = {}
        #: Names that show what others have made since programs removed them.
        self.remade: set[Path] = set()
        #: What each name was since the last sync.
        self._since: dict[Path, list[Thing]] = {}
        #: What was promised to survive a power cut.
        self._synced: dict[Path, Thing] = {}
        #: Names that were taken from open files a moment ago: a crash may give them back.
        self._hidden: dict[Path, Thing | None] = {}
        self.before: dict[Path, Thing] | None = None

    # -- what programs do ---------------------------------------------------------------------------------------------

    def unknown(self, path: Path) -> File:
        """A file of which nothing is known yet."""
        return File(home=path, found_at=self._time())

    def made(self, path: Path, file: File) -> None:
        """A program has made a new file."""
        file.is_new = True
        self.put(path, file)

    def put(self, path: Path, thing: Thing) -> None:
        """A name was given to something, or a file under this name was closed."""
        self.names[path] = thing
        self._changed_at[path] = self._time()
        if thing is Other.GONE:
            self.removed[path] = self._time()
            self.remade.discard(path)
        else:
            self._forget_removal(path)
        if isinstance(thing, File) and thing.is_new:
            self._new_at[path] = self._time()
        self._since.setdefault(path, []).append(_copied(thing))

    def written(self, file: File, is_replaced: Callable[[File, File], bool]) -> None:
        """A file was written to: that is what its names are, whatever another handle has made of them.

        `is_replaced`: whether others had made the second one in the place of the first.
        """
        if file.is_lost or self.paths(file):
            return
        other = self.names.get(file.home)
        if isinstance(other, File) and (self._new_at.get(file.home, -1.0) > file.found_at or is_replaced(file, other)):
            # Another node has removed this one.  A program has made another one in its place, maybe long ago, or has
            # opened and written the one that others had put there.
            file.is_lost = True
            return
        for path in self.paths(other) if isinstance(other, File) else [file.home]:
            self.put(path, file)

    def closed(self, file: File, content: bytes, published: bytes | None) -> None:
        """What was written to a file is durable; `published`: what it has in the log, `None` for nothing."""
        file.closed, file.is_own = digest(content), True
        file.published = None if published is None else digest(published)
        for path in self.paths(file):
            self.put(path, file)

    def paths(self, file: File) -> list[Path]:
        """The names of a file."""
        return [path for path, thing in self.names.items() if thing is file]

    def _forget_removal(self, path: Path) -> None:
        """Something is made of a name, so the directories above it are there again, too."""
        for depth in range(len(path) + 1):
            self.removed.pop(path[:depth], None)

    def has_missed(self, path: Path, at: float, content: str | None) -> bool:
        """Whether what came to a name at a moment came after programs had made of it what is staged.

        `content`: what was published there, `None` for a removal.  Programs may have written the file by another name:
        then those names count.
        """
        if path in self.names:
            names = [path]
        elif content is None:
            names = []
        else:
            files = ((name, thing) for name, thing in self.names.items() if isinstance(thing, File))
            names = [name for name, file in files if file.closed == content]
        return any(at > self._changed_at.get(name, at) for name in names)

    def part(self, path: Path) -> None:
        """A name is about to lose what it has."""
        file = self.names.get(path)
        if isinstance(file, File) and self.paths(file) == [path]:
            file.is_lost = True

    def hide(self, path: Path) -> None:
        """An open file has lost its name, which is durable a moment later, `hidden`."""
        thing = self.names.get(path)
        self._hidden[path] = None if thing is None else _copied(thing)
        self.put(path, Other.GONE)

    def hidden(self, path: Path) -> None:
        """That a file has lost its name is durable."""
        self._hidden.pop(path, None)

    def move(self, source: Path, target: Path) -> None:
        """A directory has moved with all in it."""
        below = [path for path in self.names if path[: len(source)] == source]
        moved = {(*target, *path[len(source) :]): self.names[path] for path in below}
        for path in below:
            self.put(path, Other.GONE)
        # What is in it and was published comes with it.
        self.removed = {path: since for path, since in self.removed.items() if path[: len(target)] != target}
        for path, thing in moved.items():
            self.put(path, thing)

    def synced(self) -> None:
        """All that was closed survives a power cut."""
        self._synced = _copies(self.names)
        self._since.clear()

    def doubt(self) -> dict[Path, Thing]:
        """What is known, in case that the next change does not happen; for `doubted`."""
        return _copies(self.names)

    def doubted(self, before: dict[Path, Thing]) -> None:
        """Nobody knows whether what was done since `before` has happened."""
        self.before = before

    # -- processes end ------------------------------------------------------------------------------------------------

    def restored(self, names: Mapping[Path, Thing], before: dict[Path, Thing] | None) -> None:
        """What a copy of the disk had is there again; `before`: as of the process that had used that disk."""
        first: dict[int, File] = {}
        self.names = {}
        for path, thing in names.items():
            if isinstance(thing, File):
                thing = first.setdefault(id(thing.first), replace(thing, first=None, is_lost=False))
            self.names[path] = thing
        self._since, self._hidden, self.before = {}, {}, before
        self.removed.clear()
        self.synced()

    def killed(self) -> None:
        """No program has anything open."""
        for thing in self.names.values():
            if isinstance(thing, File):
                thing.handles = thing.writers = 0

    def started(
        self,
        staged: Mapping[Path, str],
        is_published: Callable[[str], bool],
        look: Callable[[Path], str],
        *,
        off: bool,
    ) -> list[str]:
        """A process has found these names staged, as `staged` tells; returns what is not as it must be.

        `is_published`: whether the log has a content; `look`: what a name is; `off`: whether the power was cut.
        """
        problems = self._after_cut(staged, is_published) if off else self._after_kill(staged, is_published, look)
        if off:
            self.removed.clear()
        for path in (path for path, found in staged.items() if found != Other.GONE.value):
            self._forget_removal(path)
        self.names = {path: thing for path, thing in self._known(off=off).items() if path in staged}
        for path, thing in self.names.items():
            # Which one of those that may be there it was, the newest if that cannot be told.
            found = [other for other in self._allowed(path, off=off) if _is(other, staged[path])]
            if found and found[-1] is not thing:
                last = found[-1]
                self.names[path] = replace(last, first=None) if isinstance(last, File) else last
        self._since, self._hidden, self.before = {}, {}, None
        self.synced()
        return problems

    def _known(self, *, off: bool) -> dict[Path, Thing]:
        return {**(self._synced if off else {}), **(self.before or {}), **self.names}

    def _allowed(self, path: Path, *, off: bool) -> list[Thing]:
        """What a name may be, the newest last."""
        found = []
        if off:
            found += [self._synced[path]] if path in self._synced else []
            found += self._since.get(path, [])
        if self.before is not None and path in self.before:
            found.append(self.before[path])
        if path in self.names:
            found.append(self.names[path])
        if (thing := self._hidden.get(path)) is not None:
            found.insert(0, thing)
        return [thing.over for thing in found if isinstance(thing, File) and thing.over and not thing.closed] + found

    def _after_kill(
        self, staged: Mapping[Path, str], is_published: Callable[[str], bool], look: Callable[[Path], str]
    ) -> list[str]:
        problems = []
        for path in sorted({*self._known(off=False), *staged}):
            allowed = self._allowed(path, off=False)
            if path in staged:
                if not any(_is(thing, staged[path]) for thing in allowed):
                    problems.append(_say(path, allowed, staged[path]))
            elif not self._is_new(path) and not any(
                look(path) == thing.value if isinstance(thing, Other) else _may_go(thing, is_published)
                for thing in allowed
            ):
                problems.append(_say(path, allowed, "neither staged nor published"))
        return problems

    def _is_new(self, path: Path) -> bool:
        """Whether a name may be what the view shows: what was made of it was interrupted."""
        return path in self._hidden or (self.before is not None and path not in self.before)

    def _after_cut(self, staged: Mapping[Path, str], is_published: Callable[[str], bool]) -> list[str]:
        problems = [
            _say(path, self._allowed(path, off=True), found)
            for path, found in sorted(staged.items())
            if not any(_is(thing, found) for thing in self._allowed(path, off=True))
        ]
        there = set(staged.values())
        for path, thing in sorted(self._synced.items()):
            if not isinstance(thing, File) or not thing.is_own or thing.first is None or thing.first.is_lost:
                continue
            later = [other for others in self._since.values() for other in others if _is_later(other, thing)]
            files = [other for other in (thing, *later) if isinstance(other, File) and other.closed]
            if files and not any(file.closed in there or _in_log(file, is_published) for file in files):
                problems.append(_say(path, [thing, *later], "neither staged nor published, and it was synced"))
        return problems

    # -- while it runs ------------------------------------------------------------------------------------------------

    def settled(self, staged: Collection[Path], is_published: Callable[[str], bool]) -> list[str]:
        """Forget the names that are staged no longer; returns what of them was not published."""
        problems = []
        for path, thing in sorted(self.names.items(), key=lambda item: item[0], reverse=True):
            if path not in staged:
                if not _may_go(thing, is_published):
                    problems.append(_say(path, [thing], "neither staged nor published"))
                del self.names[path]
                if isinstance(thing, File) and not self.paths(thing):
                    # Others may change it from now on.  What is open is changed by the name that was published first.
                    thing.is_own, thing.home = False, path
        return problems

    def compare(self, staged: Mapping[Path, str], is_published: Callable[[str], bool]) -> list[str]:
        """What of the names is not as programs have left it; forgets those that are published."""
        problems = self.settled(staged, is_published)
        for path, thing in sorted(self.names.items()):
            is_written = isinstance(thing, File) and thing.writers > 0
            if path in staged and not is_written and not _is(thing, staged[path]):
                problems.append(_say(path, [thing], staged[path]))
        problems += [_say(path, [], found) for path, found in sorted(staged.items()) if path not in self.names]
        return problems


def _copied(thing: Thing) -> Thing:
    return replace(thing, first=thing.first or thing) if isinstance(thing, File) else thing


def _copies(names: Mapping[Path, Thing]) -> dict[Path, Thing]:
    return {path: _copied(thing) for path, thing in names.items()}


def _is(thing: Thing, found: str) -> bool:
    """Whether something is what was found."""
    if not isinstance(thing, File):
        return thing.value == found
    return found == thing.closed if thing.is_own else ":" in found


def _is_later(thing: Thing, other: File) -> bool:
    return isinstance(thing, File) and thing.first is other.first


def _may_go(thing: Thing, is_published: Callable[[str], bool]) -> bool:
    """Whether something need not be staged any more."""
    return not isinstance(thing, File) or not thing.is_own or _in_log(thing, is_published)


def _in_log(file: File, is_published: Callable[[str], bool]) -> bool:
    """Whether the log has what was closed of a file, if anything was."""
    return file.closed in (None, file.published) or is_published(file.closed)


def _say(path: Path, allowed: Iterable[Thing], found: str) -> str:
    expected = " or ".join(thing.value if isinstance(thing, Other) else str(thing) for thing in allowed)
    return f"{display(path)} is {found}, and it was made {expected or 'nothing'}"
