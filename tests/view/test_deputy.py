"""No key reaches farther than its directory by what it arranges for another node's key to do.

Alice holds a key for `/web`.  What she signs there meets a node with a key for `/`, whose users write, change modes,
move, back up and remove.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basefs.errors import InvalidEntry, PathError, StoreError
from basefs.log.blocks import Block
from basefs.log.entries import CHILD_ACTIONS, KEY_ACTIONS, Action, Entry
from basefs.log.extensions import NO_EXTENSIONS, Extensions
from basefs.log.hashes import EntryHash
from basefs.log.keys import SigningKey
from basefs.view.author import Author
from basefs.view.draft import Draft
from basefs.view.states import Kind, Owner, encode_mode
from tests.support.examples import part
from tests.support.helpers import ALICE, BOB, ROOT_KEY, Node, fetch, in_blocks, keys_at, make_replica, path
from tests.support.names import make_link, make_symlink, rename
from tests.view.histories import memory

SECRET = "/secret/admin"


class Nodes:
    """A node with a key for `/`, and Alice's.

    Attributes:
        root: holds the root key.
        alice: holds a key for `/web`.
    """

    def __init__(self, directory: Path) -> None:
        self.root = Node(make_replica(directory / "root", (ROOT_KEY,)))
        self.alice = Node(make_replica(directory / "alice", (ALICE,)))
        for name in ("/secret", "/web", "/etc"):
            self.does(self.root, lambda author, name=name: author.make_directory(path(name)))  # type: ignore[misc]
        self.does(self.root, lambda author: author.write(path(SECRET), b"good", mode=0o600))
        self.does(self.root, lambda author: author.grant(path("/web"), b"alice", ALICE.public))

    def does(self, node: Node, make: Callable[[Author], Draft]) -> list[Entry]:
        """Commit at one node, and bring it to the other one."""
        applied = node.replica.commit(make)
        other = self.alice if node is self.root else self.root
        assert not other.receive(applied.entries, applied.blocks).rejected
        assert [node.replica.check_view() for node in (self.root, self.alice)] == [[], []]
        assert self.root.replica.digest() == self.alice.replica.digest()
        return list(applied.entries)

    def signs(
        self, parent: EntryHash, action: Action, name: str, content: bytes = b"", key: SigningKey = ALICE
    ) -> Entry:
        """An entry that no program of ours writes."""
        entry = key.sign(parent, 1, action, name.encode(), content)
        for node in (self.root, self.alice):
            assert not node.receive([entry], []).rejected
            assert node.replica.check_view() == []
        return entry

    def writes(self, text: str, content: bytes) -> None:
        """A user of the root key's node writes a file."""
        self.does(self.root, lambda author: author.write(path(text), content))

    def at(self, text: str) -> tuple[bytes, int]:
        """Content and mode of a file, on both nodes."""
        found = set()
        for node in (self.root, self.alice):
            it = node.replica.attributes(path(text))
            found.add((node.replica.read(path(text)), it.mode))
        (shown,) = found
        return shown

    def tip(self, text: str) -> EntryHash:
        """The entry with which a path ends."""
        return self.root.replica.attributes(path(text)).entry

    def origin(self, text: str) -> EntryHash:
        """The entry that began a file."""
        found = self.root.replica.attributes(path(text)).origin
        assert found is not None
        return found


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path)
    yield nodes
    nodes.root.replica.close()
    nodes.alice.replica.close()


def test_a_link_to_a_file_of_others_is_a_copy(nodes: Nodes) -> None:
    link = nodes.signs(nodes.tip("/web"), Action.LINK, "x", nodes.origin(SECRET))
    nodes.signs(link.hash, Action.MODE, "x", encode_mode(0o666, None))
    assert nodes.at("/web/x") == (b"good", 0o666)
    nodes.writes("/web/x", b"evil")
    nodes.does(nodes.root, lambda author: author.set_attributes(path("/web/x"), mode=0o640))
    assert nodes.at(SECRET) == (b"good", 0o600)
    assert nodes.at("/web/x") == (b"evil", 0o640)
    nodes.writes(SECRET, b"better")
    assert nodes.at("/web/x") == (b"evil", 0o640)


