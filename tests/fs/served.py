"""A daemon without a network and without threads of its own: a test decides what is published and delivered, and when.

It is a process, which a test can kill, and its mount server is another one.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import stat
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from basefs.daemon.config import QUIET_SECONDS, Home
from basefs.daemon.main import SWITCH_INTERVAL
from basefs.daemon.mounting import Mounting
from basefs.daemon.mounts import is_dead, served_at
from basefs.daemon.options import DaemonOptions
from basefs.daemon.settings import Settings
from basefs.fs.events.runner import HandlerSettings
from basefs.fs.filesystem import Filesystem
from basefs.fs.worktree.owners import Owners
from basefs.log.entries import Action, Entry
from basefs.replica.bootstrap import CLUSTER_FILE
from basefs.replica.replica import Applied, Replica
from basefs.view.states import Kind
from tests.fs.twin import TIMES, Face, View
from tests.support.helpers import BIRTH, BOB, ROOT_KEY, Clock, genesis, make_key, make_replica
from tests.support.mounts import wait_until
from tests.support.node import detach, has_ended, mount_points
from tests.support.patience import DEADLINE

#: Who may write, so that all logs begin alike.
KEYS = (ROOT_KEY, BOB)
NAME = "served"
#: Transactions in which all is published that can be.
MOST_ROUNDS = 5
_TYPES = {
    Kind.FILE: stat.S_IFREG,
    Kind.DIRECTORY: stat.S_IFDIR,
    Kind.SYMLINK: stat.S_IFLNK,
    Kind.FIFO: stat.S_IFIFO,
    Kind.CHARACTER: stat.S_IFCHR,
    Kind.BLOCK: stat.S_IFBLK,
}
#: Forks daemons from a process that has imported everything.
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([__name__])


def view_of(replica: Replica, owners: Owners) -> View:
    """What the log shows."""
    found = {}
    for names, outcome in replica.outcomes([names for names, _ in replica.live_paths()]).items():
        if names == (CLUSTER_FILE,) or outcome is None:
            continue
        state = outcome.state
        content = replica.read(names) if state.kind is Kind.FILE else state.target
        found[b"/".join(names).decode() or "."] = Face(
            _TYPES[state.kind] | state.mode,
            owners.ids(state.owner),
            0,
            state.mtime if state.mtime in TIMES else None,
            state.rdev,
            tuple((os.fsdecode(name), value) for name, value in state.xattrs),
            content,
        )
    return found


class _Daemon:
    """What the process does for the test; each public method answers a request."""

    def __init__(self, base: Path, key: str) -> None:
        home = Home(base / "home")
        home.make()
        directory = home.directory(NAME)
        clock = Clock()
        if not directory.exists():
            make_replica(directory, born=genesis(KEYS)).close()
        self._replica = Replica(directory, [make_key(key)], clock=clock)
        # Ahead of what was signed before a kill.
        clock.now = BIRTH + 1000.0 * self._replica.totals()["entries"]
        self._owners = Owners(os.getuid(), os.getgid(), keep=True)
        point = base / "mount"
        self._filesystem = Filesystem(
            self._replica, self._owners, QUIET_SECONDS, mounted=served_at(home, NAME) is not None
        )
        options = DaemonOptions(
            name=NAME,
            mountpoint=point,
            keys=[],
            bind=("", 0),
            interface=None,
            join=(),
            node_name="",
            fuse_options=(),
            uid=os.getuid(),
            gid=os.getgid(),
            keep_owners=True,
            single=True,
            encrypt_key=None,
            settings=Settings(),
            handlers=HandlerSettings(),
        )
        self._mounting = Mounting(home, options, self._filesystem, lambda: None)
        self._mounting.begin()

    def serve(self, requests: multiprocessing.connection.Connection) -> None:
        """Answer until a request says that it is the last one."""
        requests.send(None)
        while True:
            command, *arguments = requests.recv()
            try:
                answer = getattr(self, command)(*arguments)
            except Exception:
                answer = AssertionError(traceback.format_exc())
            requests.send(answer)
            if command == "stop":
                return

    def die_after(self, transactions: int) -> None:
        """Be killed when the log has so many more."""
        left = [transactions]

        def look(_: Applied) -> None:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        self._replica.subscribe(look)

    def stop(self) -> None:
        """End in order."""
        self._mounting.end(unmount=True)
        self._filesystem.close()
        self._replica.close()

    def publish(self) -> int:
        """Publish what was closed; how many names stay unpublished."""
        for _ in range(MOST_ROUNDS):
            self._filesystem.publish()
            # What can only follow something else comes with the next transaction.
            if not self._filesystem.unpublished():
                break
        return self._filesystem.unpublished()

    def settle(self) -> None:
        """Bring what has arrived to the disk, as far as nobody writes there."""
        self._filesystem.settle()

    def entries(self) -> list[bytes]:
        """All entries."""
        return list(self._replica.walk(()))

    def receive(self, entries: list[bytes]) -> None:
        """Entries arrive."""
        added = self._replica.add(entries, [])
        assert not added.rejected and not added.missing_parents, added

    def missing(self) -> list[Any]:
        """Blocks that are missing."""
        while self._replica.review_needs(at_once=True):
            pass
        return [hash for _, hash in self._replica.missing_blocks(1000)]

    def blocks(self, hashes: list[Any]) -> list[bytes]:
        """These blocks, as far as they are here."""
        return [encoded for hash in hashes if (encoded := self._replica.block(hash))]

    def receive_blocks(self, blocks: list[bytes]) -> None:
        """Blocks arrive."""
        added = self._replica.add([], blocks)
        assert not added.rejected, added

    def view(self) -> View:
        """What the log shows."""
        return view_of(self._replica, self._owners)

    def contents(self) -> set[bytes]:
        """Every content that the log holds, of whichever version."""
        found = set()
        for encoded in self.entries():
            entry = Entry.decode(encoded)
            if entry.action is Action.WRITE:
                found.add(self._replica.content_at(entry.hash))
        return found

    def problems(self) -> list[str]:
        """What is not as it would be in a view that is built from scratch."""
        return [str(problem) for problem in self._replica.check_view()]


def _main(base: Path, key: str, requests: multiprocessing.connection.Connection) -> None:
    sys.setswitchinterval(SWITCH_INTERVAL)
    with (base / "log").open("a") as log:
        # The mount server inherits it.
        os.dup2(log.fileno(), 2)
    try:
        daemon = _Daemon(base, key)
    except BaseException:
        requests.send(AssertionError(traceback.format_exc()))
        raise
    daemon.serve(requests)
    # Threads that wait for a peer need not be waited for.
    os._exit(0)


class Served:
    """A mount, and the daemon behind it.

    Attributes:
        mount: where it is mounted.
    """

    def __init__(self, base: Path, key: str) -> None:
        self.mount = base / "mount"
        self.mount.mkdir(parents=True)
        self._base, self._key = base, key
        self._process: Any = None

    def start(self) -> None:
        """Start a daemon, which finds the mount server that runs, or starts one."""
        self._requests, theirs = _context.Pipe()
        self._process = _context.Process(target=_main, args=(self._base, self._key, theirs))
        self._process.start()
        theirs.close()
        self._answer("the start")

    def ask(self, command: str, *arguments: Any) -> Any:
        """Have the daemon do something.  Raises `EOFError` if it dies."""
        self._requests.send((command, *arguments))
        return self._answer(command)

    def _answer(self, what: str) -> Any:
        assert self._requests.poll(DEADLINE), f"{what}: no answer"
        answer = self._requests.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def log(self) -> str:
        """What daemon and mount server have written to standard error."""
        return (self._base / "log").read_text(errors="replace")

    def stop(self) -> None:
        """End the daemon in order, which unmounts."""
        self.ask("stop")
        self._process.join(DEADLINE)
        assert not os.path.ismount(self.mount)

    def kill_daemon(self) -> None:
        """End the daemon as a crash does; the mount stays."""
        if self._process is None:
            return
        self._process.kill()
        self._process.join()
        self._requests.close()

    @property
    def runs(self) -> bool:
        """Whether there is a daemon."""
        self._process.join(0)
        return bool(self._process.is_alive())

    def kill_server(self) -> None:
        """End the mount server as a crash does, and wait until the daemon has brought the mount back."""
        _kill(self._server())
        wait_until(lambda: answers(self.mount), "the mount")

    def _server(self) -> int:
        """The process of the mount server."""
        command = f"--mountpoint={self.mount}".encode()
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if command in (process / "cmdline").read_bytes().split(b"\0"):
                    return int(process.name)
        raise AssertionError("there is no mount server")

    def clean_up(self) -> None:
        """Leave nothing behind, whatever has happened."""
        self.kill_daemon()
        with contextlib.suppress(AssertionError):
            _kill(self._server())
        for point in mount_points(self.mount):
            detach(point)


def answers(mount: Path) -> bool:
    """Whether a mount answers; a dead one may still be there."""
    # In this order, since it may be mounted in between.
    return not is_dead(mount) and os.path.ismount(mount)


def _kill(process: int) -> None:
    os.kill(process, signal.SIGKILL)
    wait_until(lambda: has_ended(process), "the end of the mount server")


#: A class of hosts.
H = TypeVar("H", bound=Served)


def deliver(sender: Served, receiver: Served) -> None:
    """What the log of one has and that of another has not arrives there."""
    known = set(receiver.ask("entries"))
    receiver.ask("receive", [entry for entry in sender.ask("entries") if entry not in known])
    while blocks := sender.ask("blocks", receiver.ask("missing")):
        receiver.ask("receive_blocks", blocks)


@contextlib.contextmanager
def served(base: Path, *keys: str, host: type[H]) -> Iterator[list[H]]:
    """Mounts of one filesystem in which nothing is, one for each key."""
    with contextlib.ExitStack() as stack:
        found = []
        for key in keys:
            one = host(base / key, key)
            stack.callback(one.clean_up)
            one.start()
            found.append(one)
        yield found
