"""Random programs beside a plain directory: what they leave must be the same, also after kills.

HYPOTHESIS_PROFILE=slow plays 3333 programs without a mount and 66 on one, in some twelve minutes.
"""

from __future__ import annotations

import contextlib
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from basefs.fs.publish.plan import MAX_STEPS
from basefs.fs.staging.scratch import ScratchNames
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from basefs.replica.replica import Applied, Replica
from tests.fs.local import Local
from tests.fs.twin import Directory, Place, Program, Tree, Unmounted
from tests.support.examples import part
from tests.support.helpers import ROOT_KEY
from tests.support.mounts import require_fuse, temporary_directory
from tests.support.node import Node

is_scratch = ScratchNames().is_scratch

DIRECTORIES = ("d", "d/a", "d/a/b", "d/c", "e")
FILES = ("a", "b", "c", "d/f", "d/a/f", "d/a/b/f", "d/c/f", "e/f")
TEMPORARIES = ("{}.tmp", "sedAbCdE1", ".{}.AbCdE1", "{}.new", "{}.other")
CONTENTS = st.one_of(st.binary(max_size=5), st.sampled_from([b"many " * 200, b"large" * 4000]))
MODES = st.sampled_from([0o644, 0o755, 0o600])
NAME = "conf"


class Twins(RuleBasedStateMachine):
    """Programs on a plain directory and on the place under test."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = contextlib.ExitStack()
        self.scratch = self.stack.enter_context(temporary_directory())
        (self.scratch / "disk").mkdir()
        self.disk = Directory(self.scratch / "disk")
        self.tree: Tree = {}

    def place(self) -> Place:
        """The place under test."""
        raise NotImplementedError

    # -- choices ------------------------------------------------------------------------------------------------------

    def there(self, *kinds: int) -> list[str]:
        return [path for path, face in sorted(self.tree.items()) if face.kind in kinds]

    def has(self, *kinds: int) -> bool:
        return bool(self.there(*kinds))

    def pick(self, data: st.DataObject, *kinds: int) -> str:
        return data.draw(st.sampled_from(self.there(*kinds)))

    def spot(self, data: st.DataObject, choices: tuple[str, ...]) -> str:
        """One of these paths whose directory is there."""
        above = {"", *self.there(stat.S_IFDIR)}
        return data.draw(st.sampled_from([path for path in choices if path.rpartition("/")[0] in above]))

    def run(self, program: Callable[[Program], object]) -> None:
        """On both, which must fail alike."""
        errors: list[Exception | None] = []
        for place in (self.disk, self.place()):
            try:
                program(Program(place))
                errors.append(None)
            except Exception as error:
                errors.append(error)
        assert (errors[0] is None) == (errors[1] is None), f"on the disk {errors[0]!r}, here {errors[1]!r}"
        self.tree = self.disk.tree()

    # -- programs -----------------------------------------------------------------------------------------------------

    @rule(data=st.data(), content=CONTENTS)
    def save(self, data: st.DataObject, content: bytes) -> None:
        path = self.spot(data, FILES)
        self.run(lambda program: program.place.write(path, content))

    @rule(data=st.data(), content=CONTENTS)
    def append(self, data: st.DataObject, content: bytes) -> None:
        path = self.spot(data, FILES)
        self.run(lambda program: program.place.write(path, content, append=True))

    @precondition(lambda self: self.has(stat.S_IFREG))
    @rule(data=st.data(), content=CONTENTS, offset=st.integers(0, 9))
    def edit(self, data: st.DataObject, content: bytes, offset: int) -> None:
        path = self.pick(data, stat.S_IFREG)
        self.run(lambda program: program.place.write(path, content, offset=offset))

    @precondition(lambda self: self.has(stat.S_IFREG))
    @rule(data=st.data(), content=CONTENTS)
    def map(self, data: st.DataObject, content: bytes) -> None:
        path = self.pick(data, stat.S_IFREG)
        self.run(lambda program: program.place.map(path, content))

    @precondition(lambda self: self.has(stat.S_IFREG))
    @rule(data=st.data(), length=st.sampled_from([0, 3, 5000, 9000]))
    def truncate(self, data: st.DataObject, length: int) -> None:
        path = self.pick(data, stat.S_IFREG)
        self.run(lambda program: program.place.truncate(path, length))

    @precondition(lambda self: self.has(stat.S_IFREG, stat.S_IFDIR))
    @rule(data=st.data(), mode=MODES)
    def chmod(self, data: st.DataObject, mode: int) -> None:
        path = self.pick(data, stat.S_IFREG, stat.S_IFDIR)
        self.run(lambda program: program.place.chmod(path, mode))

    @rule(data=st.data(), temporary=st.sampled_from(TEMPORARIES), content=CONTENTS)
    def replace(self, data: st.DataObject, temporary: str, content: bytes) -> None:
        path = self.spot(data, FILES)
        above, slash, name = path.rpartition("/")
        self.run(lambda program: program.replace(path, above + slash + temporary.format(name), content))

    @precondition(lambda self: self.has(stat.S_IFREG))
    @rule(data=st.data(), content=CONTENTS)
    def back_up(self, data: st.DataObject, content: bytes) -> None:
        path = self.pick(data, stat.S_IFREG)
        if not path.endswith("~"):
            self.run(lambda program: program.back_up(path, content))

    @rule(data=st.data(), content=CONTENTS)
    def rotate(self, data: st.DataObject, content: bytes) -> None:
        path = self.spot(data, FILES)
        self.run(lambda program: program.rotate(path, content))

    @precondition(lambda self: self.has(stat.S_IFREG))
    @rule(data=st.data(), over=st.booleans())
    def link(self, data: st.DataObject, over: bool) -> None:
        target, path = self.pick(data, stat.S_IFREG), self.spot(data, FILES)
        if target.endswith("~"):
            return  # A name that stays on this node and one that does not part when that is published.
        if over:
            self.run(lambda program: program.link_over(target, path))
        else:
            self.run(lambda program: program.place.link(target, path))

    @rule(data=st.data())
    def symlink(self, data: st.DataObject) -> None:
        path = self.spot(data, FILES)
        # To nothing: the kernel follows links, and `Unmounted` has no kernel.
        self.run(lambda program: program.place.symlink("nowhere/b", path))

    @precondition(lambda self: self.has(stat.S_IFREG, stat.S_IFLNK))
    @rule(data=st.data())
    def move(self, data: st.DataObject) -> None:
        source, target = self.pick(data, stat.S_IFREG, stat.S_IFLNK), self.spot(data, FILES)
        self.run(lambda program: program.place.rename(source, target))

    @precondition(lambda self: len(self.there(stat.S_IFREG, stat.S_IFLNK)) > 1)
    @rule(data=st.data(), exchange=st.booleans())
    def swap(self, data: st.DataObject, exchange: bool) -> None:
        one, other = (self.pick(data, stat.S_IFREG, stat.S_IFLNK) for _ in range(2))
        if one.endswith("~") != other.endswith("~") and max(self.tree[path].links for path in (one, other)) > 1:
            return  # See `link`.
        if exchange:
            self.run(lambda program: program.place.rename(one, other, exchange=True))
        elif one != other and self.tree[one].names != self.tree[other].names:
            self.run(lambda program: program.swap(one, other))

    @precondition(lambda self: self.has(stat.S_IFREG, stat.S_IFLNK))
    @rule(data=st.data())
    def unlink(self, data: st.DataObject) -> None:
        path = self.pick(data, stat.S_IFREG, stat.S_IFLNK)
        self.run(lambda program: program.place.unlink(path))

    @rule(data=st.data())
    def make_directory(self, data: st.DataObject) -> None:
        path = self.spot(data, DIRECTORIES)
        self.run(lambda program: program.place.mkdir(path))

    @precondition(lambda self: self.has(stat.S_IFDIR))
    @rule(data=st.data(), exchange=st.booleans())
    def move_directory(self, data: st.DataObject, exchange: bool) -> None:
        source, target = self.pick(data, stat.S_IFDIR), self.spot(data, DIRECTORIES)
        exchange = exchange and target in self.tree
        self.run(lambda program: program.place.rename(source, target, exchange=exchange))

    @precondition(lambda self: self.has(stat.S_IFDIR))
    @rule(data=st.data())
    def copy_tree(self, data: st.DataObject) -> None:
        source, target = self.pick(data, stat.S_IFDIR), self.spot(data, DIRECTORIES)
        if target not in self.tree and not target.startswith(f"{source}/"):
            self.run(lambda program: program.copy_tree(source, target))

    @precondition(lambda self: self.has(stat.S_IFDIR))
    @rule(data=st.data())
    def remove_tree(self, data: st.DataObject) -> None:
        path = self.pick(data, stat.S_IFDIR)
        self.run(lambda program: program.remove_tree(path))

    # -- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def both_are_alike(self) -> None:
        assert self.place().tree() == self.tree

    def end(self) -> None:
        """What must hold when no more programs run."""

    def teardown(self) -> None:
        with self.stack:
            if sys.exc_info()[0] is None:
                self.end()


class Unmounts(Twins):
    """Without a mount: publishing and kills happen where they are asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.local = Local.bootstrap(self.scratch / "log0")
        self.copies = 0

    def place(self) -> Place:
        return Unmounted(self.local.fs)

    @rule(steps=st.sampled_from([1, 2, MAX_STEPS]), patient=st.booleans())
    def publish(self, steps: int, patient: bool) -> None:
        self.local.fs.publisher.publish(patient=patient, most=steps)

    @rule()
    def kill(self) -> None:
        directory = self.local.replica.directory
        self.local.kill()
        self.local = Local(Replica(directory, [ROOT_KEY]))

    @rule(steps=st.sampled_from([1, 3, MAX_STEPS]), transactions=st.integers(1, 4))
    def kill_while_it_publishes(self, steps: int, transactions: int) -> None:
        """After a transaction of the log, before anything else knows of it."""
        self.copies += 1
        copy = self.scratch / f"log{self.copies}"
        left = transactions

        def look(applied: Applied) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                shutil.copytree(self.local.replica.directory, copy)

        self.local.replica.subscribe(look)
        self.publish(steps, patient=False)
        left = 0
        if copy.exists():
            self.local.kill()
            self.local = Local(Replica(copy, [ROOT_KEY]))

    def end(self) -> None:
        self.local.publish()
        self.both_are_alike()
        assert self.local.replica.check_view() == []
        published = {b"/".join(names).decode() for names, _ in self.local.replica.live_paths() if names}
        assert published == {path for path in self.tree if not is_scratch(tuple(path.encode().split(b"/")))} | {
            ".cluster"
        }
        self.local.kill()


