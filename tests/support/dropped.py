"""A replica that a test has opened may be dropped, like those of a process that is killed: its files close with it.

From Python 3.13 on SQLite warns of each connection that is dropped, and a warning of that kind makes a test fail.  That
holds for everything that the product opens: it closes its logs, also where opening one fails half-way.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from basefs.log.cache import ContentCache
from basefs.log.database import Database
from basefs.log.snapshots import SnapshotReader
from basefs.replica.replica import Replica

#: Makes replicas for others.
_ROOM = "basefs.replica."
_TESTS = "tests."


@pytest.fixture(autouse=True, scope="session")
def _dropped_replicas_close() -> Iterator[None]:
    original = Replica.__init__

    @functools.wraps(original)
    def opened(replica: Replica, *arguments: Any, **options: Any) -> None:
        original(replica, *arguments, **options)
        if _opener().startswith(_TESTS):
            files = replica._snapshots, replica._contents.cache, replica._store.database
            weakref.finalize(replica, _close, *files).atexit = False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Replica, "__init__", opened)
        yield


def _opener() -> str:
    """The module that wanted the replica."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals["__name__"].startswith(_ROOM):
        frame = frame.f_back
    return str(frame.f_globals["__name__"])


def _close(snapshots: SnapshotReader, cache: ContentCache, database: Database) -> None:
    snapshots.close()
    cache.close()
    database.close()
