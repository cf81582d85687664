"""The scan: what differs between disk and index, found by a look at every name."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator

from basefs.errors import BaseFSError
from basefs.fs.disk import Disk, Found
from basefs.fs.worktree.index import Row, below
from basefs.fs.worktree.publisher import Publisher
from basefs.fs.worktree.recovery import JobRecovery
from basefs.fs.worktree.worktree import Worktree
from basefs.log.content import FileContent
from basefs.log.treerows import TreeRows
from basefs.replica.replica import Replica
from basefs.view.states import Kind

log = logging.getLogger(__name__)


#: Nanoseconds after which a disk has written what was changed: vm.dirty_expire_centisecs, and a journal's commit.
_UNWRITTEN = 60 * 10**9


def differences(tree: Worktree, since: float = float("inf")) -> Iterator[tuple[bytes, Row | None, Found | None]]:
    """The paths at which the disk is not as the index says, or something was being brought, and both.

    Directories come before what is in them.  `since`: also files that have changed later, nanoseconds since 1970.
    """
    replica, disk, scratch = tree.replica, tree.disk, tree.scratch
    todo = [b"/"]
    top = replica.rows(lambda rows: rows.get(b"/"))
    row, found = None if top is None else Row.decode(top), disk.look(b"/")
    if row is None or not _is_settled(row, found):
        yield b"/", row, found
    while todo:
        path = todo.pop()
        names = dict(replica.rows(lambda rows: rows.directory(path)))  # noqa: B023
        for name, now in list(_entries(disk, path)):
            data = names.pop(name, None)
            if data is None and scratch.is_scratch((name,)):
                continue
            row = None if data is None else Row.decode(data)
            if stat.S_ISDIR(now.mode):
                todo.append(below(path, name))
            if row is None or not _is_settled(row, now) or now.ctime > since:
                yield below(path, name), row, now
        for name, data in names.items():
            row = Row.decode(data)
            if row.found is not None or row.coming is not None:
                yield from _gone(replica, below(path, name), row)


def _gone(replica: Replica, path: bytes, row: Row) -> Iterator[tuple[bytes, Row, None]]:
    yield path, row, None
    if row.kind is Kind.DIRECTORY:
        for name, data in replica.rows(lambda rows: rows.directory(path)):
            yield from _gone(replica, below(path, name), Row.decode(data))


def _is_settled(row: Row, found: Found | None) -> bool:
    """Whether a path is as its row says, and nothing more is to come."""
    return row.coming is None and not row.is_left and row.is_at(found)


def _entries(disk: Disk, path: bytes) -> Iterator[tuple[bytes, Found]]:
    """The names in a directory and what they are."""
    try:
        descriptor = disk.directory(path)
        names = os.listdir(descriptor)
    except OSError:
        return
    for name in map(os.fsencode, names):
        try:
            yield name, disk.look_at(descriptor, name)
        except OSError:
            # It went this moment.
            continue


def _is_timed(row: Row | None, found: Found) -> bool:
    """Whether the time of last change may have been set; a change of names gives a directory two equal times."""
    if stat.S_ISDIR(found.mode) and found.mtime == found.ctime:
        return False
    return row is None or row.found is None or found.mtime != row.found.mtime


class Scanner:
    """Finds what was changed while nobody looked, and what a killed process has left half done."""

    def __init__(self, tree: Worktree, publisher: Publisher) -> None:
        self._tree, self._publisher = tree, publisher
        self._replica, self._disk, self._index = tree.replica, tree.disk, tree.index
        self._pending, self._machine = tree.pending, tree.machine
        self._recovery = JobRecovery(tree)

    def scan(self) -> int:
        """Compare all names; returns how many differ."""
        self._disk.forget()
        after_cut = self._had_power_cut()
        since = self._last_change() - _UNWRITTEN if after_cut else float("inf")
        count = 0
        for path, row, found in differences(self._tree, since):
            if row is not None and row.is_left:
                # It goes once what it is there for has gone.
                self._pending.add([path])
            if row is None or row.coming is not None or not (row.is_at(found) and self._has_bytes(path, row, found)):
                count += 1
                self._note(path, row, found, after_cut=after_cut)
        self._index.save()
        return count

    def _note(self, path: bytes, row: Row | None, found: Found | None, *, after_cut: bool) -> None:
        """Have a path that differs published or brought."""
        if row is not None and row.coming is not None:
            # The receiver looks at it again, also where this process is killed before it does.
            self._pending.add([path])
            row = self._recovery.recover(path, row, found)
            if row is None or row.is_untouched(found):
                return
        if after_cut and self._is_torn(path, row, found):
            return
        self._publisher.mark(path, timed=found.inode if found is not None and _is_timed(row, found) else 0)

    def _had_power_cut(self) -> bool:
        """Whether the machine has started anew since this was last asked, and may have lost what was written before."""
        boot = self._machine.boot()
        before = self._replica.rows(lambda rows: rows.fact("boot"))
        if before == boot:
            return False

        def note(rows: TreeRows) -> None:
            rows.set_fact("boot", boot)

        self._replica.keep_rows(note)
        return before is not None

    # -- after a power cut --------------------------------------------------------------------------------------------

    def _last_change(self) -> float:
        """When something was changed last, nanoseconds since 1970."""
        rows = map(self._index.get, self._index.below(b"/"))
        return max((row.found.ctime for row in rows if row is not None and row.found is not None), default=0)

    def _has_bytes(self, path: bytes, row: Row, found: Found | None) -> bool:
        """Whether a file that looks as it did has its content: a disk may have written its size and times alone."""
        if found is None or row.kind is not Kind.FILE:
            return True
        try:
            content = FileContent(self._disk.open(path, os.O_RDONLY | os.O_NONBLOCK), found.size)
        except OSError:
            return True
        try:
            return content.key == row.digest
        except BaseFSError:
            # It is being written to.
            return True
        finally:
            content.close()

    def _is_torn(self, path: bytes, row: Row | None, found: Found | None) -> bool:
        """Whether a power cut has taken what was on the disk: it is gone, older than its row, or empty.

        What was published comes back from the log, which is synced; the disk is not.
        """
        name = os.fsdecode(path)
        if row is None or row.kind is Kind.ABSENT:
            if found is None or not stat.S_ISREG(found.mode) or found.size:
                return False
            log.warning("%s is empty after a power cut: it is published once it is changed", name)
            return True
        if found is not None:
            was = row.found
            if row.kind is not Kind.FILE or not stat.S_ISREG(found.mode) or was is None:
                return False
            if found.ctime > was.ctime and (found.size or not was.size):
                return False
        log.warning("%s comes back from the log: a power cut has taken what was written", name)
        # What is there is nobody's work: the receiver replaces it.
        nothing = row._replace(
            tips=(), state=row.state._replace(content=None), digest=b"", found=found, coming=row.tips
        )
        self._index.put(path, Row(coming=row.tips) if found is None else nothing)
        self._pending.add([path])
        return True
