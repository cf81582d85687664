"""Events: the user's form of a change, of one of four types.

A path has a shape, or nothing is there.  Events are the difference of two shapes, so a subscriber that keeps the last
shape of each path can derive the events since, regardless of the steps in between.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from basefs.view.states import Kind, State, encode_mode, encode_xattrs


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
        content: differs where the content, the link's target, the device, or the file itself is another one.
        attributes: differs where mode, owner, time or extended attributes are others.
    """

    kind: Kind
    content: bytes
    attributes: bytes


def shape_of(state: State | None) -> Shape | None:
    """The shape of a state; `None` where nothing is there."""
    if state is None or state.kind is Kind.ABSENT:
        return None
    kept = encode_mode(state.mode, state.owner), encode_xattrs(state.xattrs)
    attributes = b"%d %b %b" % (state.mtime, *kept)
    if state.kind is Kind.DIRECTORY:
        # A directory that two nodes made is one directory, whichever of them it comes from.
        return Shape(state.kind, b"", attributes)
    device = b"%d" % state.rdev
    return Shape(state.kind, b"\0".join((state.content or b"", state.origin or b"", device, state.target)), attributes)


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
