"""Recovery: what has become of a job whose result is not known, because the daemon or the mount server has died."""

from __future__ import annotations

import logging
import os
import time

from basefs.errors import BaseFSError
from basefs.fs.disk import Found
from basefs.fs.worktree.compare import kind_of
from basefs.fs.worktree.index import Row, shown, tips_of, to_path
from basefs.fs.worktree.worktree import Worktree
from basefs.log.content import Content, FileContent
from basefs.log.hashes import EntryHash
from basefs.view.states import Kind

log = logging.getLogger(__name__)


class JobRecovery:
    """Tells by the content of a path which of two versions it has."""

    def __init__(self, tree: Worktree) -> None:
        self._replica, self._disk, self._index = tree.replica, tree.disk, tree.index

    def recover(self, path: bytes, row: Row, found: Found | None) -> Row | None:
        """The row of a path to which something was being brought: it has come, or the disk is as before, or neither.

        `None`: nothing is there any more.  What was being brought stays noted in the index.
        """
        coming, row = row.coming, row._replace(coming=None)
        if row.is_at(found):
            return row
        if found is None:
            # It was removed for what comes; if somebody here has removed it, that is not told from it.
            self._index.put(path, Row(coming=coming))
            return None
        assert coming is not None
        brought = self._brought(path, row, found, coming)
        if brought is None:
            return row
        self._index.put(path, brought._replace(coming=coming))
        return brought

    def _brought(self, path: bytes, row: Row, found: Found, coming: tuple[EntryHash, ...]) -> Row | None:
        """The row of what is there, if it is what was brought, or what was there before with other attributes."""
        stamp = time.time_ns()
        if kind_of(found) is Kind.FILE:
            return self._brought_file(path, row, found, coming, stamp)
        outcome = self._replica.outcomes([to_path(path)])[to_path(path)]
        if outcome is not None and tips_of(outcome) == coming and outcome.state.kind is kind_of(found):
            state = shown(outcome)
            if state.kind is not Kind.SYMLINK or state.target == self._disk.target(path):
                # Its attributes may be missing.
                return Row(state._replace(mode=-1), coming, outcome.directories, found=found, stamp=stamp)
        return None

    def _brought_file(
        self, path: bytes, row: Row, found: Found, coming: tuple[EntryHash, ...], stamp: int
    ) -> Row | None:
        try:
            content = FileContent(self._disk.open(path, os.O_RDONLY | os.O_NONBLOCK), found.size)
        except OSError:
            return None
        try:
            digest = content.key
            if row.kind is Kind.FILE and digest == row.digest:
                return row._replace(found=found, stamp=stamp)
            for tip in coming[:1]:
                write = self._replica.write_at(tip)
                if write is not None and self._is_same(content, write):
                    state = row.state._replace(kind=Kind.FILE, mode=-1, content=write, size=found.size)
                    return Row(state, coming, (), digest, found, stamp)
        except BaseFSError as error:
            log.info("%s cannot be compared: %s", os.fsdecode(path), error)
        finally:
            content.close()
        return None

    def _is_same(self, content: Content, write: EntryHash) -> bool:
        other = self._replica.open_write(write)
        try:
            return content.size == other.size and all(
                one == two for one, two in zip(content.pieces(), other.pieces(), strict=True)
            )
        finally:
            other.close()
