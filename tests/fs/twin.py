"""What programs do to files, on any directory: a plain one, or the root of a mount.

A step is a verb with its arguments.  The same steps on two places have the same outcomes, and leave equal trees.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import strategies as st

from basefs.fs.worktree.scratch import ScratchNames

Step = tuple[Any, ...]

#: Times that no clock shows, in nanoseconds: what a step has set, and nobody has changed since.
TIMES = (1, 10**18 + 123_456_789, -(10**18) - 1, 2**33 * 10**9)
#: A user without rights of its own.
NOBODY = 65534
#: An id that no user and no group has.
UNKNOWN = 4711
#: Bytes that a file may have at most here.
_MOST = 1 << 20
_NOREPLACE, _EXCHANGE = 1, 2  # renameat2(2)
_KEEP_SIZE, _PUNCH_HOLE, _ZERO_RANGE = 1, 2, 16  # fallocate(2)
_AT_FDCWD = -100
_is_scratch = ScratchNames().is_scratch
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


class Face(NamedTuple):
    """What programs see of a path, or of an open file.

    Attributes:
        mode: kind and all twelve bits.
        owner: user and group.
        links: number of names; 0 of an open directory and in a view.
        time: of the last change, if a step has set it; else `None`.
        rdev: of a device.
        xattrs: the `user.*` attributes.
        content: of a file, or the target of a symbolic link.
    """

    mode: int
    owner: tuple[int, int]
    links: int
    time: int | None
    rdev: int
    xattrs: tuple[tuple[str, bytes], ...]
    content: bytes

    def __repr__(self) -> str:
        content = self.content if len(self.content) < 40 else b"%b... %d" % (self.content[:20], len(self.content))
        return (
            f"<{stat.filemode(self.mode)} {self.links} {self.owner} {self.time} {self.rdev} {self.xattrs} {content!r}>"
        )


#: What is at each path, and all paths of the same file.
Tree = dict[str, tuple[Face, frozenset[str]]]
#: What the log carries of it: no number of links.
View = dict[str, Face]


def view(tree: Tree, elsewhere: View | None = None) -> View:
    """What other nodes see of a tree.

    `elsewhere`: what they have; a directory that they have removed stays while something is in it that they never had.
    """
    kept = {text for text in tree if _is_scratch(tuple(text.encode().split(b"/")))}
    stays = {above for text in kept for above in map(str, Path(text).parents)} if elsewhere is not None else set()
    return {
        text: seen._replace(links=0)
        for text, (seen, _) in tree.items()
        if not stat.S_ISSOCK(seen.mode) and text not in kept and not (text in stays and _is_gone(text, elsewhere or {}))
    }


def _is_gone(text: str, elsewhere: View) -> bool:
    return text not in elsewhere or not stat.S_ISDIR(elsewhere[text].mode)


def differences(expected: View, found: View) -> list[tuple[str, Face | None, Face | None]]:
    """Where two views differ.  What has no time that was set may have any: the same saved again is no change."""
    differing = []
    for text in sorted({*expected, *found}):
        one, other = expected.get(text), found.get(text)
        if one is not None and other is not None and one.time is None:
            other = other._replace(time=None)
        if one != other:
            differing.append((text, one, other))
    return differing


def face(status: os.stat_result, content: bytes, xattrs: tuple[tuple[str, bytes], ...]) -> Face:
    """What stat(2) says, with a content."""
    return Face(
        status.st_mode,
        (status.st_uid, status.st_gid),
        status.st_nlink,
        status.st_mtime_ns if status.st_mtime_ns in TIMES else None,
        status.st_rdev,
        xattrs,
        content,
    )


def _xattrs(path: Path | int) -> tuple[tuple[str, bytes], ...]:
    names = sorted(name for name in os.listxattr(path) if name.startswith("user."))
    return tuple((name, os.getxattr(path, name)) for name in names)


@dataclass
class Opened:
    """An open file.

    Attributes:
        file: its descriptor.
        where: its path when it was opened.
        flags: with which it was opened.
        mapped: a mapping of it.
    """

    file: int
    where: str
    flags: int
    mapped: mmap.mmap | None = None

    @property
    def writes(self) -> bool:
        """Whether it can be written to."""
        return self.flags & os.O_ACCMODE != os.O_RDONLY

    def content(self) -> bytes:
        """All of it, which must be as long as stat(2) says; nothing if it cannot be read."""
        if self.flags & os.O_ACCMODE == os.O_WRONLY:
            return b""
        content = os.pread(self.file, _MOST, 0)
        assert os.fstat(self.file).st_size == len(content), self.where
        return content

    def face(self) -> tuple[Face, bytes]:
        """What shows through it, and what is mapped."""
        mapped = b"" if self.mapped is None else bytes(self.mapped)
        return face(os.fstat(self.file), self.content(), _xattrs(self.file)), mapped

    def close(self) -> None:
        """Close it."""
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, self.file)
            if self.mapped is not None:
                stack.callback(self.mapped.close)


def content_of(size: int) -> bytes:
    """Bytes that tell how many they are."""
    return (b"%d\n" % size * size)[:size]


class Place:
    """A directory in which programs run.  Every verb returns what the program sees; it raises `OSError`.

    Attributes:
        root: the directory.
        opened: what the programs hold open.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.opened: list[Opened] = []

    def do(self, step: Step) -> Any:
        """The outcome of a step: what it returns, or the name of its error."""
        verb, *arguments = step
        try:
            return getattr(self, verb)(*arguments)
        except OSError as error:
            return errno.errorcode[error.errno or 0]

    def resolve(self, step: Step) -> Step:
        """A step with the paths that `There` means."""
        if not any(isinstance(argument, There) for argument in step):
            return step
        found = [(stat.S_IFMT(path.lstat().st_mode), os.path.relpath(path, self.root)) for path in _below(self.root)]

        def resolved(argument: Any) -> Any:
            if not isinstance(argument, There):
                return argument
            paths = [path for kind, path in found if kind in _KINDS[argument.kind]]
            return paths[argument.number % len(paths)] if paths else "a"

        return tuple(map(resolved, step))

    def tree(self) -> Tree:
        """Everything that is there, the directory itself included."""
        found: dict[str, tuple[Face, tuple[int, int]]] = {}
        for path in (self.root, *_below(self.root)):
            status = path.lstat()
            found[os.path.relpath(path, self.root)] = self._face(path), (status.st_dev, status.st_ino)
        names: dict[tuple[int, int], set[str]] = {}
        for text, (_, number) in found.items():
            names.setdefault(number, set()).add(text)
        return {text: (seen, frozenset(names[number])) for text, (seen, number) in found.items()}

    def _face(self, path: Path) -> Face:
        status = path.lstat()
        content, xattrs = b"", ()
        if stat.S_ISLNK(status.st_mode):
            content = os.fsencode(os.readlink(path))
        elif stat.S_ISREG(status.st_mode):
            content = path.read_bytes()
            assert len(content) == status.st_size, path
        if stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode):
            xattrs = _xattrs(path)
        return face(status, content, xattrs)

    def nothing(self) -> None:
        """What shrunk examples are made of."""

    # -- looking ------------------------------------------------------------------------------------------------------

    def look(self, path: str) -> Any:
        """What is at a path, whatever it is."""
        seen = self._face(self.root / path)
        return seen, sorted(os.listdir(self.root / path)) if stat.S_ISDIR(seen.mode) else None

    def follow(self, path: str) -> Any:
        """stat(2), and what a relative path behind a symbolic link leads to."""
        status = (self.root / path).stat()
        return status.st_mode, (self.root / path).read_bytes() if stat.S_ISREG(status.st_mode) else None

    # -- files by path ------------------------------------------------------------------------------------------------

    def save(self, path: str, size: int, flags: int, offset: int = 0) -> None:
        """Open, write and close."""
        file = _open(self.root / path, os.O_WRONLY | flags)
        try:
            os.pwrite(file, content_of(size), offset)
        finally:
            os.close(file)

    def truncate(self, path: str, length: int) -> None:
        """truncate(2)."""
        if not stat.S_ISFIFO((self.root / path).stat().st_mode):
            os.truncate(self.root / path, length)

    def chmod(self, path: str, mode: int) -> None:
        """chmod(2)."""
        (self.root / path).chmod(mode)

    def chown(self, path: str, uid: int, gid: int) -> None:
        """lchown(2)."""
        os.chown(self.root / path, uid, gid, follow_symlinks=False)

    def utime(self, path: str, time: int) -> tuple[int, int]:
        """utimensat(2) of the path itself; what shows afterwards."""
        os.utime(self.root / path, ns=(time, time), follow_symlinks=False)
        status = (self.root / path).lstat()
        return status.st_atime_ns, status.st_mtime_ns

    def setxattr(self, path: str, name: str, value: bytes, flags: int) -> None:
        """lsetxattr(2)."""
        os.setxattr(self.root / path, name, value, flags, follow_symlinks=False)

    def removexattr(self, path: str, name: str) -> None:
        """lremovexattr(2)."""
        os.removexattr(self.root / path, name, follow_symlinks=False)

    # -- names --------------------------------------------------------------------------------------------------------

    def mknod(self, path: str, mode: int) -> None:
        """mknod(2); the device, if it is one, is /dev/null."""
        os.mknod(self.root / path, mode, os.makedev(1, 3))

    def mkdir(self, path: str, mode: int) -> None:
        """mkdir(2)."""
        (self.root / path).mkdir(mode)

    def symlink(self, path: str, target: str) -> None:
        """symlink(2)."""
        (self.root / path).symlink_to(target)

    def link(self, target: str, path: str) -> None:
        """link(2)."""
        os.link(self.root / target, self.root / path, follow_symlinks=False)

    def unlink(self, path: str) -> None:
        """unlink(2)."""
        (self.root / path).unlink()

    def rmdir(self, path: str) -> None:
        """rmdir(2)."""
        (self.root / path).rmdir()

    def rename(self, source: str, target: str, flags: int = 0) -> None:
        """renameat2(2)."""
        one, other = (os.fsencode(self.root / path) for path in (source, target))
        _check(_libc.renameat2(_AT_FDCWD, one, _AT_FDCWD, other, flags))

    # -- programs -----------------------------------------------------------------------------------------------------

    def replace(self, path: str, temporary: str, size: int) -> None:
        """Write a new file, with the mode of the old one, and give it the name: sed -i, dpkg, most libraries."""
        above, slash, name = path.rpartition("/")
        new = above + slash + temporary.format(name)
        self.save(new, size, os.O_CREAT | os.O_TRUNC)
        with contextlib.suppress(FileNotFoundError):
            self.chmod(new, stat.S_IMODE((self.root / path).lstat().st_mode))
        self.rename(new, path)

    def back_up(self, path: str, size: int) -> None:
        """Keep the old file under a name of this node alone: vim."""
        self.rename(path, f"{path}~")
        self.save(path, size, os.O_CREAT | os.O_EXCL)

    def rotate(self, path: str, size: int) -> None:
        """Two generations move one number on, and a new file begins: logrotate."""
        for number in (1, 0):
            with contextlib.suppress(FileNotFoundError):
                self.rename(f"{path}.{number}" if number else path, f"{path}.{number + 1}")
        self.save(path, size, os.O_CREAT | os.O_EXCL)

    def swap(self, one: str, other: str) -> None:
        """Three renames."""
        self.rename(one, f"{one}.swap")
        self.rename(other, one)
        self.rename(f"{one}.swap", other)

    def copy_tree(self, source: str, target: str) -> None:
        """Copy what there is with all that it has, but for fifos and other special files: cp -a."""
        top = self.root / source
        if target.startswith(f"{source}/"):
            return
        if os.path.lexists(self.root / target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        found = [(path, path.relative_to(top), self._face(path)) for path in (top, *_below(top))]
        for path, below, seen in found:
            new = self.root / target / below
            if stat.S_ISDIR(seen.mode):
                new.mkdir()
            elif stat.S_ISLNK(seen.mode):
                new.symlink_to(os.fsdecode(seen.content))
            elif stat.S_ISREG(seen.mode):
                new.write_bytes(path.read_bytes())
        for _, below, seen in reversed(found):
            new = self.root / target / below
            if os.path.lexists(new):
                self._adorn(new, seen)

    def _adorn(self, path: Path, seen: Face) -> None:
        os.chown(path, *seen.owner, follow_symlinks=False)
        if not stat.S_ISLNK(seen.mode):
            path.chmod(stat.S_IMODE(seen.mode))
            for name, value in seen.xattrs:
                os.setxattr(path, name, value)
        if seen.time is not None:
            os.utime(path, ns=(seen.time, seen.time), follow_symlinks=False)

    def remove_tree(self, path: str) -> None:
        """rm -r."""
        for below in reversed(list(_below(self.root / path))):
            below.rmdir() if stat.S_ISDIR(below.lstat().st_mode) else below.unlink()
        (self.root / path).rmdir()

    # -- open files ---------------------------------------------------------------------------------------------------

    def open(self, path: str, flags: int) -> Face | None:
        """Open a file and hold it open."""
        file = _open(self.root / path, flags)
        return self._hold(Opened(file, path, flags))

    def _hold(self, opened: Opened) -> Face | None:
        if not stat.S_ISREG(os.fstat(opened.file).st_mode):
            opened.close()
            return None
        self.opened.append(opened)
        return opened.face()[0]

    def tmpfile(self, path: str, size: int) -> Face | None:
        """A new file without a name, in a directory."""
        file = os.open(self.root / path, os.O_TMPFILE | os.O_RDWR, 0o666)
        os.pwrite(file, content_of(size), 0)
        return self._hold(Opened(file, path, os.O_RDWR))

    def give_name(self, index: int, path: str) -> None:
        """Give an open file another name."""
        for opened in self._at(index):
            os.link(f"/proc/self/fd/{opened.file}", self.root / path, follow_symlinks=True)

    def _at(self, index: int) -> list[Opened]:
        return [self.opened[index % len(self.opened)]] if self.opened else []

    def pwrite(self, index: int, size: int, offset: int) -> list[int]:
        """pwrite(2)."""
        return [os.pwrite(opened.file, content_of(size), offset) for opened in self._at(index)]

    def ftruncate(self, index: int, length: int) -> None:
        """ftruncate(2), of a file that nobody has mapped: who looks beyond its end dies."""
        for opened in self._at(index):
            if not any(other.mapped for other in self.opened):
                os.ftruncate(opened.file, length)

    def fallocate(self, index: int, mode: int, offset: int, length: int) -> None:
        """fallocate(2)."""
        for opened in self._at(index):
            _check(_libc.fallocate(opened.file, mode, offset, length))

    def fchmod(self, index: int, mode: int) -> None:
        """fchmod(2)."""
        for opened in self._at(index):
            os.fchmod(opened.file, mode)

    def fchown(self, index: int, uid: int, gid: int) -> None:
        """fchown(2)."""
        for opened in self._at(index):
            os.fchown(opened.file, uid, gid)

    def futime(self, index: int, time: int) -> None:
        """futimens(3)."""
        for opened in self._at(index):
            os.utime(opened.file, ns=(time, time))

    def fsetxattr(self, index: int, name: str, value: bytes) -> None:
        """fsetxattr(2)."""
        for opened in self._at(index):
            os.setxattr(opened.file, name, value)

    def fsync(self, index: int) -> None:
        """fsync(2)."""
        for opened in self._at(index):
            os.fsync(opened.file)

    def seek(self, index: int, offset: int, whence: int) -> list[int]:
        """lseek(2) for data or a hole."""
        return [os.lseek(opened.file, offset, whence) for opened in self._at(index)]

    def copy_range(self, source: int, target: int, size: int, offset: int) -> list[int]:
        """copy_file_range(2) from the beginning."""
        return [
            os.copy_file_range(one.file, other.file, size, 0, offset)
            for one in self._at(source)
            for other in self._at(target)
        ]

    def close(self, index: int) -> None:
        """close(2)."""
        for opened in self._at(index):
            self.opened.remove(opened)
            opened.close()

    def close_duplicate(self, index: int) -> None:
        """close(2) of a second descriptor of the same open file."""
        for opened in self._at(index):
            os.close(os.dup(opened.file))

    def map(self, index: int) -> None:
        """mmap(2) of all of a file, shared."""
        for opened in self._at(index):
            if opened.mapped is None and os.fstat(opened.file).st_size:
                access = mmap.ACCESS_WRITE if opened.flags & os.O_RDWR else mmap.ACCESS_READ
                opened.mapped = mmap.mmap(opened.file, 0, access=access)

    def store(self, index: int, size: int) -> None:
        """Write to a mapping, and msync(2) it.

        Not every disk notes the time of that, so it is set.
        """
        for opened in self._at(index):
            if opened.mapped is not None and opened.flags & os.O_RDWR:
                content = content_of(size)[: len(opened.mapped)]
                opened.mapped[: len(content)] = content
                opened.mapped.flush()
                os.utime(opened.file)

    def close_all(self, chosen: Callable[[Opened], bool] = lambda opened: True) -> None:
        """Close what is chosen."""
        closing = [opened for opened in self.opened if chosen(opened)]
        self.opened = [opened for opened in self.opened if opened not in closing]
        for opened in closing:
            opened.close()


def _open(path: Path, flags: int) -> int:
    """open(2), which waits for nobody, and refuses devices as a mount with `nodev` does."""
    file = os.open(path, flags | os.O_NONBLOCK, 0o666)
    if stat.S_ISCHR(os.fstat(file).st_mode):
        os.close(file)
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return file


def _check(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _below(top: Path) -> Iterator[Path]:
    """All that is below a directory, each directory before what is in it; nothing below anything else."""
    if stat.S_ISDIR(top.lstat().st_mode):
        for name in sorted(os.listdir(top)):
            yield top / name
            yield from _below(top / name)


@contextlib.contextmanager
def user(uid: int) -> Iterator[None]:
    """Meanwhile this process is another user's."""
    groups = os.getgroups()
    if uid:
        os.setgroups([])
        os.setegid(uid)
        os.seteuid(uid)
    try:
        yield
    finally:
        if uid:
            os.seteuid(0)
            os.setegid(0)
            os.setgroups(groups)


# -- random steps -----------------------------------------------------------------------------------------------------

#: Kinds of paths, by `stat.S_IFMT`.
_KINDS: dict[str, set[int]] = {
    "file": {stat.S_IFREG},
    "directory": {stat.S_IFDIR},
    "leaf": {stat.S_IFREG, stat.S_IFLNK, stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFCHR},
}
_KINDS["any"] = _KINDS["directory"] | _KINDS["leaf"]


class There(NamedTuple):
    """A path that is there: of those of a kind the one with this number, counted around."""

    kind: str
    number: int


PATHS = st.sampled_from(["a", "a", "b", "d", "d/a", "d/b", "e", "e/a", "d/e", "d/e/a"])


def _there(kind: str) -> st.SearchStrategy[There | str]:
    chosen = st.builds(There, st.just(kind), st.integers(0, 11))
    return st.one_of(chosen, chosen, PATHS)


FILES, DIRECTORIES, LEAVES, ALL = map(_there, _KINDS)
#: What has attributes, the directory itself included.
HOLDERS = st.one_of(ALL, ALL, ALL, st.just("."))
#: Of more than a page, and of less.
SIZES = st.sampled_from([0, 1, 3, 4200, 20_000])
LENGTHS = st.sampled_from([0, 1, 5, 4096, 9000])
MODES = st.sampled_from([0o644, 0o644, 0o755, 0o600, 0o777, 0o444, 0, 0o4755, 0o2775, 0o1777, 0o6711])
TEMPORARIES = st.sampled_from(["{}.tmp", "sedAbCdE1", ".{}.AbCdE1", "{}.new", "{}.other"])
_IDS = st.sampled_from([-1, 0, NOBODY, UNKNOWN])
_NAMES = st.sampled_from(["user.a", "user.b"])
_VALUES = st.sampled_from([b"", b"x", b"long" * 50])
_INDEX = st.integers(0, 4)
_RENAMES = st.sampled_from([0, 0, 0, _EXCHANGE, _NOREPLACE])
_OPENS = st.sampled_from(
    [
        os.O_RDONLY,
        os.O_RDWR,
        os.O_RDWR | os.O_CREAT,
        os.O_RDWR | os.O_CREAT | os.O_EXCL,
        os.O_RDWR | os.O_TRUNC,
        os.O_RDWR | os.O_APPEND,
        os.O_WRONLY | os.O_CREAT,
    ]
)
_FALLOCATES = st.sampled_from([0, _KEEP_SIZE, _KEEP_SIZE | _PUNCH_HOLE, _ZERO_RANGE])
_MAKES = st.sampled_from([stat.S_IFREG | 0o640, stat.S_IFIFO | 0o644, stat.S_IFSOCK | 0o755, stat.S_IFCHR | 0o666])


def _verb(name: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    return st.tuples(st.just(name), *arguments)


NOTHING = _verb("nothing")
_SAVE = _verb("save", PATHS, SIZES, st.just(os.O_CREAT | os.O_TRUNC))
#: By path, also where others work on the same paths.
CHANGES = st.one_of(
    _SAVE,
    _SAVE,
    _verb("save", FILES, SIZES, st.sampled_from([0, os.O_CREAT | os.O_APPEND]), LENGTHS),
    _verb("unlink", LEAVES),
    _verb("mkdir", PATHS, st.sampled_from([0o755, 0o700, 0o777])),
    _verb("mkdir", PATHS, st.just(0o755)),
    _verb("rmdir", DIRECTORIES),
    _verb("rename", ALL, ALL, _RENAMES),
    _verb("rename", ALL, PATHS),
    _verb("truncate", FILES, LENGTHS),
    _verb("symlink", PATHS, st.sampled_from(["a", "b", "d", "nowhere"])),
    _verb("link", LEAVES, PATHS),
    _verb("chmod", HOLDERS, MODES),
    _verb("utime", HOLDERS, st.sampled_from(TIMES)),
    _verb("setxattr", HOLDERS, _NAMES, _VALUES, st.sampled_from([0, os.XATTR_CREATE, os.XATTR_REPLACE])),
    _verb("removexattr", HOLDERS, _NAMES),
    _verb("replace", FILES, TEMPORARIES, SIZES),
    _verb("back_up", FILES, SIZES),
    _verb("rotate", FILES, SIZES),
    _verb("swap", ALL, ALL),
    _verb("copy_tree", ALL, PATHS),
    _verb("remove_tree", DIRECTORIES),
)
#: What root alone may do.
ROOT_CHANGES = st.one_of(_verb("chown", HOLDERS, _IDS, _IDS), _verb("mknod", PATHS, _MAKES))
OPENS = st.one_of(_verb("open", FILES, _OPENS), _verb("tmpfile", DIRECTORIES, SIZES))
#: On what is open.
HELD = st.one_of(
    _verb("pwrite", _INDEX, SIZES, LENGTHS),
    _verb("pwrite", _INDEX, SIZES, LENGTHS),
    _verb("ftruncate", _INDEX, LENGTHS),
    _verb("fallocate", _INDEX, _FALLOCATES, LENGTHS, SIZES),
    _verb("fchmod", _INDEX, MODES),
    _verb("fchown", _INDEX, _IDS, _IDS),
    _verb("futime", _INDEX, st.sampled_from(TIMES)),
    _verb("fsetxattr", _INDEX, _NAMES, _VALUES),
    _verb("fsync", _INDEX),
    _verb("seek", _INDEX, LENGTHS, st.sampled_from([os.SEEK_DATA, os.SEEK_HOLE])),
    _verb("copy_range", _INDEX, _INDEX, SIZES, LENGTHS),
    _verb("close", _INDEX),
    _verb("close", _INDEX),
    _verb("close_duplicate", _INDEX),
    _verb("map", _INDEX),
    _verb("store", _INDEX, SIZES),
    _verb("give_name", _INDEX, PATHS),
)
LOOKS = st.one_of(_verb("look", ALL), _verb("follow", ALL))


class Twins:
    """The same steps on a plain directory and on the place under test.

    Attributes:
        disk: the plain directory.
        mount: the place under test.
    """

    def __init__(self, disk: Path, mount: Path) -> None:
        self.disk, self.mount = Place(disk), Place(mount)

    def do(self, step: Step, uid: int = 0) -> None:
        """A step of a user's program; both have the same outcome, and show the same afterwards."""
        step = self.disk.resolve(step)
        with user(uid):
            expected, found = (place.do(step) for place in (self.disk, self.mount))
        assert found == expected, (step, uid, expected, found)
        for path in [argument for argument in step[1:] if isinstance(argument, str)]:
            expected, found = (place.do(("look", path)) for place in (self.disk, self.mount))
            assert found == expected, (step, uid, path, expected, found)
        self.check_opened()

    def check_opened(self) -> None:
        """What is held open shows the same."""
        for one, other in zip(self.disk.opened, self.mount.opened, strict=True):
            assert other.face() == one.face(), one.where

    def check(self) -> None:
        """Both trees are equal."""
        expected, found = self.disk.tree(), self.mount.tree()
        differing = {text for text in {*expected, *found} if expected.get(text) != found.get(text)}
        assert not differing, [(text, expected.get(text), found.get(text)) for text in sorted(differing)]
        self.check_opened()

    def close_all(self, chosen: Callable[[Opened], bool] = lambda opened: True) -> None:
        """Close what is held open on both."""
        self.disk.close_all(chosen)
        self.mount.close_all(chosen)