def test_a_link_that_root_makes_is_a_copy_as_well(nodes: Nodes) -> None:
    nodes.does(nodes.root, lambda author: make_link(author, path("/web/shared"), path(SECRET)))
    nodes.does(nodes.alice, lambda author: author.set_attributes(path("/web/shared"), mode=0o666))
    nodes.signs(nodes.tip("/web"), Action.LINK, "x", nodes.tip("/web/shared"))
    nodes.writes("/web/shared", b"evil")
    nodes.writes("/web/x", b"evil as well")
    assert nodes.at(SECRET) == (b"good", 0o600)
    for name in ("/web/x", "/web/shared"):
        nodes.does(nodes.root, lambda author, name=name: author.remove(path(name), directory=False))  # type: ignore[misc]
    nodes.does(nodes.root, lambda author: author.remove(path("/web"), directory=True))
    assert nodes.at(SECRET) == (b"good", 0o600)


def test_a_backup_over_a_copy_leaves_the_file_alone(nodes: Nodes) -> None:
    """An editor moves the old version aside, over what lies there."""
    nodes.writes("/web/conf", b"old")
    nodes.signs(nodes.tip("/web"), Action.LINK, "conf~", nodes.origin(SECRET))
    nodes.does(nodes.root, lambda author: rename(author, path("/web/conf"), path("/web/conf~")))
    nodes.writes("/web/conf", b"new")
    assert nodes.at("/web/conf~")[0] == b"old"
    assert nodes.at(SECRET) == (b"good", 0o600)


@pytest.mark.parametrize("over", [False, True])
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("named", ["link", "last", "first"])
@pytest.mark.parametrize("name", ["y", "q"])
def test_a_link_back_to_a_file_that_was_moved_away_opens_no_way_into_it(
    nodes: Nodes, name: str, named: str, again: bool, over: bool
) -> None:
    """Not for the file's own former name either, nor by what is written below /web, nor by a revoke."""
    nodes.writes("/web/y", b"first")
    if over:
        nodes.writes("/etc/x", b"before")
    origin, last = nodes.origin("/web/y"), nodes.tip("/web/y")
    link, gone = nodes.does(nodes.root, lambda author: rename(author, path("/web/y"), path("/etc/x")))
    if again:
        nodes.writes("/web/y", b"second")
        gone = nodes.signs(nodes.tip("/web/y"), Action.DELETE, "y")
    before = nodes.at("/etc/x")
    target = {"link": link.hash, "last": last, "first": origin}[named]
    evil = nodes.signs(gone.hash if name == "y" else nodes.tip("/web"), Action.LINK, name, target)
    nodes.signs(evil.hash, Action.MODE, name, encode_mode(0o666, None))
    nodes.writes(f"/web/{name}", b"written below /web")
    assert nodes.at("/etc/x") == before
    nodes.does(nodes.root, lambda author: author.revoke(path("/web"), b"alice", ALICE.fingerprint))
    assert nodes.at("/etc/x") == before


def test_a_file_that_its_own_writer_cannot_follow_is_moved_and_rewritten(nodes: Nodes) -> None:
    nodes.does(nodes.alice, lambda author: author.write(path("/web/f"), b"alice's"))
    last = nodes.tip("/web/f")
    nodes.does(nodes.root, lambda author: rename(author, path("/web/f"), path("/etc/f")))
    nodes.does(nodes.root, lambda author: author.revoke(path("/web"), b"alice", ALICE.fingerprint))
    nodes.signs(last, Action.WRITE, "f")
    assert nodes.at("/etc/f") == (b"alice's", 0o644)
    nodes.writes("/etc/f", b"root's")
    assert nodes.at("/etc/f") == (b"root's", 0o644)


