"""A mount without a network: the daemon's filesystem, and a test that decides what is published and delivered when.

Run as `python -m tests.fs.served DIRECTORY MOUNTPOINT KEY`.  It reads commands from its standard input, an array in
JSON a line, and answers each with one; it ends with its input.
"""

from __future__ import annotations

import json
import logging
import os
import pathlib
import sys
import threading
from collections.abc import Callable
from typing import Any

from basefs.fs.fuse.binding import caller, serve, unmount
from basefs.fs.fuse.kernel import Kernel
from basefs.fs.fuse.mirror import Mirror
from basefs.fs.fuse.operations import Operations
from basefs.fs.owners import Owners

from basefs.daemon.config import QUIET_SECONDS
from basefs.daemon.main import SWITCH_INTERVAL
from basefs.fs.filesystem import Filesystem
from basefs.path import Path
from basefs.replica.replica import Applied
from basefs.view.states import Kind, State
from tests.support.helpers import BOB, ROOT_KEY, Clock, genesis, make_key, make_replica
from tests.support.mounts import wait_until

#: Who may write, so that both logs begin alike.
KEYS = (ROOT_KEY, BOB)
#: A path that is not there.
LAST = (b".last",)


class Served:
    """One mount, and what the test asks of it."""

    def __init__(self, directory: pathlib.Path, mountpoint: pathlib.Path, key: str) -> None:
        self._mountpoint = mountpoint
        clock = Clock()
        self._replica = make_replica(directory, [make_key(key)], born=genesis(KEYS), clock=clock)
        self._filesystem = Filesystem(self._replica, Owners(os.getuid(), os.getgid(), keep=False), clock, QUIET_SECONDS)
        self._kernel = Kernel()
        self._mirror = self._filesystem.mirror = Mirror(self._filesystem.working, self._kernel, mountpoint)
        self._logged: list[tuple[str, str]] = []
        self._sent: list[tuple[list[str], list[str]]] = []
        self._replica.subscribe(self._note)

    def serve(self) -> None:
        """Mount, until the input ends."""
        operations = Operations(self._filesystem, self._begin, caller=caller, kernel=self._kernel, mirror=self._mirror)
        serve(operations, self._kernel, self._mountpoint, "served", {})
        self._replica.close()

    def _begin(self) -> None:
        threading.Thread(target=self._answer, daemon=True).start()

    def _answer(self) -> None:
        wait_until(lambda: self._filesystem.working.mirrored, "the mirror")
        try:
            for line in sys.stdin:
                command, *arguments = json.loads(line)
                sys.stdout.write(json.dumps(getattr(self, command)(*arguments)) + "\n")
                sys.stdout.flush()
        finally:
            unmount(self._mountpoint, lazy=True)

    def _note(self, applied: Applied) -> None:
        if applied.local:
            entries = [entry.encode().hex() for entry in applied.entries]
            self._sent.append((entries, [block.encode().hex() for block in applied.blocks]))

    # -- commands -----------------------------------------------------------------------------------------------------

    def publish(self, opened: int) -> int:
        """Publish what was closed, all but so many files; how many names stay unpublished."""
        working = self._filesystem.working
        # close(2) returns before the kernel has told of the last one.
        wait_until(lambda: len(self._filesystem.files._handles) == opened, "closed files")
        self._filesystem.publish()
        return working.unpublished()

    def take(self) -> list[Any]:
        """What was published since the last time: entries and blocks for each commit."""
        sent, self._sent = self._sent, []
        return sent

    def give(self, entries: list[str], blocks: list[str]) -> None:
        """What another one has published arrives."""
        added = self._replica.add([bytes.fromhex(raw) for raw in entries], [bytes.fromhex(raw) for raw in blocks])
        assert not added.rejected and not added.missing_parents, added

    def settle(self) -> None:
        """Until the kernel and those who watch know all that has arrived."""
        wait_until(lambda: not self._mirror.waiting, "the mirror")
        # Behind all that the kernel is still to forget.
        self._kernel.invalidate([LAST])
        wait_until(lambda: self._kernel.has_forgotten(LAST), "the kernel's caches")

    def cache(self, seconds: float) -> None:
        """What the kernel learns from now on is believed for so long."""
        self._kernel.cache(seconds)

    def interpose(self, where: str, deliveries: list[tuple[list[str], list[str]]]) -> None:
        """Have all of this arrive in the moment in which the mirror is about to show a change of this path."""
        names = tuple(where.encode().split(b"/"))
        perform = self._mirror.perform
        about = threading.Event()

        def arrive() -> None:
            about.wait()
            for delivery in deliveries:
                self.give(*delivery)

        # A thread that the mirror's began would have none of the files that are open here.
        network = threading.Thread(target=arrive, daemon=True)
        network.start()

        def late(performed: Path, before: State | None, after: State | None) -> None:
            if performed == names:
                self._mirror.perform = perform  # type: ignore[method-assign]
                about.set()
                network.join()
            perform(performed, before, after)

        self._mirror.perform = late  # type: ignore[method-assign]

    def watch_mirror(self) -> None:
        """Note from now on what the mirror's thread reads of the replica and logs, which it must not."""

        class Handler(logging.Handler):
            def emit(handler, record: logging.LogRecord) -> None:
                self._logged.append((record.threadName or "", record.getMessage()))

        logging.getLogger().addHandler(Handler())
        for name in ("attributes", "continues", "names_of", "listing", "read"):
            setattr(self._replica, name, self._noting(name, getattr(self._replica, name)))

    def _noting(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def noting(*arguments: Any, **options: Any) -> Any:
            if threading.current_thread().name == "mirror":
                self._logged.append(("mirror", name))
            return call(*arguments, **options)

        return noting

    def break_mirror(self, where: str) -> None:
        """The mirror has a bug that ends the next change of this path."""
        names = tuple(where.encode().split(b"/"))
        perform = self._mirror.perform

        def broken(performed: Path, before: State | None, after: State | None) -> None:
            if performed == names:
                self._mirror.perform = perform  # type: ignore[method-assign]
                raise RuntimeError("broken")
            perform(performed, before, after)

        self._mirror.perform = broken  # type: ignore[method-assign]

    def logged(self) -> list[tuple[str, str]]:
        """What was logged, and read by the mirror: the thread, and what."""
        self._filesystem.keep_durable()
        return self._logged

    def tree(self) -> dict[str, tuple[str, int, str]]:
        """What the view has: kind, mode, and content or target, in hexadecimal digits."""
        found = {}
        for names, _ in self._replica.live_paths():
            if names:
                attributes = self._replica.attributes(names)
                content = b""
                if attributes.kind is Kind.FILE:
                    content = self._replica.read(names)
                elif attributes.kind is Kind.SYMLINK:
                    content = self._replica.read_link(names)
                mode = 0 if attributes.kind is Kind.SYMLINK else attributes.mode
                found[b"/".join(names).decode()] = (attributes.kind.name, mode, content.hex())
        return found

    def lost(self, where: str) -> list[str]:
        """The contents of a path that lost a conflict, in hexadecimal digits; of a removal nothing."""
        conflicts = self._replica.survey(tuple(where.encode().split(b"/"))).conflicts()
        return [self._replica.content_at(conflict.lost.hash).hex() for conflict in conflicts]

    def count(self) -> int:
        """How many entries there are."""
        return self._replica.totals()["entries"]

    def problems(self) -> list[str]:
        """What is not as it would be in a view that is built from scratch."""
        return [str(problem) for problem in self._replica.check_view()]


if __name__ == "__main__":
    sys.setswitchinterval(SWITCH_INTERVAL)
    Served(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]).serve()
