"""The feed: the changes of the view as endless streams, each at its reader's pace.

Readers read the journal, not a queue, so a slow one costs nothing but its own delay.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pathlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence

from basefs.errors import StoreError
from basefs.fs.events.journal import JOURNAL_FILE, ChangeJournal, Live, Record
from basefs.path import Path
from basefs.view.changes import Change, in_order
from basefs.view.events import shape_of

log = logging.getLogger(__name__)

#: Records that a reader takes at a time.
_PAGE = 200
#: Changes that are written at a time: some milliseconds.
_SLICE = 200


class Feed:
    """Keeps the journal and wakes who waits for it.  Used in one event loop, but for `changed`."""

    def __init__(self, directory: pathlib.Path, tree: Callable[[], Iterable[Live]], clock: Callable[[], float]) -> None:
        """Needs a running event loop.

        Args:
            directory: of the log.
            tree: all live paths; from its call on, changes of all of them are told to `changed`.
            clock: UNIX seconds.
        """
        self._path = directory / JOURNAL_FILE
        self._tree = tree
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._journal: ChangeJournal | None = None
        self._news = asyncio.Event()
        self._waiting: deque[Change] = deque()
        self._opening: asyncio.Task[ChangeJournal] | None = None
        #: What has changed since that began: the last change of each path, which counts.
        self._meanwhile: dict[Path, Change] = {}
        self._stopped = False
        self._failure: StoreError | None = None

    def start(self) -> None:
        """Go on with the journal if there is one."""
        if self._path.exists():
            self._open().add_done_callback(_log_failure)

    def _open(self) -> asyncio.Task[ChangeJournal]:
        """Open the journal in a thread: all live paths may take seconds."""
        if self._opening is None:
            # From now on nothing that changes is missed; what is told twice is no change the second time.
            self._opening = self._loop.create_task(self._catch_up())
        return self._opening

    async def _catch_up(self) -> ChangeJournal:
        try:
            self._journal = journal = await asyncio.to_thread(self._caught_up)
        finally:
            self._opening = None
            changes = in_order(self._meanwhile.values())
            self._meanwhile.clear()
        if changes:
            self._take(changes)
        return journal

    def _caught_up(self) -> ChangeJournal:
        """The journal, with what has happened until now; in a thread of its own."""
        journal = ChangeJournal(self._path)
        try:
            if journal.is_new:
                journal.begin(self._portions())
            else:
                journal.catch_up(self._portions(), now=int(self._clock()))
        except BaseException:
            journal.close()
            raise
        return journal

    def _portions(self) -> Iterator[Live]:
        for live in self._tree():
            if self._stopped:
                raise StoreError("the daemon ends")
            yield live

    def stop(self) -> None:
        """Write what is still waiting, and close the journal; readers end."""
        self._stopped = True
        if self._opening is not None:
            self._opening.cancel()
        while self._waiting:
            self._write_some()
        self._close()
        self._wake()

    def _close(self) -> None:
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def changed(self, changes: Sequence[Change]) -> None:
        """Changes are in the view.  Returns at once; may be called by any thread, in their order."""
        if changes and (self._journal is not None or self._opening is not None):
            # The loop is closed when the daemon ends.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._take, changes)

    def _take(self, changes: Sequence[Change]) -> None:
        if self._opening is not None:
            for change in changes:
                self._meanwhile[change.path] = change
            return
        if not self._waiting:
            self._loop.call_soon(self._write_some)
        self._waiting.extend(changes)

    def _write_some(self) -> None:
        """A short transaction, so that the event loop gets on with the rest even if thousands of changes came."""
        some = [self._waiting.popleft() for _ in range(min(_SLICE, len(self._waiting)))]
        if self._waiting:
            self._loop.call_soon(self._write_some)
        if self._journal is None:
            return
        found = (Live(change.path, shape_of(change.after), change.entry) for change in some)
        try:
            self._journal.add(found, now=int(self._clock()))
        except StoreError as error:
            # What it misses is found when it is opened again.
            log.error("cannot record changes for basefs watch: %s", error)
            self._failure = error
            self._close()
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def follow(self, since: str | None, below: Path) -> AsyncIterator[tuple[str, Record | None]]:
        """The changes at and below a path, for ever.

        Args:
            since: the token after which to begin; `None` is now.
            below: the path.

        Yields tokens with records; first, and after many changes elsewhere, a token alone, to begin at the next time.
        Raises `UsageError` for a token that does not count, `StoreError`.
        """
        journal = self._journal
        if journal is None:
            # Others may wait for it, too.
            journal = await asyncio.shield(self._open())
        place = journal.last() if since is None else journal.place(since)
        yield journal.token(place), None
        while True:
            news = self._news
            if self._journal is not journal:
                # The daemon ends, or the journal has failed.
                if self._failure is not None:
                    raise self._failure
                return
            records = journal.read(place, _PAGE)
            for record in records:
                place = record.number
                if record.path[: len(below)] == below:
                    yield journal.token(place), record
            if not records:
                await news.wait()
            elif records[-1].path[: len(below)] != below:
                yield journal.token(place), None


def _log_failure(opening: asyncio.Task[ChangeJournal]) -> None:
    if not opening.cancelled() and (error := opening.exception()) is not None:
        log.error("cannot record changes for basefs watch: %s", error)
