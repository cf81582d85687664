"""The protocol between the mount server and the daemon (docs/fs.md).

A Unix stream socket carries messages: arrays in MessagePack, of which the first element is a word.  The server listens,
so that a new daemon finds a mount that outlived the one before; the latest one to attach replaces the others.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntFlag
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgpack

from basefs.fs.disk import FileAttributes, Found
from basefs.fs.jobs import Expected, JobAction, JobResult, TreeJob
from basefs.fs.sockets import connect, listen

log = logging.getLogger(__name__)

VERSION = 1
_MARK = "basefs-mount"
#: Seconds that a request waits for a virtual attribute, and a command for a mount server.
ATTRIBUTE_SECONDS, ANSWER_SECONDS = 1.0, 1.0
#: Seconds that the daemon waits for its jobs.
JOBS_SECONDS = 30.0
#: Seconds after which a side that does not read is disconnected.
SEND_SECONDS = 10
#: Seconds between two messages about changes: those of a burst share one.
BATCH_SECONDS = 0.003
#: Changed paths that wait for a daemon that does not read; then it is disconnected, and a new one scans.
MOST_WAITING = 200_000
#: Changed paths that are remembered after a daemon has taken them.
MOST_REMEMBERED = 10_000
#: `struct ucred`.
_CREDENTIALS = struct.Struct("=iII")


class Flags(IntFlag):
    """What is known of a change."""

    #: An existing file was rewritten and closed.
    URGENT = 1
    #: Nobody has unflushed writes to this inode: it was closed, or fsynced.
    CLOSED = 2
    #: Its modification time was set explicitly.
    TIMED = 4
    #: Somebody has begun to write to this inode; until `CLOSED` it is not to be published.
    WRITING = 8


NO_FLAGS = Flags(0)


class Changed(NamedTuple):
    """A path that was changed on the mount."""

    path: bytes
    inode: int
    flags: Flags


class Hello(NamedTuple):
    """What a mount server says to its daemon first.

    Attributes:
        version: of the protocol; of another one, nothing else is known, and only `stop` is understood.
        pid: its process.
        seen: the number of the last change; a scan from now on sees everything up to it.
        writing: inodes that are being written to.
    """

    version: int
    pid: int = 0
    seen: int = 0
    writing: tuple[int, ...] = ()


class Serving(NamedTuple):
    """A mount server's process, and where its mount is; `None` where it does not answer."""

    pid: int
    mountpoint: bytes | None


def who_serves(path: Path) -> Serving | None:
    """The mount server that listens at a path, which may have a daemon; `None` if there is none."""
    try:
        connection = connect(path, timeout=ANSWER_SECONDS)
    except OSError:
        return None
    with connection:
        pid, _, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        stream = _Stream(connection)
        try:
            return Serving(pid, _greeting(stream)[-1])
        except ValueError:
            return Serving(pid, None)
        finally:
            stream.end()


class Handler(Protocol):
    """What a daemon does with the messages of a mount server, all in one thread."""

    def changed(self, seq: int, changes: Sequence[Changed]) -> None:
        """Applications have changed these paths; `seq` numbers the last of the changes."""

    def attribute(self, path: bytes, name: bytes) -> bytes | None:
        """The value of a virtual attribute, `user.basefs.*`."""

    def ended(self, orderly: bool) -> None:
        """The mount has ended: it was unmounted, or its server died."""


