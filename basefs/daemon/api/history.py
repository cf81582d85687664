"""What commands can ask about the history of paths, and have brought back from it."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from basefs.errors import NotFound, UsageError
from basefs.log.forks import forked_paths
from basefs.log.hashes import EntryHash, Fingerprint
from basefs.path import Path, display, parse, to_text
from basefs.replica.replica import LOG_FILE, Replica
from basefs.view.author import Author
from basefs.view.draft import Draft
from basefs.view.history import Revision, Survey
from basefs.view.states import Kind

Json = Any


class PastServices:
    """History, conflicts and reverts."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    def _surveys(self, top: Path) -> Iterator[tuple[Path, Survey]]:
        """Every path that ever was at and below one; the lock is taken for one path at a time."""
        for path in self._replica.plan(lambda author: author.past.paths(top)):
            yield path, self._replica.survey(path)

    def _forked(self) -> list[Path]:
        """The paths where something can have lost."""
        forked = forked_paths(self._replica.directory / LOG_FILE)
        return self._replica.plan(lambda author: author.past.names_of(forked))

    def count_conflicts(self) -> int:
        """How many revisions have lost a conflict, in the whole filesystem."""
        return sum(len(self._replica.survey(place).conflicts()) for place in self._forked())

    def do_log(self, path: str, below: bool = False) -> Json:
        """Every revision of a path, the newest first; with `below` also those of all paths below it."""
        at = parse(path)
        key_names = self._replica.key_names()
        if not below:
            return [_row(at, revision, key_names) for revision in self._replica.survey(at).revisions()]
        found = [(path, revision) for path, survey in self._surveys(at) for revision in survey.revisions()]
        hashes = [revision.entry.hash for _, revision in found]
        order = self._replica.plan(lambda author: [author.past.sequence(hash) for hash in hashes])
        rows = sorted(zip(order, found, strict=True), key=lambda row: row[0], reverse=True)
        return [_row(path, revision, key_names) for _, (path, revision) in rows]

    def do_tree(self, path: str) -> Json:
        """The entries of all paths at and below one, each path's in the order in which they build on each other."""
        rows = []
        key_names = self._replica.key_names()
        for at, survey in self._surveys(parse(path)):
            for depth, revision in survey.branches():
                rows.append({**_row(at, revision, key_names), "depth": depth, "parent": revision.entry.parent.hex()})
        return rows

    def do_content(self, entry: str) -> Json:
        """The content at a revision, in base64."""
        return base64.b64encode(self._replica.content_at(self._entry(entry))).decode()

    def do_revert(self, path: str, entry: str | None = None, at: float | None = None) -> Json:
        """Make a path again what it was; returns the number of entries that this took.

        Args:
            path: a path, live or deleted.
            entry: a revision of the path; or, for a directory, an entry of anything below it: then all that was in it
                when that entry had arrived here comes back.
            at: UNIX seconds: the path and all below it come back as they were on this node then.
        """
        top = parse(path)
        target = None if entry is None else self._entry(entry)

        def make(author: Author) -> Draft:
            if at is not None:
                return author.reverter.tree(top, author.past.sequence_at(at))
            assert target is not None, "either an entry or a time"
            place = author.past.path_of(target)
            if place == top:
                return author.reverter.path(top, target)
            if place[: len(top)] != top:
                raise NotFound(
                    f"{target.hex()[:12]} is no revision of {display(top)}, nor of anything below it: 'basefs log' "
                    "lists them"
                )
            return author.reverter.tree(top, author.past.sequence(target))

        return len(self._replica.commit(make).entries)

    def do_conflicts(self, path: str) -> Json:
        """The branches that lost, at and below a path, deleted paths included."""
        at = parse(path)
        self._replica.plan(lambda author: author.past.paths(at))
        key_names = self._replica.key_names()
        forked = [place for place in self._forked() if place[: len(at)] == at]
        return [
            {
                "path": to_text(place),
                "lost": conflict.lost.hash.hex(),
                "lost_kind": _kind(survey, conflict.lost.hash),
                "lost_key": key_names.get(conflict.lost.fingerprint),
                "won": conflict.won.hash.hex(),
                "won_kind": _kind(survey, conflict.won.hash),
                "won_key": key_names.get(conflict.won.fingerprint),
                "rule": conflict.rule.value,
            }
            for place in forked
            for survey in (self._replica.survey(place),)
            for conflict in survey.conflicts()
        ]

    def do_accept(self, path: str) -> Json:
        """Accept what has won at and below a path; returns the rows of `do_conflicts`, with what is settled of them."""
        rows = self.do_conflicts(path)
        settled: set[str] = set()
        for place in sorted({parse(row["path"]) for row in rows}):
            applied = self._replica.commit(partial(_accept, place))
            settled.update(entry.parent.hex() for entry in applied.entries)
        return [{**row, "settled": row["lost"] in settled} for row in rows]

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


def _row(path: Path, revision: Revision, key_names: Mapping[Fingerprint, str]) -> dict[str, Json]:
    entry, state = revision.entry, revision.state
    return {
        "path": to_text(path),
        "entry": entry.hash.hex(),
        "time": entry.timestamp,
        "action": entry.action.name.lower(),
        "key": key_names.get(entry.fingerprint),
        "fingerprint": entry.fingerprint.hex(),
        "size": None if state is None else state.size,
        "standing": revision.standing.value,
    }
