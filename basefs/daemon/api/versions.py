"""What commands can ask about versions: what was at a path at a moment, how versions differ, and their contents."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from string import hexdigits

from basefs.daemon.api.messages import (
    LEAST_DIGITS,
    CompareRevisions,
    ContentPiece,
    GetVersion,
    Handlers,
    ListDifferences,
    Moment,
    PathVersions,
    ReadContents,
    Version,
)
from basefs.errors import IncompleteContent, NotFound, UsageError
from basefs.log.entries import Action, Entry
from basefs.log.hashes import EntryHash
from basefs.path import Path, display, parse, to_text
from basefs.replica.replica import Replica
from basefs.view.author import Author
from basefs.view.history import Revision, Survey
from basefs.view.states import Kind, State
from basefs.view.supposing import Difference
from basefs.view.tree import Node


def find_entry(replica: Replica, prefix: str) -> EntryHash:
    """The one entry whose hash begins with what the user typed.  Raises `NotFound`, `UsageError`."""
    if len(prefix) < LEAST_DIGITS or set(prefix.lower()) - set(hexdigits):
        raise UsageError(
            f"{prefix!r} is not a hash: give at least {LEAST_DIGITS} digits of one that 'basefs log' lists"
        )
    found = replica.find_entries(prefix)
    if not found:
        raise NotFound(f"there is no entry {prefix}: 'basefs log' lists the entries of a path")
    if len(found) > 1:
        raise UsageError(f"{prefix} is ambiguous: give more digits of the hash")
    return found[0]


def sequence_of(replica: Replica, author: Author, moment: Moment) -> int:
    """The number of the last entry that had arrived at a moment.  Raises `NotFound`, `UsageError`."""
    if moment.time is not None:
        return author.past.sequence_at(moment.time)
    assert moment.entry is not None, "either a time or an entry"
    return author.past.sequence(find_entry(replica, moment.entry))


class VersionServices:
    """Versions of paths, and their contents."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    def handlers(self) -> Handlers:
        """What answers each request."""
        return {
            GetVersion: self.version,
            ListDifferences: self.differences,
            CompareRevisions: self.compare,
            ReadContents: self.contents,
        }

    def version(self, request: GetVersion) -> Version:
        """See `GetVersion`."""
        path = parse(request.path)
        found = self._versions(path, request.at).get(path)
        if found is None:
            where = display(path)
            raise NotFound(f"nothing is at {where}" if request.at is None else f"nothing was at {where} then")
        return found

    def differences(self, request: ListDifferences) -> list[PathVersions]:
        """See `ListDifferences`."""
        path = parse(request.path)
        if request.old is None:
            before = self._live(path, self._replica.plan(lambda author: author.past.before_last_change(path)))
        else:
            before = self._versions(path, request.old)
        after = self._versions(path, request.new)
        if not before and not after:
            raise NotFound(f"nothing was at {display(path)} then")
        differing = (at for at in before.keys() | after.keys() if not _is_same(before.get(at), after.get(at)))
        return [PathVersions(to_text(at), before.get(at), after.get(at)) for at in sorted(differing)]

    def _versions(self, path: Path, moment: Moment | None) -> dict[Path, Version]:
        """The versions of the live paths at and below a path at a moment; of a revision of the path that alone."""
        if moment is None:
            return self._live(path, None)
        if moment.entry is not None:
            entry = find_entry(self._replica, moment.entry)
            if self._replica.plan(lambda author: author.past.path_of(entry)) == path:
                version = self._revision(path, entry)
                if version is None or version.kind != Kind.DIRECTORY.value:
                    return {} if version is None else {path: version}
        return self._live(path, self._replica.plan(lambda author: sequence_of(self._replica, author, moment)))

    def _live(self, path: Path, sequence: int | None) -> dict[Path, Version]:
        states = self._replica.plan(lambda author: author.past.live(path, sequence))
        return {at: version_of(state, entry) for at, (state, entry) in states.items()}

    def _revision(self, path: Path, entry: EntryHash) -> Version | None:
        """The version of a path after one of its revisions; `None` where nothing was there."""
        revisions = self._replica.examine(path, Survey.revisions)
        return _version_after(next(one for one in revisions if one.entry.hash == entry))

    def compare(self, request: CompareRevisions) -> list[PathVersions]:
        """See `CompareRevisions`."""
        known: dict[Path, dict[str, Revision]] = {}
        found = []
        for pair in request.pairs:
            new = find_entry(self._replica, pair.new)
            path = self._replica.plan(lambda author, new=new: author.past.path_of(new))  # type: ignore[misc]
            if path not in known:
                revisions = self._replica.examine(path, Survey.revisions)
                known[path] = {one.entry.hash.hex(): one for one in revisions}
            after = known[path][new.hex()]
            if pair.old is None:
                before = self._version_before(after.entry, known[path])
            else:
                before = _version_after(known[path][pair.old])
            found.append(PathVersions(to_text(path), before, _version_after(after)))
        return found

    def _version_before(self, entry: Entry, revisions: Mapping[str, Revision]) -> Version | None:
        """The version that an entry builds on."""
        # The parent of a first entry is the directory, which is another path.
        before = revisions.get(entry.parent.hex())
        return None if before is None else _version_after(before)

    def contents(self, request: ReadContents) -> list[bytes | None]:
        """See `ReadContents`."""
        return [self._content(piece) for piece in request.pieces]

    def _content(self, piece: ContentPiece) -> bytes | None:
        try:
            with contextlib.closing(self._replica.open_at(find_entry(self._replica, piece.entry))) as content:
                return content.read(piece.offset, piece.size)
        except IncompleteContent:
            return None