def test_a_directory_beside_one_of_others_is_not_merged_into_it(nodes: Nodes) -> None:
    for parent, name in ((nodes.root.replica.identity, "secret"), (nodes.tip("/secret"), "d")):
        entry = ALICE.sign(EntryHash(parent), 1, Action.MKDIR, name.encode())
        assert nodes.root.receive([entry], []).rejected
        nodes.root.receive([ALICE.sign(entry.hash, 1, Action.WRITE, b"f")], [])
    assert set(nodes.root.replica.names_in(path("/secret"))) == {b"admin"}
    # A second incarnation of her own directory, which she may not make.
    again = nodes.signs(EntryHash(nodes.root.replica.identity), Action.MKDIR, "web")
    nodes.signs(again.hash, Action.WRITE, "astray")
    nodes.writes("/web/f", b"root")
    assert set(nodes.root.replica.names_in(path("/web"))) == {b"f"}


def _move(nodes: Nodes, source: str, target: str) -> None:
    nodes.does(nodes.root, lambda author: rename(author, path(source), path(target)))


def _link(nodes: Nodes, new: str, target: str) -> None:
    nodes.does(nodes.root, lambda author: make_link(author, path(new), path(target)))


def _move_out(nodes: Nodes, way: str) -> list[str]:
    """Move `/lab/d/f` out of `/lab`; returns its names."""
    match way:
        case "file":
            _move(nodes, "/lab/d/f", "/secret/f")
        case "tree":
            _move(nodes, "/lab/d", "/secret/f")
            return ["/secret/f/f"]
        case "in two steps":
            _move(nodes, "/lab/d/f", "/lab/f")
            _move(nodes, "/lab/f", "/secret/f")
        case "by a link":
            _link(nodes, "/secret/f", "/lab/d/f")
            nodes.does(nodes.root, lambda author: author.remove(path("/lab/d/f"), directory=False))
        case "with its other name":
            _link(nodes, "/secret/g", "/lab/d/f")
            _move(nodes, "/lab/d/f", "/secret/f")
            return ["/secret/f", "/secret/g"]
        case "with a name in the same tree":
            _link(nodes, "/lab/d/g", "/lab/d/f")
            _move(nodes, "/lab/d", "/secret/f")
            return ["/secret/f/f", "/secret/f/g"]
        case "and linked then":
            _move(nodes, "/lab/d/f", "/secret/f")
            _link(nodes, "/etc/f", "/secret/f")
            return ["/secret/f", "/etc/f"]
        case "over a file with another name":
            nodes.does(nodes.root, lambda author: author.write(path("/secret/f"), b"old"))
            _link(nodes, "/secret/old", "/secret/f")
            _move(nodes, "/lab/d/f", "/secret/f")
            assert nodes.at("/secret/old")[0] == b"old"
    return ["/secret/f"]


@pytest.mark.parametrize("writer", ["root", "another key"])
@pytest.mark.parametrize(
    "way",
    [
        "file",
        "tree",
        "in two steps",
        "by a link",
        "with its other name",
        "with a name in the same tree",
        "and linked then",
        "over a file with another name",
    ],
)
def test_no_key_of_a_directory_writes_what_was_moved_out_of_it(nodes: Nodes, way: str, writer: str) -> None:
    nodes.does(nodes.root, lambda author: author.make_directory(path("/lab")))
    nodes.does(nodes.root, lambda author: author.make_directory(path("/lab/d")))
    nodes.does(nodes.root, lambda author: author.write(path("/lab/d/f"), b"good", mode=0o640))
    if writer == "another key":
        nodes.does(nodes.root, lambda author: author.grant(path("/lab"), b"bob", BOB.public))
        nodes.signs(nodes.tip("/lab/d/f"), Action.WRITE, "f", key=BOB)
        nodes.signs(nodes.tip("/lab/d/f"), Action.MODE, "f", encode_mode(0o640, None), key=BOB)
    else:
        nodes.does(nodes.root, lambda author: author.write(path("/lab/d/f"), b""))
    last = nodes.tip("/lab/d/f")
    names = _move_out(nodes, way)
    before = [nodes.at(name) for name in names]
    assert before == [(b"", 0o640)] * len(names)
    # On another node at the same time, or later.
    nodes.does(nodes.root, lambda author: author.grant(path("/lab"), b"alice", ALICE.public))
    for key in (ALICE, BOB) if writer == "another key" else (ALICE,):
        write = nodes.signs(last, Action.WRITE, "f", key=key)
        nodes.signs(last, Action.MODE, "f", encode_mode(0o666, None), key=key)
        nodes.signs(write.hash, Action.MODE, "f", encode_mode(0o606, None), key=key)
    assert [nodes.at(name) for name in names] == before
    nodes.writes(names[0], b"better")
    assert nodes.at(names[0]) == (b"better", 0o640)


