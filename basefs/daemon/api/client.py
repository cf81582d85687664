"""Asking a filesystem of this node, whether its daemon runs or not."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from basefs.daemon.api.control import TIMEOUT, call, stream
from basefs.daemon.api.messages import INLINE, Request, decode_answer, encode
from basefs.daemon.api.runfile import RunFile
from basefs.daemon.config import Home
from basefs.daemon.lock import exclusive
from basefs.daemon.mounts import Mount, is_dead, mounts
from basefs.errors import AlreadyRunning, BaseFSError, DaemonError, DamagedLog, NotRunning, OtherVersion

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no answer."""

    error: str


@dataclass(frozen=True, slots=True)
class Look(Generic[Answer]):
    """What a filesystem is like on this node.

    Attributes:
        name: of the filesystem.
        mountpoint, pid: of a daemon that answers.
        answer: to the request.
        state: mounted; ending, unmounted while it was in use;
            running, without a mount; stopped; dead, which has not ended cleanly; or, with a `failure`
            instead of an answer: silent, whose daemon does not answer, damaged, unreadable, other version.
        failure: why there is no answer.
    """

    name: str
    mountpoint: str | None = None
    pid: int | None = None
    answer: Answer | None = field(default=None, metadata=INLINE)
    state: str = "stopped"
    failure: Failure | None = field(default=None, metadata=INLINE)


#: The state of a filesystem that gives no answer, by the first kind of error that fits.
_FAILURES = {OtherVersion: "other version", DaemonError: "silent", DamagedLog: "damaged"}


class FilesystemClient:
    """One filesystem of this node."""

    def __init__(self, home: Home, name: str, notify: Callable[[str], None] = lambda text: None) -> None:
        """`notify` gets a line where an answer takes long.  Raises `NotFound`, `UsageError` for a bad name."""
        self._directory = home.existing(name)
        self._home = home
        self._name = name
        self._notify = notify
        self._socket = home.socket_path(name)

    def ask(self, request: Request[Answer]) -> Answer:
        """The answer of the daemon if it runs, else of the log itself, which is locked meanwhile.

        Raises `AlreadyRunning` if a daemon that starts or stops does not answer, and what the command raises.
        """
        # A daemon may hold the log and not answer yet.
        deadline = time.monotonic() + 15.0
        while True:
            try:
                return self.ask_daemon(request)
            except NotRunning:
                try:
                    with exclusive(self._directory, self._name):
                        return self._ask_log(request)
                except AlreadyRunning:
                    # It is just starting or stopping, so its socket is not there.
                    if time.monotonic() > deadline:
                        raise
            time.sleep(0.05)

    def ask_daemon(self, request: Request[Answer], timeout: float = TIMEOUT) -> Answer:
        """The answer of a running daemon within `timeout` seconds.

        Raises `NotRunning`, `DaemonError` if there is no answer, and what the command raises.
        """
        answer = call(
            self._socket,
            request.command,
            encode(request),
            timeout,
            lambda: self.warn_waiting(", which is busy"),
        )
        return decode_answer(request, answer)

    def follow(self, request: Request[Answer]) -> Iterator[Answer]:
        """The answers of a running daemon as they come.  Raises `NotRunning`, `DaemonGone`, and what they raise."""
        for item in stream(self._socket, request.command, encode(request)):
            yield decode_answer(request, item)

    def look(self, request: Request[Answer]) -> Look[Answer]:
        """The state of a filesystem, with the answer to a request if there is one.  Raises nothing of the daemon's."""
        facts = RunFile(self._home, self._name).read()
        pid, point = facts if facts is not None else (None, None)
        try:
            try:
                # Others are to be asked as well.
                answer = self.ask_daemon(request, 10.0)
            except NotRunning:
                answer = self.ask(request)
                if facts is None:
                    return Look(self._name, answer=answer, state="stopped")
                # Its mount server goes on without it.
                served = point is not None and Mount(self._name, point) in mounts() and not is_dead(point)
                return Look(self._name, str(point) if served else None, answer=answer, state="dead")
            if point is None:
                return Look(self._name, None, pid, answer, "running")
            state = "mounted" if Mount(self._name, point) in mounts() else "ending"
            return Look(self._name, str(point), pid, answer, state)
        except BaseFSError as error:
            state = next((state for kind, state in _FAILURES.items() if isinstance(error, kind)), "unreadable")
            return Look(self._name, state=state, failure=Failure(str(error)))

    def warn_waiting(self, why: str) -> None:
        """Notify that the daemon takes long.  Raises `DaemonError` where it would take for ever."""
        self.refuse_stopped()
        self._notify(f"waiting for the daemon of {self._name}{why} ...")

    def refuse_stopped(self) -> None:
        """Raise `DaemonError` where the daemon will not answer because a signal has stopped its process."""
        facts = RunFile(self._home, self._name).read()
        if facts is not None and _is_stopped(facts[0]):
            raise DaemonError(
                f"the daemon of {self._name} is stopped by a signal: 'kill -CONT {facts[0]}' lets it go on"
            )

    def _ask_log(self, request: Request[Answer]) -> Answer:
        # Imported here: commands on a running daemon do without the whole of the log and view.
        from basefs.daemon.api.services import LogServices
        from basefs.daemon.keyfiles import default_keys
        from basefs.replica.replica import Replica

        with contextlib.closing(Replica(self._directory, default_keys(self._home))) as replica:
            return LogServices(replica).answer(request)


def _is_stopped(pid: int) -> bool:
    """By a signal or a debugger, see proc(5)."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2][:1] in b"Tt"
    return False
