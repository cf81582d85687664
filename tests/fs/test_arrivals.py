"""Two nodes whose changes arrive at any moment between a call and its publication, and that are killed now and then."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basefs.errors import BaseFSError
from basefs.log.entries import Action, Entry
from basefs.log.hashes import EntryHash
from basefs.log.placement import EntryKind
from basefs.path import Path
from basefs.replica.replica import Applied, Replica
from basefs.view.states import Kind
from tests.fs.local import Local
from tests.fs.numbers import confused
from tests.support.examples import part
from tests.support.helpers import BOB, ROOT_KEY, genesis, make_replica, path, tree_of
from tests.support.mounts import temporary_directory

KEYS = (ROOT_KEY, BOB)
#: Few, so that both sides meet on them.
NAMES = ("/d", "/d/f", "/d/f", "/d/g", "/f")
#: What takes something away from a path, and must have seen it.
TAKES = {Action.DELETE, Action.WRITE, Action.SLINK, Action.LINK}
ACTS = ("save", "save", "unlink", "unlink", "tree", "mkdir", "symlink", "replace", "back_up", "chmod", "time")
MOVES = ("rename", "exchange", "link", "look")
SIDES = st.sampled_from([0, 1])
PLACES = st.sampled_from(NAMES)


def steps(acts: tuple[str, ...]) -> st.SearchStrategy[list[tuple[str, int, str, str]]]:
    """What happens: kind, side, and up to two paths."""
    other = st.tuples(st.sampled_from(["send", "send", "publish", "deliver", "kill"]), SIDES, PLACES, PLACES)
    act = st.tuples(st.sampled_from(acts), SIDES, PLACES, PLACES)
    return st.lists(st.one_of(act, other), min_size=20, max_size=50)


class Story:
    """Two nodes and what happens on them."""

    def __init__(self, base: pathlib.Path) -> None:
        self._base = base
        born = genesis(KEYS)
        self.nodes = [Local(make_replica(base / key.public.hex()[:4], [key], born=born)) for key in KEYS]
        self._sent: list[list[Applied]] = [[], []]
        #: Of each side: when entries of the other one came, and when a path was last changed here.
        self._came: list[dict[EntryHash, tuple[int, Entry]]] = [{}, {}]
        self._changed: list[dict[Path, int]] = [{}, {}]
        self._now = 0
        #: What took away something that came after the change.
        self.blind: list[tuple[Path, Entry, Entry]] = []
        for side in (0, 1):
            self._follow(side)
        self.nodes[0].fs.namespace.make_directory(path("/d"), 0o755)
        self.nodes[0].save("/d/f", b"first")
        self.play("publish", 0, "/d", "/d")
        self.play("deliver", 0, "/d", "/d")

    def _follow(self, side: int) -> None:
        self.nodes[side].replica.subscribe(lambda applied: self._note(side, applied))

    def _note(self, side: int, applied: Applied) -> None:
        if not applied.local:
            self._came[side].update((entry.hash, (self._now, entry)) for entry in applied.entries)
            return
        self._sent[side].append(applied)
        for names, placed in self.nodes[side].replica.places([entry.hash for entry in applied.entries]):
            entry = placed.entry
            if placed.kind is EntryKind.SUCCESSOR and entry.action in TAKES and entry.parent in self._came[side]:
                when, parent = self._came[side][entry.parent]
                if parent.action is not Action.DELETE and when >= self._changed[side].get(names, 0):
                    self.blind.append((names, parent, entry))

    def play(self, kind: str, side: int, text: str, other: str) -> None:
        """One step."""
        self._now += 1
        if kind in ("publish", "send"):
            self.nodes[side].publish()
            if kind == "send":
                self._deliver(side)
        elif kind == "deliver":
            self._deliver(side)
        elif kind == "kill":
            self._kill(side)
        elif kind == "look":
            assert confused(self.nodes[side].fs, self.nodes[side].load) == []
        else:
            for changed in NAMES:
                if changed == text or (kind in ("tree", "back_up") and changed.startswith(text)):
                    self._changed[side][path(changed)] = self._now
            with contextlib.suppress(BaseFSError):
                self._act(kind, self.nodes[side], path(text), path(other))

    def _deliver(self, sender: int) -> None:
        for applied in self._sent[sender]:
            self.nodes[1 - sender].replica.apply(applied.entries, applied.blocks)
        self._sent[sender].clear()

    def _kill(self, side: int) -> None:
        replica = self.nodes[side].replica
        target = self._base / f"{replica.directory.name}x"
        shutil.copytree(replica.directory, target)
        replica.close()
        self.nodes[side] = Local(Replica(target, [KEYS[side]]))
        self._follow(side)

    def _act(self, kind: str, here: Local, names: Path, other: Path) -> None:
        content = b"%d" % self._now
        text = "/" + b"/".join(names).decode()
        if kind == "save":
            here.save(text, content)
        elif kind == "unlink":
            here.fs.namespace.unlink(names)
        elif kind == "tree":
            self._remove(here, names)
        elif kind == "mkdir":
            here.fs.namespace.make_directory(names, 0o755)
        elif kind == "symlink":
            here.fs.namespace.make_symlink(names, content)
        elif kind == "replace":
            here.fs.namespace.make_symlink((b"new",), content)
            here.fs.namespace.rename((b"new",), names)
        elif kind == "back_up":
            here.fs.namespace.rename(names, (*names[:-1], names[-1] + b"~"))
            here.save(text, content)
        elif kind == "chmod":
            here.fs.metadata.set_mode(names, 0o600)
        elif kind == "time":
            here.fs.metadata.set_times(names, self._now * 10**9)
        elif kind == "link":
            here.fs.namespace.make_link(other, names)
        else:
            here.fs.namespace.rename(names, other, exchange=kind == "exchange")

    def _remove(self, here: Local, names: Path) -> None:
        for name, bits, _ in here.fs.metadata.list(names):
            if bits == stat.S_IFDIR:
                self._remove(here, (*names, name))
            else:
                here.fs.namespace.unlink((*names, name))
        here.fs.namespace.remove_directory(names)

    def end(self) -> None:
        """Both hear of all, and are alike."""
        for _ in range(4):
            for side in (0, 1):
                self.nodes[side].publish()
                self._deliver(side)
        one, two = self.nodes
        assert tree_of(one.replica) == tree_of(two.replica)
        for node in self.nodes:
            assert node.replica.check_view() == []
            assert confused(node.fs, node.load) == []
            if not node.fs.working.unpublished():
                self._check_shown(node)

    @staticmethod
    def _check_shown(node: Local) -> None:
        """Applications see what the view has, and scratch names of their own."""
        for names, kind in node.replica.live_paths():
            if not names[-1:] or names[-1].endswith(b"~"):
                continue
            assert node.fs.working.exists(names)
            if kind is Kind.FILE:
                assert node.load(names) == node.replica.read(names)

    def close(self) -> None:
        for node in self.nodes:
            node.replica.close()


def play(happens: list[tuple[str, int, str, str]]) -> list[tuple[Path, Entry, Entry]]:
    """A story; what it took away without having seen it."""
    with temporary_directory() as base:
        story = Story(base)
        try:
            for step in happens:
                story.play(*step)
            story.end()
        finally:
            story.close()
        return story.blind


FIXED = os.environ.get("HYPOTHESIS_PROFILE", "ci") == "ci"


@pytest.mark.logs("kept on this node only")
@part(4, derandomize=FIXED)
@given(steps(ACTS))
def test_nothing_is_taken_away_that_was_not_seen(happens: list[tuple[str, int, str, str]]) -> None:
    assert play(happens) == []


@pytest.mark.logs("kept on this node only")
@part(8, derandomize=FIXED)
@given(steps(ACTS + MOVES))
def test_nodes_are_alike_whatever_arrives_when(happens: list[tuple[str, int, str, str]]) -> None:
    """With names that move: a file goes on under its new name, with what came meanwhile, and one inode number."""
    play(happens)
