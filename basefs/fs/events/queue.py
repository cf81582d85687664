"""The queue of handlers: what runs next.  No I/O and no clock.

Invariants

1. Jobs of one path run one after the other, in the order in which they came.
2. At most `at_most` jobs run, and at most `capacity` wait, besides one overflow job for each rule.
3. A path is in `_ready` once, exactly if it has waiting jobs and none that runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from basefs.fs.events.rules import Rule, matching
from basefs.path import Path

#: The event type that tells a handler that it has missed something, and must look at everything it cares for.
OVERFLOW = "overflow"
#: The event type that tells a handler that more than one path has changed, at or below the one that it is given.
SEVERAL = "several"
#: The event type that tells a handler that a version of a path has lost against another.
CONFLICT = "conflict"


@dataclass(frozen=True, slots=True)
class Event:
    """What a handler is told.

    Attributes:
        type: create, modify, attributes, delete, several, conflict or overflow.
        path: the path; the root for an overflow; for several paths, the directory that they share.
        kind: file, directory or symlink; what was there, for a delete; what lost, for a conflict.
        entry: hash of the entry that the path ends with, or of the one that lost, in hex; '' if unknown.
        key, fingerprint: name and fingerprint of the key that signed the entry; '' if unknown.
        changes: for how many changes it stands.
    """

    type: str
    path: Path
    kind: str
    entry: str = ""
    key: str = ""
    fingerprint: str = ""
    changes: int = 1


@dataclass(frozen=True, slots=True)
class Job:
    """A command that is to run for an event."""

    rule: Rule
    event: Event


@dataclass(slots=True)
class Counts:
    """What became of all jobs so far.

    Attributes:
        done: that ended well.
        failed: that ended with another exit code than 0, could not be started, or took too long.
        coalesced: that were replaced by a later one of the same path, because the queue was full.
        dropped: that no longer fit; the rule's overflow job stands for them.
    """

    done: int = 0
    failed: int = 0
    coalesced: int = 0
    dropped: int = 0


class HandlerQueue:
    """Jobs that wait and jobs that run."""

    def __init__(self, rules: Sequence[Rule], *, at_most: int, capacity: int) -> None:
        """`at_most` jobs run at a time, `capacity` wait."""
        self._rules = rules
        self._at_most = at_most
        self._capacity = capacity
        self._waiting: dict[Path, deque[Job]] = {}
        self._ready: deque[Path] = deque()
        self._running: set[Path] = set()
        self._overflowed: set[Rule] = set()
        self._queued = 0
        self.counts = Counts()

    @property
    def queued(self) -> int:
        """How many jobs wait."""
        return self._queued

    @property
    def running(self) -> int:
        """How many jobs run."""
        return len(self._running)

    def put(self, event: Event) -> bool:
        """Queue the jobs of an event.  Returns whether there was room for all of them."""
        fits = True
        for rule in matching(self._rules, event.path):
            fits &= self.put_job(Job(rule, event))
        return fits

    def put_job(self, job: Job) -> bool:
        """Queue a job.  Returns whether there was room for it."""
        if self._queued < self._capacity:
            self._add(job)
            return True
        if not self._coalesce(job):
            self._overflow(job.rule)
        return False

    def _add(self, job: Job) -> None:
        path = job.event.path
        if path not in self._waiting:
            self._waiting[path] = deque()
            if path not in self._running:
                self._ready.append(path)
        self._waiting[path].append(job)
        self._queued += 1

    def _coalesce(self, job: Job) -> bool:
        """Make one of a job and the last one of the same path and rule that waits, if there is one."""
        jobs = self._waiting.get(job.event.path, deque())
        for index in reversed(range(len(jobs))):
            if jobs[index].rule == job.rule:
                jobs[index] = Job(job.rule, merge(jobs[index].event, job.event))
                self.counts.coalesced += 1
                return True
        return False

    def _overflow(self, rule: Rule) -> None:
        self.counts.dropped += 1
        if rule not in self._overflowed:
            self._overflowed.add(rule)
            self._add(Job(rule, Event(OVERFLOW, (), "directory")))

    def take(self) -> Job | None:
        """The next job to run now; `None` if there is none, or enough are running.  Tell `done` when it has ended."""
        if len(self._running) >= self._at_most or not self._ready:
            return None
        path = self._ready.popleft()
        jobs = self._waiting[path]
        job = jobs.popleft()
        if not jobs:
            del self._waiting[path]
        self._running.add(path)
        self._queued -= 1
        if job.event.type == OVERFLOW:
            # What no longer fits from now on happens after this job has begun, so it needs another one.
            self._overflowed.discard(job.rule)
        return job

    def done(self, job: Job, *, failed: bool) -> None:
        """A job has ended."""
        path = job.event.path
        self._running.discard(path)
        if path in self._waiting:
            self._ready.append(path)
        if failed:
            self.counts.failed += 1
        else:
            self.counts.done += 1


def merge(earlier: Event, later: Event) -> Event:
    """Two events as one."""
    if earlier.type == OVERFLOW:
        return earlier
    later = replace(later, changes=earlier.changes + later.changes)
    if earlier.path != later.path:
        pairs = takewhile(lambda names: names[0] == names[1], zip(earlier.path, later.path, strict=False))
        shared = tuple(name for name, _ in pairs)
        return replace(later, type=SEVERAL, path=shared, kind="directory")
    if later.type in ("delete", CONFLICT):
        return later
    if earlier.type == "delete":
        type = "modify" if earlier.kind == later.kind else "create"
    elif earlier.type == "attributes":
        type = later.type
    else:
        type = earlier.type
    return replace(later, type=type)