@pytest.fixture
def moved(nodes: Nodes) -> Entry:
    """`/lab/f` is `/secret/f` now, and Alice has a key for `/lab`; the last entry of the file."""
    nodes.does(nodes.root, lambda author: author.make_directory(path("/lab")))
    nodes.does(nodes.root, lambda author: author.write(path("/lab/f"), b"good", mode=0o640))
    last = nodes.root.entries[nodes.tip("/lab/f")]
    _move(nodes, "/lab/f", "/secret/f")
    nodes.does(nodes.root, lambda author: author.grant(path("/lab"), b"alice", ALICE.public))
    return last


@pytest.mark.parametrize("what", ["write", "mode", "revoke", "accept", "restore"])
def test_no_key_has_its_changes_brought_to_a_moved_file(nodes: Nodes, moved: Entry, what: str) -> None:
    """By what the administrator does at the old path, where they are shown again."""
    nodes.does(nodes.alice, lambda author: author.reverter.path(path("/lab/f"), moved.hash))
    nodes.does(nodes.alice, lambda author: author.write(path("/lab/f"), b"evil", mode=0o666))
    root = nodes.root
    if what == "write":
        nodes.writes("/lab/f", b"evil, corrected")
    elif what == "mode":
        nodes.does(root, lambda author: author.set_attributes(path("/lab/f"), mode=0o604))
    elif what == "revoke":
        nodes.does(root, lambda author: author.revoke(path("/lab"), b"alice", ALICE.fingerprint))
    elif what == "accept":
        nodes.signs(moved.hash, Action.WRITE, "f")
        nodes.does(root, lambda author: author.reverter.accept(path("/lab/f")))
    else:
        evil = nodes.tip("/lab/f")
        nodes.does(root, lambda author: author.remove(path("/lab/f"), directory=False))
        nodes.does(root, lambda author: author.reverter.path(path("/lab/f"), evil))
    assert nodes.at("/secret/f") == (b"good", 0o640)


@pytest.mark.parametrize("version", ["last", "before"])
def test_what_is_written_to_a_moved_file_goes_to_no_other(nodes: Nodes, moved: Entry, version: str) -> None:
    """Although one of the same origin is at the old path again."""
    back = moved.hash if version == "last" else moved.parent
    nodes.does(nodes.alice, lambda author: author.reverter.path(path("/lab/f"), back))
    nodes.does(nodes.alice, lambda author: author.set_attributes(path("/lab/f"), mode=0o666))
    nodes.does(nodes.root, lambda author: author.set_attributes(path("/secret/f"), mode=0o600))
    assert nodes.at("/secret/f") == (b"good", 0o600)
    nodes.writes("/secret/f", b"secret")
    assert nodes.at("/secret/f") == (b"secret", 0o600)
    assert nodes.at("/lab/f") == (b"good", 0o666)


@pytest.mark.parametrize("way", ["tree", "path", "symbolic link"])
def test_a_first_name_that_is_replaced_leaves_the_others_to_no_key(nodes: Nodes, way: str) -> None:
    root = nodes.root
    nodes.does(root, lambda author: author.make_directory(path("/lab")))
    nodes.does(root, lambda author: author.write(path("/lab/f"), b"old"))
    old = nodes.tip("/lab/f")
    nodes.does(root, lambda author: author.remove(path("/lab/f"), directory=False))
    moment = root.replica.totals()["entries"]
    nodes.does(root, lambda author: author.write(path("/lab/f"), b"good"))
    last = nodes.tip("/lab/f")
    _link(nodes, "/secret/f", "/lab/f")
    if way == "tree":
        nodes.does(root, lambda author: author.reverter.tree(path("/lab"), moment))
    elif way == "path":
        nodes.does(root, lambda author: author.reverter.path(path("/lab/f"), old))
    else:
        nodes.does(root, lambda author: make_symlink(author, path("/lab/f"), b"elsewhere", replace=True))
    nodes.does(root, lambda author: author.grant(path("/lab"), b"alice", ALICE.public))
    nodes.signs(last, Action.WRITE, "f")
    assert nodes.at("/secret/f") == (b"good", 0o644)


