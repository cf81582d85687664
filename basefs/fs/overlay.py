"""The overlay: the names that differ on this node from what the view shows."""

from __future__ import annotations

import enum
from collections.abc import Iterator

from basefs.errors import NotADirectory
from basefs.fs.inode import Inode
from basefs.view.names import Names
from basefs.view.states import Kind


class Missing(enum.Enum):
    """The overlay says nothing about a name: it is what the view shows."""

    MISSING = "missing"


MISSING = Missing.MISSING
#: What a name is here: an inode, nothing (`None`: it was removed), or not told.
Slot = Inode | Missing | None


class Overlay:
    """Names, by directory.  What is made here hides the view's; a directory of the view shows both."""

    def __init__(self) -> None:
        self._directories: dict[Names, dict[bytes, Inode | None]] = {}

    def __bool__(self) -> bool:
        return bool(self._directories)

    def get(self, names: Names) -> Slot:
        """What a name is."""
        if not names:
            return MISSING
        directory = self._directories.get(names[:-1])
        return MISSING if directory is None else directory.get(names[-1], MISSING)

    def put(self, names: Names, inode: Inode | None) -> None:
        """Give a name to an inode, or to nothing."""
        self._directories.setdefault(names[:-1], {})[names[-1]] = inode

    def drop(self, names: Names) -> None:
        """Let a name be what the view shows."""
        directory = self._directories.get(names[:-1])
        if directory is not None:
            directory.pop(names[-1], None)
            if not directory:
                del self._directories[names[:-1]]

    def within(self, names: Names) -> dict[bytes, Inode | None]:
        """The names of a directory that are told here."""
        return self._directories.get(names, {})

    def hides(self, names: Names) -> bool:
        """Whether the view's name is out of sight, because a directory above was made or removed here.

        Raises `NotADirectory` if something above is none.
        """
        if self._directories:
            for depth in range(len(names) - 1, 0, -1):
                slot = self.get(names[:depth])
                if slot is None:
                    return True
                if slot is not MISSING:
                    if slot.kind is not Kind.DIRECTORY:
                        raise NotADirectory("a component above is not a directory")
                    return slot.is_new
        return False

    def items(self) -> Iterator[tuple[Names, Inode | None]]:
        """Every name that is told here."""
        for directory, found in self._directories.items():
            for name, inode in found.items():
                yield (*directory, name), inode

    def below(self, names: Names) -> list[tuple[Names, Inode | None]]:
        """Every name below a directory that is told here."""
        return [
            ((*directory, name), inode)
            for directory, found in self._directories.items()
            if directory[: len(names)] == names
            for name, inode in found.items()
        ]
