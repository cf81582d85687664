"""The plan: the difference between the working set and the view, as steps that can be published (docs/fs.md).

A plan is made holding the working set's lock, drafted holding the replica's, and its outcome is taken over holding the
first one again.  In between applications go on, so a step holds copies, and tells by versions whether they are still
the newest.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace

from basefs.errors import BaseFSError, PathError
from basefs.fs.staging.inode import Inode
from basefs.fs.staging.overlay import MISSING
from basefs.fs.staging.records import Taken, TakenInode
from basefs.fs.staging.scratch import is_temporary_name
from basefs.fs.staging.vacancies import RENAME_SECONDS
from basefs.fs.staging.workingset import WorkingSet
from basefs.log.content import Content
from basefs.log.hashes import EntryHash
from basefs.path import Path
from basefs.replica.replica import Attributes
from basefs.view.observed import Version
from basefs.view.states import Kind, Owner

#: What is published at once, so that nobody waits for the replica's lock for long: steps, of 1 to 3 ms each, and bytes
#: of content.  Fewer steps would cost more transactions, of 0.3 ms.
MAX_STEPS = 24
MAX_BYTES = 4 * 1024 * 1024


class Do(enum.IntEnum):
    """What a step does; in this order."""

    MAKE_DIRECTORY = 0
    MAKE = 1
    DELETE = 2
    #: Set the time of a directory, after everything in it was made.
    SET_TIME = 3


@dataclass(slots=True)
class Step:
    """One inode to publish, or one name to delete.

    Attributes:
        do: what is done.
        names: of the inode, the first one carries its content; or the one name to delete.
        kept: other names of the inode, which are not published.
        inode: `None` for a deletion.
        kind: of the inode.
        content: all of it, `None` if it is the published one.
        base: the write entry with that one.
        target: of a symbolic link.
        mode, owner, mtime: as in `Inode`; `None` keeps what is published.
        exact: whether an application has chosen the time.
        origin, home: the file of the view that it is, and where the view had it.
        leaves_home: whether that name is to be deleted.
        shown: what the view showed of it there, in case that it must be made anew.
        seen: what paths showed when they were changed here, see `rebase`.
        version, content_version: of the inode when the step was made.
        written: the entry with which the file ends, once its content was published.
        error: why it was not published.
    """

    do: Do
    names: tuple[Path, ...]
    inode: Inode | None = None
    kept: tuple[Path, ...] = ()
    kind: Kind = Kind.ABSENT
    content: Content | None = None
    base: EntryHash | None = None
    target: bytes = b""
    mode: int | None = None
    owner: Owner | None = None
    mtime: int | None = None
    exact: bool = False
    origin: EntryHash | None = None
    home: Path | None = None
    leaves_home: bool = False
    shown: Attributes | None = None
    seen: Mapping[Path, Version | None] = field(default_factory=dict)
    version: int = 0
    content_version: int = 0
    written: EntryHash | None = None
    error: BaseFSError | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What to publish now.

    Attributes:
        steps: in the order in which they are taken.
        position: how many frames the journal had when it was made.
        due: when the next of what is held back should be published, on the monotonic clock; `None`: nothing is.
    """

    steps: list[Step]
    position: int
    due: float | None


def make_plan(working: WorkingSet, *, patient: bool = False) -> Plan:
    """Everything that was closed; if `patient`, without what a program has probably not finished.

    That is the removal of a name which may be given to another file in a moment, and a new file of which every name
    looks temporary.
    """
    now = working.machine.steady()
    if not patient:
        working.vacancies.end()
    made: dict[Inode, tuple[Path, ...]] = {}
    gone: set[Path] = set()
    held = set()
    waits: list[float] = []
    for path, inode in sorted(working.overlay.items(), key=lambda item: item[0]):
        if inode is None:
            if until := working.vacancies.until(path, now):
                waits.append(until)
            else:
                gone.add(path)
        elif working.scratch.is_scratch(path) and not working.is_published(path):
            continue
        elif inode.unflushed and inode.kind is Kind.FILE:
            # Nobody has closed it: others shall not see half of it, nor that its old name is gone.
            if inode.home is not None:
                held.add(inode.home)
        elif patient and inode.closed_at + RENAME_SECONDS > now and _is_temporary(inode):
            waits.append(inode.closed_at + RENAME_SECONDS)
        else:
            made[inode] = (*made.get(inode, ()), path)
    gone -= held
    _uproot(working, made, gone)
    steps = [_step(working, inode, path) for inode, path in made.items()]
    times = [replace(step, do=Do.SET_TIME) for step in steps if step.do is Do.MAKE_DIRECTORY and step.exact]
    removals = [Step(Do.DELETE, (path,)) for path in sorted(gone)]
    return Plan([*steps, *times, *removals], working.journal.position, min(waits, default=None))