def test_a_symbolic_link_that_was_moved_is_changed_by_no_key_of_its_old_directory(nodes: Nodes) -> None:
    nodes.does(nodes.root, lambda author: author.make_directory(path("/lab")))
    nodes.does(nodes.root, lambda author: make_symlink(author, path("/lab/f"), b"good"))
    last = nodes.tip("/lab/f")
    _move(nodes, "/lab/f", "/secret/f")
    nodes.does(nodes.root, lambda author: author.grant(path("/lab"), b"alice", ALICE.public))
    nodes.signs(last, Action.MODE, "f", encode_mode(0o777, Owner(b"evil", b"evil", 1, 1)))
    for node in (nodes.root, nodes.alice):
        assert node.replica.attributes(path("/secret/f")).owner is None


# -- the law ----------------------------------------------------------------------------------------------------------

DIRECTORIES = ("/web", "/web/d", "/etc", "/etc/d", "/secret")
PLACES = [path(text) for text in ("/web/x", "/web/y", "/web/d/x", "/web/d/y", "/web/d", "/web/e", "/etc/x", "/etc/d/x")]
PLACES += [path(text) for text in ("/etc/y", "/etc/d", "/secret/z")]
SMALL = st.integers(0, 31)
ACTIONS = (
    Action.WRITE,
    Action.WRITE,
    Action.MODE,
    Action.REVERT,
    Action.REVERT,
    Action.LINK,
    Action.LINK,
    Action.LINK,
    Action.DELETE,
    Action.ACK,
    Action.MKDIR,
    Action.MKDIR,
    Action.SLINK,
    Action.GRANT,
    Action.REVOKE,
)


class Act(NamedTuple):
    """What somebody does: choices, taken modulo what there is."""

    what: int
    where: int
    other: int


def acts(most: int) -> st.SearchStrategy[list[Act]]:
    """Strategy for what somebody does."""
    return st.lists(st.builds(Act, SMALL, SMALL, SMALL), max_size=most)


