"""No key reaches farther than its directory by what it arranges for another node's key to do.

Alice holds a key for `/web`.  What she signs there meets a node with a key for `/`, whose users write, change modes,
move, back up and remove.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from basefs.log.entries import Action, Entry
from basefs.log.hashes import EntryHash
from basefs.log.keys import SigningKey
from basefs.view.author import Author
from basefs.view.draft import Draft
from basefs.view.states import encode_mode
from tests.support.helpers import ALICE, BOB, ROOT_KEY, Node, make_replica, path
from tests.view.stories import Story, above

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

    def at(self, text: str) -> tuple[bytes, int, int]:
        """Content, mode and number of names of a file, on both nodes."""
        found = set()
        for node in (self.root, self.alice):
            it = node.replica.attributes(path(text))
            found.add((node.replica.read(path(text)), it.mode, it.links))
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
    assert nodes.at("/web/x") == (b"good", 0o666, 1)
    nodes.writes("/web/x", b"evil")
    assert nodes.at(SECRET) == (b"good", 0o600, 1)
    assert nodes.at("/web/x") == (b"evil", 0o666, 1)


def test_chmod_of_a_copy_changes_no_other_mode(nodes: Nodes) -> None:
    nodes.signs(nodes.tip("/web"), Action.LINK, "x", nodes.origin(SECRET))
    nodes.does(nodes.root, lambda author: author.set_attributes(path("/web/x"), mode=0o644))
    assert nodes.at(SECRET) == (b"good", 0o600, 1)
    assert nodes.at("/web/x") == (b"good", 0o644, 1)


def test_a_copy_stays_what_it_was(nodes: Nodes) -> None:
    nodes.signs(nodes.tip("/web"), Action.LINK, "x", nodes.origin(SECRET))
    nodes.writes(SECRET, b"better")
    assert nodes.at("/web/x") == (b"good", 0o644, 1)
    nodes.does(nodes.root, lambda author: author.make_link(path("/web/y"), path("/web/x")))
    nodes.writes("/web/y", b"new")
    assert nodes.at("/web/x")[0] == b"new"
    assert nodes.at(SECRET) == (b"better", 0o600, 1)


def test_a_link_to_a_link_reaches_no_farther(nodes: Nodes) -> None:
    nodes.does(nodes.root, lambda author: author.make_link(path("/web/shared"), path(SECRET)))
    nodes.signs(nodes.tip("/web"), Action.LINK, "x", nodes.tip("/web/shared"))
    assert nodes.at(SECRET)[2] == 2
    nodes.writes("/web/x", b"evil")
    assert nodes.at(SECRET) == (b"good", 0o600, 2)


def test_a_mode_behind_a_link_of_others_parts_the_name_from_the_file(nodes: Nodes) -> None:
    nodes.does(nodes.root, lambda author: author.make_link(path("/web/shared"), path(SECRET)))
    nodes.does(nodes.alice, lambda author: author.set_attributes(path("/web/shared"), mode=0o666))
    assert nodes.at(SECRET) == (b"good", 0o600, 1)
    nodes.writes("/web/shared", b"evil")
    assert nodes.at(SECRET) == (b"good", 0o600, 1)
    assert nodes.at("/web/shared") == (b"evil", 0o666, 1)


def test_names_of_a_file_whose_first_name_is_gone_stay_one_file(nodes: Nodes) -> None:
    nodes.does(nodes.root, lambda author: author.make_link(path("/web/one"), path(SECRET)))
    nodes.does(nodes.root, lambda author: author.make_link(path("/web/two"), path(SECRET)))
    nodes.does(nodes.root, lambda author: author.remove(path(SECRET), directory=False))
    nodes.does(nodes.alice, lambda author: author.set_attributes(path("/web/one"), mode=0o640))
    assert nodes.at("/web/one") == nodes.at("/web/two") == (b"good", 0o640, 2)
    nodes.does(nodes.alice, lambda author: author.write(path("/web/two"), b"more"))
    assert nodes.at("/web/one") == nodes.at("/web/two") == (b"more", 0o640, 2)


def test_a_revert_to_a_link_of_others_is_a_copy(nodes: Nodes) -> None:
    nodes.does(nodes.root, lambda author: author.make_link(path("/web/x"), path(SECRET)))
    link = nodes.tip("/web/x")
    nodes.does(nodes.root, lambda author: author.remove(path("/web/x"), directory=False))
    gone = next(entry for entry in nodes.root.entries.values() if entry.parent == link)
    nodes.signs(gone.hash, Action.REVERT, "x", link)
    nodes.writes("/web/x", b"evil")
    assert nodes.at(SECRET) == (b"good", 0o600, 1)


@pytest.mark.parametrize("over", [False, True])
def test_a_file_that_was_moved_away_follows_no_key_of_its_old_directory(nodes: Nodes, over: bool) -> None:
    nodes.does(nodes.alice, lambda author: author.write(path("/web/conf"), b"first"))
    if over:
        nodes.writes("/etc/conf", b"before")
        # A file with two names is not rewritten in place.
        nodes.does(nodes.root, lambda author: author.make_link(path("/etc/other"), path("/etc/conf")))
    tip = nodes.tip("/web/conf")
    nodes.does(nodes.root, lambda author: author.rename(path("/web/conf"), path("/etc/conf")))
    nodes.signs(tip, Action.WRITE, "conf")
    nodes.signs(tip, Action.MODE, "conf", encode_mode(0o666, None))
    assert nodes.at("/etc/conf") == (b"first", 0o644, 1)


def test_a_directory_that_was_moved_away_follows_no_key_of_its_old_place(nodes: Nodes) -> None:
    nodes.does(nodes.alice, lambda author: author.make_directory(path("/web/d")))
    nodes.does(nodes.alice, lambda author: author.write(path("/web/d/f"), b"first"))
    nodes.does(nodes.alice, lambda author: author.make_symlink(path("/web/d/s"), b"target"))
    tips = nodes.tip("/web/d/f"), nodes.tip("/web/d/s")
    nodes.does(nodes.root, lambda author: author.rename(path("/web/d"), path("/etc/d")))
    nodes.signs(tips[0], Action.WRITE, "f")
    nodes.signs(tips[1], Action.REVERT, "s", tips[0])
    assert nodes.at("/etc/d/f")[0] == b"first"
    assert nodes.root.replica.read_link(path("/etc/d/s")) == b"target"


def test_a_file_that_moves_where_the_same_keys_write_stays_the_same_file(nodes: Nodes) -> None:
    nodes.does(nodes.alice, lambda author: author.write(path("/web/f"), b"first"))
    began = nodes.origin("/web/f")
    nodes.does(nodes.root, lambda author: author.rename(path("/web/f"), path("/web/g")))
    assert nodes.origin("/web/g") == began


def test_a_backup_over_a_copy_leaves_the_file_alone(nodes: Nodes) -> None:
    """An editor moves the old version aside, over what lies there."""
    nodes.writes("/web/conf", b"old")
    nodes.signs(nodes.tip("/web"), Action.LINK, "conf~", nodes.origin(SECRET))
    nodes.does(nodes.root, lambda author: author.rename(path("/web/conf"), path("/web/conf~")))
    nodes.writes("/web/conf", b"new")
    assert nodes.at("/web/conf~")[0] == b"old"
    assert nodes.at(SECRET) == (b"good", 0o600, 1)


def test_rm_r_removes_names_of_its_directory_alone(nodes: Nodes) -> None:
    nodes.signs(nodes.tip("/web"), Action.LINK, "x", nodes.origin(SECRET))
    nodes.does(nodes.root, lambda author: author.make_link(path("/web/shared"), path(SECRET)))
    for name in ("/web/x", "/web/shared"):
        nodes.does(nodes.root, lambda author, name=name: author.remove(path(name), directory=False))  # type: ignore[misc]
    nodes.does(nodes.root, lambda author: author.remove(path("/web"), directory=True))
    assert nodes.at(SECRET) == (b"good", 0o600, 1)


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


def test_a_revoke_leaves_names_of_a_file_together(nodes: Nodes) -> None:
    nodes.does(nodes.root, lambda author: author.grant(path("/secret"), b"alice", ALICE.public))
    nodes.does(nodes.alice, lambda author: author.make_link(path("/web/x"), path(SECRET)))
    nodes.writes(SECRET, b"better")
    assert nodes.at("/web/x") == nodes.at(SECRET) == (b"better", 0o600, 2)
    nodes.does(nodes.root, lambda author: author.revoke(path("/secret"), b"alice", ALICE.fingerprint))
    assert nodes.at("/web/x") == nodes.at(SECRET) == (b"better", 0o600, 2)


def test_a_revoke_on_either_of_two_directories_that_are_one_ends_a_link(tmp_path: Path) -> None:
    story = Story(tmp_path)
    made = story.mkdir(ROOT_KEY, story.root, "d")
    again = story.mkdir(ROOT_KEY, story.root, "d", above(made))
    secret = story.write(ROOT_KEY, made, b"good", "f")
    story.grant(ROOT_KEY, made, ALICE)
    web = story.mkdir(ROOT_KEY, story.root, "web")
    story.grant(ROOT_KEY, web, ALICE)
    link = story.link(ALICE, web, secret, "x")
    story.mode(ALICE, link, 0o644)
    replica = story.replica(ROOT_KEY)
    assert replica.attributes(path("/d/f")).links == 2
    replica.close()
    story.revoke(ROOT_KEY, again, ALICE)
    replica = story.replica(ROOT_KEY)
    replica.commit(lambda author: author.write(path("/web/x"), b"evil"))
    assert (replica.read(path("/d/f")), replica.attributes(path("/d/f")).links) == (b"good", 1)
    replica.close()


def _move(nodes: Nodes, source: str, target: str) -> None:
    nodes.does(nodes.root, lambda author: author.rename(path(source), path(target)))


def _link(nodes: Nodes, new: str, target: str) -> None:
    nodes.does(nodes.root, lambda author: author.make_link(path(new), path(target)))


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
    assert before == [(b"", 0o640, len(names))] * len(names)
    # On another node at the same time, or later.
    nodes.does(nodes.root, lambda author: author.grant(path("/lab"), b"alice", ALICE.public))
    for key in (ALICE, BOB) if writer == "another key" else (ALICE,):
        write = nodes.signs(last, Action.WRITE, "f", key=key)
        nodes.signs(last, Action.MODE, "f", encode_mode(0o666, None), key=key)
        nodes.signs(write.hash, Action.MODE, "f", encode_mode(0o606, None), key=key)
    assert [nodes.at(name) for name in names] == before
    nodes.writes(names[0], b"better")
    assert {nodes.at(name)[:2] for name in names} == {(b"better", 0o640)}


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
    assert nodes.at("/secret/f") == (b"good", 0o640, 1)


@pytest.mark.parametrize("version", ["last", "before"])
def test_what_is_written_to_a_moved_file_goes_to_no_other(nodes: Nodes, moved: Entry, version: str) -> None:
    """Although one of the same origin is at the old path again."""
    back = moved.hash if version == "last" else moved.parent
    nodes.does(nodes.alice, lambda author: author.reverter.path(path("/lab/f"), back))
    nodes.does(nodes.alice, lambda author: author.set_attributes(path("/lab/f"), mode=0o666))
    nodes.does(nodes.root, lambda author: author.set_attributes(path("/secret/f"), mode=0o600))
    assert nodes.at("/secret/f") == (b"good", 0o600, 1)
    nodes.writes("/secret/f", b"secret")
    assert nodes.at("/secret/f") == (b"secret", 0o600, 1)
    assert nodes.at("/lab/f") == (b"good", 0o666, 1)


def test_moved_names_that_follow_other_keys_are_two_files(nodes: Nodes) -> None:
    nodes.does(nodes.root, lambda author: author.make_directory(path("/lab")))
    nodes.does(nodes.root, lambda author: author.grant(path("/lab"), b"alice", ALICE.public))
    nodes.does(nodes.root, lambda author: author.write(path("/lab/f"), b"good"))
    last = nodes.tip("/lab/f")
    _link(nodes, "/secret/f", "/lab/f")
    _move(nodes, "/lab/f", "/lab/g")
    assert nodes.at("/lab/g") == nodes.at("/secret/f") == (b"good", 0o644, 2)
    nodes.signs(last, Action.WRITE, "f")
    assert (nodes.at("/lab/g")[::2], nodes.at("/secret/f")[::2]) == ((b"", 1), (b"good", 1))
    nodes.writes("/lab/g", b"new")
    nodes.writes("/secret/f", b"secret")
    assert (nodes.at("/lab/g")[0], nodes.at("/secret/f")[0]) == (b"new", b"secret")


def test_a_copy_that_was_moved_stays_a_copy(nodes: Nodes) -> None:
    nodes.signs(nodes.tip("/web"), Action.LINK, "x", nodes.origin(SECRET))
    _move(nodes, "/web/x", "/etc/x")
    # The link could be another name of the file from now on.
    nodes.does(nodes.root, lambda author: author.grant(path("/secret"), b"alice", ALICE.public))
    nodes.writes("/etc/x", b"new")
    assert nodes.at(SECRET) == (b"good", 0o600, 1)


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
        nodes.does(root, lambda author: author.make_symlink(path("/lab/f"), b"elsewhere", replace=True))
    nodes.does(root, lambda author: author.grant(path("/lab"), b"alice", ALICE.public))
    nodes.signs(last, Action.WRITE, "f")
    assert nodes.at("/secret/f") == (b"good", 0o644, 1)


def test_a_symbolic_link_that_was_moved_is_changed_by_no_key_of_its_old_directory(nodes: Nodes) -> None:
    nodes.does(nodes.root, lambda author: author.make_directory(path("/lab")))
    nodes.does(nodes.root, lambda author: author.make_symlink(path("/lab/f"), b"good"))
    last = nodes.tip("/lab/f")
    _move(nodes, "/lab/f", "/secret/f")
    nodes.does(nodes.root, lambda author: author.grant(path("/lab"), b"alice", ALICE.public))
    nodes.signs(last, Action.MODE, "f", encode_mode(0o777, (b"evil", b"evil")))
    for node in (nodes.root, nodes.alice):
        assert node.replica.attributes(path("/secret/f")).owner is None


def test_changes_by_a_key_above_both_directories_follow_a_move(nodes: Nodes) -> None:
    nodes.does(nodes.root, lambda author: author.make_directory(path("/lab")))
    nodes.does(nodes.root, lambda author: author.write(path("/lab/f"), b"good", mode=0o640))
    nodes.does(nodes.root, lambda author: author.grant((), b"bob", BOB.public))
    nodes.does(nodes.root, lambda author: author.grant(path("/lab"), b"alice", ALICE.public))
    last = nodes.tip("/lab/f")
    _move(nodes, "/lab/f", "/secret/f")
    # Bob's node has received no move, and Alice may write at the old path alone.
    write = nodes.signs(last, Action.WRITE, "f", key=BOB)
    nodes.signs(last, Action.MODE, "f", encode_mode(0o666, None))
    assert nodes.at("/secret/f")[:2] == (b"", 0o640)
    # The file ends with the first change by another key, whoever goes on then.
    evil = nodes.signs(write.hash, Action.MODE, "f", encode_mode(0o600, None))
    nodes.signs(evil.hash, Action.ACK, "f", key=BOB)
    assert nodes.at("/secret/f")[:2] == (b"", 0o640)


def test_a_move_within_a_directory_takes_the_file_from_none_of_its_keys(nodes: Nodes) -> None:
    nodes.does(nodes.root, lambda author: author.write(path("/web/f"), b"good"))
    last = nodes.tip("/web/f")
    _move(nodes, "/web/f", "/web/g")
    nodes.signs(last, Action.WRITE, "f")
    assert nodes.at("/web/g")[0] == b""


def test_a_file_with_a_name_where_a_key_is_granted_is_shared(nodes: Nodes) -> None:
    nodes.does(nodes.root, lambda author: author.make_directory(path("/lab")))
    nodes.does(nodes.root, lambda author: author.write(path("/lab/f"), b"good"))
    _link(nodes, "/etc/f", "/lab/f")
    # The first name stays, so the link at the new path has no mark.
    _move(nodes, "/etc/f", "/secret/f")
    nodes.does(nodes.root, lambda author: author.grant(path("/lab"), b"alice", ALICE.public))
    nodes.signs(nodes.tip("/lab/f"), Action.WRITE, "f")
    assert nodes.at("/secret/f") == nodes.at("/lab/f") == (b"", 0o644, 2)
