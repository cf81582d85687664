"""Records: what the journal of the staging area says, and what a transaction of the log says about it.

A record is msgpack: its number in `_TYPES`, its version, and its fields.  Paths are arrays of names.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import msgpack

from basefs.path import Path
from basefs.view.seen import Version
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
class WithdrawnName:
    """A name is what the view shows again: what was staged there will not be published."""

    path: Path


@dataclass(frozen=True, slots=True)
class MovedTree:
    """A directory that was never published moved, with everything in it."""

    source: Path
    target: Path


@dataclass(frozen=True, slots=True)
class Taken:
    """What one transaction of the log takes from the staging area.

    Attributes:
        planned: how many records the journal had when it was read.
        names: the names that the log has now.
        inodes: those that are published, each with the name that carries it.
        begun: directories of which only the time is missing, likewise.
        moves: directories of the view that were renamed, in this order, old and new path.
    """

    planned: int = 0
    names: tuple[Path, ...] = ()
    inodes: tuple[tuple[int, Path], ...] = ()
    begun: tuple[tuple[int, Path], ...] = ()
    moves: tuple[tuple[Path, Path], ...] = ()


@dataclass(frozen=True, slots=True)
class Published:
    """The record of a transaction of the log, kept there.

    Attributes:
        position: how many records the journal had when the transaction was committed.
        taken: what was published.
        withdrawn: names at which nothing is staged any more.  The journal says so as well, but the log may be on the
            disk before it.
        detached: inodes whose place in the view another one has taken, likewise.
    """

    position: int
    taken: Taken
    withdrawn: tuple[Path, ...]
    detached: tuple[int, ...]


Record: TypeAlias = StagedInode | StagedAttributes | StagedName | WithdrawnName | MovedTree | Published

#: The types by their number, and the version of each.
_TYPES: dict[int, tuple[type[Any], int]] = {
    1: (StagedInode, 1),
    2: (StagedAttributes, 1),
    3: (StagedName, 1),
    4: (WithdrawnName, 1),
    5: (MovedTree, 1),
    6: (Published, 1),
}


def _fields_of(of: type[Any]) -> Callable[[Any], tuple[Any, ...]]:
    names = [field.name for field in fields(of)]
    if len(names) == 1:
        return lambda record: (getattr(record, names[0]),)
    return operator.attrgetter(*names)


_TAKEN = _fields_of(Taken)
_PACKERS = {of: (number, version, _fields_of(of)) for number, (of, version) in _TYPES.items()}


def _plain(of: object) -> Any:
    if isinstance(of, Taken):
        return _TAKEN(of)
    raise TypeError(f"not a part of a record: {of!r}")


def encode(record: Record) -> bytes:
    """The bytes of a record."""
    number, version, values = _PACKERS[type(record)]
    packed: bytes = msgpack.packb((number, version, *values(record)), default=_plain)
    return packed


def decode(raw: bytes) -> Record:
    """The inverse of `encode`.  Raises `ValueError` for what this version does not know."""
    try:
        number, version, *values = msgpack.unpackb(raw, use_list=False)
        of, known = _TYPES[number]
        if version != known:
            raise ValueError(f"version {version} of {of.__name__}, this program knows {known}")
        if of is Published:
            values[1] = Taken(*values[1])
        record: Record = of(*values)
    except (TypeError, KeyError, msgpack.UnpackException) as error:
        raise ValueError(f"not a record: {error!r}") from None
    return record
