"""Two mounts of one filesystem: random operations on both and in plain directories, delivered at random moments.

A directory of its own belongs to each side, in which it alone writes until they change places; there every outcome is
held against a plain directory.  In a third one both write whatever they like; the two must be equal after quiet.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fs.pair import Opened, Side, make_equal, outcome, tree_of, two_mounts
from tests.support.examples import part
from tests.support.mounts import temporary_directory

pytestmark = pytest.mark.fuse

TOPS = "xyz"
#: Where both write.
COMMON = "z"
#: Exchanges after which nothing may be left to tell.
MAX_EXCHANGES = 4
#: What may come of an operation where another node changes the same paths.
_ERRORS = {
    -number
    for number in (
        errno.ENOENT,
        errno.EEXIST,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ENOTEMPTY,
        errno.EINVAL,
        errno.ELOOP,
    )
}

SIDES = st.sampled_from([0, 1])
PATHS = st.sampled_from(["a", "a", "d/a", "b", "d", "e", "d/b", "e/a", "d/e", "d/e/a"])
#: Bytes in a content: in the journal, or in a file beside it; of more than a page, and of less.
SIZES = st.sampled_from([0, 1, 3, 4200, 20_000])
LENGTHS = st.sampled_from([0, 1, 5, 4096, 9000])
ACTIONS = st.one_of(
    st.tuples(st.just("save"), SIZES, st.just(os.O_CREAT | os.O_TRUNC), st.just(0)),
    st.tuples(st.just("save"), SIZES, st.sampled_from([0, os.O_APPEND]), LENGTHS),
    st.tuples(st.sampled_from(["unlink", "mkdir", "rmdir"])),
    st.tuples(st.just("rename"), PATHS),
    st.tuples(st.just("truncate"), LENGTHS),
    st.tuples(st.just("symlink"), st.sampled_from(["a", "b", "e", "nowhere"])),
    st.tuples(st.just("chmod"), st.sampled_from([0o600, 0o644, 0o755, 0o700])),
)
ACTS = st.tuples(st.just("act"), SIDES, st.sampled_from(["own", "own", COMMON]), PATHS, ACTIONS)
FLAGS = [os.O_RDONLY, os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_CREAT, os.O_RDWR | os.O_TRUNC, os.O_RDWR | os.O_APPEND]
STEPS = st.one_of(
    st.just(("nothing",)),
    ACTS,
    ACTS,
    ACTS,
    st.tuples(st.just("look"), SIDES, st.sampled_from(TOPS), PATHS),
    st.tuples(st.just("open"), SIDES, st.sampled_from(TOPS), PATHS, st.sampled_from(FLAGS)),
    st.tuples(st.just("open"), SIDES, st.sampled_from(TOPS), st.sampled_from(["a", "d/a"]), st.just(os.O_RDONLY)),
    st.tuples(st.just("write"), SIDES, st.integers(0, 5), SIZES, LENGTHS),
    st.tuples(st.just("close"), SIDES, st.integers(0, 5)),
    st.tuples(st.just("publish"), SIDES),
    st.tuples(st.just("deliver"), SIDES, st.booleans()),
    st.tuples(st.just("quiet"), st.booleans()),
)


def content_of(size: int) -> bytes:
    """Bytes that tell how many they are."""
    return (b"%d\n" % size * size)[:size]


def perform(path: Path, name: str, *arguments: Any) -> None:
    """Something that may change a path.  Raises `OSError`."""
    if name == "save":
        size, flags, offset = arguments
        file = os.open(path, os.O_WRONLY | flags, 0o644)
        try:
            os.pwrite(file, content_of(size), offset)
        finally:
            os.close(file)
    elif name == "rename":
        top = next(parent for parent in path.parents if parent.name in TOPS)
        path.rename(top / arguments[0])
    elif name == "symlink":
        path.symlink_to(arguments[0])
    else:
        getattr(os, name)(path, *arguments)


#: How a path is looked at.
LOOKS: tuple[Callable[[Path], Any], ...] = (
    Path.read_bytes,
    lambda path: sorted(os.listdir(path)),
    os.readlink,
    lambda path: oct(path.stat().st_mode),
    lambda path: path.stat().st_size if path.is_file() else None,
)


class Play:
    """What goes on between the two."""

    def __init__(self, sides: tuple[Side, Side]) -> None:
        self.sides = sides
        #: The directory that belongs to each side.
        self.own = ["x", "y"]
        for root in (sides[0].mount, *(side.model for side in sides)):
            for top in TOPS:
                (root / top / "d").mkdir(parents=True)
                for path in ("a", "d/a", "d/b"):
                    (root / top / path).write_bytes(content_of(3))
        self.quiet(False)

    # -- what applications do -----------------------------------------------------------------------------------------

    def nothing(self) -> None:
        """What shrunk examples are made of."""

    def act(self, side: int, place: str, path: str, action: tuple[Any, ...]) -> None:
        """Change a path."""
        here = self.sides[side]
        if place == COMMON:
            found = outcome(lambda path: perform(path, *action), here.mount / COMMON / path)
            assert found is None or found in _ERRORS, (path, action, errno.errorcode.get(-found))
            return
        here.both(f"{self.own[side]}/{path}", lambda path: perform(path, *action))
        self.look(side, self.own[side], path)
        here.check_opened()

    def look(self, side: int, top: str, path: str) -> None:
        """Read, list and stat a path."""
        here = self.sides[side]
        for look in LOOKS:
            if top == COMMON:
                outcome(look, here.mount / top / path)
            else:
                here.both(f"{top}/{path}", look)

    def open(self, side: int, top: str, path: str, flags: int) -> None:
        """Open a file for a while; for writing only where the side may write."""
        flags = flags if top in (self.own[side], COMMON) else os.O_RDONLY
        self.sides[side].open(f"{top}/{path}", flags, has_model=top != COMMON)

    def _handle(self, side: int, index: int) -> Opened | None:
        opened = self.sides[side].opened
        return opened[index % len(opened)] if opened else None

    def write(self, side: int, index: int, size: int, offset: int) -> None:
        """Write to a file that is open."""
        opened = self._handle(side, index)
        if opened is not None and opened.writes:
            opened.write(content_of(size), offset)
            self.sides[side].check_opened()

    def close(self, side: int, index: int) -> None:
        """Close a file that is open."""
        opened = self._handle(side, index)
        if opened is not None:
            self.sides[side].close(lambda other: other is opened)
            self.sides[side].check_opened()

    # -- what happens meanwhile ---------------------------------------------------------------------------------------

    def publish(self, side: int) -> None:
        """A moment of rest on one side, which no application can see."""
        self.sides[side].publish()

    def deliver(self, sender: int, partly: bool) -> None:
        """What one side has closed arrives at the other one; `partly`: while files in the common one are written."""
        here, there = self.sides[sender], self.sides[1 - sender]
        # What is being written is shown here, and not there.
        here.close(lambda opened: opened.writes and (not partly or opened.model is not None))
        here.publish()
        held = [(opened, opened.content()) for opened in there.opened]
        for entries, blocks in here.ask("take"):
            there.ask("give", entries, blocks)
        there.ask("settle")
        for opened, content in held:
            assert opened.content() == content, f"{opened.where} is not what was opened"
        make_equal(there.model / self.own[sender], here.model / self.own[sender])
        for side in self.sides:
            side.check("xy")

    def quiet(self, swap: bool) -> None:
        """All is closed for writing, published and delivered; `swap`: each goes on in the other one's directory."""
        for side in self.sides:
            side.close(lambda opened: opened.writes)
        for _ in range(MAX_EXCHANGES):
            before = [side.ask("count") for side in self.sides]
            for sender in (0, 1):
                self.deliver(sender, False)
            if [side.ask("count") for side in self.sides] == before and not any(s.publish() for s in self.sides):
                break
        else:
            raise AssertionError(f"not quiet after {MAX_EXCHANGES} exchanges: {[s.publish() for s in self.sides]}")
        first, second = self.sides
        view = first.view()
        assert second.view() == view
        assert tree_of(first.mount) == view
        assert tree_of(second.mount) == view
        assert [side.ask("problems") for side in self.sides] == [[], []]
        if swap:
            self.own.reverse()
            for side, top in zip(self.sides, self.own, strict=True):
                # Whether these see what is written here now depends on what came before.
                side.close(lambda opened, top=top: opened.where.startswith(top))  # type: ignore[misc]