class Stage:
    """A filesystem of the root key, whose holder has granted Alice `/web`, on one node."""

    def __init__(self, directory: Path) -> None:
        self.replica = make_replica(directory, (ROOT_KEY,))
        self.node = Node(self.replica)
        self._made = 0
        for text in DIRECTORIES:
            self.user(lambda author, text=text: author.make_directory(path(text)))  # type: ignore[misc]
        self.user(lambda author: author.write(path(SECRET), b"good", mode=0o600))
        self.user(lambda author: author.grant(path("/web"), b"alice", ALICE.public))

    def user(self, make: Callable[[Author], Draft]) -> None:
        """A user of the root key commits, or is told that it is impossible."""
        with contextlib.suppress(PathError, StoreError):
            self.replica.commit(make)

    def does(self, act: Act, *, inside: bool) -> None:
        """The user does something; `inside`: below `/web` alone."""
        live = [(at, kind) for at, kind in self.replica.live_paths() if len(at) > 1 and (not inside or at[0] == b"web")]
        places = [place for place in PLACES if not inside or place[0] == b"web"]
        target = places[act.other % len(places)]
        source, kind = live[act.where % len(live)] if live else (target, Kind.FILE)
        # Alice has a key for `/web` alone.
        whom = (ALICE, BOB)[act.other % 2] if source[:1] == (b"web",) else BOB
        makes: list[Callable[[Author], Draft]] = [
            lambda author: author.write(target, b"root %d" % act.where),
            lambda author: rename(author, source, target),
            lambda author: rename(author, source, target),
            lambda author: make_link(author, target, source),
            lambda author: author.set_attributes(source, mode=(0o600, 0o644, 0o666)[act.other % 3]),
            lambda author: author.remove(source, directory=kind is Kind.DIRECTORY),
            lambda author: author.make_directory(target),
            lambda author: make_symlink(author, target, b"elsewhere"),
            lambda author: self._reverts(author, act, inside),
            lambda author: author.reverter.accept(source),
            lambda author: author.grant(source, b"key", whom.public),
            lambda author: author.revoke(source, b"key", whom.fingerprint, discard=bool(act.where % 2)),
        ]
        self.user(makes[act.what % len(makes)])

    def _reverts(self, author: Author, act: Act, inside: bool) -> Draft:
        entries = [entry for entry in self.entries() if entry.action in (Action.WRITE, Action.LINK, Action.MKDIR)]
        entry = entries[-1 - act.other % len(entries)]
        place = author.past.path_of(entry.hash)
        return Draft() if inside and place[:1] != (b"web",) else author.reverter.path(place, entry.hash)

    def entries(self) -> list[Entry]:
        """All that is in the log."""
        return [Entry.decode(raw) for raw in self.replica.walk(())]

    def alice(self, act: Act) -> None:
        """Alice signs anything behind anything, and names anything."""
        entries = self.entries()
        parent = entries[-1 - act.where % len(entries)]
        action = ACTIONS[act.what % len(ACTIONS)]
        if action in KEY_ACTIONS or action is Action.MKDIR:
            # Where that is possible.
            parent = [entry for entry in entries if entry.action is Action.MKDIR][-1 - act.where % 4]
        name = parent.name
        if parent.action is Action.MKDIR and action in CHILD_ACTIONS and act.other % 4:
            name = (b"x", b"y", b"d", b"e")[act.other % 4]
        content, extensions, blocks = b"", NO_EXTENSIONS, list[Block]()
        if action is Action.WRITE:
            content, blocks = in_blocks(b"evil%d" % (act.other % 3))
            extensions = Extensions(size=5)
        elif action is Action.MODE:
            content = encode_mode(0o666, None)
        elif action in (Action.LINK, Action.REVERT):
            content = bytes(entries[-1 - act.other % len(entries)].hash)
        elif action is Action.SLINK:
            content = b"/evil"
        elif action is Action.GRANT:
            content = (ALICE, BOB)[act.other % 2].public
        elif action is Action.REVOKE:
            content = bytes((ALICE, BOB, ROOT_KEY)[act.other % 3].fingerprint)
        self._made += 1
        with contextlib.suppress(InvalidEntry):
            entry = ALICE.sign(parent.hash, self._made, action, name, content, extensions)
            self.replica.apply([entry], blocks)
            fetch(self.replica, {block.hash: block for block in blocks})

    def outside(self) -> dict[tuple[bytes, ...], object]:
        """All that is shown outside of `/web`, and the keys there."""
        found: dict[tuple[bytes, ...], object] = {}
        for at, kind in self.replica.live_paths():
            if at and at[0] != b"web":
                it = self.replica.attributes(at)
                content = b"" if kind is Kind.DIRECTORY else self.replica.read(at)
                found[at] = kind, it.mode, it.owner, content, keys_at(self.replica, at)
        return found


@part(2)
@given(acts(14), acts(14), acts(14), acts(6))
def test_what_the_holder_of_a_directory_signs_changes_nothing_outside_of_it(
    first: list[Act], alices: list[Act], more: list[Act], last: list[Act]
) -> None:
    """Nor does what anybody does in the directory then, with what she has left there."""
    with tempfile.TemporaryDirectory(dir=memory()) as directory:
        stage = Stage(Path(directory, "log"))
        try:
            for number, act in enumerate(first):
                stage.does(act, inside=False)
                if number % 3 == 2:
                    stage.alice(act)
            before = stage.outside()
            for act in alices:
                stage.alice(act)
                assert stage.outside() == before
            for act in more:
                stage.does(act, inside=True)
                assert stage.outside() == before
            for act in last:
                stage.alice(act)
            stage.user(lambda author: author.revoke(path("/web"), b"alice", ALICE.fingerprint))
            assert stage.outside() == before
            assert stage.replica.check_view() == []
        finally:
            stage.replica.close()
