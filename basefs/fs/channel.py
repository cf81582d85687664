"""The protocol between the mount server and the daemon (docs/fs.md).

A Unix stream socket carries one JSON array a line, bytes as text with surrogate escapes.  The server listens, so that
a new daemon finds a mount that outlived the one before; the latest connection replaces the others.
"""

from __future__ import annotations

import contextlib
import json
import logging
import queue
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntFlag
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from basefs.fs.disk import FileAttributes, Found
from basefs.fs.jobs import Expected, JobAction, JobResult, TreeJob
from basefs.fs.sockets import listen

log = logging.getLogger(__name__)

VERSION = 1
#: Seconds that a request waits for a virtual attribute.
ATTRIBUTE_SECONDS = 1.0
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
    """What a mount server says first.

    Attributes:
        version: of the protocol; only `stop` is understood by every version.
        pid: its process.
        mountpoint: where its mount is.
        seen: the number of the last change; a scan from now on sees everything up to it.
        writing: inodes that are being written to.
    """

    version: int
    pid: int
    mountpoint: bytes
    seen: int
    writing: tuple[int, ...]


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

    def __init__(self, connection: socket.socket, handler: Handler) -> None:
        """Wait for the first line; nothing is handled before `start`.

        Raises `OSError`: the server closed the connection, or speaks something else.
        """
        self._lines = _Lines(connection)
        self._handler = handler
        self._lock = threading.Lock()
        self._jobs: dict[int, queue.SimpleQueue[list[JobResult] | None]] = {}
        self._last_job = 0
        self._orderly = False
        self._alive = True
        self._messages: queue.SimpleQueue[list[Any] | None] = queue.SimpleQueue()
        self.hello = _read_hello(self._lines)

    def start(self) -> None:
        """Handle what the server says from now on; what it said after `hello` is behind it."""
        threading.Thread(target=self._read, name="mount-reader", daemon=True).start()
        threading.Thread(target=self._handle, name="mount-handler", daemon=True).start()

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
        if alive and self._send("jobs", number, seen, [_pack_job(job) for job in jobs]):
            with contextlib.suppress(queue.Empty):
                results = answer.get(timeout=JOBS_SECONDS)
        with self._lock:
            self._jobs.pop(number, None)
        return results or [JobResult(False, None, "the mount server does not answer")] * len(jobs)

    def rights(self, rights: Mapping[bytes, int]) -> None:
        """Say where this node may write: path -> 0, or the errno of a write; the nearest path above decides."""
        self._send("rights", {_text(path): number for path, number in rights.items()})

    def forget(self, paths: Iterable[bytes]) -> None:
        """Have the kernel look up these paths again."""
        self._send("forget", [_text(path) for path in paths])

    def room(self, has: bool) -> None:
        """Say whether there is room for more on the disk."""
        self._send("room", has)

    def stop(self) -> None:
        """Have the filesystem unmounted, and the server end."""
        self._send("stop")

    def close(self) -> None:
        """Disconnect; the server goes on."""
        self._lines.close()

    def _send(self, *message: Any) -> bool:
        try:
            self._lines.send(message)
        except OSError:
            return False
        return True

    def _read(self) -> None:
        """Take answers to jobs at once: the handler may wait for a thread that waits for them."""
        for message in self._lines:
            if message[0] == "done" and message[2]:
                self._answer(message[1], message[2])
            else:
                self._messages.put(message)
        with self._lock:
            self._alive = False
            for answer in self._jobs.values():
                answer.put(None)
        self._messages.put(None)

    def _answer(self, number: int, results: Sequence[Any]) -> None:
        with self._lock:
            answer = self._jobs.get(number)
        if answer is not None:
            answer.put([_unpack_result(packed) for packed in results])

    def _handle(self) -> None:
        while (message := self._messages.get()) is not None:
            try:
                self._handle_one(*message)
            except Exception:
                log.exception("message %s of the mount server failed unexpectedly", message[0])
        self._handler.ended(self._orderly)

    def _handle_one(self, kind: str, *rest: Any) -> None:
        if kind == "changed":
            seq, changes = rest
            self._handler.changed(seq, [Changed(_bytes(path), inode, Flags(flags)) for path, inode, flags in changes])
            self._send("seen", seq)
        elif kind == "done":
            self._answer(*rest)
        elif kind == "attribute":
            number, path, name = rest
            value = self._handler.attribute(_bytes(path), _bytes(name))
            self._send("attribute", number, None if value is None else _text(value))
        elif kind == "ended":
            self._orderly = True


class Orders(Protocol):
    """What a mount server does for a daemon; called by threads of the connection."""

    def hello(self, seen: int) -> Hello:
        """The first line."""

    def rights(self, rights: Mapping[bytes, int]) -> None:
        """These hold from now on."""

    def perform(self, jobs: Sequence[TreeJob], seen: int, answer: Callable[[Sequence[JobResult]], None]) -> None:
        """Do jobs, then call `answer`; returns at once."""

    def forget(self, paths: Sequence[bytes]) -> None:
        """Have the kernel look up these paths again."""

    def room(self, has: bool) -> None:
        """Whether there is room for more on the disk."""

    def stop(self) -> None:
        """Unmount and end."""