class MountServer:
    """The daemon's end of a connection; for any thread."""

    def __init__(self, connection: socket.socket, handler: Handler, patience: float = JOBS_SECONDS) -> None:
        """Become the daemon of a mount server; nothing is handled before `start`.

        `patience`: seconds that jobs are waited for.  Raises `OSError`: the server closed the connection, or speaks
        something else.
        """
        self._stream = _Stream(connection)
        self._handler, self._patience = handler, patience
        self._lock = threading.Lock()
        self._jobs: dict[int, queue.SimpleQueue[list[JobResult] | None]] = {}
        self._last_job = 0
        self._orderly = False
        self._alive = True
        self._thread = threading.Thread(target=self._main, name="mount-reader", daemon=True)
        self.hello = self._attach()

    def _attach(self) -> Hello:
        try:
            version, *rest = _greeting(self._stream)
            if version != VERSION:
                return Hello(version)
            self._stream.send(("attach",))
            _, seen, writing = next(self._stream)
            return Hello(version, rest[0], seen, writing)
        except (StopIteration, ValueError):
            self._stream.end()
            raise ConnectionError("no mount server answers there") from None

    def start(self) -> None:
        """Handle what the server says from now on; what it said after `hello` is behind it."""
        self._thread.start()

    def perform(self, jobs: Sequence[TreeJob], seen: int) -> list[JobResult]:
        """Have jobs done in this order, of paths that did not change after the change number `seen`.

        None is done if the server is gone or does not answer in time.  Without jobs it waits until the handler has
        every change of the operations that ended before.
        """
        answer: queue.SimpleQueue[list[JobResult] | None] = queue.SimpleQueue()
        with self._lock:
            self._last_job = number = self._last_job + 1
            self._jobs[number] = answer
            alive = self._alive
        results = None
        if alive and self._send("jobs", number, seen, jobs):
            with contextlib.suppress(queue.Empty):
                results = answer.get(timeout=self._patience)
        with self._lock:
            self._jobs.pop(number, None)
        return results or [JobResult(False, None, "the mount server does not answer")] * len(jobs)

    def rights(self, rights: Mapping[bytes, int]) -> None:
        """Say where this node may write, and wait until that holds; not for the handler's thread.

        Path -> 0, or the errno of a write; the nearest path above decides.
        """
        self._send("rights", rights)
        # Orders are obeyed one after the other.
        self.perform([], 0)

    def room(self, has: bool) -> None:
        """Say whether there is room for more on the disk."""
        self._send("room", has)

    def stop(self) -> None:
        """Have the filesystem unmounted, and the server end."""
        self._send("stop")

    def close(self) -> None:
        """Disconnect, and wait until nothing is handled any more; the server goes on."""
        self._stream.close()
        if self._thread.ident is None:
            self._stream.end()
        else:
            self._thread.join()

    def _send(self, *message: Any) -> bool:
        try:
            self._stream.send(message)
        except OSError:
            return False
        return True

    def _main(self) -> None:
        try:
            for message in self._stream:
                self._handle(*message)
        except Exception:
            # What it said is found by the scan of the next connection.
            log.exception("a message of the mount server failed, which is a bug")
        self._stream.end()
        with self._lock:
            self._alive = False
            for answer in self._jobs.values():
                answer.put(None)
        self._handler.ended(self._orderly)

    def _handle(self, kind: str, *rest: Any) -> None:
        if kind == "changed":
            seq, changes = rest
            self._handler.changed(seq, [Changed(path, inode, Flags(flags)) for path, inode, flags in changes])
            self._send("seen", seq)
        elif kind == "done":
            number, results = rest
            with self._lock:
                answer = self._jobs.get(number)
            if answer is not None:
                answer.put([_unpack_result(*packed) for packed in results])
            else:
                # They were given up, and were done after all: the scan of the next connection finds that.
                self._stream.close()
        elif kind == "attribute":
            number, path, name = rest
            self._send("attribute", number, self._handler.attribute(path, name))
        elif kind == "ended":
            self._orderly = True


class Orders(Protocol):
    """What a mount server does for a daemon; called by threads of the connection."""

    def writing(self) -> Iterable[int]:
        """Inodes that are being written to."""

    def rights(self, rights: Mapping[bytes, int]) -> None:
        """These hold from now on."""

    def perform(self, jobs: Sequence[TreeJob], seen: int, answer: Callable[[Sequence[JobResult]], None]) -> None:
        """Do jobs, then call `answer`; returns at once."""

    def room(self, has: bool) -> None:
        """Whether there is room for more on the disk."""

    def stop(self) -> None:
        """Unmount and end."""


