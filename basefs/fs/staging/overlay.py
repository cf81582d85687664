"""The overlay: the names that differ on this node from what the view shows."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Set

from basefs.errors import NotADirectory
from basefs.fs.staging.inode import Inode
from basefs.log.hashes import EntryHash
from basefs.path import Path
from basefs.view.observed import Version
from basefs.view.states import Kind


class Missing(enum.Enum):
    """The overlay says nothing about a name: it is what the view shows."""

    MISSING = "missing"


MISSING = Missing.MISSING
#: What a name is here: an inode, nothing (`None`: it was removed), or not told.
Slot = Inode | Missing | None


class _Place:
    """A name, and the names below it; it exists while anything is told of one of them."""

    __slots__ = ("below", "seen", "slot")

    def __init__(self) -> None:
        self.slot: Slot = MISSING
        self.seen: Version | None = None
        self.below: dict[bytes, _Place] = {}


class Overlay:
    """Names, as a tree: looking one up costs a step for each component of its path that is told of.

    What is made here hides the view's; a directory of the view shows both.
    """

    def __init__(self) -> None:
        self._root = _Place()
        self._count = 0
        #: The names whose version has this entry.
        self._by_entry: dict[EntryHash, set[Path]] = {}

    def __len__(self) -> int:
        return self._count

    def clear(self) -> None:
        """Say nothing about any name."""
        self._root = _Place()
        self._count = 0
        self._by_entry.clear()

    def _find(self, path: Path) -> _Place | None:
        place: _Place | None = self._root
        for name in path:
            if place is None:
                break
            place = place.below.get(name)
        return place

    def get(self, path: Path) -> Slot:
        """What a name is."""
        place = self._find(path)
        return MISSING if place is None else place.slot

    def along(self, path: Path) -> list[Slot]:
        """What the root, each directory above a name, and the name are, as far down as anything is told."""
        place = self._root
        found = [place.slot]
        for name in path:
            below = place.below.get(name)
            if below is None:
                break
            place = below
            found.append(place.slot)
        return found

    def put(self, path: Path, inode: Inode | None, seen: Version | None = None) -> None:
        """Give a name to an inode, or to nothing; `seen`: what the name showed, where nothing was told of it before."""
        place = self._root
        for name in path:
            below = place.below.get(name)
            if below is None:
                below = place.below[name] = _Place()
            place = below
        if place.slot is MISSING:
            self._count += 1
            self._set_version(path, place, seen)
        place.slot = inode

    def seen(self, path: Path) -> Version | None:
        """What a name showed when it was changed here; `None` where that is not told."""
        place = self._find(path)
        return None if place is None else place.seen

    def see(self, path: Path, version: Version | None) -> None:
        """What is told of a name was made on this version, or has become it."""
        place = self._find(path)
        if place is not None and place.slot is not MISSING:
            self._set_version(path, place, version)

    def _set_version(self, path: Path, place: _Place, version: Version | None) -> None:
        for hash in place.seen or ():
            found = self._by_entry[hash]
            found.discard(path)
            if not found:
                del self._by_entry[hash]
        for hash in version or ():
            self._by_entry.setdefault(hash, set()).add(path)
        place.seen = version

    def based_on(self, entry: EntryHash) -> Set[Path]:
        """The names whose version has this entry."""
        return self._by_entry.get(entry, frozenset())

    def drop(self, path: Path) -> None:
        """Let a name be what the view shows."""
        above = [self._root]
        for name in path:
            below = above[-1].below.get(name)
            if below is None:
                return
            above.append(below)
        last = above.pop()
        self._count -= last.slot is not MISSING
        self._set_version(path, last, None)
        last.slot = MISSING
        for place, name in zip(reversed(above), reversed(path), strict=True):
            below = place.below[name]
            if below.below or below.slot is not MISSING:
                return
            del place.below[name]

    def take_tree(self, top: Path) -> list[tuple[Path, Version | None, Inode | None]]:
        """Forget a name and all below it, and return what was told of them: path, version and inode."""
        slot = self.get(top)
        told = [*self.below(top), *([] if slot is MISSING else [(top, slot)])]
        found = [(path, self.seen(path), inode) for path, inode in told]
        for path, _, _ in found:
            self.drop(path)
        return found

    def within(self, path: Path) -> Iterator[tuple[bytes, Inode | None]]:
        """The names of a directory that are told here."""
        place = self._find(path)
        if place is not None:
            for name, below in place.below.items():
                if below.slot is not MISSING:
                    yield name, below.slot

    def hides(self, path: Path) -> bool:
        """Whether the view's name is out of sight, because a directory above was made or removed here.

        Raises `NotADirectory` if something above is none.
        """
        # The nearest one above that is told of decides.
        for slot in reversed(self.along(path[:-1])):
            if slot is None:
                return True
            if slot is not MISSING:
                if slot.kind is not Kind.DIRECTORY:
                    raise NotADirectory("a component above is not a directory")
                return slot.is_new
        return False

    def items(self) -> Iterator[tuple[Path, Inode | None]]:
        """Every name that is told here."""
        yield from self.below(())

    def below(self, path: Path) -> list[tuple[Path, Inode | None]]:
        """Every name below a directory that is told here."""
        top = self._find(path)
        found: list[tuple[Path, Inode | None]] = []
        todo = [] if top is None else [(path, top)]
        while todo:
            above, place = todo.pop()
            for name, below in place.below.items():
                where = (*above, name)
                if below.slot is not MISSING:
                    found.append((where, below.slot))
                if below.below:
                    todo.append((where, below))
        return found