class DaemonLink:
    """The server's end: takes changes from the thread that serves, which it never blocks, and orders from a daemon.

    Without a daemon nothing is kept, since a new one scans.
    """

    def __init__(self, path: Path, orders: Orders) -> None:
        """Listen.  Raises `OSError`."""
        self._orders = orders
        self._listener = listen(path)
        self._path, self._inode = path, path.stat().st_ino
        self._lock = threading.Lock()
        self._woken = threading.Condition(self._lock)
        self._lines: _Lines | None = None
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
            messages, (lines, self._lines) = self._take(), (self._lines, None)
        if lines is not None:
            with contextlib.suppress(OSError):
                for message in (*messages, ("ended",)):
                    lines.send(message)
            lines.close()
        # The path may be the next server's by now.
        with contextlib.suppress(FileNotFoundError):
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()
        self._listener.close()

    def changed(self, path: bytes, inode: int, flags: Flags = NO_FLAGS) -> None:
        """Report a change."""
        with self._lock:
            self._seq += 1
            if self._lines is None:
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
            if self._lines is None:
                return None
            self._last_asked = number = self._last_asked + 1
            self._asked[number] = answer
            self._questions.append(("attribute", number, _text(path), _text(name)))
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
            threading.Thread(target=self._serve, args=(_Lines(connection),), name="daemon-orders", daemon=True).start()

    def _serve(self, lines: _Lines) -> None:
        with self._lock:
            before, self._lines = self._lines, lines
            self._waiting, self._last, self._questions = {}, {}, []
            self._floor = self._seq
            hello = self._orders.hello(self._seq)
            with contextlib.suppress(OSError):
                # Before any change is reported: that needs the lock.
                lines.send(("basefs-mount", VERSION, {**hello._asdict(), "mountpoint": _text(hello.mountpoint)}))
        if before is not None:
            before.close()
        for message in lines:
            try:
                self._obey(lines, *message)
            except Exception:
                log.exception("order %s of the daemon failed unexpectedly", message[0])
        self._drop(lines)

    def _drop(self, lines: _Lines) -> None:
        with self._lock:
            if self._lines is lines:
                self._lines = None
                self._waiting, self._last, self._questions = {}, {}, []
        lines.close()

    def _obey(self, lines: _Lines, kind: str, *rest: Any) -> None:
        if kind == "jobs":
            number, seen, jobs = rest

            def answer(results: Sequence[JobResult]) -> None:
                # Behind the changes that were made before.
                self._send_waiting()
                with contextlib.suppress(OSError):
                    lines.send(("done", number, results))

            self._orders.perform([_unpack_job(packed) for packed in jobs], seen, answer)
        elif kind == "rights":
            self._orders.rights({_bytes(path): number for path, number in rest[0].items()})
        elif kind == "forget":
            self._orders.forget([_bytes(path) for path in rest[0]])
        elif kind == "room":
            self._orders.room(rest[0])
        elif kind == "seen":
            with self._lock:
                # Jobs that were decided before may be on their way, so not at once.
                if len(self._last) > MOST_REMEMBERED:
                    self._floor = rest[0]
                    self._last = {path: seq for path, seq in self._last.items() if seq > rest[0]}
        elif kind == "attribute":
            with self._lock:
                asked = self._asked.get(rest[0])
            if asked is not None:
                asked.put(None if rest[1] is None else _bytes(rest[1]))
        elif kind == "stop":
            self._orders.stop()

    def _take(self) -> list[Sequence[Any]]:
        """The messages that wait; the lock is held."""
        messages, self._questions = self._questions, []
        changes, self._waiting = self._waiting, {}
        if changes:
            packed = [(_text(path), inode, flags) for (path, inode), flags in changes.items()]
            messages.append(("changed", self._seq, packed))
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
                messages, lines = self._take(), self._lines
            if lines is not None:
                try:
                    if overrun:
                        raise TimeoutError
                    for message in messages:
                        lines.send(message)
                except OSError:
                    self._drop(lines)


class _Lines:
    """Messages on a socket, which several threads may send."""

    def __init__(self, connection: socket.socket) -> None:
        # A reader that stands still must not hold up what else is to be done; seconds and microseconds.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", SEND_SECONDS, 0))
        self._connection = connection
        self._file = connection.makefile("rb")
        self._lock = threading.Lock()

    def send(self, message: Sequence[Any]) -> None:
        """Raises `OSError`."""
        data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            self._connection.sendall(data)

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> list[Any]:
        try:
            line = self._file.readline()
        except (OSError, ValueError):
            line = b""
        if not line.endswith(b"\n"):
            self._file.close()
            self._connection.close()
            raise StopIteration
        message = json.loads(line)
        return list(message)

    def close(self) -> None:
        """Disconnect; who reads closes the socket."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)


def _read_hello(lines: _Lines) -> Hello:
    try:
        word, version, fields = next(lines)
        if word == "basefs-mount":
            return Hello(version, fields["pid"], _bytes(fields["mountpoint"]), fields["seen"], tuple(fields["writing"]))
    except (StopIteration, ValueError, KeyError, TypeError):
        pass
    raise ConnectionError("no mount server answers there")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _pack_job(job: TreeJob) -> list[Any]:
    attributes: list[Any] | None = None
    if job.attributes is not None:
        xattrs = job.attributes.xattrs
        texts = None if xattrs is None else {_text(name): _text(value) for name, value in xattrs.items()}
        attributes = [*job.attributes[:3], texts]
    return [_text(job.path), job.action.value, job.expected, _text(job.temporary), attributes, _text(job.source)]


def _unpack_job(packed: Sequence[Any]) -> TreeJob:
    path, action, expected, temporary, attributes, source = packed
    if attributes is not None:
        mode, owner, mtime, texts = attributes
        xattrs = None if texts is None else {_bytes(name): _bytes(value) for name, value in texts.items()}
        attributes = FileAttributes(mode, None if owner is None else tuple(owner), mtime, xattrs)
    return TreeJob(
        _bytes(path),
        JobAction(action),
        None if expected is None else Expected(*expected),
        _bytes(temporary),
        attributes,
        _bytes(source),
    )


def _unpack_result(packed: Sequence[Any]) -> JobResult:
    done, found, reason = packed
    return JobResult(done, None if found is None else Found(*found), reason)