class DaemonLink:
    """The server's end: takes changes from the thread that serves, which it never blocks, and orders from a daemon.

    Without a daemon nothing is kept, since a new one scans.
    """

    def __init__(self, path: Path, mountpoint: Path, orders: Orders) -> None:
        """Listen.  Raises `OSError`."""
        self._orders = orders
        self._greeting = _MARK, VERSION, os.getpid(), os.fsencode(mountpoint)
        self._listener = listen(path)
        self._path, self._inode = path, path.stat().st_ino
        self._lock = threading.Lock()
        self._woken = threading.Condition(self._lock)
        self._stream: _Stream | None = None
        #: Held while what waits is sent, so that nothing overtakes it.
        self._reporting = threading.Lock()
        self._questions: list[Sequence[Any]] = []
        self._seq = 0
        #: By path and inode: a path may get another file before a change of the first one is sent.
        self._waiting: dict[tuple[bytes, int], Flags] = {}
        #: The number of the last change of each path that has changed after the change number `_floor`.
        self._last: dict[bytes, int] = {}
        self._floor = 0
        self._asked: dict[int, queue.SimpleQueue[bytes | None]] = {}
        self._last_asked = 0

    def start(self) -> None:
        """Accept daemons from now on."""
        for main in (self._accept, self._report):
            threading.Thread(target=main, name=f"daemon-{main.__name__}", daemon=True).start()

    def close(self) -> None:
        """Say that the mount has ended in order."""
        with self._lock:
            messages, (stream, self._stream) = self._take(), (self._stream, None)
        if stream is not None:
            with contextlib.suppress(OSError):
                for message in (*messages, ("ended",)):
                    stream.send(message)
            stream.close()
        # The path may be the next server's by now.
        with contextlib.suppress(FileNotFoundError):
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()
        self._listener.close()

    def changed(self, path: bytes, inode: int, flags: Flags = NO_FLAGS) -> None:
        """Report a change."""
        with self._lock:
            self._seq += 1
            if self._stream is None:
                return
            self._last[path] = self._seq
            before = self._waiting.pop((path, inode), None)
            if before is not None:
                # Of these two the last one counts.
                ended = Flags.WRITING if flags & Flags.CLOSED else Flags.CLOSED if flags & Flags.WRITING else NO_FLAGS
                flags |= before & ~ended
            elif not self._waiting:
                self._woken.notify()
            self._waiting[path, inode] = flags

    def changed_after(self, path: bytes, seen: int) -> bool:
        """Whether a path changed after the change number `seen`."""
        with self._lock:
            return seen < self._floor or self._last.get(path, 0) > seen

    def attribute(self, path: bytes, name: bytes) -> bytes | None:
        """The daemon's value of a virtual attribute; `None` if there is none, or no answer in time."""
        answer: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        with self._lock:
            if self._stream is None:
                return None
            self._last_asked = number = self._last_asked + 1
            self._asked[number] = answer
            self._questions.append(("attribute", number, path, name))
            self._woken.notify()
        value = None
        with contextlib.suppress(queue.Empty):
            value = answer.get(timeout=ATTRIBUTE_SECONDS)
        with self._lock:
            self._asked.pop(number, None)
        return value

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(_Stream(connection),), name="daemon-orders", daemon=True).start()

    def _serve(self, stream: _Stream) -> None:
        try:
            stream.send(self._greeting)
            for message in stream:
                self._obey(stream, *message)
        except OSError:
            # It has gone.
            pass
        except Exception:
            log.exception("an order of the daemon failed, which is a bug")
        self._drop(stream)
        stream.end()

    def _attach(self, stream: _Stream) -> None:
        """Who speaks here is the daemon from now on."""
        with self._lock:
            before, self._stream = self._stream, stream
            self._waiting, self._last, self._questions = {}, {}, []
            # Jobs of the one before that are still on their way count as decided too early.
            self._seq += 1
            self._floor = self._seq
            # Before any change is reported: that needs the lock.
            stream.send(("attached", self._seq, list(self._orders.writing())))
        if before is not None:
            before.close()

    def _drop(self, stream: _Stream) -> None:
        with self._lock:
            if self._stream is stream:
                self._stream = None
                self._waiting, self._last, self._questions = {}, {}, []
        stream.close()

    def _obey(self, stream: _Stream, kind: str, *rest: Any) -> None:
        if kind == "attach":
            self._attach(stream)
        elif kind == "jobs":
            self._perform(stream, *rest)
        elif kind == "rights":
            self._orders.rights(rest[0])
        elif kind == "room":
            self._orders.room(rest[0])
        elif kind == "seen":
            self._taken(rest[0])
        elif kind == "attribute":
            self._answer(*rest)
        elif kind == "stop":
            self._orders.stop()

    def _perform(self, stream: _Stream, number: int, seen: int, jobs: Sequence[Any]) -> None:
        def answer(results: Sequence[JobResult]) -> None:
            # Behind the changes that were made before.
            self._send_waiting()
            with contextlib.suppress(OSError):
                stream.send(("done", number, results))

        self._orders.perform([_unpack_job(*packed) for packed in jobs], seen, answer)

    def _taken(self, seen: int) -> None:
        """The daemon has the changes up to a number."""
        with self._lock:
            # Jobs that were decided before may be on their way, so not at once.
            if len(self._last) > MOST_REMEMBERED:
                self._floor = seen
                self._last = {path: seq for path, seq in self._last.items() if seq > seen}

    def _answer(self, number: int, value: bytes | None) -> None:
        with self._lock:
            asked = self._asked.get(number)
        if asked is not None:
            asked.put(value)

    def _take(self) -> list[Sequence[Any]]:
        """The messages that wait; the lock is held."""
        messages, self._questions = self._questions, []
        changes, self._waiting = self._waiting, {}
        if changes:
            messages.append(("changed", self._seq, [(*found, flags) for found, flags in changes.items()]))
        return messages

    def _report(self) -> None:
        while True:
            with self._lock:
                while not (self._waiting or self._questions):
                    self._woken.wait()
            self._send_waiting()
            time.sleep(BATCH_SECONDS)

    def _send_waiting(self) -> None:
        with self._reporting:
            with self._lock:
                overrun = len(self._waiting) > MOST_WAITING
                messages, stream = self._take(), self._stream
            if stream is not None:
                try:
                    if overrun:
                        raise TimeoutError
                    for message in messages:
                        stream.send(message)
                except OSError:
                    self._drop(stream)


