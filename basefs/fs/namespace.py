"""Names: making, linking, moving and removing them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial

from basefs.errors import (
    Exists,
    InvalidName,
    IsADirectory,
    NameTooLong,
    NotADirectory,
    NotEmpty,
    NotFound,
    NotPermitted,
    PathError,
    TooManyLinks,
)
from basefs.fs.publish.publisher import Publisher
from basefs.fs.staging.inode import PERMISSION_BITS, Inode
from basefs.fs.staging.records import Taken
from basefs.fs.staging.scratch import HIDDEN_PREFIX
from basefs.fs.staging.vacancies import RENAME_SECONDS
from basefs.fs.staging.workingset import WorkingSet
from basefs.log.entries import MAX_CONTENT
from basefs.log.hashes import EntryHash
from basefs.path import Path, check_length, display
from basefs.replica.replica import Attributes
from basefs.view.author import Author
from basefs.view.draft import Draft
from basefs.view.states import Kind

#: Most names of one file, as on ext4: each change of a file's first name is told to all of them.
MAX_LINKS = 65_000


class Namespace:
    """The operations on names."""

    def __init__(self, working: WorkingSet, publisher: Publisher) -> None:
        self._working = working
        self._publisher = publisher

    # -- making -------------------------------------------------------------------------------------------------------

    def make_directory(self, path: Path, mode: int, caller: tuple[int, int] | None = None) -> None:
        """mkdir(2).  Raises `Exists`, `NotFound`, `NotADirectory`, `PermissionDenied`, ..., or a bad name's error."""
        with self._working.lock:
            self._make(path, Kind.DIRECTORY, mode & PERMISSION_BITS, caller)

    def make_symlink(self, path: Path, target: bytes, caller: tuple[int, int] | None = None) -> None:
        """symlink(2).  Raises as `make_directory`, and `NameTooLong` for a target over 4095 bytes."""
        if not 0 < len(target) <= MAX_CONTENT:
            raise NameTooLong(f"the target of a symbolic link has 1 to {MAX_CONTENT} bytes")
        with self._working.lock:
            self._make(path, Kind.SYMLINK, None, caller, target)

    def _make(
        self, path: Path, kind: Kind, mode: int | None, caller: tuple[int, int] | None, target: bytes = b""
    ) -> None:
        working = self._working
        working.check_new(path)
        now = working.now()
        inode = Inode(
            working.identities.new_number(),
            kind,
            mode=mode,
            owner=working.owner_of(caller),
            mtime=now,
            target=target,
        )
        working.give(path, inode, ())
        try:
            working.record(inode)
        except BaseException:
            working.take(path)
            raise
        working.touch_directory(path[:-1], now)
        working.changed()

    def make_link(self, path: Path, target: Path) -> None:
        """link(2).  Raises as `make_directory`, `TooManyLinks`, and `NotPermitted` for directories and others' files.

        The holder of a directory's key would otherwise decide on the name and the mode of a file of another directory.
        """
        working = self._working
        with working.lock:
            inode, attributes = working.find(target)
            kind = inode.kind if inode is not None else attributes.kind if attributes is not None else Kind.ABSENT
            if kind is Kind.DIRECTORY:
                raise NotPermitted("a directory cannot have a second name")
            working.check_new(path)
            if attributes is not None and not attributes.writable:
                raise NotPermitted(
                    f"no key of this node may write {display(target)}, so it gets no second name: copy it"
                )
            working.check_move(target, inode, attributes, path)
            if inode is None:
                assert attributes is not None
                inode = working.adopt(target, attributes)
            if working.links(inode) >= MAX_LINKS:
                working.forget_idle(inode)
                raise TooManyLinks(f"a file has up to {MAX_LINKS} names")
            self._rename_inode(inode, path)
            working.touch_directory(path[:-1], working.now())
            working.changed()

    def _rename_inode(self, inode: Inode, path: Path) -> None:
        """Give a name to an inode for good."""
        working = self._working
        working.unite(inode)
        if inode.origin is not None:
            working.by_origin[inode.origin] = inode
        working.give(path, inode)
        inode.ctime = working.now()
        working.record_attributes(inode)

    # -- removing -----------------------------------------------------------------------------------------------------

    def unlink(self, path: Path) -> None:
        """unlink(2).  Raises `NotFound`, `NotADirectory`, `IsADirectory`, `PermissionDenied`, `ReadOnly`."""
        working = self._working
        with working.lock:
            if path and working.unhide(path):
                return
            inode, attributes = working.find(path)
            if _kind(inode, attributes) is Kind.DIRECTORY:
                raise IsADirectory(f"{display(path)} is a directory")
            working.check_writable(path, attributes)
            self._remove(path)

    def remove_directory(self, path: Path) -> None:
        """rmdir(2).  Raises as `unlink`, and `NotEmpty`, `NotPermitted` for the root."""
        working = self._working
        with working.lock:
            if not path:
                raise NotPermitted("the root directory cannot be removed")
            _, attributes = working.directory(path)
            working.check_writable(path, attributes)
            if working.kinds(path):
                raise NotEmpty(f"{display(path)} is not empty")
            self._remove(path)

    def _remove(self, path: Path) -> None:
        working = self._working
        now = working.now()
        inode, attributes = working.find(path)
        if inode is not None:
            inode.ctime = now
        if attributes is not None and attributes.links > 1 and attributes.kind is not Kind.DIRECTORY:
            # Those names that stay show it.
            working.identities.remember(attributes, working.identities.times(attributes)[0], now)
        working.take(path)
        working.touch_directory(path[:-1], now)
        working.changed()

    # -- moving -------------------------------------------------------------------------------------------------------

    def rename(self, source: Path, target: Path, *, replace: bool = True, exchange: bool = False) -> None:
        """renameat2(2).

        Raises `NotFound`, `Exists` (with `replace` off), `IsADirectory`, `NotADirectory`, `NotEmpty`, `InvalidName` (a
        directory into itself), `PermissionDenied`, `ReadOnly`, and `StoreError` for directories.
        """
        if target[-1:] and target[-1].startswith(HIDDEN_PREFIX):
            self._hide(source, target)
            return
        working = self._working
        with working.lock:
            if not source or not target:
                raise NotPermitted("the root directory cannot be moved")
            inode, attributes = working.find(source)
            if target[: len(source)] == source and target != source:
                raise InvalidName("a directory cannot be moved into itself")
            if exchange and source[: len(target)] == target and target != source:
                raise InvalidName("a directory cannot change places with what is in it")
            working.check_name(target)
            _, above = working.directory(target[:-1])
            existing = _Found.at(working, target)
            if existing is None and exchange:
                raise NotFound(f"{display(target)} does not exist")
            if existing is not None and not replace:
                raise Exists(f"{display(target)} exists already")
            if source == target or (existing is not None and existing.is_same(inode, attributes)):
                return
            working.check_writable(source, attributes)
            working.check_writable(target, above if existing is None else existing.attributes)
            working.check_move(source, inode, attributes, target)
            is_directory = _kind(inode, attributes) is Kind.DIRECTORY
            if existing is not None and not exchange:
                self._check_replace(is_directory, existing, target)
            touches_directory = is_directory or (existing is not None and existing.is_directory)
            if not touches_directory:
                with working.journal.frame():
                    self._move(source, target, exchange=exchange)
                return
            if inode is not None and inode.is_new and existing is None and not working.is_published(source):
                self._move_new_directory(source, target)
                return
        self._move_published(source, target, exchange=exchange)

    def _check_replace(self, is_directory: bool, existing: _Found, target: Path) -> None:
        if existing.is_directory and not is_directory:
            raise IsADirectory(f"{display(target)} is a directory")
        if is_directory and not existing.is_directory:
            raise NotADirectory(f"{display(target)} is not a directory")
        if existing.is_directory and self._working.kinds(target):
            raise NotEmpty(f"{display(target)} is not empty")

    def _inode(self, path: Path) -> Inode:
        inode, attributes = self._working.find(path)
        if inode is None:
            assert attributes is not None
            inode = self._working.adopt(path, attributes)
        return inode

    def _move(self, source: Path, target: Path, *, exchange: bool) -> None:
        """Move a file or symbolic link."""
        working = self._working
        inode = self._inode(source)
        other = None
        if working.overlay.get(target) is not None and working.exists(target):
            other = self._inode(target)
        # `inode` gets its new name before it loses the old one.  In an exchange `other` has none in between, so it is
        # held, and older versions are told afterwards.
        for held in filter(None, (inode, other)):
            held.handles += 1
        if other is not None:
            working.take(target, is_given=True, is_moved=exchange)
            other.ctime = working.now()
        self._rename_inode(inode, target)
        working.take(source, is_given=exchange, is_moved=exchange)
        is_scratch = working.scratch.is_scratch
        if is_scratch(target) and not is_scratch(source) and working.overlay.get(source) is None:
            # A backup: the new content comes in a moment.
            working.vacancies.keep(source, RENAME_SECONDS, noted=True)
        if exchange and other is not None:
            self._rename_inode(other, source)
            working.follow_names(target, other)
            working.follow_names(source, inode)
        for held in filter(None, (inode, other)):
            held.handles -= 1
        for held in filter(None, (inode, other)):
            working.leave_home(held)
            working.forget_idle(held)
        if other is not None and other.home is not None and not (exchange or other.unlinked or other.names):
            # It has lost a name and goes on under another one.
            with contextlib.suppress(PathError):
                left = working.replica.attributes(other.home)
                working.identities.remember(left, working.identities.times(left)[0], working.now())
        now = working.now()
        for directory in {source[:-1], target[:-1]}:
            working.touch_directory(directory, now)
        working.changed()

    def _move_new_directory(self, source: Path, target: Path) -> None:
        """Move a directory that nobody else knows, with all in it."""
        working = self._working
        for path, _ in working.overlay.below(source):
            check_length((*target, *path[len(source) :]))
        inode = self._inode(source)
        working.journal.move_tree(source, target)
        working.overlay.drop(source)
        working.overlay.put(target, inode, ())
        inode.names = {target: None}
        inode.version += 1
        working.move(source, target)
        working.vacancies.filled(target)
        now = working.now()
        for directory in {source[:-1], target[:-1]}:
            working.touch_directory(directory, now)
        working.changed()

    def _move_published(self, source: Path, target: Path, *, exchange: bool) -> None:
        """Move a directory that others know: first what is pending in it, then all of it as one unit."""
        working = self._working
        self._publisher.publish()
        for directory, file in ((source, target), (target, source)):
            slot = working.overlay.get(file)
            if exchange and isinstance(slot, Inode) and slot.kind is not Kind.DIRECTORY:
                self._exchange_pending(directory, file, slot)
                return
        aside = (*target[:-1], target[-1][:200] + b".exchanged")
        swap = [(target, aside), (source, target), (aside, source)]
        steps = swap if exchange else [(source, target)]
        moves = [(source, target), (target, source)] if exchange else [(source, target)]

        def make(author: Author) -> Iterator[Draft]:
            for old, new in steps:
                yield author.rename(old, new)

        with working.lock:
            faces = [self._face(old) for old, _ in moves]
            with working.renaming(source, target, aside):
                commit = partial(working.replica.commit, make)
                applied = working.journal.publish(commit, lambda: Taken(moves=tuple(steps)))
            for (_, new), (origin, number, mtime) in zip(moves, faces, strict=True):
                with contextlib.suppress(PathError):
                    moved = working.replica.attributes(new)
                    working.identities.carry(number, origin, moved)
                    working.identities.remember(moved, mtime, working.now())
            for directory in {source[:-1], target[:-1]}:
                working.touch_directory(directory, working.now())
            for old, new in steps:
                working.move(old, new)
            working.follow([entry.hash for entry in applied.entries])

    def _face(self, path: Path) -> tuple[EntryHash | None, int, int]:
        """Origin, number and modification time of what is about to move: in the log it begins anew."""
        identities, attributes = self._working.identities, self._working.replica.attributes(path)
        return attributes.origin, identities.number(attributes.origin), identities.times(attributes)[0]

    def _exchange_pending(self, directory: Path, file: Path, inode: Inode) -> None:
        """Let a published directory change places with a file that nobody has closed yet."""
        working = self._working
        aside = (*file[:-1], file[-1][:200] + b".exchanged")
        with working.lock:
            steps = [(file, aside), (directory, file), (aside, directory)]
            with working.renaming(directory, file):
                # The log knows nothing of it.
                working.move(file, aside)
                try:
                    commit = partial(working.replica.commit, lambda author: iter([author.rename(directory, file)]))
                    applied = working.journal.publish(commit, lambda: Taken(moves=tuple(steps)))
                except BaseException:
                    working.move(aside, file)
                    raise
            working.move(directory, file)
            working.move(aside, directory)
            working.vacancies.filled(directory)
            working.follow([entry.hash for entry in applied.entries])

    def _hide(self, source: Path, hidden: Path) -> None:
        """libfuse takes the name of an open file away before it is unlinked or replaced."""
        working = self._working
        with working.lock:
            _, attributes = working.find(source)
            working.check_writable(source, attributes)
            working.hide(source, hidden)
            working.touch_directory(source[:-1], working.now())
            working.changed()


def _kind(inode: Inode | None, attributes: Attributes | None) -> Kind:
    if inode is not None:
        return inode.kind
    return Kind.ABSENT if attributes is None else attributes.kind


class _Found:
    """What is at a path."""

    def __init__(self, inode: Inode | None, attributes: Attributes | None) -> None:
        self.inode = inode
        self.attributes = attributes

    @classmethod
    def at(cls, working: WorkingSet, path: Path) -> _Found | None:
        """`None` where there is nothing."""
        try:
            return cls(*working.find(path))
        except NotFound:
            return None

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory."""
        return _kind(self.inode, self.attributes) is Kind.DIRECTORY

    def is_same(self, inode: Inode | None, attributes: Attributes | None) -> bool:
        """Whether another name stands for the same file."""
        return _file(inode, attributes) == _file(self.inode, self.attributes)


def _file(inode: Inode | None, attributes: Attributes | None) -> Inode | EntryHash | None:
    """What all names of a file have in common, whichever of its versions they show here."""
    if inode is not None:
        return inode if inode.origin is None else inode.origin
    return None if attributes is None else attributes.origin