def _is_temporary(inode: Inode) -> bool:
    return inode.is_new and inode.kind is Kind.FILE and all(is_temporary_name(path[-1]) for path in inode.names)


def _uproot(working: WorkingSet, made: Mapping[Inode, object], gone: Set[Path]) -> None:
    """What loses its place in the view by this plan, and is not moved from there, is a new file before that happens.

    Otherwise it would be taken for what is published at that place, between two transactions or after a restart.
    """
    pending = dict.fromkeys(inode for _, inode in working.overlay.items() if inode is not None and not inode.is_new)
    for inode in pending:
        working.catch_up(inode)
        # Another name that stays is a better home: what is made anew would not be the same file.
        working.find_home(inode)
        if inode.kind is Kind.DIRECTORY or inode.home is None:
            continue
        slot = working.overlay.get(inode.home)
        if slot is None:
            loses = inode.home in gone and (inode not in made or any(map(working.is_directory_of_view, inode.names)))
        else:
            loses = slot is not MISSING and slot is not inode and (slot in made or inode in made)
        if loses:
            working.uproot(inode)


def _step(working: WorkingSet, inode: Inode, names: tuple[Path, ...]) -> Step:
    return Step(
        Do.MAKE_DIRECTORY if inode.kind is Kind.DIRECTORY else Do.MAKE,
        names,
        inode,
        tuple(path for path in inode.names if path not in names),
        inode.kind,
        content=inode.spool.content() if inode.dirty and inode.spool is not None else None,
        base=inode.base,
        target=inode.target,
        mode=inode.mode,
        owner=inode.owner,
        mtime=inode.mtime,
        exact=inode.exact,
        origin=inode.origin,
        home=inode.home,
        leaves_home=inode.home is not None and working.overlay.get(inode.home) is None,
        shown=inode.shown,
        version=inode.version,
        content_version=inode.content_version,
    )


def taken(position: int, steps: Iterable[Step]) -> Taken:
    """What the transaction that drafts these steps of a plan takes from the staging area, once it is drafted."""
    done = [step for step in steps if step.error is None]
    return Taken(
        position,
        inodes=tuple(
            TakenInode(step.inode.number, step.names, step.kept, not (step.do is Do.MAKE_DIRECTORY and step.exact))
            for step in done
            if step.inode is not None
        ),
        gone=tuple(path for step in done if step.inode is None for path in step.names),
    )


def rebase(working: WorkingSet, steps: Iterable[Step]) -> None:
    """Have steps follow what their paths showed, or what earlier transactions of their plan have made of that."""
    for step in steps:
        seen = {path: working.overlay.seen(path) for path in step.names}
        if step.content is not None and step.home is not None and step.home not in seen:
            # What is moved or linked as it is takes along what has come since; another content would replace that.
            seen[step.home] = _opened(working, step, step.home)
        step.seen = seen


def _opened(working: WorkingSet, step: Step, home: Path) -> Version | None:
    """What the home of a step showed when its content was changed; `None` for what it shows now."""
    if working.overlay.get(home) is not MISSING:
        return working.overlay.seen(home)
    try:
        now = working.replica.attributes(home).content
    except PathError:
        return None
    if step.base is None or step.base == now:
        return None
    return step.shown.version if step.shown is not None and step.shown.content == step.base else (step.base,)


def portions(steps: Iterable[Step], most: int = MAX_STEPS) -> Iterator[list[Step]]:
    """Cut a plan into pieces that are small enough for one transaction, directories and what carries a name first.

    `most`: steps of a piece.
    """
    steps = list(steps)
    emptied = {
        step.names[0][:depth] for step in steps if step.do is Do.DELETE for depth in range(1, len(step.names[0]))
    }
    portion: list[Step] = []
    size = 0
    for step in sorted(steps, key=lambda step: _order(step, emptied)):
        if portion and (len(portion) >= most or size >= MAX_BYTES):
            yield portion
            portion, size = [], 0
        portion.append(step)
        size += 0 if step.content is None else step.content.size
    if portion:
        yield portion


def _order(step: Step, emptied: set[Path]) -> tuple[bool, int, int, tuple[Path, ...]]:
    depth = len(step.names[0])
    # What takes the place of a directory can be made when nothing is left in that.
    is_late = step.do is Do.SET_TIME or (step.do is Do.MAKE and not emptied.isdisjoint(step.names))
    return is_late, step.do, depth if step.do <= Do.MAKE else -depth, step.names
