"""Identities: inode numbers, and the times that an entry cannot hold to the nanosecond."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from basefs.log.hashes import EntryHash
from basefs.replica.replica import Attributes
from basefs.view.states import Owner

ROOT_NUMBER = 1
#: Files about which something is remembered.  One more costs 400 bytes; one less loses its nanoseconds.
MAX_REMEMBERED = 65536
#: Numbers given here have this bit, those that follow from a hash do not.
_LOCAL = 1 << 62

#: What all names of a file show alike until somebody changes it: what it comes from, its time, mode and owner.
_Version = tuple[EntryHash, int, int, Owner | None]


def _version(attributes: Attributes) -> _Version:
    # The entries of several names differ, the one with the content does not.
    return attributes.content or attributes.entry, attributes.mtime, attributes.mode, attributes.owner


@dataclass(slots=True)
class _Face:
    """What this node shows of a file: its number, and times that hold as long as the view shows `of`.

    `parted`: another file has taken along the number that follows from its hash.
    """

    number: int
    parted: bool
    of: _Version | None = None
    mtime: int = 0
    ctime: int = 0


class Identities:
    """Numbers and times of files, by the entry that began them."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: UNIX seconds."""
        self._faces: OrderedDict[EntryHash, _Face] = OrderedDict()
        self._accessed: OrderedDict[int, int] = OrderedDict()
        # Another process of this filesystem began before this moment, so no number is given twice.
        self._next = _LOCAL | (int(clock() * 10**9) >> 10)

    def new_number(self) -> int:
        """A number that nothing else has."""
        self._next += 1
        return self._next

    def number(self, origin: EntryHash | None) -> int:
        """The number of a file of the view."""
        if origin is None:
            return ROOT_NUMBER
        face = self._faces.get(origin)
        return int.from_bytes(origin[:8], "big") >> 2 | 2 if face is None else face.number

    def part(self, origin: EntryHash) -> None:
        """Another file has taken the number of this one along: it gets a new one."""
        self._faces[origin] = _Face(self.new_number(), parted=True)

    def carry(self, number: int, source: EntryHash | None, attributes: Attributes) -> None:
        """What had a number as the file `source`, or in no view, shows these attributes now and keeps the number."""
        assert attributes.origin is not None
        if source == attributes.origin:
            return
        if source is not None:
            # It may go on elsewhere, or come back: another node has renamed it, or reverts to it.
            self.part(source)
        face = self._faces.get(attributes.origin)
        self._keep(attributes.origin, _Face(number, face is not None and face.parted))

    def _keep(self, origin: EntryHash, face: _Face) -> None:
        self._faces[origin] = face
        self._faces.move_to_end(origin)
        if len(self._faces) > MAX_REMEMBERED:
            self._faces.popitem(last=False)

    def times(self, attributes: Attributes) -> tuple[int, int]:
        """Modification and change time of a file of the view, nanoseconds."""
        face = self._faces.get(attributes.origin) if attributes.origin is not None else None
        if face is None or face.of != _version(attributes):
            return attributes.mtime, attributes.mtime
        return face.mtime, face.ctime

    def accessed(self, number: int) -> int | None:
        """The access time that was set, nanoseconds; `None` if none was."""
        return self._accessed.get(number)

    def set_accessed(self, number: int, atime: int) -> None:
        """Show this access time, nanoseconds, on this node."""
        self._accessed[number] = atime
        self._accessed.move_to_end(number)
        if len(self._accessed) > MAX_REMEMBERED:
            self._accessed.popitem(last=False)

    def remember(self, attributes: Attributes, mtime: int, ctime: int) -> None:
        """Show these times until another entry or another node changes the file, and go on showing its number."""
        assert attributes.origin is not None
        face = self._faces.get(attributes.origin)
        parted = face is not None and face.parted
        number = self.number(attributes.origin)
        self._keep(attributes.origin, _Face(number, parted, _version(attributes), mtime, ctime))

    def forget(self, origin: EntryHash) -> None:
        """Nothing shows this file any more; what comes back of it has the number that follows from its hash."""
        face = self._faces.get(origin)
        self._accessed.pop(self.number(origin), None)
        if face is not None and not face.parted:
            del self._faces[origin]

    def confirm(self, attributes: Attributes) -> None:
        """Go on showing the times of a directory: its view has changed by what this node has published in it."""
        face = self._faces.get(attributes.origin) if attributes.origin is not None else None
        if face is not None and face.of is not None and face.of[0] == attributes.entry:
            face.of = _version(attributes)
