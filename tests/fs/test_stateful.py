"""Random operations on `Filesystem` against a model in dictionaries, with publishing, other nodes and crashes."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from dataclasses import dataclass

import pytest
from basefs.fs.publish.plan import MAX_STEPS
from basefs.fs.staging.scratch import ScratchNames
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from basefs.errors import BaseFSError
from basefs.path import Path
from basefs.replica.replica import Applied, Replica
from tests.fs.local import Local
from tests.fs.model import Inode, Model, Open, Type, Version
from tests.support.examples import part
from tests.support.helpers import ROOT_KEY
from tests.support.mounts import temporary_directory

is_scratch = ScratchNames().is_scratch

_BITS = {Type.FILE: stat.S_IFREG, Type.DIRECTORY: stat.S_IFDIR, Type.SYMLINK: stat.S_IFLNK}

#: Few, so that operations meet on them; bytes that break lines, terminals and UTF-8; one that never leaves the node.
NAMES = st.sampled_from([b"a", b"b", b"\xff", b"x\ny", b"a~", b"b.tmp", b"n" * 255])
MODES = st.sampled_from([0o644, 0o755, 0o600, 0o777, 0o000])
CONTENTS = st.one_of(
    st.binary(min_size=1, max_size=6), st.sampled_from([b"x" * 600, bytes(range(256)) * 3, b"large" * 20_000])
)
OFFSETS = st.integers(0, 12)
ANY = tuple(Type)


@dataclass
class Opened:
    """A handle, and what the model knows about it."""

    handle: int
    model: Open
    hidden: Path | None = None


class Applications(RuleBasedStateMachine):
    """What applications may do, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = contextlib.ExitStack()
        scratch = self.stack.enter_context(temporary_directory())
        self.local = Local.bootstrap(scratch / "log")
        self.local.replica.subscribe(self.look)
        self.looks = False
        self.wrong: list[Exception] = []
        self.fs = self.local.fs
        self.model = Model()
        self.opened: list[Opened] = []
        self.hidden = 0

    @initialize()
    def empty(self) -> None:
        self.fs.namespace.unlink((b".cluster",))

    # -- choices ------------------------------------------------------------------------------------------------------

    def pick(self, data: st.DataObject, *types: Type) -> Path:
        return data.draw(st.sampled_from([names for names in self.model.names(*types) if names]))

    def place(self, data: st.DataObject) -> Path:
        """A name in some directory, taken or free."""
        return (*data.draw(st.sampled_from(self.model.names(Type.DIRECTORY))), data.draw(NAMES))

    def handle(self, data: st.DataObject) -> Opened:
        return self.opened[data.draw(st.sampled_from(range(len(self.opened))))]

    def writer(self, data: st.DataObject) -> Opened:
        return self.opened[data.draw(st.sampled_from(self.writers()))]

    def writers(self) -> list[int]:
        """The handles that may write, without those of a version that another node's has replaced: see `save_older`."""
        return [n for n, opened in enumerate(self.opened) if opened.model.writes and opened.model.is_newest]

    def has(self, *types: Type) -> bool:
        return any(names for names in self.model.names(*types))

    def expect(self, error: type[Exception] | None) -> contextlib.AbstractContextManager[object]:
        return contextlib.nullcontext() if error is None else pytest.raises(error)

    # -- open files ---------------------------------------------------------------------------------------------------

    @rule(data=st.data(), mode=MODES)
    def create(self, data: st.DataObject, mode: int) -> None:
        names = self.place(data)
        if names not in self.model.tree:
            self.opened.append(Opened(self.fs.files.create(names, mode), self.model.create(names, mode)))

    @precondition(lambda self: self.has(Type.FILE))
    @rule(data=st.data(), writes=st.booleans(), truncate=st.booleans())
    def open(self, data: st.DataObject, writes: bool, truncate: bool) -> None:
        names = self.pick(data, Type.FILE)
        flags = (os.O_RDWR | (os.O_TRUNC if truncate else 0)) if writes else os.O_RDONLY
        opened = self.model.open(names, writes=writes, truncate=truncate and writes)
        self.opened.append(Opened(self.fs.files.open(names, flags), opened))

    @precondition(writers)
    @rule(data=st.data(), content=CONTENTS, offset=OFFSETS)
    def write(self, data: st.DataObject, content: bytes, offset: int) -> None:
        opened = self.writer(data)
        self.fs.files.write(opened.handle, content, offset)
        self.model.write(opened.model, content, offset)

    @precondition(writers)
    @rule(data=st.data(), length=OFFSETS)
    def truncate_handle(self, data: st.DataObject, length: int) -> None:
        opened = self.writer(data)
        self.fs.files.truncate((), length, opened.handle)
        self.model.write(opened.model, b"", length)

    @precondition(lambda self: self.has(Type.FILE))
    @rule(data=st.data(), length=OFFSETS)
    def truncate_path(self, data: st.DataObject, length: int) -> None:
        names = self.pick(data, Type.FILE)
        self.fs.files.truncate(names, length)
        opened = self.model.open(names, writes=True)
        self.model.write(opened, b"", length)
        self.model.flush(opened)
        self.model.release(opened)

    @precondition(lambda self: self.opened)
    @rule(data=st.data(), sync=st.booleans())
    def flush(self, data: st.DataObject, sync: bool) -> None:
        opened = self.handle(data)
        (self.fs.files.sync if sync else self.fs.files.flush)(opened.handle)
        (self.model.sync if sync else self.model.flush)(opened.model)

    @precondition(lambda self: self.opened)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        self.close(self.handle(data))

    def close(self, opened: Opened) -> None:
        self.opened.remove(opened)
        self.fs.files.release(opened.handle)
        self.model.release(opened.model)
        if opened.hidden is not None and not any(other.hidden == opened.hidden for other in self.opened):
            self.fs.namespace.unlink(opened.hidden)

    # -- names --------------------------------------------------------------------------------------------------------

    @rule(data=st.data(), mode=MODES)
    def make_directory(self, data: st.DataObject, mode: int) -> None:
        names = self.place(data)
        if not is_scratch(names):
            with self.expect(self.model.make(names, Inode(Type.DIRECTORY, mode))):
                self.fs.namespace.make_directory(names, mode)

    @rule(data=st.data(), content=CONTENTS.filter(lambda content: 0 not in content and len(content) < 4096))
    def make_symlink(self, data: st.DataObject, content: bytes) -> None:
        names = self.place(data)
        with self.expect(self.model.make(names, Inode(Type.SYMLINK, 0o777, Version(bytearray(content))))):
            self.fs.namespace.make_symlink(names, content)

    @precondition(lambda self: self.has(*ANY))
    @rule(data=st.data())
    def make_link(self, data: st.DataObject) -> None:
        target, names = self.pick(data, *ANY), self.place(data)
        if is_scratch(target) != is_scratch(names):
            return  # They part when one is published.
        with self.expect(self.model.link(names, target)):
            self.fs.namespace.make_link(names, target)

    @precondition(lambda self: self.has(*ANY))
    @rule(data=st.data())
    def unlink(self, data: st.DataObject) -> None:
        names = self.pick(data, *ANY)
        with self.expect(self.model.unlink(names)):
            self.fs.namespace.unlink(names)

    @precondition(lambda self: self.has(*ANY))
    @rule(data=st.data())
    def remove_directory(self, data: st.DataObject) -> None:
        names = self.pick(data, *ANY)
        with self.expect(self.model.remove_directory(names)):
            self.fs.namespace.remove_directory(names)

    @precondition(lambda self: self.has(Type.FILE))
    @rule(data=st.data())
    def hide(self, data: st.DataObject) -> None:
        """What libfuse does for unlink of an open file."""
        names = self.pick(data, Type.FILE)
        users = [o for o in self.opened if o.model.inode is self.model.tree[names] and o.hidden is None]
        if users:
            self.hidden += 1
            hidden = (*names[:-1], b".fuse_hidden%016d" % self.hidden)
            self.fs.namespace.rename(names, hidden)
            self.model.unlink(names)
            for opened in users:
                opened.hidden = hidden

    @precondition(lambda self: self.has(*ANY))
    @rule(data=st.data(), replace=st.booleans(), exchange=st.booleans())
    def rename(self, data: st.DataObject, replace: bool, exchange: bool) -> None:
        source, target = self.pick(data, *ANY), self.place(data)
        exchange = exchange and replace
        shared = [self.model.tree[n] for n in (source, target) if n in self.model.tree]
        shared = [inode for inode in shared if inode.type is Type.DIRECTORY or self.model.links(inode) > 1]
        if shared and is_scratch(target) != is_scratch(source):
            return  # Directories are published whatever their name; names of one file would part.
        error = self.model.rename(source, target, replace=replace, exchange=exchange)
        with self.expect(error):
            self.fs.namespace.rename(source, target, replace=replace, exchange=exchange)
        for opened in self.opened:
            if error is None and opened.hidden is not None and opened.hidden[: len(source)] == source:
                opened.hidden = (*target, *opened.hidden[len(source) :])
            elif error is None and exchange and opened.hidden is not None and opened.hidden[: len(target)] == target:
                opened.hidden = (*source, *opened.hidden[len(target) :])

    @precondition(lambda self: self.has(*ANY))
    @rule(data=st.data(), mode=MODES)
    def set_mode(self, data: st.DataObject, mode: int) -> None:
        names = self.pick(data, *ANY)
        if self.model.tree[names].type is not Type.SYMLINK:
            self.model.tree[names].mode = mode
        self.fs.metadata.set_mode(names, mode)

    @precondition(lambda self: self.has(*ANY))
    @rule(data=st.data(), mtime=st.integers(0, 2**31))
    def set_time(self, data: st.DataObject, mtime: int) -> None:
        """It is published last, so it decides in which order everything else is."""
        self.fs.metadata.set_times(self.pick(data, *ANY), mtime * 10**9)

    # -- what happens meanwhile ---------------------------------------------------------------------------------------

    def look(self, applied: Applied) -> None:
        """Called between two transactions, where an error would be logged and no more."""
        if self.looks:
            try:
                self.the_tree_is_that_of_the_model()
            except (AssertionError, BaseFSError) as error:
                self.wrong.append(error)

    @rule(steps=st.sampled_from([1, 2, MAX_STEPS]), waits=st.booleans())
    def publish(self, steps: int, waits: bool) -> None:
        """Nothing that an application can see, also between two transactions, and nothing is refused.

        `waits`: for what may come in a moment.
        """
        self.wrong, self.looks = [], True
        self.fs.publisher.publish(patient=waits, most=steps)
        self.looks = False
        for error in self.wrong:
            raise error
        assert not [
            inode.refused for _, inode in self.fs.working.overlay.items() if inode is not None and inode.refused
        ]

    @precondition(lambda self: self.has(Type.FILE))
    @rule(data=st.data(), content=CONTENTS)
    def change_elsewhere(self, data: st.DataObject, content: bytes) -> None:
        self.arrive(self.pick(data, Type.FILE), content)

    def arrive(self, names: Path, content: bytes) -> None:
        """Another node's version of a file is here."""
        self.publish_all()
        if not is_scratch(names) and content != bytes(self.model.tree[names].version.content):
            self.local.replica.commit(lambda author: author.write(names, content))
            self.model.change_elsewhere(names, content)

    def publish_all(self) -> None:
        """Nothing that another node could change is pending."""
        for opened in self.opened:
            self.fs.files.sync(opened.handle)
            self.model.sync(opened.model)
        self.local.publish()
        assert all(is_scratch(names) for names, _ in self.fs.working.overlay.items())

    @precondition(lambda self: self.has(Type.FILE))
    @rule(data=st.data(), theirs=CONTENTS, content=st.one_of(st.just(b""), CONTENTS), offset=OFFSETS)
    def save_older(self, data: st.DataObject, theirs: bytes, content: bytes, offset: int) -> None:
        """A save of the version that was opened, where another node's has come since, until one of the two has won.

        Hashes decide, and they differ in each run: all goes on alike, whichever it was.
        """
        names = self.pick(data, Type.FILE)
        handle, opened = self.fs.files.open(names, os.O_RDWR), self.model.open(names, writes=True)
        before = bytes(opened.version.content)
        self.opened.append(Opened(handle, opened))
        self.arrive(names, theirs)
        if content:
            self.fs.files.write(handle, content, offset)
        else:
            self.fs.files.truncate((), offset, handle)
        self.model.write(opened, content, offset)
        self.fs.files.flush(handle)
        self.model.flush(opened)
        self.the_tree_is_that_of_the_model()
        for other in [other for other in self.opened if other.model.inode is opened.inode]:
            self.close(other)
        self.local.publish()
        ours = bytes(opened.version.content)
        if self.local.load(names) != ours:
            assert ours == before or ours in self.lost()
            # Whoever has seen what has won can save it once more.
            handle = self.fs.files.open(names, os.O_WRONLY | os.O_TRUNC)
            self.fs.files.write(handle, ours, 0)
            self.local.close(handle)

    def lost(self) -> list[bytes]:
        """The contents that have lost a conflict."""
        replica = self.local.replica
        conflicts = [conflict for names in replica.forked_paths() for conflict in replica.survey(names).conflicts()]
        return [replica.content_at(conflict.lost.hash) for conflict in conflicts]

    @rule(published=st.booleans())
    def crash(self, published: bool) -> None:
        """The daemon is killed and started again; closed files are not lost."""
        if published:
            self.local.publish()
        working = self.fs.working
        with working.lock:
            # The removal of an open file is durable a moment later.
            working.vacancies.end()
        self.opened.clear()
        self.local.replica.close()
        self.local = Local(Replica(self.local.replica.directory, [ROOT_KEY]))
        self.local.replica.subscribe(self.look)
        self.fs = self.local.fs
        self.model.crash()

    # -- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def the_tree_is_that_of_the_model(self) -> None:
        if self.fs.working.exists((b".cluster",)):
            return
        for names, inode in self.model.tree.items():
            found = self.fs.metadata.stat(names)
            assert stat.S_IFMT(found.mode) == _BITS[inode.type], names
            assert stat.S_IMODE(found.mode) == inode.mode, names
            if inode.type is Type.DIRECTORY:
                listed = {name: bits for name, bits, _ in self.fs.metadata.list(names)}
                assert listed == {name: _BITS[kind] for name, kind in self.model.listing(names).items()}
                continue
            content = bytes(inode.version.content)
            assert found.size == len(content), names
            assert (names, found.links) == (names, self.model.links(inode))
            assert (self.local.load(names) if inode.type is Type.FILE else self.fs.metadata.read_link(names)) == content
        numbers = {names: self.fs.metadata.stat(names).number for names in self.model.tree}
        for names, inode in self.model.tree.items():
            for other, another in self.model.tree.items():
                assert (numbers[names] == numbers[other]) == (inode is another)
        for opened in self.opened:
            assert self.local.read_handle(opened.handle) == bytes(opened.model.version.content)

    def teardown(self) -> None:
        with self.stack:
            if sys.exc_info()[0] is None:
                self.end()

    def end(self) -> None:
        """What must hold when everything is closed and published, and after a restart."""
        while self.opened:
            self.close(self.opened[-1])
        self.the_tree_is_that_of_the_model()
        self.local.publish()
        self.the_tree_is_that_of_the_model()
        assert self.local.replica.check_view() == []
        assert self.fs.working.hidden == {}
        assert all(is_scratch(names) for names, _ in self.fs.working.overlay.items())
        published = {names for names, _ in self.local.replica.live_paths()}
        assert published == {names for names in self.model.tree if not is_scratch(names)}
        self.local.replica.close()
        self.local = Local(Replica(self.local.replica.directory, [ROOT_KEY]))
        self.fs = self.local.fs
        self.model.crash()
        self.the_tree_is_that_of_the_model()
        self.local.replica.close()


TestApplications = Applications.TestCase
#: The same histories each time in continuous integration; the profile "slow" hunts for new ones.
TestApplications.settings = part(
    6,
    stateful_step_count=40,
    derandomize=os.environ.get("HYPOTHESIS_PROFILE", "ci") == "ci",
)