#: Enough for each outcome, which the hashes decide.
FILES = [f"d/{number}" for number in range(8)]


def give(sender: Side, receiver: Side) -> None:
    """What one has closed arrives at the other one, and is shown there."""
    sender.publish()
    for entries, blocks in sender.ask("take"):
        receiver.ask("give", entries, blocks)
    for side in (sender, receiver):
        side.ask("settle")


CHANGES: dict[str, Callable[[Path], object]] = {
    "removed": Path.unlink,
    "written": lambda path: path.write_bytes(b"ours"),
    "replaced": lambda path: path.with_suffix(".new").write_bytes(b"ours") and path.with_suffix(".new").rename(path),
    "removed and made": lambda path: (path.unlink(), path.write_bytes(b"ours")),
}


def begin(here: Side, there: Side) -> None:
    """Files that both know."""
    (here.mount / "d").mkdir()
    for where in FILES:
        (here.mount / where).write_bytes(b"first, and longer")
    give(here, there)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_arrives_before_a_change_is_published_is_shown_or_listed(change: Callable[[Path], object]) -> None:
    with temporary_directory() as base, two_mounts(base) as (here, there):
        begin(here, there)
        for where in FILES:
            # The kernel knows the size of each, and what is in it.
            assert (here.mount / where).read_bytes() == b"first, and longer"
            change(here.mount / where)
        if change is Path.unlink:
            (here.mount / "d").rmdir()
        done = tree_of(here.mount)
        for where in FILES:
            (there.mount / where).write_bytes(b"theirs")
        give(there, here)
        assert tree_of(here.mount) == done, "until it is published"
        here.publish()
        here.ask("settle")
        assert tree_of(here.mount) == here.view()
        give(here, there)
        assert tree_of(there.mount) == there.view() == here.view()
        ours = [] if change is Path.unlink else [b"ours"]
        for where in FILES:
            shown = [(here.mount / where).read_bytes()] if (here.mount / where).exists() else []
            lost = [content for raw in there.ask("lost", where) if (content := bytes.fromhex(raw))]
            assert sorted(shown + lost) == sorted([*ours, b"theirs"]), where


