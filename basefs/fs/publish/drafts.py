"""Drafts: turns the steps of a plan into entries on what the view showed when the changes were made.

What has come to a path since then is no part of that (`basefs/view/observed.py`); the directories above are what they
are now.  Each draft is in the view before the next one is made (`Replica.commit`), so a step sees what those before it
did.  A step that is refused tells so and does not stop the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from basefs.errors import IncompleteContent, NotADirectory, NotFound, PathError, UnreadableContent
from basefs.fs.publish.plan import Do, Step
from basefs.log.content import Content
from basefs.log.hashes import EntryHash
from basefs.path import Path
from basefs.view.author import Author
from basefs.view.draft import Draft
from basefs.view.observed import Version
from basefs.view.states import DIRECTORY_MODE, Kind
from basefs.view.tree import Node

#: Gives the content of a write entry.
Load = Callable[[EntryHash | None], Content]


def drafts(author: Author, steps: Sequence[Step], load: Load) -> Iterator[Draft]:
    """The entries that publish these steps; sets `error` of those that cannot be, and `written` of the others."""
    for step in steps:
        step.error = step.written = None
    waiting = []
    for step in (step for step in steps if step.do <= Do.MAKE):
        if step.do is Do.MAKE_DIRECTORY:
            yield from _tried(author, step, _make_directory(author, step))
        elif any(_is_directory(author, path) for path in step.names):
            # What is deleted now has to make room first.
            waiting.append(step)
        else:
            yield from _tried(author, step, _make(author, step, load))
    for step in (step for step in steps if step.do is Do.DELETE):
        yield from _tried(author, step, _delete(author, step.names[0]))
    for step in waiting:
        yield from _tried(author, step, _make(author, step, load))
    for step in (step for step in steps if step.do is Do.SET_TIME):
        # Another node may have removed it.
        if _is_directory(author, step.names[0]):
            yield from _tried(author, step, _set(author, step, step.names[0]))


def _tried(author: Author, step: Step, made: Iterator[Draft]) -> Iterator[Draft]:
    is_directory = step.do in (Do.MAKE_DIRECTORY, Do.SET_TIME)
    versions: Mapping[Path, Version | None] = {}
    if not is_directory or (step.origin is None and not _is_directory(author, step.names[0])):
        # Directories are one, whoever made them, and what was set of one does not keep others from replacing it.
        versions = step.seen
    try:
        with author.based_on(versions):
            for draft in made:
                author.check_quotas(draft)
                yield draft
    except (PathError, IncompleteContent, UnreadableContent) as error:
        # The log may have come from a backup, and lack the content that a pending file was published with; and what
        # another node has written may be unreadable.
        step.error = error


def _find(author: Author, path: Path) -> Node | None:
    try:
        return author.node(path)
    except (NotFound, NotADirectory):
        return None


def _is_directory(author: Author, path: Path) -> bool:
    node = _find(author, path)
    return node is not None and node.is_directory


def _parents(author: Author, path: Path) -> Iterator[Draft]:
    """Make the directories above again that another node has removed: what is written in them must not be lost."""
    there = len(path) - 1
    while there > 0 and _find(author, path[:there]) is None:
        there -= 1
    for depth in range(there + 1, len(path)):
        yield author.make_directory(path[:depth])


def _make_directory(author: Author, step: Step) -> Iterator[Draft]:
    path = step.names[0]
    node = _find(author, path)
    if node is not None and node.is_directory:
        if (step.mode, step.owner) != (None, None):
            yield author.set_attributes(path, mode=step.mode, owner=step.owner)
        return
    if step.origin is not None:
        # Another node has removed it, or put something else there: an attribute alone does not bring it back.
        return
    if node is not None:
        yield author.remove(path, directory=False)
    yield from _parents(author, path)
    mode = DIRECTORY_MODE if step.mode is None else step.mode
    yield author.make_directory(path, mode=mode, owner=step.owner, mtime=step.mtime)


def _delete(author: Author, path: Path) -> Iterator[Draft]:
    node = _find(author, path)
    if node is not None:
        yield author.remove(path, directory=node.is_directory)


def _set(author: Author, step: Step, path: Path) -> Iterator[Draft]:
    mtime = step.mtime if step.exact else None
    if (step.mode, step.owner, mtime) != (None, None, None):
        yield author.set_attributes(path, mode=step.mode, owner=step.owner, mtime=mtime)


def _make(author: Author, step: Step, load: Load) -> Iterator[Draft]:
    """A file or a symbolic link, under all of its names."""
    path = sorted(step.names, key=lambda name: not _is_same(author, step, _find(author, name)))
    first = path[0]
    yield from _parents(author, first)
    there = _find(author, first)
    at_home = None if step.home is None else _find(author, step.home)
    if _is_same(author, step, there):
        yield from _fill(author, step, first)
    elif step.home is not None and _is_same(author, step, at_home) and (there is None or not step.leaves_home):
        if there is not None:
            yield from _delete(author, first)
        yield author.rename(step.home, first) if step.leaves_home else author.make_link(first, step.home)
        yield from _fill(author, step, first)
    else:
        yield from _make_anew(author, step, first, there, load)
    for other in path[1:]:
        there = _find(author, other)
        made = author.node(first)
        if there is None or author.file_of(there) != author.file_of(made):
            yield from _parents(author, other)
            if there is not None:
                yield from _delete(author, other)
            yield author.make_link(other, first)


def _make_anew(author: Author, step: Step, path: Path, there: Node | None, load: Load) -> Iterator[Draft]:
    """A file or a symbolic link that cannot be moved from anywhere."""
    if step.shown is not None:
        step.mode = step.shown.mode if step.mode is None else step.mode
        step.owner = step.shown.owner if step.owner is None else step.owner
        step.mtime = step.shown.mtime if step.mtime is None else step.mtime
    # Before anything makes room for it: it may not be here.
    content = load(step.base) if step.content is None and step.kind is not Kind.SYMLINK else step.content
    if there is not None and (there.is_directory or len(author.names_of(path, there)) > 1):
        # Its other names keep what they have.
        yield from _delete(author, path)
    if step.kind is Kind.SYMLINK:
        yield author.make_symlink(path, step.target, mtime=step.mtime, replace=True)
        yield from _set(author, step, path)
    else:
        assert content is not None
        yield _write(author, step, path, content)


def _fill(author: Author, step: Step, path: Path) -> Iterator[Draft]:
    """The content and attributes of a file that is published at this path."""
    if step.content is None:
        yield from _set(author, step, path)
    else:
        yield _write(author, step, path, step.content)


def _write(author: Author, step: Step, path: Path, content: Content) -> Draft:
    mtime = step.mtime if step.exact else None
    draft = author.write(path, content, mode=step.mode, owner=step.owner, mtime=mtime, written=step.mtime)
    # The write, and what follows it in its line: its mode.
    step.written = next(iter(draft.contents), None)
    for entry in draft.entries:
        if entry.parent == step.written:
            step.written = entry.hash
    return draft


def _is_same(author: Author, step: Step, node: Node | None) -> bool:
    """Whether it is the file of a step, or what that was made of where another node has written to it since."""
    file = None if node is None else author.file_of(node)
    origin = None if node is None else step.origin
    while origin is not None and origin != file:
        origin = author.continues(origin)
    return origin is not None
