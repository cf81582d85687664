"""Commands of `basefs` in processes that are forked from one which has imported everything.

A command spends 0.1 to 0.7 s on starting Python and importing, most where it starts a daemon, and tests start thousands
of them.  What is forked is a process of its own that runs the whole command line, with its own streams, environment and
network namespace; a daemon goes on as a fork of its command in any case.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.project import ROOT

#: Bytes of a request: arguments and environment.
_MOST = 1 << 20
#: Descriptors with a request: for the answer, and the standard output and error of the command.
_DESCRIPTORS = 3
#: What a command may find changed since its process was forked from, and what pytest changes.
_OWN = ("BASEFS_HOME", "PYTEST_CURRENT_TEST")
#: Bytes of the longest path, with its end (PATH_MAX).
_PATH_MAX = 4096


class CommandServer:
    """The process from which commands are forked; started with the first one, and ended with this process."""

    def __init__(self) -> None:
        """Commands have the environment that this process has now."""
        self._lock = threading.Lock()
        self._running: tuple[subprocess.Popen[bytes], socket.socket] | None = None
        self._environment = _others(os.environ)

    def __enter__(self) -> CommandServer:
        return self

    def __exit__(self, *_: object) -> None:
        if self._running is not None:
            process, channel = self._running
            channel.close()
            process.wait()

    def suits(self, environment: Mapping[str, str]) -> bool:
        """Whether a command with this environment may be forked: others may ask for another interpreter or locale."""
        return _others(environment) == self._environment

    def run(
        self, arguments: Sequence[str], home: str, namespace: str | None, timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Run a command and wait for it.  Raises `subprocess.TimeoutExpired`.

        `arguments`: what follows `basefs`; `home`: its BASEFS_HOME; `namespace`: of its network, if it has one.
        """
        with self._lock:
            if self._running is None:
                self._running = self._start()
        _, channel = self._running
        request = {
            "arguments": arguments,
            "home": home,
            "directory": str(Path.cwd()),
            "namespace": namespace,
            "umask": _umask(),
        }
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        output, errors = (os.memfd_create(name) for name in ("stdout", "stderr"))
        try:
            with ours:
                with theirs:
                    descriptors = array.array("i", (theirs.fileno(), output, errors))
                    channel.sendmsg(
                        [json.dumps(request).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)]
                    )
                code = _wait(ours, ["basefs", *arguments], timeout)
            return subprocess.CompletedProcess(["basefs", *arguments], code, _text(output), _text(errors))
        finally:
            os.close(output)
            os.close(errors)

    def _start(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                cwd=ROOT,
                # The last one, so that what is shorter than its place ends all.
                env={**self._environment, "BASEFS_HOME": "-" * _PATH_MAX},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        return process, ours


def _others(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in _OWN}


def _umask() -> int:
    """The umask of this process, which umask(2) tells to those alone who change it."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("Umask:")[2].split()[0], 8)


def _wait(answers: socket.socket, command: list[str], timeout: float) -> int:
    """The exit code of a command."""
    pid = int(answers.recv(64))
    answers.settimeout(timeout)
    try:
        return int(answers.recv(64))
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        raise subprocess.TimeoutExpired(command, timeout) from None


def _text(descriptor: int) -> str:
    size = os.fstat(descriptor).st_size
    text = os.pread(descriptor, size, 0).decode(errors="surrogateescape")
    return text.replace("\r\n", "\n").replace("\r", "\n")


# -- the process itself ------------------------------------------------------------------------------------------------


def _serve(channel: socket.socket) -> Any:
    """Fork a process for each request; returns in the process of a command what it is to run."""
    while True:
        request, descriptors, _, _ = socket.recv_fds(channel, _MOST, _DESCRIPTORS)
        if not request:
            sys.exit()
        if os.fork() == 0:
            channel.close()
            with socket.socket(fileno=descriptors[0]) as answers:
                if (pid := os.fork()) == 0:
                    for standard, descriptor in enumerate(descriptors[1:], start=1):
                        os.dup2(descriptor, standard)
                        os.close(descriptor)
                    return json.loads(request)
                for descriptor in descriptors[1:]:
                    os.close(descriptor)
                answers.send(str(pid).encode())
                _, status = os.waitpid(pid, 0)
                answers.send(str(os.waitstatus_to_exitcode(status)).encode())
            os._exit(0)
        for descriptor in descriptors:
            os.close(descriptor)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass


def _show_home(home: str) -> None:
    """Write the home where proc_pid_environ(5) reads it, as it would be of a command that was started with it.

    Nodes find by it what still runs.
    """
    # Fields 50 and 51 of proc_pid_stat(5): where the environment begins and ends.
    begin, end = map(int, Path("/proc/self/stat").read_text().rpartition(")")[2].split()[47:49])
    place = ctypes.string_at(begin, end - begin).index(b"BASEFS_HOME=-")
    shown = b"BASEFS_HOME=" + os.fsencode(home)
    ctypes.memmove(begin + place, shown.ljust(end - begin - place, b"\0"), end - begin - place)


def _main() -> None:
    from basefs.management import main
    from tests.support.namespaces import enter_namespace

    importlib.import_module("basefs.daemon.launch")
    for command in main.COMMANDS:
        main.load(command)
    # A thread would not be there in a child, and what it holds would stay locked.
    assert len(os.listdir("/proc/self/task")) == 1
    # It is searched for garbage no more: that would copy it in each child.
    gc.collect()
    gc.freeze()
    request = _serve(socket.socket(fileno=int(sys.argv[1])))
    os.environ["BASEFS_HOME"] = request["home"]
    _show_home(request["home"])
    os.umask(request["umask"])
    os.chdir(request["directory"])
    sys.argv = ["basefs", *request["arguments"]]
    if request["namespace"] is not None:
        enter_namespace(request["namespace"])
    command = os.getpid()
    try:
        main.main()
    except SystemExit as ended:
        if os.getpid() != command:
            # A daemon, which ends as it always does.
            raise
        # Without taking the interpreter apart, which would copy all memory that the process shares.
        assert isinstance(ended.code, int)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(ended.code)


if __name__ == "__main__":
    _main()
