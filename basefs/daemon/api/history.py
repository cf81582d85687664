"""What commands can ask about the history of paths, and have brought back from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from basefs.daemon.api.messages import (
    AcceptConflicts,
    GetContent,
    Handlers,
    ListConflicts,
    ListRevisions,
    ListTree,
    LostRevision,
    Revert,
    RevisionRow,
    SettledConflict,
    TreeRow,
)
from basefs.errors import NotFound, UsageError
from basefs.log.hashes import EntryHash, Fingerprint
from basefs.path import Path, display, parse, to_text
from basefs.replica.replica import Replica
from basefs.view.author import Author
from basefs.view.draft import Draft
from basefs.view.history import Revision, Survey
from basefs.view.states import Kind


class HistoryServices:
    """History, conflicts and reverts."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    def handlers(self) -> Handlers:
        """What answers each request."""
        return {
            ListRevisions: self.revisions,
            ListTree: self.tree,
            GetContent: self.content,
            Revert: self.revert,
            ListConflicts: self.conflicts,
            AcceptConflicts: self.accept,
        }

    def _surveys(self, top: Path) -> Iterator[tuple[Path, Survey]]:
        """Every path that ever was at and below one; the lock is taken for one path at a time."""
        for path in self._replica.plan(lambda author: author.past.paths(top)):
            yield path, self._replica.survey(path)

    def count_conflicts(self) -> int:
        """How many revisions have lost a conflict, in the whole filesystem."""
        return sum(len(self._replica.survey(place).conflicts()) for place in self._replica.forked_paths())

    def revisions(self, request: ListRevisions) -> list[RevisionRow]:
        """See `ListRevisions`."""
        path = parse(request.path)
        key_names = self._replica.key_names()
        if not request.below:
            return [_row(path, revision, key_names) for revision in self._replica.survey(path).revisions()]
        found = [(place, revision) for place, survey in self._surveys(path) for revision in survey.revisions()]
        hashes = [revision.entry.hash for _, revision in found]
        order = self._replica.plan(lambda author: [author.past.sequence(hash) for hash in hashes])
        rows = sorted(zip(order, found, strict=True), key=lambda row: row[0], reverse=True)
        return [_row(place, revision, key_names) for _, (place, revision) in rows]

    def tree(self, request: ListTree) -> list[TreeRow]:
        """See `ListTree`."""
        key_names = self._replica.key_names()
        return [
            TreeRow(_row(path, revision, key_names), depth, revision.entry.parent.hex())
            for path, survey in self._surveys(parse(request.path))
            for depth, revision in survey.branches()
        ]

    def content(self, request: GetContent) -> bytes:
        """See `GetContent`."""
        return self._replica.content_at(self._entry(request.entry))

    def revert(self, request: Revert) -> int:
        """See `Revert`."""
        path = parse(request.path)
        at = request.at
        target = None if request.entry is None else self._entry(request.entry)

        def make(author: Author) -> Draft:
            if at is not None:
                return author.reverter.tree(path, author.past.sequence_at(at))
            assert target is not None, "either an entry or a time"
            place = author.past.path_of(target)
            if place == path:
                return author.reverter.path(path, target)
            if place[: len(path)] != path:
                raise NotFound(
                    f"{target.hex()[:12]} is no revision of {display(path)}, nor of anything below it: 'basefs log' "
                    "lists them"
                )
            return author.reverter.tree(path, author.past.sequence(target))

        return len(self._replica.commit(make).entries)

    def conflicts(self, request: ListConflicts) -> list[LostRevision]:
        """See `ListConflicts`."""
        return self._conflicts(parse(request.path))

    def _conflicts(self, top: Path) -> list[LostRevision]:
        self._replica.plan(lambda author: author.past.paths(top))
        key_names = self._replica.key_names()
        return [
            LostRevision(
                path=to_text(place),
                lost=conflict.lost.hash.hex(),
                lost_kind=_kind(survey, conflict.lost.hash),
                lost_key=key_names.get(conflict.lost.fingerprint),
                won=conflict.won.hash.hex(),
                won_kind=_kind(survey, conflict.won.hash),
                won_key=key_names.get(conflict.won.fingerprint),
                rule=conflict.rule.value,
            )
            for place in self._replica.forked_paths()
            if place[: len(top)] == top
            for survey in (self._replica.survey(place),)
            for conflict in survey.conflicts()
        ]

    def accept(self, request: AcceptConflicts) -> list[SettledConflict]:
        """See `AcceptConflicts`."""
        conflicts = self._conflicts(parse(request.path))
        settled: set[str] = set()
        for place in sorted({parse(conflict.path) for conflict in conflicts}):
            applied = self._replica.commit(partial(_accept, place))
            settled.update(entry.parent.hex() for entry in applied.entries)
        return [SettledConflict(conflict, conflict.lost in settled) for conflict in conflicts]

    def _entry(self, prefix: str) -> EntryHash:
        """The one entry whose hash begins with what the user typed."""
        found = self._replica.find_entries(prefix)
        if not found:
            raise NotFound(f"there is no entry {prefix}: 'basefs log' lists those of a path")
        if len(found) > 1:
            raise UsageError(f"{prefix} is the beginning of more than one entry: give more digits")
        return found[0]


def _accept(path: Path, author: Author) -> Draft:
    return author.reverter.accept(path)


def _kind(survey: Survey, entry: EntryHash) -> str:
    state = survey.states.get(entry)
    return Kind.ABSENT.value if state is None else state.kind.value


def _row(path: Path, revision: Revision, key_names: Mapping[Fingerprint, str]) -> RevisionRow:
    entry, state = revision.entry, revision.state
    return RevisionRow(
        path=to_text(path),
        entry=entry.hash.hex(),
        time=entry.timestamp,
        action=entry.action.name.lower(),
        key=key_names.get(entry.fingerprint),
        fingerprint=entry.fingerprint.hex(),
        size=None if state is None else state.size,
        standing=revision.standing.value,
    )
