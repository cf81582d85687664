"""Some nodes whose applications do anything, which exchange entries, and which are killed between any two steps."""

from __future__ import annotations

import contextlib
import os
import pathlib
import stat
from collections.abc import Callable, Mapping
from dataclasses import replace

from basefs.fs.channel import Flags
from basefs.fs.worktree.machine import THIS_MACHINE
from basefs.log.entries import Entry
from basefs.path import Path
from basefs.view.states import Kind
from tests.fs.local import Local, exchange
from tests.support.helpers import ALICE, BOB, ROOT_KEY

KEYS = (ROOT_KEY, ALICE, BOB)


def _symlink(local: Local, one: str, other: str) -> None:
    # To nothing: an application that follows it must not leave the tree.
    local.symlink(f"nowhere{other.replace('/', '-')}/x", one)


def _chmod(local: Local, one: str, other: str) -> None:
    if not local.at(one).is_symlink():
        local.chmod(one, stat.S_IMODE(local.at(one).lstat().st_mode) ^ 0o044)


def _touch(local: Local, one: str, other: str) -> None:
    if not local.at(one).is_symlink():
        local.touch(one, 1_700_000_000_000_000_000 + len(other))


def _fifo(local: Local, one: str, other: str) -> None:
    os.mkfifo(local.at(one))
    local.tell(one)


def _make_again(local: Local, one: str, other: str) -> None:
    local.remove(one)
    local.mkdir(one)


def _scratch(local: Local, one: str, other: str) -> None:
    local.at(f"{one}/.x.swp").write_bytes(b"swap")
    local.tell(f"{one}/.x.swp", flags=Flags.CLOSED)


_ACTIONS: dict[str, Callable[[Local, str, str], None]] = {
    "remove": lambda local, one, other: local.remove(one),
    "mkdir": lambda local, one, other: local.mkdir(one),
    "rename": lambda local, one, other: local.rename(one, other),
    "link": lambda local, one, other: local.link(one, other),
    "symlink": _symlink,
    "chmod": _chmod,
    "touch": _touch,
    "fifo": _fifo,
    "make again": _make_again,
    "scratch": _scratch,
}
#: What applications do.
ACTIONS = ["save", "replace", *_ACTIONS]


class Killed(BaseException):
    """The process is killed here."""


class Fuse:
    """Kills a process after so many steps, once; never while there are none."""

    def __init__(self) -> None:
        self.left = 0

    def __call__(self) -> None:
        if self.left:
            self.left -= 1
            if not self.left:
                raise Killed


class Cluster:
    """The nodes.

    Attributes:
        nodes: the filesystems.
        ended: contents that an application has replaced or removed where it saw them.
    """

    def __init__(self, directory: pathlib.Path, count: int) -> None:
        self.fuses = [Fuse() for _ in range(count)]
        self.saved: set[bytes] = set()
        self.ended: set[bytes] = set()
        first = Local.bootstrap(directory / "0", keys=KEYS)
        self.nodes = [first]
        for number in range(1, count):
            machine = replace(THIS_MACHINE, passes=self.fuses[number])
            self.nodes.append(first.join(directory / str(number), KEYS[number], machine=machine))
        first.kill()
        first._machine = replace(THIS_MACHINE, passes=self.fuses[0])
        self.nodes[0] = first.again()

    # -- what applications do -----------------------------------------------------------------------------------------

    def act(self, number: int, what: str, one: str, other: str) -> None:
        """Something that an application does, if it can."""
        before = self.nodes[number].disk()
        with contextlib.suppress(OSError):
            self._act(self.nodes[number], what, one, other)
        after = self.nodes[number].disk()
        self.ended |= _contents(before) - _contents(after)
        replica = self.nodes[number].replica
        for path in before:
            # With what is removed goes what has lost to it.
            if path in after and after[path][0] == before[path][0]:
                continue
            self.ended.update(replica.content_at(Entry.decode(entry).hash) for entry in replica.walk(path))

    def _act(self, local: Local, what: str, one: str, other: str) -> None:
        if what in ("save", "replace") and not local.at(one).is_fifo():
            content = b"content %d" % len(self.saved)
            where = one if what == "save" else f"{one}.new"
            local.save(where, content)
            self.saved.add(content)
            if what == "replace":
                local.rename(where, one)
        elif what in _ACTIONS:
            _ACTIONS[what](local, one, other)

    # -- what nodes do ------------------------------------------------------------------------------------------------

    def publish(self, number: int) -> None:
        """A node publishes, or is killed on the way."""
        try:
            self.nodes[number].publish()
        except Killed:
            self.restart(number)

    def settle(self, number: int) -> None:
        """A node receives, or is killed on the way."""
        try:
            self.nodes[number].fs.settle()
        except Killed:
            self.restart(number)

    def restart(self, number: int) -> None:
        """A node is killed, and begins again, even if that takes several times."""
        while True:
            self.nodes[number].kill()
            try:
                self.nodes[number] = self.nodes[number].again()
                return
            except Killed:
                continue

    def exchange(self, one: int, other: int) -> bool:
        """Two nodes exchange what they have."""
        return exchange(self.nodes[one], self.nodes[other])

    def calm(self) -> None:
        """All publish, exchange and receive until nothing is left."""
        for fuse in self.fuses:
            fuse.left = 0
        for _ in range(50):
            for number in range(len(self.nodes)):
                self.publish(number)
                self.settle(number)
            moved = False
            for number in range(1, len(self.nodes)):
                moved = self.exchange(0, number) or moved
            for number in range(len(self.nodes)):
                self.settle(number)
            if not moved and not any(local.fs.unpublished() for local in self.nodes):
                return
        raise AssertionError(f"no end: {[local.fs.unpublished() for local in self.nodes]}")

    def check(self) -> None:
        """All nodes have the same on the disk and in the view, and nothing that was saved is lost."""
        self.calm()
        first = self.nodes[0].view()
        for local in self.nodes:
            assert local.replica.check_view() == []
            assert local.view() == first
            disk = {
                path: what for path, what in local.disk().items() if not any(name.endswith(b".swp") for name in path)
            }
            # A directory that is gone elsewhere stays for what never leaves this node, whatever has its name now.
            left = {path for path, what in disk.items() if what[0] == "directory" and first.get(path) != what}
            assert all(self._is_left(local, path) for path in left), left
            here = {path: what for path, what in disk.items() if path not in left}
            there = {path: what for path, what in first.items() if path not in left}
            assert here == there, sorted(dict(here.items() ^ there.items()))
        shown = {content for kind, _, content in first.values() if kind == "file"}
        listed = self._listed()
        lost = self.saved - self.ended - shown - listed
        assert not lost, lost

    def _is_left(self, local: Local, path: tuple[bytes, ...]) -> bool:
        where = os.path.join(os.fsencode(local.tree), *path)
        return any(name.endswith(b".swp") for _, _, names in os.walk(where) for name in names)

    def _listed(self) -> set[bytes]:
        """The contents of what has lost, or is in a directory that has, or that something else has replaced."""
        replica = self.nodes[0].replica
        replaced = [path for path, kind in replica.live_paths() if kind is not Kind.DIRECTORY]
        found: set[bytes] = set()
        for path in (*replica.forked_paths(), *replaced):
            if path in replaced or replica.survey(path).conflicts():
                found.update(replica.content_at(Entry.decode(entry).hash) for entry in replica.walk(path))
        return found


def _contents(tree: Mapping[Path, tuple[str, int, bytes]]) -> set[bytes]:
    return {content for kind, _, content in tree.values() if kind == "file"}
