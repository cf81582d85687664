"""Outcomes: where a branch, or a path, ends, and what the rules compare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from basefs.log.entries import Entry
from basefs.log.hashes import EntryHash, Fingerprint
from basefs.view.permissions import Authority
from basefs.view.states import State

#: Rank of a branch without contributors: below every depth that a path can have.
_NO_AUTHORITY = 1 << 30


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where a branch, or a path, ends.

    Attributes:
        state: what the path is.
        tips: the entry that each merged branch ends with, the highest ranked first: what comes next is appended there.
        directories: the mkdir entries of a live directory, the highest ranked first; empty for anything else.
        authority: the keys valid at the path, if this is its outcome.
        authorities: for each tip, the keys that are valid on its branch: who may append there.
        contributors: keys valid now that signed an entry of the branch, with the depth of their authority.
        first: hash of the branch's first entry; the highest one of merged branches.
        from_below: whether entries below the path had a say, so that a change below may change the outcome.
        awaited: whether a revert on this path names an entry that is not here, so that any entry may decide something.
    """

    state: State
    tips: tuple[Entry, ...]
    directories: tuple[EntryHash, ...]
    authority: Authority
    authorities: tuple[Authority, ...]
    contributors: Mapping[Fingerprint, int]
    first: EntryHash
    from_below: bool = False
    awaited: bool = False

    @property
    def rank(self) -> tuple[int, int, EntryHash]:
        """What the rules 2 to 4 compare; the highest wins."""
        best = min(self.contributors.values(), default=_NO_AUTHORITY)
        return -best, len(self.contributors), self.first


def unite(into: dict[Fingerprint, int], contributors: Mapping[Fingerprint, int]) -> None:
    """Add contributors, each with its highest authority."""
    for fingerprint, depth in contributors.items():
        into[fingerprint] = min(depth, into.get(fingerprint, depth))