def test_what_has_lost_stays_with_who_has_it_open() -> None:
    with temporary_directory() as base, two_mounts(base) as (here, there):
        begin(here, there)
        for where in FILES:
            here.open(where, os.O_RDWR, has_model=False)
            here.opened[-1].write(b"O", 0)
            (there.mount / where).write_bytes(b"theirs")
        give(there, here)
        for opened in here.opened:
            # A close of a duplicate: it is saved, and goes on being open.
            os.close(os.dup(opened.file))
        here.publish()
        here.ask("settle")
        for opened in here.opened:
            assert opened.content() == b"Oirst, and longer"
        view = here.view()
        for where in FILES:
            assert (here.mount / where).read_bytes() == view[where][2]
        assert {view[where][2] for where in FILES} <= {b"Oirst, and longer", b"theirs"}
        here.close()
        give(here, there)
        assert tree_of(here.mount) == here.view() == there.view() == tree_of(there.mount)


@part(
    25,
    derandomize=os.environ.get("HYPOTHESIS_PROFILE", "ci") == "ci",
)
@given(st.lists(STEPS, min_size=60, max_size=90))
def test_two_mounts_are_one_filesystem(steps: list[tuple[Any, ...]]) -> None:
    with temporary_directory() as base, two_mounts(base) as sides:
        play = Play(sides)
        for name, *arguments in steps:
            getattr(play, name)(*arguments)
        play.quiet(False)