def _version_after(revision: Revision) -> Version | None:
    state, entry = revision.state, revision.entry
    if state is not None and (state.complete or state.kind is Kind.FILE):
        return None if state.kind is Kind.ABSENT else version_of(state, entry)
    if entry.action is Action.WRITE:
        # Its directory is gone, or what it builds on has not arrived.
        mtime = entry.mtime / 10**9
        hash = entry.hash.hex()
        return Version(Kind.FILE.value, None, None, entry.size, mtime, None, None, [], hash, hash)
    return None


def version_of(state: State, entry: Entry) -> Version:
    """What is at a path that ended with an entry in a state."""
    owner = None
    if state.owner is not None:
        names = (state.owner.user, state.owner.uid), (state.owner.group, state.owner.gid)
        owner = ":".join(_text(name) or str(number) for name, number in names)
    return Version(
        kind=state.kind.value,
        mode=f"{state.mode:04o}",
        owner=owner,
        size=state.size if state.kind is Kind.FILE else 0,
        mtime=state.mtime / 10**9,
        target=state.target.decode("utf-8", "surrogateescape") if state.kind is Kind.SYMLINK else None,
        device=f"{os.major(state.rdev)}:{os.minor(state.rdev)}" if state.rdev else None,
        xattrs=[f"{_text(name)}={_text(value)}" for name, value in state.xattrs],
        content=None if state.content is None else state.content.hex(),
        entry=entry.hash.hex(),
    )


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")


def _is_same(before: Version | None, after: Version | None) -> bool:
    """Whether two versions look alike, whichever entries made them."""
    if before is None or after is None:
        return before is after
    return _look(before) == _look(after)


def _look(version: Version) -> tuple[object, ...]:
    attributes = version.mode, version.owner, version.mtime, version.device, tuple(version.xattrs)
    return version.kind, version.target, version.content, attributes


def path_changes(changed: Sequence[Difference]) -> list[PathVersions]:
    """The paths that a plan changes, those above first."""
    return [PathVersions(to_text(change.path), _version(change.before), _version(change.after)) for change in changed]


def _version(node: Node | None) -> Version | None:
    return None if node is None else version_of(node.state, node.outcome.tips[0])
