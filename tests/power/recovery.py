"""A filesystem that starts on what a disk holds after a power cut."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from unittest import mock

from basefs.fs.filesystem import Filesystem
from basefs.fs.worktree.machine import Machine
from basefs.fs.worktree.owners import Owners
from basefs.log.check import check
from basefs.path import display
from basefs.replica.replica import LOG_FILE, Replica
from basefs.view.states import Kind
from tests.power.recording import Version
from tests.power.work import digest
from tests.support.helpers import ROOT_KEY

_Stamps = tuple[int, int, int]


class Recovered(NamedTuple):
    """What became of the names: digests of contents, or `directory`.

    Attributes:
        published: in the log that the cut has left.
        disk: in the worktree that it has left.
        shown: in the worktree once the filesystem has started and published.
        problems: what is wrong with that.
    """

    published: dict[str, str]
    disk: dict[str, str]
    shown: dict[str, str]
    problems: list[str]


def write_tree(target: pathlib.Path, tree: Mapping[bytes, bytes | None]) -> None:
    """Make these files and directories below a new directory."""
    target.mkdir()
    for path, content in sorted(tree.items()):
        place = target / os.fsdecode(path)
        if content is None:
            place.mkdir()
        else:
            place.write_bytes(content)


def _names(top: pathlib.Path) -> dict[str, str]:
    return {
        str(place.relative_to(top)): "directory" if place.is_dir() else digest(place.read_bytes())
        for place in top.rglob("*")
    }


def _published(replica: Replica) -> dict[str, str]:
    return {
        display(path)[1:]: "directory" if kind is Kind.DIRECTORY else digest(replica.read(path))
        for path, kind in replica.live_paths()
        if path
    }


@contextlib.contextmanager
def _stamped(top: pathlib.Path, versions: Sequence[Version]) -> Iterator[None]:
    """Let the files of a written disk have the inode numbers and times that they had where they were recorded.

    Nobody can set a change time.  What no program has written, as it is torn, has those of the last version.
    """
    stamps: dict[int, _Stamps] = {}
    for place in top.rglob("*"):
        path = str(place.relative_to(top))
        known = [version for version in versions if version.path == path and version.stamps]
        same = [version for version in known if place.is_file() and version.content == digest(place.read_bytes())]
        for version in (same or known)[-1:]:
            assert version.stamps is not None
            stamps[place.lstat().st_ino] = version.stamps

    def with_stamps(call: Callable[..., os.stat_result]) -> Callable[..., os.stat_result]:
        def found(*arguments: Any, **options: Any) -> os.stat_result:
            real = call(*arguments, **options)
            if real.st_ino not in stamps:
                return real
            inode, mtime, ctime = stamps[real.st_ino]
            fields = (real.st_mode, inode, *real[2:8], mtime // 10**9, ctime // 10**9)
            return os.stat_result(fields, {"st_atime_ns": 0, "st_mtime_ns": mtime, "st_ctime_ns": ctime})

        return found

    with contextlib.ExitStack() as stack:
        for name in ("stat", "lstat", "fstat"):
            stack.enter_context(mock.patch.object(os, name, with_stamps(getattr(os, name))))
        yield


def recover(home: pathlib.Path, versions: Sequence[Version]) -> Recovered:
    """Start a filesystem on what a cut has left in a directory, and let it publish; `versions`: of before the cut."""
    machine = Machine(boot=lambda: b"after the cut")
    replica = Replica(home, [ROOT_KEY])
    published = _published(replica)
    tree = home / "tree"
    disk = _names(tree)
    with _stamped(tree, versions):
        filesystem = Filesystem(replica, Owners(os.getuid(), os.getgid(), keep=False), 0.0, machine=machine)
        # What is in a directory that was not published may come after that.
        for _ in range(2):
            filesystem.publish()
        filesystem.settle()
    shown, view = _names(tree), _published(replica)
    empty = digest(b"")
    problems = [
        f"{path} is {shown.get(path)} here, and {view.get(path)} in the log"
        for path in sorted(shown.keys() | view.keys())
        if shown.get(path) != view.get(path) and not path.endswith("~") and (path in view or shown[path] != empty)
    ]
    problems += [f"the view of {display(path)} is not that of the log" for path in replica.check_view()]
    filesystem.close()
    replica.close()
    problems += map(str, check(home / LOG_FILE))
    return Recovered(published, disk, shown, problems)
