"""What commands can ask about the history of paths, and have brought back from it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from functools import partial
from typing import NoReturn

from basefs.daemon.api.messages import (
    AcceptConflicts,
    Handlers,
    ListConflicts,
    ListIgnored,
    ListRevisions,
    ListTree,
    LostRevision,
    Revert,
    RevertOutcome,
    RevisionRow,
    SettledConflict,
    TreeRow,
)
from basefs.daemon.api.versions import find_entry, path_changes, sequence_of
from basefs.errors import NotFound, UsageError
from basefs.log.entries import KEY_ACTIONS, Action, Entry
from basefs.log.hashes import Fingerprint
from basefs.log.keys import named_key
from basefs.path import Path, display, parse, to_text
from basefs.replica.replica import Replica
from basefs.view.author import Author
from basefs.view.draft import Draft
from basefs.view.events import EventType
from basefs.view.history import Revision, RevisionStatus, Survey
from basefs.view.revert import RevertPlan
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
            Revert: self.revert,
            ListConflicts: self.conflicts,
            ListIgnored: self.ignored,
            AcceptConflicts: self.accept,
        }

    def count_conflicts(self) -> int:
        """How many revisions have lost a conflict, in the whole filesystem."""
        return sum(len(self._replica.examine(place, Survey.conflicts)) for place in self._replica.forked_paths())

    def revisions(self, request: ListRevisions) -> list[RevisionRow]:
        """See `ListRevisions`."""
        path = parse(request.path)
        if request.below:
            found = [(at, revision) for at, revisions in self._histories(path) for revision in revisions]
        else:
            found = [(path, revision) for revision in self._replica.examine(path, Survey.revisions)]
        rows = self._rows(found)
        return list(reversed(rows if request.arrival else _by_signing(rows, found)))

    def _histories(self, top: Path) -> Iterator[tuple[Path, list[Revision]]]:
        """The revisions of every path that ever was at and below one; the lock is taken for one path at a time."""
        for path in self._replica.plan(lambda author: author.past.paths(top)):
            yield path, self._replica.examine(path, Survey.revisions)

    def _rows(self, found: list[tuple[Path, Revision]]) -> list[RevisionRow]:
        """Revisions as rows, in the order of arrival."""
        arrivals = self._replica.plan(lambda author: author.past.arrivals([one.entry.hash for _, one in found]))
        links = [one.entry for _, one in found if one.entry.action is Action.LINK]
        sources = dict(zip(links, self._replica.plan(lambda author: author.past.sources(links)), strict=True))
        key_names = self._replica.key_names()
        return [
            _row(path, revision, arrival.time, sources.get(revision.entry), key_names)
            for arrival, (path, revision) in sorted(
                zip(arrivals, found, strict=True), key=lambda arrived: arrived[0].sequence
            )
        ]

    def word(self, path: Path, entry: Entry) -> str:
        """What an entry of a path did, as `RevisionRow.action`."""
        if entry.action is Action.REVERT:
            for revision in self._replica.examine(path, Survey.revisions):
                if revision.entry.hash == entry.hash:
                    return self._rows([(path, revision)])[0].action
        return _word(entry)

    def tree(self, request: ListTree) -> list[TreeRow]:
        """See `ListTree`."""
        found = []
        for path in self._replica.plan(lambda author: author.past.paths(parse(request.path))):
            branches = self._replica.examine(path, Survey.branches)
            rows = {row.entry: row for row in self._rows([(path, revision) for _, revision in branches])}
            for depth, revision in branches:
                found.append(TreeRow(rows[revision.entry.hash.hex()], depth, revision.entry.parent.hex()))
        return found

    def revert(self, request: Revert) -> RevertOutcome:
        """See `Revert`."""
        path = parse(request.path)
        plans: list[RevertPlan] = []
        kept: list[Path] = []

        def make(author: Author) -> Draft:
            plan = author.reverter.plan(path, self._reverted(author, path, request))
            plans.append(plan)
            if request.at is not None and request.keep_new:
                kept[:] = author.reverter.kept(path, sequence_of(self._replica, author, request.at), plan.draft)
            return plan.draft if self._may_revert(plan, request) else Draft()

        if request.dry_run:
            self._replica.plan(make)
        else:
            self._replica.commit(make)
        plan = plans[-1]
        reverted = bool(plan.draft.entries) and self._may_revert(plan, request)
        return RevertOutcome(len(plan.draft.entries), path_changes(plan.changed), list(map(to_text, kept)), reverted)

    @staticmethod
    def _may_revert(plan: RevertPlan, request: Revert) -> bool:
        return not request.dry_run and (request.most_deleted is None or plan.deleted <= request.most_deleted)

    def _reverted(self, author: Author, path: Path, request: Revert) -> Draft:
        if request.at is not None:
            return author.reverter.tree(path, sequence_of(self._replica, author, request.at), keep_new=request.keep_new)
        assert request.entry is not None, "either an entry or a moment"
        try:
            target = find_entry(self._replica, request.entry)
        except (NotFound, UsageError):
            # No hash is right for a path that never was.
            self._replica.survey(path)
            raise
        place = author.past.path_of(target)
        if place == path:
            return author.reverter.path(path, target)
        self._refuse_other(path, place, target.hex()[:12])

    def _refuse_other(self, path: Path, place: Path, entry: str) -> NoReturn:
        """Raise what was probably meant with an entry of another path."""
        name = self._replica.directory.name
        one = f"'{_command(name, place)} {entry}' restores that alone"
        if place[: len(path)] != path:
            raise NotFound(f"{entry} is a revision of {display(place)}, not of {display(path)}: {one}")
        raise UsageError(
            f"{entry} is a revision of {display(place)}, not of {display(path)}: {one}; "
            f"'{_command(name, path)} --at {entry} --dry-run' lists what would become of all of {display(path)}"
        )

    def conflicts(self, request: ListConflicts) -> list[LostRevision]:
        """See `ListConflicts`."""
        return self._conflicts(parse(request.path))

    def _conflicts(self, top: Path) -> list[LostRevision]:
        self._replica.plan(lambda author: author.past.paths(top))
        return [
            conflict
            for place in self._replica.forked_paths()
            if place[: len(top)] == top
            for conflict in self.conflicts_at(place)
        ]

    def conflicts_at(self, path: Path) -> list[LostRevision]:
        """The revisions of a path that have lost and are not settled.  Raises `NotFound` where nothing ever was."""
        conflicts = self._replica.examine(path, Survey.conflicts)
        if not conflicts:
            return []
        revisions = self._replica.examine(path, Survey.revisions)
        rows = {row.entry: row for row in self._rows([(path, revision) for revision in revisions])}
        shown = next((row for row in rows.values() if row.standing == "current" and row.kind is not None), None)
        return [
            LostRevision(
                to_text(path),
                rows[conflict.lost.hash.hex()],
                shown or rows[conflict.won.hash.hex()],
                conflict.rule.value,
            )
            for conflict in conflicts
        ]

    def ignored(self, request: ListIgnored) -> list[RevisionRow]:
        """See `ListIgnored`."""
        found = [
            (path, revision)
            for path, revisions in self._histories(parse(request.path))
            for revision in revisions
            if revision.standing in (RevisionStatus.IGNORED, RevisionStatus.WITHHELD)
        ]
        return self._rows(found)

    def accept(self, request: AcceptConflicts) -> list[SettledConflict]:
        """See `AcceptConflicts`."""
        conflicts = self._conflicts(parse(request.path))
        settled: set[str] = set()
        places = sorted({parse(conflict.path) for conflict in conflicts})
        for place in places:
            self._replica.plan(partial(_accept, place))  # all of them or, if one is not permitted, none
        for place in places:
            applied = self._replica.commit(partial(_accept, place))
            settled.update(entry.parent.hex() for entry in applied.entries)
        return [SettledConflict(conflict, conflict.lost.entry in settled) for conflict in conflicts]


def _word(entry: Entry) -> str:
    """What an entry does; a change of mode, owner or time as events call it."""
    return EventType.ATTRIBUTES.value if entry.action is Action.MODE else entry.action.name.lower()


def _command(name: str, path: Path) -> str:
    return shlex.join(("basefs", "revert", f"{name}:{to_text(path)}"))


def _accept(path: Path, author: Author) -> Draft:
    return author.reverter.accept(path)


def _by_signing(rows: list[RevisionRow], found: list[tuple[Path, Revision]]) -> list[RevisionRow]:
    """Rows in the order of signing; none before one that it builds on, whatever the clocks were."""
    parents = {revision.entry.hash.hex(): revision.entry.parent.hex() for _, revision in found}
    times: dict[str, float] = {}
    for row in rows:
        times[row.entry] = max(row.time, times.get(parents[row.entry], row.time))
    return sorted(rows, key=lambda row: times[row.entry])


def _row(
    path: Path, revision: Revision, arrived: float, source: Path | None, key_names: Mapping[Fingerprint, str]
) -> RevisionRow:
    entry, state = revision.entry, revision.state
    about = named_key(entry) if entry.action in KEY_ACTIONS else None
    return RevisionRow(
        path=to_text(path),
        entry=entry.hash.hex(),
        time=entry.made / 10**9,
        arrived=arrived,
        action="accept" if revision.accepts else _word(entry),
        source=None if source is None else to_text(source),
        about=None if about is None else entry.name.decode("utf-8", "replace"),
        about_fingerprint=None if about is None else about.hex(),
        key=key_names.get(entry.fingerprint),
        fingerprint=entry.fingerprint.hex(),
        kind=None if state is None else state.kind.value,
        size=None if state is None or state.kind is Kind.ABSENT else state.size,
        standing=revision.standing.value,
    )
