"""The database file: connections, transactions, durability and damage (docs/formats.md, section 8).

Invariants

1. A commit is in the page cache when it returns, so it survives kill -9; `sync` makes it survive a power cut.
2. SQLite syncs its files when the WAL is written back, which takes as long as the disk likes.  So the connection that
   needs the replica's lock leaves that to `checkpoint`, which has a connection of its own.
3. A row whose content does not match its hash is never returned.  It is noted in `damaged` and logged.

Not thread-safe: `Replica` holds its lock around every call, but for `sync`, `checkpoint` and the use of
`aside` and of the connections of readers.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from basefs.durable import sync_file
from basefs.errors import DamagedLog, NoSpace, StoreError
from basefs.log.schema import FORMAT, SCHEMA

log = logging.getLogger(__name__)

# Bytes stay as they are.  For each value that is no number, text or bytearray `sqlite3` looks for an adapter, and where
# there is none for two methods that bytes do not have, which takes 0.3 us more.
sqlite3.register_adapter(bytes, bytes)

#: Bytes of WAL from which on it is written back to the database, which may take seconds while the disk is busy.
CHECKPOINT_BYTES = 4 * 1024 * 1024
#: The same for the connection that needs the lock, if `checkpoint` is never called: pages of 4 KiB.
_LAST_RESORT_PAGES = 16 * 1024
#: KiB of pages that the connection for everything keeps.  New entries are spread all over the indexes of hashes, so
#: most pages that a transaction of a long log changes are not among the 2 MiB that SQLite keeps by itself.
_CACHE_KIB = 8 * 1024
#: Bytes that the index of a write-ahead log takes at least (sqlite.org/walformat.html, section 2).
_SIDE_FILE_BYTES = 32 * 1024


class Database:
    """One log file.

    Attributes:
        path: the file.
        main: the connection for everything that needs the lock.
        aside: the connection for writes without it.
        damaged: hashes of the rows found not to match their content since the file was opened.
    """

    def __init__(self, path: Path, *, create: bool = False) -> None:
        """Open a log, or create an empty one.  Raises `StoreError` where that fails."""
        if create == path.exists():
            raise StoreError(f"{path} exists already" if create else f"there is no log at {path}")
        self.path = path
        self.damaged: set[bytes] = set()
        #: Commits of a killed process may not be synced either.
        self._unsynced = True
        with contextlib.ExitStack() as opened:
            try:
                if create:
                    # The mode must be right before the first byte: SQLite gives its side files the same one.
                    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
                self.main = opened.enter_context(contextlib.closing(_connect(path, _LAST_RESORT_PAGES)))
                self.main.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
                if create:
                    self.main.executescript("BEGIN;" + SCHEMA + f"PRAGMA user_version = {FORMAT}; COMMIT;")
                (version,) = self.main.execute("PRAGMA user_version").fetchone()
                self.aside = opened.enter_context(contextlib.closing(_connect(path, 0)))
                self._checkpointer = opened.enter_context(contextlib.closing(_connect(path, 0)))
            except (sqlite3.Error, OSError) as error:
                raise as_store_error(path, error) from None
            require_format(path, version)
            #: The main connection is closed last: SQLite then removes its side files.
            self._connections = opened.pop_all()

    def close(self) -> None:
        """Write the WAL back and release the file."""
        self._connections.close()

    def connect_reader(self) -> sqlite3.Connection:
        """Another connection, read-only, which the caller closes.  Raises `StoreError`."""
        with self.translated():
            return _connect(self.path, 0, read_only=True)

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """What SQLite raises inside leaves it as an error of ours."""
        try:
            yield
        except DamagedLog as error:
            self._note_damage(error)
            raise
        except sqlite3.Error as error:
            raise self.translate(error) from None

    @contextlib.contextmanager
    def transaction(self, connection: sqlite3.Connection | None = None) -> Iterator[None]:
        """Everything inside reaches the log together or not at all; on the main connection, or another one.

        Raises `NoSpace` or `StoreError` where SQLite cannot write; the log is then as before.
        """
        db = self.main if connection is None else connection
        try:
            db.execute("BEGIN IMMEDIATE")
            yield
            db.execute("COMMIT")
        except BaseException as error:
            if db.in_transaction:
                db.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise self.translate(error) from None
            raise
        self._unsynced = True

    @contextlib.contextmanager
    def savepoint(self) -> Iterator[None]:
        """Roll back the writes inside, on the main connection, at the end.  Raises `NoSpace`, `StoreError`."""
        try:
            self.main.execute("SAVEPOINT rehearsal")
            try:
                yield
            finally:
                if self.main.in_transaction:
                    self.main.execute("ROLLBACK TO rehearsal")
                    self.main.execute("RELEASE rehearsal")
        except sqlite3.Error as error:
            raise self.translate(error) from None

    # -- durability ---------------------------------------------------------------------------------------------------

    @property
    def unsynced(self) -> bool:
        """Whether anything was committed since the last `take_unsynced`."""
        return self._unsynced

    def take_unsynced(self) -> bool:
        """Clear and return the flag; the caller then calls `sync`."""
        unsynced, self._unsynced = self._unsynced, False
        return unsynced

    def mark_unsynced(self) -> None:
        """Set the flag again: a sync has failed."""
        self._unsynced = True

    def sync(self) -> None:
        """Make every committed transaction survive a power cut.  Needs no lock.  Raises `StoreError`.

        In WAL mode committed pages live in the `-wal` file until a checkpoint, which syncs that file itself
        (sqlite.org/wal.html, "Performance considerations"), so one fsync of it is enough.
        """
        try:
            sync_file(Path(f"{self.path}-wal"))
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreError(f"cannot make the log {self.path} durable: {error.strerror}") from None

    def checkpoint(self) -> None:
        """Write the WAL back to the database if it has grown.  Needs no lock, but only one thread may do it at a time.

        Raises `StoreError`.
        """
        try:
            if os.path.getsize(f"{self.path}-wal") > CHECKPOINT_BYTES:
                self._checkpointer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except FileNotFoundError:
            return
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"cannot write the log {self.path} back: {error}") from None

    # -- errors, facts and damage -------------------------------------------------------------------------------------

    def translate(self, error: sqlite3.Error) -> StoreError:
        """The `StoreError` for an error of SQLite; a malformed database refuses writes from then on."""
        found = as_store_error(self.path, error)
        if isinstance(found, DamagedLog):
            self._note_damage(error)
        return found

    def _note_damage(self, error: Exception) -> None:
        if self.path.name.encode() not in self.damaged:
            self.damaged.add(self.path.name.encode())
            log.error("%s is damaged: %s; the filesystem is read-only until it is repaired", self.path, error)

    def meta(self, key: str) -> bytes | None:
        """A fact about the file; `None` where it is not set."""
        row = self.main.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def set_meta(self, key: str, value: bytes) -> None:
        """Record a fact, inside a transaction."""
        self.main.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def report_damage(self, what: str, hash: bytes) -> None:
        """Note that a row does not match its hash."""
        if hash not in self.damaged:
            self.damaged.add(hash)
            log.error(
                "%s is damaged: %s %s does not match its hash; the filesystem is read-only until it is repaired",
                self.path,
                what,
                hash.hex()[:12],
            )


def as_store_error(path: Path, error: Exception) -> StoreError:
    """The `StoreError` for an error of SQLite or the system, about the log at `path`."""
    name = getattr(error, "sqlite_errorname", "") or _name_of(error)
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return DamagedLog(f"the log {path} is damaged, {error}: see 'basefs check'")
    # Where there is no room for its side files SQLite speaks of an input/output error.
    if name == "SQLITE_FULL" or _is_full(path.parent):
        return NoSpace(f"the disk that holds {path} is full: free some space")
    return StoreError(f"cannot use the log {path}: {error}")


def _name_of(error: Exception) -> str:
    """The name of an error of SQLite; Python has it from 3.11 on.

    Before that its class has to do: `DatabaseError` itself stands for SQLITE_CORRUPT and codes without a class of
    their own, of which only SQLITE_NOTADB occurs here (`_pysqlite_seterror` in Modules/_sqlite/util.c).
    """
    if type(error) is sqlite3.DatabaseError:
        return "SQLITE_CORRUPT"
    return "SQLITE_FULL" if str(error) == "database or disk is full" else ""


def _is_full(directory: Path) -> bool:
    try:
        facts = os.statvfs(directory)
    except OSError:
        return False
    return (facts.f_bfree if os.geteuid() == 0 else facts.f_bavail) * facts.f_frsize < _SIDE_FILE_BYTES


def require_format(path: Path, version: int) -> None:
    """Raise `StoreError` for a log whose `user_version` says that this version of BaseFS cannot read it."""
    if version != FORMAT:
        remedy = "upgrade BaseFS" if version > FORMAT else "fetch the filesystem again with 'basefs get'"
        raise StoreError(f"{path} has log format {version}, this version reads {FORMAT}: {remedy}")


def _connect(path: Path, checkpoint_pages: int, *, read_only: bool = False) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        # The space of a WAL that grew in a burst is released once it was written back.
        connection.execute(f"PRAGMA journal_size_limit = {CHECKPOINT_BYTES}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {checkpoint_pages}")
        connection.execute(f"PRAGMA query_only = {int(read_only)}")
    except UnicodeDecodeError:
        # The message of SQLite, which quotes a damaged schema.
        connection.close()
        raise DamagedLog(f"the log {path} is damaged, malformed database schema: see 'basefs check'") from None
    except BaseException:
        # Otherwise its descriptors stay open until the garbage is collected.
        connection.close()
        raise
    return connection
