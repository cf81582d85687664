"""Records: what the journal of the staging area says, and what a transaction of the log says about it.

A record is msgpack: its number in `_TYPES`, its version, and its fields.  Paths are arrays of names.  The records of
one step are written together (`Frame`).
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import msgpack

from basefs.path import Path
from basefs.view.observed import Version
from basefs.view.states import Owner

#: Name, bytes and CRC-32 of a spool file; the last one is `None` where it would take too long to compute.
SpoolFile: TypeAlias = tuple[str, int, int | None]


@dataclass(frozen=True, slots=True)
class StagedInode:
    """A file, directory or symbolic link as it was closed, with all of its staged names.

    Attributes:
        number: of the inode, while the daemon runs that writes this.
        kind: `Kind`.
        names: each with the version that it was based on.
        home, origin, base, target, mode, owner, mtime, ctime, exact: as in `Inode`.
        content: the bytes of a small file, or its spool file; `None` where nothing was written since it was published.
        face: mode and owner of a published file.
        detached: whether its place in the view was taken just before, and it begins anew.
    """

    number: int
    kind: str
    names: tuple[tuple[Path, Version | None], ...]
    home: Path | None
    origin: bytes | None
    base: bytes | None
    target: bytes
    mode: int | None
    owner: Owner | None
    mtime: int | None
    ctime: int | None
    exact: bool
    content: bytes | SpoolFile | None
    face: tuple[int, Owner | None] | None
    detached: bool


@dataclass(frozen=True, slots=True)
class StagedAttributes:
    """The attributes of an inode, as in `Inode`."""

    number: int
    mode: int | None
    owner: Owner | None
    mtime: int | None
    ctime: int | None
    exact: bool


@dataclass(frozen=True, slots=True)
class StagedName:
    """A name was given to an inode, or a published name was removed (`None`)."""

    path: Path
    number: int | None
    version: Version | None


@dataclass(frozen=True, slots=True)
class StagedHome:
    """A published inode is at another of its paths in the view, because the one before goes to another inode."""

    number: int
    home: Path | None


@dataclass(frozen=True, slots=True)
class WithdrawnName:
    """A name is what the view shows again: what was staged there will not be published."""

    path: Path


@dataclass(frozen=True, slots=True)
class MovedTree:
    """A directory that was never published moved, with everything in it."""

    source: Path
    target: Path


@dataclass(frozen=True, slots=True)
class Emptied:
    """Nothing is staged, and everything that was published until now is durable: what came before is void."""


@dataclass(frozen=True, slots=True)
class TakenInode:
    """An inode that a transaction of the log publishes.

    Attributes:
        number: its number.
        names: the names that are published, the first one carries the content.
        kept: its other names, which stay on this node.
        is_whole: whether nothing of it is left, as the time of a directory would be.
    """

    number: int
    names: tuple[Path, ...]
    kept: tuple[Path, ...]
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Taken:
    """What one transaction of the log takes from the staging area.

    Attributes:
        planned: how many frames the journal had when it was read.
        inodes: what is published.
        gone: the published names that are removed.
        moves: directories of the view that were renamed, in this order, old and new path.
    """

    planned: int = 0
    inodes: tuple[TakenInode, ...] = ()
    gone: tuple[Path, ...] = ()
    moves: tuple[tuple[Path, Path], ...] = ()


Record: TypeAlias = StagedInode | StagedAttributes | StagedName | StagedHome | WithdrawnName | MovedTree | Emptied


@dataclass(frozen=True, slots=True)
class Frame:
    """What one operation has changed in the staging area: a crash leaves all of it, or nothing.

    Attributes:
        behind: how many transactions of the log had taken something from this journal before it.
        records: the changes.
    """

    behind: int
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Published:
    """What the log keeps of a transaction.

    Attributes:
        position: how many frames the journal had when it was committed.
        taken: what was published.
    """

    position: int
    taken: Taken


#: The types by their number, and the version of each.
_TYPES: dict[int, tuple[type[Any], int]] = {
    1: (StagedInode, 1),
    2: (StagedAttributes, 1),
    3: (StagedName, 1),
    4: (WithdrawnName, 1),
    5: (MovedTree, 1),
    6: (Emptied, 1),
    7: (StagedHome, 1),
}
#: Of `Published`, which is kept elsewhere.
_PUBLISHED_VERSION = 1


def _fields_of(of: type[Any]) -> Callable[[Any], tuple[Any, ...]]:
    names = [field.name for field in fields(of)]
    if len(names) < 2:
        return lambda record: tuple(getattr(record, name) for name in names)
    return operator.attrgetter(*names)


_PACKERS = {of: (number, version, _fields_of(of)) for number, (of, version) in _TYPES.items()}


def _packed(record: object) -> tuple[Any, ...]:
    number, version, values = _PACKERS[type(record)]
    return (number, version, *values(record))


def _unpacked(packed: Sequence[Any]) -> Any:
    number, version, *values = packed
    of, known = _TYPES[number]
    if version != known:
        raise ValueError(f"version {version} of {of.__name__}, this program knows {known}")
    return of(*values)


def encode(frame: Frame) -> bytes:
    """The bytes of a frame."""
    packed: bytes = msgpack.packb((frame.behind, *map(_packed, frame.records)))
    return packed


def decode(raw: bytes) -> Frame:
    """The inverse of `encode`.  Raises `ValueError` for what this version does not know."""
    with _understood():
        behind, *records = msgpack.unpackb(raw, use_list=False)
        return Frame(int(behind), tuple(map(_unpacked, records)))


def encode_published(published: Published) -> bytes:
    """The bytes of a row of the log."""
    taken = published.taken
    inodes = [(inode.number, inode.names, inode.kept, inode.is_whole) for inode in taken.inodes]
    row = (_PUBLISHED_VERSION, published.position, taken.planned, inodes, taken.gone, taken.moves)
    packed: bytes = msgpack.packb(row)
    return packed


def decode_published(raw: bytes) -> Published:
    """The inverse of `encode_published`.  Raises `ValueError` for what this version does not know."""
    with _understood():
        version, position, planned, inodes, gone, moves = msgpack.unpackb(raw, use_list=False)
        if version != _PUBLISHED_VERSION:
            raise ValueError(f"version {version}, this program knows {_PUBLISHED_VERSION}")
        return Published(position, Taken(planned, tuple(TakenInode(*each) for each in inodes), gone, moves))


@contextlib.contextmanager
def _understood() -> Iterator[None]:
    try:
        yield
    except (TypeError, KeyError, ValueError, msgpack.UnpackException) as error:
        raise ValueError(f"not a record: {error!r}") from None