class _Stream:
    """Messages on a socket, which several threads may send."""

    def __init__(self, connection: socket.socket) -> None:
        # A reader that stands still must not hold up what else is to be done; seconds and microseconds.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", SEND_SECONDS, 0))
        self._connection = connection
        self._file = connection.makefile("rb", buffering=0)
        self._messages = msgpack.Unpacker(self._file, use_list=False, strict_map_key=False)
        self._lock = threading.Lock()

    def send(self, message: Sequence[Any]) -> None:
        """Raises `OSError`."""
        data = msgpack.packb(message)
        with self._lock:
            self._connection.sendall(data)

    def __iter__(self) -> _Stream:
        return self

    def __next__(self) -> Sequence[Any]:
        # Who speaks something else has ended, too.
        with contextlib.suppress(OSError, ValueError, StopIteration):
            message = next(self._messages)
            if isinstance(message, tuple) and message:
                return message
        raise StopIteration

    def close(self) -> None:
        """Disconnect, for any thread: who reads finds the end."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """Close the socket; for the thread that reads, or none does."""
        self._file.close()
        self._connection.close()


def _greeting(stream: _Stream) -> Sequence[Any]:
    """The first message of a mount server: the version, and of this one the process and the mount point.

    Raises `ValueError`.
    """
    mark, *found = next(stream, (None,))
    if mark != _MARK or not found:
        raise ValueError("no mount server")
    return found


def _unpack_job(path: bytes, action: int, expected: Any, temporary: bytes, attributes: Any, source: bytes) -> TreeJob:
    return TreeJob(
        path,
        JobAction(action),
        None if expected is None else Expected(*expected),
        temporary,
        None if attributes is None else FileAttributes(*attributes),
        source,
    )


def _unpack_result(done: bool, found: Any, reason: str) -> JobResult:
    return JobResult(done, None if found is None else Found(*found), reason)
