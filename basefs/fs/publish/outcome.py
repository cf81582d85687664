"""Outcomes: what the working set keeps of a step after it was published."""

from __future__ import annotations

import contextlib
import logging

from basefs.errors import NotEmpty, PathError, StoreError
from basefs.fs.publish.plan import Do, Step
from basefs.fs.staging.inode import Inode
from basefs.fs.staging.overlay import MISSING
from basefs.fs.staging.workingset import WorkingSet
from basefs.log.content import PIECE
from basefs.path import Path, display
from basefs.replica.replica import Attributes
from basefs.view.states import Kind, State

log = logging.getLogger(__name__)


def take_over(working: WorkingSet, step: Step) -> None:
    """Take a published step out of the working set, as far as nothing has changed since it was planned."""
    if step.do is Do.MAKE_DIRECTORY and step.exact and step.error is None:
        assert step.inode is not None
        _take_over_directory(working, step, step.inode)
        return
    working.in_flight.difference_update(step.names)
    if step.do is Do.DELETE:
        _take_over_deletion(working, step)
    else:
        assert step.inode is not None
        _follow(working, step)
        _take_over_inode(working, step, step.inode)
    for path in step.names:
        working.settle_directory(path[:-1])


def _take_over_deletion(working: WorkingSet, step: Step) -> None:
    path = step.names[0]
    if step.error is not None and not isinstance(step.error, NotEmpty):
        log.warning("cannot publish the removal of %s, restored: %s", display(path), step.error)
    # A directory that is not empty holds what another node has made in it meanwhile, so it stays.
    if working.overlay.get(path) is None:
        if step.error is None:
            working.drop(path)
        else:
            working.withdraw(path)
        _tell(working, path, None)
    for inode in list(working.by_origin.values()):
        working.forget_idle(inode)


def _take_over_directory(working: WorkingSet, step: Step, inode: Inode) -> None:
    """The step that sets its time comes later, maybe in another transaction: what it holds is in the view until then.

    As a directory that was never published it would hide that.  Raises `StoreError`.
    """
    attributes = _published(working, step)
    if inode.is_new and not inode.unlinked and attributes is not None and attributes.origin is not None:
        _enter(working, step, inode, attributes)
        working.by_origin[attributes.origin] = inode


def _follow(working: WorkingSet, step: Step) -> None:
    """What was written behind a new link has been seen at that, too."""
    for path in step.names:
        seen = working.overlay.seen(path)
        if seen and step.written is not None and step.written not in seen:
            working.overlay.see(path, (*seen, step.written))


def _take_over_inode(working: WorkingSet, step: Step, inode: Inode) -> None:
    if step.error is not None:
        if inode.refused != str(step.error):
            inode.refused = str(step.error)
            log.warning("cannot publish %s, kept on this node only: %s", display(step.names[0]), step.error)
        return
    if inode.unlinked:
        return
    lost = {path: state for path in step.names if (state := _lost(working, path)) is not None}
    own = lost.get(step.names[0])
    attributes = _published(working, step) if own is None else _attributes(working, step.names[0], own)
    if attributes is None or attributes.origin is None:
        # Another node has already removed it again, or given its name to something else.
        if inode.version == step.version:
            _release(working, step, inode)
            # Older versions learn that these names are gone.
            for path in step.names:
                working.follow_names(path, inode)
        return
    if inode.content_version == step.content_version:
        inode.dirty = False
    _enter(working, step, inode, attributes)
    if inode.version != step.version:
        # It goes on being changed: what is left is published next time.
        working.lead(attributes.origin, inode)
        return
    _remember(working, inode, attributes)
    _release(working, step, inode)
    if inode.handles or inode.names:
        working.lead(attributes.origin, inode)
    if inode.base is not None and inode.base != attributes.content:
        # The older version that is open goes on, and all of these names show another one.
        lost = {path: state for path in step.names if (state := working.replica.state_after(inode.base)) is not None}
    for path, state in lost.items():
        _tell(working, path, state)