TestUnmounted = Unmounts.TestCase
TestUnmounted.settings = part(3, stateful_step_count=30)


@pytest.fixture
def twins() -> Iterator[Unmounts]:
    """What the machine has found, step by step."""
    found = Unmounts()
    yield found
    found.both_are_alike()
    found.teardown()


def test_no_two_files_have_one_number_after_a_swap_and_a_kill(twins: Unmounts) -> None:
    twins.run(lambda program: program.place.write("b", b""))
    twins.kill_while_it_publishes(steps=1, transactions=1)
    twins.run(lambda program: program.replace("a", "a.tmp", b""))
    twins.run(lambda program: program.swap("a", "b"))
    twins.publish(steps=1, patient=False)
    twins.run(lambda program: program.place.write("a", b"many " * 200, append=True))
    twins.kill()


def test_a_file_keeps_its_names_in_the_log_when_another_one_takes_the_first(twins: Unmounts) -> None:
    twins.run(lambda program: program.place.write("a", b""))
    twins.run(lambda program: program.rotate("a", b""))
    twins.run(lambda program: program.place.link("a", "b"))
    twins.publish(steps=1, patient=False)
    twins.run(lambda program: program.rotate("a", b""))
    twins.kill_while_it_publishes(steps=1, transactions=1)


def test_a_name_does_not_follow_what_takes_another_name_of_its_file(twins: Unmounts) -> None:
    twins.run(lambda program: program.place.write("a", b""))
    twins.run(lambda program: program.place.link("a", "c"))
    twins.publish(steps=3, patient=False)
    twins.run(lambda program: program.place.symlink("nowhere/b", "a.new"))
    twins.run(lambda program: program.place.rename("a.new", "a"))
    twins.run(lambda program: program.rotate("c", b""))
    twins.publish(steps=3, patient=False)


class Mounted(Twins):
    """On a mount, which publishes when it likes."""

    def __init__(self) -> None:
        super().__init__()
        require_fuse()
        self.node = self.stack.enter_context(Node.temporary(self.scratch))
        self.node.basefs("genkey")
        self.node.basefs("bootstrap", NAME)
        self.point: Path = self.node.mount(NAME)

    def place(self) -> Place:
        return Directory(self.point)

    @rule()
    def settle(self) -> None:
        self.node.settle(NAME)

    @rule()
    def kill(self) -> None:
        self.node.kill(NAME)
        self.point = self.node.mount(NAME)

    @rule()
    def remount(self) -> None:
        self.node.basefs("unmount", NAME)
        self.point = self.node.mount(NAME)

    def end(self) -> None:
        self.remount()
        self.both_are_alike()
        assert "Traceback" not in self.node.log(NAME)


TestMounted = pytest.mark.fuse(Mounted.TestCase)
TestMounted.settings = part(150, stateful_step_count=25)
