"""Events: the user's form of a change, of one of four types.

A path has a shape, or nothing is there.  Events are the difference of two shapes, so a subscriber that keeps the last
shape of each path can derive the events since, regardless of the steps in between.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from basefs.view.states import Kind, State


class EventType(enum.Enum):
    """The type of an event."""

    CREATE = "create"
    MODIFY = "modify"
    ATTRIBUTES = "attributes"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Shape:
    """The visible properties of a path.

    Attributes:
        kind: file, directory or symbolic link.
        content: differs where the content, the link's target, or the file itself is another one.
        attributes: differs where mode, owner or time is another one.
    """

    kind: Kind
    content: bytes
    attributes: bytes


def shape_of(state: State | None) -> Shape | None:
    """The shape of a state; `None` where nothing is there."""
    if state is None or state.kind is Kind.ABSENT:
        return None
    owner = b"" if state.owner is None else b"\0".join(state.owner)
    attributes = b"%o %d %s" % (state.mode, state.mtime, owner)
    if state.kind is Kind.DIRECTORY:
        # A directory that two nodes made is one directory, whichever of them it comes from.
        return Shape(state.kind, b"", attributes)
    return Shape(state.kind, (state.content or b"") + b"\0" + (state.origin or b"") + b"\0" + state.target, attributes)


def events_between(before: Shape | None, after: Shape | None) -> tuple[EventType, ...]:
    """The events between two shapes: none, one, or two if the kind differs."""
    if before == after:
        return ()
    if before is None:
        return (EventType.CREATE,)
    if after is None:
        return (EventType.DELETE,)
    if before.kind is not after.kind:
        return (EventType.DELETE, EventType.CREATE)
    return (EventType.ATTRIBUTES if before.content == after.content else EventType.MODIFY,)
