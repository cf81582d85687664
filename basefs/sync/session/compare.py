"""Their list against ours: what to ask for, what to send, where to look closer.  A pure function.

Own entries are settled before sub-paths, because whatever is below may depend on them (a parent, a grant).  Where they
are so many that they had to be aggregated, and differ, the sub-paths wait for the next round.

A sub-path whose name would make a path longer than `MAX_PATH` cannot be written in a request: it is sent whole, and
the whole parent is asked for.  That costs more than the difference, for paths that no program can name.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from basefs.log.hashes import ZERO_HASH, BlockHash, EntryHash
from basefs.path import Path
from basefs.sync.session.index import Child, Index, Own, in_log_order
from basefs.sync.wire.fields import path_size
from basefs.sync.wire.limits import MAX_PATH
from basefs.sync.wire.messages import WHOLE, Kind, Ls, Part


@dataclass(frozen=True, slots=True)
class Node:
    """A part of a path that has to be listed to the peer.

    `theirs`: what the peer has there, its part of the Merkle hash; empty where that is not known.
    """

    path: Path
    part: Part
    theirs: bytes = field(default=b"", compare=False)


@dataclass(frozen=True, slots=True)
class Missing:
    """Sub-paths of a path of which nothing was here, and the Merkle hash that each has at the peer, by name."""

    path: Path
    theirs: dict[bytes, bytes]


@dataclass(slots=True)
class Plan:
    """What follows from a comparison.

    Attributes:
        ask_entries: entries that the peer has and we lack.
        ask_children: sub-paths of which we lack everything, by name, with the Merkle hash that each has at the peer.
        ask_whole: everything at and below this path is to be asked for.
        ask_blocks: entries whose content stopped arriving here, with the last block; the peer has it all.
        look: parts that differ: the peer shall see our list of them.
        send_entries: own entries of this path that the peer lacks.
        send_paths: sub-paths of which the peer has nothing.
        send_blocks: entries whose content stopped arriving at the peer, with the peer's last block; we have it all.
        both_stalled: (entry, our last block, the peer's) where both have a different part of the content.
        deferred: sub-paths were left for the next round.
    """

    ask_entries: list[EntryHash] = field(default_factory=list)
    ask_children: dict[bytes, bytes] = field(default_factory=dict)
    ask_whole: bool = False
    ask_blocks: list[tuple[EntryHash, BlockHash]] = field(default_factory=list)
    look: list[Node] = field(default_factory=list)
    send_entries: list[EntryHash] = field(default_factory=list)
    send_paths: list[Path] = field(default_factory=list)
    send_blocks: list[tuple[EntryHash, BlockHash]] = field(default_factory=list)
    both_stalled: list[tuple[EntryHash, BlockHash, BlockHash]] = field(default_factory=list)
    deferred: bool = False


def compare(theirs: Ls, index: Index | None) -> Plan:
    """Compare the peer's LS with our index of the same path; None if we know nothing of it."""
    plan = Plan()
    if index is None:
        plan.ask_whole = _lists_anything(theirs)
        return plan
    if theirs.part.kind is not Kind.CHILDREN:
        _compare_own(theirs, index, plan)
    # Sub-paths were not compared yet, so these are prefixes of own entries.
    plan.deferred = bool(plan.look)
    if theirs.part.kind is not Kind.ENTRIES and not plan.deferred:
        _compare_children(theirs, index, plan)
    return plan


def _lists_anything(theirs: Ls) -> bool:
    return bool(theirs.entries or theirs.stalled or theirs.children or theirs.entry_buckets or theirs.child_buckets)


def _differing(theirs: dict[str, bytes], ours: dict[str, bytes]) -> tuple[list[str], list[str]]:
    """Digits under which both have something that differs, and digits under which only we have something."""
    differ = [digit for digit, value in theirs.items() if value != ours.get(digit, ZERO_HASH)]
    return sorted(differ), sorted(set(ours) - set(theirs))


def _compare_own(theirs: Ls, index: Index, plan: Plan) -> None:
    prefix = theirs.part.prefix
    if theirs.entry_buckets is not None:
        differ, only_ours = _differing(theirs.entry_buckets, index.entry_buckets(prefix))
        buckets = theirs.entry_buckets
        plan.look += [Node(theirs.path, Part(Kind.ENTRIES, prefix + digit), buckets[digit]) for digit in differ]
        missing = [own for digit in only_ours for own in index.own(prefix + digit) if not own.receiving]
        plan.send_entries += [own.hash for own in in_log_order(missing)]
        return
    complete = set(theirs.entries)
    stalled = dict(theirs.stalled)
    receiving = set(theirs.receiving)
    ours: set[EntryHash] = set()
    for own in in_log_order(index.own(prefix)):
        ours.add(own.hash)
        if own.hash in complete:
            if own.block is not None:
                plan.ask_blocks.append((own.hash, own.block))
        elif own.hash in stalled:
            _compare_stalled(own, stalled[own.hash], plan)
        elif own.hash not in receiving and not own.receiving:
            plan.send_entries.append(own.hash)
    plan.ask_entries += [entry for entry in (*theirs.entries, *stalled) if entry not in ours]


def _compare_stalled(own: Own, their_block: BlockHash, plan: Plan) -> None:
    """The peer's content is incomplete.  While ours is arriving, nothing is certain yet."""
    if own.receiving:
        return
    if own.block is None:
        plan.send_blocks.append((own.hash, their_block))
    elif own.block != their_block:
        plan.both_stalled.append((own.hash, own.block, their_block))


def _compare_children(theirs: Ls, index: Index, plan: Plan) -> None:
    path, prefix = theirs.path, theirs.part.prefix
    if theirs.child_buckets is not None:
        differ, only_ours = _differing(theirs.child_buckets, index.child_buckets(prefix))
        for digit in only_ours:
            for child in index.children(prefix + digit):
                _send_path(path, child, plan)
        buckets = theirs.child_buckets
        plan.look += [Node(path, Part(Kind.CHILDREN, prefix + digit), buckets[digit]) for digit in differ]
        return
    hashes = dict(theirs.children)
    for child in index.children(prefix):
        value = hashes.pop(child.name, None)
        if value is None:
            _send_path(path, child, plan)
        elif value != child.value:
            if _too_long(path, child.name):
                _send_path(path, child, plan)
                plan.ask_whole = True
            else:
                plan.look.append(Node((*path, child.name), WHOLE, value))
    for name, value in hashes.items():
        if value != ZERO_HASH:
            if _too_long(path, name):
                plan.ask_whole = True
            else:
                plan.ask_children[name] = value


def _too_long(path: Path, name: bytes) -> bool:
    return path_size((*path, name)) > MAX_PATH


def _send_path(path: Path, child: Child, plan: Plan) -> None:
    # A hash of zero: nothing of it is in the tree, its only entries are still receiving content.
    if child.value != ZERO_HASH:
        plan.send_paths.append((*path, child.name))
