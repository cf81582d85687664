"""Placement: where an entry stands in the DAG (docs/formats.md, section 3)."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from basefs.errors import InvalidEntry
from basefs.log.entries import (
    BEARING_ACTIONS,
    CHILD_ACTIONS,
    KEEPING_ACTIONS,
    KEY_ACTIONS,
    ROOT_NAME,
    Action,
    Entry,
)
from basefs.log.hashes import ZERO_HASH, EntryHash

ROOT_PATH_ID = 1
#: The path id of an entry that will be the first of its path.  Nothing is written for entries that may be refused.
NEW_PATH = -1


class EntryKind(IntEnum):
    """Where an entry stands relative to its parent (docs/formats.md, section 3)."""

    SUCCESSOR = 0
    CHILD = 1
    KEY = 2
    ANNOTATION = 3

    @property
    def is_state(self) -> bool:
        """Whether such an entry is a step in the life of its path, and does not merely hang on it."""
        return self <= EntryKind.CHILD


def kind_of(action: Action, parent: Action | None) -> EntryKind:
    """The place that an action takes behind a parent; `None` is the root entry's missing parent."""
    if action.is_annotation:
        return EntryKind.ANNOTATION
    if action in KEY_ACTIONS:
        return EntryKind.KEY
    if parent is None or (parent is Action.MKDIR and action in CHILD_ACTIONS):
        return EntryKind.CHILD
    return EntryKind.SUCCESSOR


class Placed(NamedTuple):
    """An entry and its place.

    Attributes:
        entry: the entry.
        kind: child, successor, about a key, or an annotation.
        path_id: id of its static path; `NEW_PATH` before the first entry of a path is inserted.
        directory: hash of the mkdir under which its chain lives; `ZERO_HASH` for the root's own chain.
        above: id of the path that holds this one; 0 for the root, and where `path_id` determines it.
        is_first: whether it began its path; known only right after the insertion.
    """

    entry: Entry
    kind: EntryKind
    path_id: int
    directory: EntryHash
    above: int = 0
    is_first: bool = False

    @property
    def known_path(self) -> int:
        """The id of its path, or before the first entry of that is inserted, of the path that holds it."""
        return self.above if self.path_id == NEW_PATH else self.path_id


def place_root(entry: Entry) -> Placed:
    """Where a root entry stands."""
    return Placed(entry, EntryKind.CHILD, ROOT_PATH_ID, EntryHash(ZERO_HASH))


def place_behind(entry: Entry, parent: Placed, named: Placed | None = None) -> Placed:
    """Where an entry stands behind its parent; a child is given the path `NEW_PATH`, whether or not there is one.

    `named`: what a link or revert names.  Raises `InvalidEntry` if it can stand nowhere.
    """
    if named is not None:
        _check_named(entry, parent, named)
    kind = kind_of(entry.action, parent.entry.action)
    if parent.kind is EntryKind.ANNOTATION:
        _check_behind_annotation(kind, parent.entry.action)
    if kind is EntryKind.ANNOTATION:
        return Placed(entry, kind, parent.path_id, parent.directory)
    if kind is EntryKind.KEY:
        _check_key(entry, parent)
        return Placed(entry, kind, parent.path_id, parent.directory)
    if parent.kind is EntryKind.KEY:
        raise InvalidEntry("only a grant, revoke or admit may follow a grant, revoke or admit")
    if kind is EntryKind.CHILD:
        if entry.name == ROOT_NAME:
            raise InvalidEntry("only the root is named '/'")
        return Placed(entry, kind, NEW_PATH, parent.entry.hash, parent.path_id)
    if entry.name != parent.entry.name:
        raise InvalidEntry("a successor carries the name of its parent")
    if parent.path_id == ROOT_PATH_ID and entry.action not in KEEPING_ACTIONS:
        raise InvalidEntry("the root directory cannot become anything else")
    return Placed(entry, kind, parent.path_id, parent.directory)


def _check_behind_annotation(kind: EntryKind, annotation: Action) -> None:
    if annotation is Action.GOSSIP_KEY:
        # An export leaves it out, and would leave out what follows.
        raise InvalidEntry("nothing follows a gossip key")
    if kind is not EntryKind.ANNOTATION:
        raise InvalidEntry("only an annotation may follow an annotation")


def _check_key(entry: Entry, parent: Placed) -> None:
    if parent.entry.action not in KEY_ACTIONS | BEARING_ACTIONS:
        raise InvalidEntry("a grant, revoke or admit hangs on a mkdir, a write, a link, or another one of these")
    if entry.extensions.recovery is not None and parent.path_id != ROOT_PATH_ID:
        raise InvalidEntry("a recovery hangs on '/'")


def _check_named(entry: Entry, parent: Placed, named: Placed) -> None:
    if not named.kind.is_state:
        raise InvalidEntry("a link or revert names a step in the life of a path")
    if entry.action is Action.REVERT and named.path_id != parent.path_id:
        raise InvalidEntry("a revert names an entry of its own path")