def _is_older(working: WorkingSet, step: Step, inode: Inode, attributes: Attributes) -> bool:
    """Whether another version is open than the one that was published as it was, with what had come."""
    if step.written is not None or inode.kind is not Kind.FILE or inode.dirty or inode.base == attributes.content:
        return False
    if not inode.handles and inode.version == step.version:
        return False
    with contextlib.suppress(StoreError):
        working.load(inode)
        with contextlib.closing(working.open_content(attributes.content)) as content:
            # Made anew it has another entry, with the same content.
            pieces = range(0, max(inode.size, content.size), PIECE)
            return any(inode.read(PIECE, at) != content.read(at, PIECE) for at in pieces)
    return True


def _lost(working: WorkingSet, path: Path) -> State | None:
    """What a path is in the branch of this node, where the view shows that of another one."""
    seen = working.overlay.seen(path)
    with contextlib.suppress(PathError):
        if seen:
            shown = working.replica.attributes(path)
            # Of merged directories all branches are shown.
            if not (shown.version[-1] in seen or (shown.kind is Kind.DIRECTORY and set(seen) & set(shown.version))):
                return working.replica.state_after(seen[-1])
    return None


def _attributes(working: WorkingSet, path: Path, own: State) -> Attributes:
    """The attributes of a path in the branch of this node."""
    return working.replica.attributes(path)._replace(
        kind=own.kind,
        mode=own.mode,
        owner=own.owner,
        size=own.size,
        mtime=own.mtime,
        version=working.overlay.seen(path) or (),
        origin=own.origin,
        content=own.content,
    )


def _tell(working: WorkingSet, path: Path, before: State | None) -> None:
    """A path is what the view shows now, and that is not what was done here."""
    with contextlib.suppress(PathError):
        tip = working.replica.attributes(path).entry
        after = working.replica.survey(path).outcome
        if after is not None and after.tips[0].hash == tip and working.overlay.get(path) is MISSING:
            working.overruled(path, before, after.state)


def _enter(working: WorkingSet, step: Step, inode: Inode, attributes: Attributes) -> None:
    """An inode is what the view shows at its first name."""
    working.identities.carry(inode.number, inode.origin, attributes)
    is_older = _is_older(working, step, inode, attributes)
    working.place(inode, attributes, step.names[0])
    if is_older and inode.shown is not None:
        # Who has it open keeps that version, and others open what has come.
        inode.shown = inode.shown._replace(mode=attributes.mode, owner=attributes.owner)
        return
    inode.shown = attributes
    if step.written is not None or not inode.dirty:
        # What was written meanwhile goes on from there.
        inode.base = attributes.content


def _published(working: WorkingSet, step: Step) -> Attributes | None:
    try:
        attributes = working.replica.attributes(step.names[0])
    except PathError:
        return None
    return attributes if attributes.kind is step.kind else None


def _remember(working: WorkingSet, inode: Inode, attributes: Attributes) -> None:
    """Keep what an entry does not hold: nanoseconds."""
    mtime, ctime = working.identities.times(attributes)
    if inode.mtime is not None:
        mtime = inode.mtime
    working.identities.remember(attributes, mtime, inode.ctime or max(mtime, ctime))


def _release(working: WorkingSet, step: Step, inode: Inode) -> None:
    inode.settle()
    for path in step.names:
        if working.overlay.get(path) is inode:
            working.drop(path)
            inode.names.pop(path, None)
    working.forget_idle(inode)


def separate_scratch(working: WorkingSet) -> None:
    """What is left of a published file under scratch names is a file of its own: they never leave this node."""
    pending = dict.fromkeys(inode for _, inode in working.overlay.items() if inode is not None and not inode.is_new)
    for inode in pending:
        if inode.kind is not Kind.DIRECTORY and not inode.handles and working.stays_here(inode):
            working.separate(inode)
