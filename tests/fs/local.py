"""A filesystem without a mount: what applications do is done in its directory, and told as a mount server would."""

from __future__ import annotations

import contextlib
import os
import pathlib
import stat
from collections.abc import Iterator

from basefs.daemon.config import QUIET_SECONDS
from basefs.fs.channel import Changed, Flags
from basefs.fs.filesystem import Filesystem
from basefs.fs.worktree.machine import THIS_MACHINE, Machine
from basefs.fs.worktree.owners import Owners
from basefs.fs.worktree.scratch import ScratchNames
from basefs.log.blocks import Block
from basefs.log.entries import Action, Entry
from basefs.log.keys import SigningKey
from basefs.path import Path
from basefs.replica.bootstrap import bootstrap
from basefs.replica.replica import Applied, Replica
from tests.support.helpers import ROOT_KEY, path

#: What is told of a change: path below the tree, and what is known of it.
Told = tuple[str, Flags]
NOTHING = Flags(0)


class Local:
    """A replica and the filesystem on top of it.

    Attributes:
        replica: with a log of its own.
        fs: the filesystem under test.
        actions: of the entries that were added since it began, or in the last `costs`.
    """

    def __init__(
        self,
        replica: Replica,
        *,
        owners: Owners | None = None,
        quiet: float = QUIET_SECONDS,
        machine: Machine = THIS_MACHINE,
        scratch: ScratchNames | None = None,
    ) -> None:
        self.replica = replica
        self._owners = owners or Owners(os.geteuid(), os.getegid(), keep=os.geteuid() == 0)
        self._quiet, self._machine, self._scratch = quiet, machine, scratch
        self._told = 0
        self.actions: list[Action] = []
        replica.subscribe(self._note)
        self.fs = Filesystem(replica, self._owners, quiet, scratch, machine)
        self.tree = self.fs.tree

    @classmethod
    def bootstrap(
        cls, directory: pathlib.Path, *, keys: tuple[SigningKey, ...] = (ROOT_KEY,), owners: Owners | None = None
    ) -> Local:
        """A new filesystem in a directory that is made, without `/.cluster`."""
        directory.mkdir()
        named = [(b"key %d" % number, key) for number, key in enumerate(keys)]
        bootstrap(directory, named, []).close()
        local = cls(Replica(directory, [keys[0]]), owners=owners)
        local.remove("/.cluster")
        local.publish()
        return local

    def join(self, directory: pathlib.Path, key: SigningKey, *, machine: Machine = THIS_MACHINE) -> Local:
        """Another node with the same log."""
        directory.mkdir()
        replica = Replica.create(directory, self.replica.identity, [key])
        local = Local(replica, owners=self._owners, machine=machine)
        exchange(self, local)
        local.fs.settle()
        return local

    def kill(self) -> None:
        """The process is killed."""
        self.replica.close()

    def again(self) -> Local:
        """Another process serves it, after `kill` or `close`."""
        replica = Replica(self.replica.directory, self.replica.keys)
        return Local(replica, owners=self._owners, quiet=self._quiet, machine=self._machine, scratch=self._scratch)

    def close(self) -> None:
        """The process ends."""
        self.fs.close()
        self.replica.close()

    def _note(self, applied: Applied) -> None:
        self.actions.extend(entry.action for entry in applied.entries)

    @contextlib.contextmanager
    def costs(self, *actions: Action) -> Iterator[None]:
        """What happens inside adds exactly these entries to the log."""
        self.publish()
        self.actions.clear()
        yield
        self.publish()
        assert self.actions == list(actions)

    # -- what applications do -----------------------------------------------------------------------------------------

    def at(self, text: str) -> pathlib.Path:
        """A path of the filesystem in the tree's directory."""
        return self.tree / text.strip("/")

    def tell(self, *paths: str, flags: Flags = NOTHING) -> None:
        """Say that paths were changed, as the mount server does."""
        changes = []
        for text in paths:
            self._told += 1
            found = self.at(text)
            inode = found.lstat().st_ino if os.path.lexists(found) else 0
            changes.append(Changed(b"/" + os.fsencode(text.strip("/")), inode, flags))
        self.fs.changed(self._told, changes)

    def save(self, text: str, content: bytes) -> None:
        """What a shell does for `> FILE`."""
        is_new = not self.at(text).exists()
        self.at(text).write_bytes(content)
        self.tell(text, flags=Flags.CLOSED if is_new else Flags.CLOSED | Flags.URGENT)

    def load(self, text: str) -> bytes:
        """What `cat FILE` prints."""
        return self.at(text).read_bytes()

    def listing(self, text: str) -> set[str]:
        """The names in a directory."""
        return set(os.listdir(self.at(text)))

    def mkdir(self, text: str, mode: int = 0o755) -> None:
        """mkdir(1)."""
        self.at(text).mkdir(mode)
        self.tell(text)

    def remove(self, text: str) -> None:
        """rm -r, which tells of each name."""
        found = self.at(text)
        if found.is_dir() and not found.is_symlink():
            for name in os.listdir(found):
                self.remove(f"{text.rstrip('/')}/{name}")
            found.rmdir()
        else:
            found.unlink()
        self.tell(text)

    def rename(self, old: str, new: str) -> None:
        """rename(2)."""
        self.at(old).rename(self.at(new))
        self.tell(old, new)

    def link(self, old: str, new: str) -> None:
        """link(2)."""
        os.link(self.at(old), self.at(new), follow_symlinks=False)
        self.tell(new)

    def symlink(self, target: str, text: str) -> None:
        """symlink(2)."""
        self.at(text).symlink_to(target)
        self.tell(text)

    def chmod(self, text: str, mode: int) -> None:
        """chmod(2)."""
        self.at(text).chmod(mode)
        self.tell(text)

    def touch(self, text: str, mtime: int) -> None:
        """utimensat(2), in nanoseconds."""
        os.utime(self.at(text), ns=(mtime, mtime))
        self.tell(text, flags=Flags.TIMED)

    def publish(self) -> None:
        """What the publisher does when nothing has changed for a long while."""
        self.fs.publish()

    # -- what there is ------------------------------------------------------------------------------------------------

    def mode(self, text: str) -> int:
        """Permission bits."""
        return stat.S_IMODE(self.at(text).lstat().st_mode)

    def disk(self) -> dict[Path, tuple[str, int, bytes]]:
        """Everything on the disk: type, mode, and content or target."""
        found: dict[Path, tuple[str, int, bytes]] = {}
        for base, directories, files in os.walk(self.tree):
            for name in directories + files:
                where = pathlib.Path(base) / name
                found[path(str(where.relative_to(self.tree)))] = _what(where)
        return found

    def view(self) -> dict[Path, tuple[str, int, bytes]]:
        """Everything in the view, in the same words."""
        found = {}
        for names, _ in self.replica.live_paths():
            if names:
                state = self.replica.attributes(names)
                content = b"" if state.kind.value == "directory" else self.replica.read(names)
                found[names] = state.kind.value, state.mode, content
        return found


def _what(where: pathlib.Path) -> tuple[str, int, bytes]:
    status = where.lstat()
    kind, mode = stat.S_IFMT(status.st_mode), stat.S_IMODE(status.st_mode)
    if kind == stat.S_IFLNK:
        return "symlink", 0o777, os.fsencode(where.readlink())
    if kind == stat.S_IFREG:
        return "file", mode, where.read_bytes()
    return {stat.S_IFDIR: "directory", stat.S_IFIFO: "fifo"}[kind], mode, b""


def exchange(one: Local, other: Local) -> bool:
    """Both get what the other one has; returns whether one of them had less."""
    return any([_send(one.replica, other.replica), _send(other.replica, one.replica)])


def _send(source: Replica, target: Replica) -> bool:
    entries = [entry for entry in map(Entry.decode, source.walk(())) if target.entry(entry.hash) is None]
    applied = target.apply(entries, [])
    assert not applied.rejected
    while missing := [hash for _, hash in target.missing_blocks(1000)]:
        blocks = [Block.decode(data) for hash in missing if (data := source.block(hash)) is not None]
        if not blocks:
            break
        target.apply([], blocks)
    return bool(entries)
