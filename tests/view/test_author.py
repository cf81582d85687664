"""The author: what users do becomes entries that have the wanted effect, here and on every other replica."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

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
    PermissionDenied,
)
from basefs.log.entries import MAX_CONTENT, Action
from basefs.log.extensions import MAX_TIME, MIN_TIME
from basefs.log.keys import SigningKey
from basefs.path import MAX_NAME
from basefs.view.author import Author
from basefs.view.draft import Draft
from basefs.view.signer import clamp_time
from basefs.view.states import Kind, Owner
from tests.support.helpers import (
    ALICE,
    BOB,
    CAROL,
    DAVE,
    KEY_NAMES,
    ROOT_KEY,
    STRANGER,
    Node,
    genesis,
    make_replica,
    noise,
    path,
    tree_of,
)
from tests.support.names import make_link, make_symlink, rename
from tests.view.users import User


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    """Somebody with the root key."""
    user = User(tmp_path, ROOT_KEY)
    yield user
    user.replica.close()


# -- one save is one entry --------------------------------------------------------------------------------------------


def test_an_unchanged_save_costs_nothing(user: User) -> None:
    assert len(user.writes("/f", b"same").entries) == 1
    assert user.writes("/f", b"same").entries == ()
    assert len(user.writes("/f", b"other").entries) == 1


def test_default_modes_cost_nothing(user: User) -> None:
    assert len(user.does(lambda author: author.write(path("/f"), b"x", mode=0o644)).entries) == 1
    assert len(user.does(lambda author: author.write(path("/g"), b"x", mode=0o600)).entries) == 2
    assert len(user.does(lambda author: author.make_directory(path("/d"), mode=0o755)).entries) == 1
    assert user.sees()["/g"].mode == 0o600


def test_mode_and_owner_survive_a_write(user: User) -> None:
    user.does(lambda author: author.write(path("/f"), b"x", mode=0o640, owner=Owner(b"root", b"adm", 0, 4)))
    user.writes("/f", b"y")
    shown = user.sees()["/f"]
    assert (shown.mode, shown.owner, shown.content) == (0o640, Owner(b"root", b"adm", 0, 4), b"y")


def test_twelve_bits_are_kept(user: User) -> None:
    user.writes("/f", b"x")
    user.does(lambda author: author.set_attributes(path("/f"), mode=0o17751))
    assert user.sees()["/f"].mode == 0o7751


def test_utimens(user: User) -> None:
    user.writes("/f", b"x")
    user.does(lambda author: author.set_attributes(path("/f"), mtime=5))
    assert user.sees()["/f"].mtime == 5


def test_times_that_an_entry_cannot_store() -> None:
    assert [clamp_time(time) for time in (-(2**70), -1, 0, 2**70)] == [MIN_TIME, -1, 0, MAX_TIME]


def test_symbolic_link(user: User) -> None:
    user.does(lambda author: make_symlink(author, path("/s"), b"../x"))
    assert user.replica.read(path("/s")) == b"../x"


def test_made_again_after_a_delete(user: User) -> None:
    user.writes("/x", b"file")
    user.removes("/x")
    user.makes("/x")
    user.writes("/x/f", b"in it")
    user.removes("/x/f")
    user.removes("/x")
    user.writes("/x", b"again")
    assert user.sees()["/x"].content == b"again"


def test_what_is_made_again_does_not_inherit_grants(user: User) -> None:
    user.makes("/d")
    user.does(lambda author: author.grant(path("/d"), b"bob", BOB.public))
    assert user.sees()["/d"].keys == (("alice", 0), ("bob", 1), ("root", 0))
    user.removes("/d")
    user.makes("/d")
    assert user.sees()["/d"].keys == (("alice", 0), ("root", 0))


# -- links and renames -------------------------------------------------------------------------------------------------


def test_a_link_begins_as_its_target_is_and_goes_its_own_way(user: User) -> None:
    user.writes("/f", b"one")
    owner = Owner(b"root", b"adm", 0, 4)
    user.does(
        lambda author: author.set_attributes(path("/f"), mode=0o600, owner=owner, mtime=7, xattrs=((b"user.a", b"1"),))
    )
    (entry,) = user.links("/g", "/f").entries
    link = user.replica.attributes(path("/g"))
    assert entry.action is Action.LINK
    assert (link.mode, link.owner, link.mtime, link.xattrs) == (0o600, owner, 7, ((b"user.a", b"1"),))
    user.writes("/f", b"two")
    user.does(lambda author: author.set_attributes(path("/g"), mode=0o640))
    user.links("/h", "/g")
    user.writes("/g", b"three")
    shown = user.sees()
    assert [(shown[name].content, shown[name].mode) for name in ("/f", "/g", "/h")] == [
        (b"two", 0o600),
        (b"three", 0o640),
        (b"one", 0o640),
    ]
    user.removes("/f")
    assert user.sees()["/h"].content == b"one"


def test_a_write_behind_a_link_is_a_delta_on_the_content_that_it_names(user: User) -> None:
    text = noise(1, 4000)
    user.writes("/f", text)
    user.links("/g", "/f")
    applied = user.writes("/g", text + b"more")
    assert sum(len(block.data) for block in applied.blocks) < 1000
    assert user.sees()["/g"].content == text + b"more"


def test_rename_of_a_file(user: User) -> None:
    user.writes("/f", b"x")
    assert len(user.moves("/f", "/g").entries) == 2
    assert user.sees()["/g"].content == b"x"
    assert "/f" not in user.sees()


def test_rename_to_and_fro(user: User) -> None:
    user.writes("/f", b"x")
    for source, target in [("/f", "/g"), ("/g", "/f")] * 3:
        user.moves(source, target)
    shown = user.sees()
    assert shown["/f"].content == b"x"
    assert "/g" not in shown


def test_a_name_moved_back_can_be_written(user: User) -> None:
    user.writes("/f", b"x")
    user.moves("/f", "/g")
    user.moves("/g", "/f")
    user.writes("/f", b"y")
    user.moves("/f", "/g")
    user.writes("/g", b"z")
    shown = user.sees()
    assert shown["/g"].content == b"z"
    assert "/f" not in shown


def test_log_rotation(user: User) -> None:
    for number in range(8):
        user.writes("/log", b"%d" % number)
        for source, target in [("/log.1", "/log.2"), ("/log", "/log.1")]:
            if path(source) in {names for names, _ in user.replica.live_paths()}:
                user.moves(source, target)
    shown = user.sees()
    assert (shown["/log.1"].content, shown["/log.2"].content) == (b"7", b"6")
    assert "/log" not in shown


def test_rename_over_a_file_is_a_link_in_its_place(user: User) -> None:
    user.writes("/f", b"old")
    user.does(lambda author: author.write(path("/tmp"), b"new", mode=0o600))
    applied = user.moves("/tmp", "/f")
    assert [entry.action for entry in applied.entries] == [Action.LINK, Action.DELETE]
    shown = user.sees()
    assert (shown["/f"].content, shown["/f"].mode) == (b"new", 0o600)
    assert "/tmp" not in shown


def test_rename_of_a_directory(user: User) -> None:
    user.makes("/a", "/a/b", "/a/b/c", "/x")
    user.does(lambda author: author.set_attributes(path("/a/b"), mode=0o700))
    user.writes("/a/f", b"1")
    user.writes("/a/b/g", b"2")
    user.does(lambda author: make_symlink(author, path("/a/b/s"), b"t"))
    user.moves("/a", "/x/y")
    shown = user.sees()
    assert not any(name == "/a" or name.startswith("/a/") for name in shown)
    assert (shown["/x/y/f"].content, shown["/x/y/b/g"].content, shown["/x/y/b/s"].content) == (b"1", b"2", b"t")
    assert shown["/x/y/b"].mode == 0o700
    assert shown["/x/y/b/c"].kind is Kind.DIRECTORY


def test_rename_of_a_directory_over_an_empty_one(user: User) -> None:
    user.makes("/a", "/b")
    user.writes("/b/f", b"old")
    user.removes("/b/f")
    user.writes("/a/f", b"new")
    user.moves("/a", "/b")
    shown = user.sees()
    assert shown["/b/f"].content == b"new"
    assert "/a" not in shown


def test_rename_of_a_link_over_a_file(user: User) -> None:
    user.writes("/f", b"one")
    user.writes("/other", b"two")
    user.links("/g", "/f")
    user.moves("/g", "/other")
    shown = user.sees()
    assert shown["/other"].content == b"one"
    assert "/g" not in shown


# -- keys -------------------------------------------------------------------------------------------------------------


def test_revoke_acknowledges_what_the_key_signed_last(tmp_path: Path) -> None:
    user = User(tmp_path, ROOT_KEY)
    user.makes("/d")
    user.does(lambda author: author.grant(path("/d"), b"bob", BOB.public))
    bob = Node(make_replica(tmp_path / "bob", (BOB,), born=list(user.node.entries.values())))
    for name, content in {"/d/f": b"1", "/d/g": b"2"}.items():
        applied = bob.replica.commit(lambda author, n=name, c=content: author.write(path(n), c))  # type: ignore[misc]
        user.node.receive(applied.entries, applied.blocks)
    user.does(lambda author: author.revoke(path("/d"), b"bob", BOB.fingerprint))
    shown = user.sees()
    assert (shown["/d/f"].content, shown["/d/g"].content) == (b"1", b"2")
    assert shown["/d"].keys == (("alice", 0), ("root", 0))


def test_revoke_may_discard_what_the_key_signed_last(tmp_path: Path) -> None:
    user = User(tmp_path, ROOT_KEY)
    user.makes("/d")
    user.does(lambda author: author.grant(path("/d"), b"bob", BOB.public))
    bob = Node(make_replica(tmp_path / "bob", (BOB,), born=list(user.node.entries.values())))
    applied = bob.replica.commit(lambda author: author.write(path("/d/f"), b"1"))
    user.node.receive(applied.entries, applied.blocks)
    user.does(lambda author: author.revoke(path("/d"), b"bob", BOB.fingerprint, discard=True))
    assert "/d/f" not in user.sees()


def test_grant_after_revoke(user: User) -> None:
    user.makes("/d")
    user.writes("/d/f", b"x")
    for place in ("/d", "/d/f"):
        for _ in range(2):
            user.does(lambda author, place=place: author.grant(path(place), b"b", BOB.public))  # type: ignore[misc]
            assert ("bob", len(path(place))) in user.sees()[place].keys
            user.does(
                lambda author, place=place: author.revoke(path(place), b"b", BOB.fingerprint)  # type: ignore[misc]
            )
            assert user.sees()[place].keys == (("alice", 0), ("root", 0))


def test_revoke_on_a_file_that_was_written_since(user: User) -> None:
    user.writes("/f", b"1")
    user.does(lambda author: author.grant(path("/f"), b"bob", BOB.public))
    user.writes("/f", b"2")
    assert user.sees()["/f"].keys == (("alice", 0), ("bob", 1), ("root", 0))
    user.does(lambda author: author.revoke(path("/f"), b"bob", BOB.fingerprint))
    assert user.sees()["/f"].keys == (("alice", 0), ("root", 0))


def test_grant_after_a_revoke_that_was_concurrent_with_a_grant(tmp_path: Path) -> None:
    user = User(tmp_path, ROOT_KEY)
    user.makes("/d")
    made = user.does(lambda author: author.grant(path("/d"), b"bob", BOB.public)).entries[0].parent
    user.does(lambda author: author.grant(path("/d"), b"carol", CAROL.public))
    user.node.receive([ROOT_KEY.sign(made, 1, Action.REVOKE, b"bob", BOB.fingerprint)], [])
    assert user.sees()["/d"].keys == (("alice", 0), ("carol", 1), ("root", 0))
    user.does(lambda author: author.grant(path("/d"), b"bob", BOB.public))
    assert user.sees()["/d"].keys == (("alice", 0), ("bob", 1), ("carol", 1), ("root", 0))


def test_a_node_with_several_keys_revokes_with_one_that_can(tmp_path: Path) -> None:
    # Of equal keys the one with the lowest fingerprint signs, but only the root key may take back what it granted.
    other = next(key for key in (ALICE, BOB, CAROL, DAVE, STRANGER) if key.fingerprint < ROOT_KEY.fingerprint)
    user = User(tmp_path, ROOT_KEY, other)
    last = list(user.node.entries)[-1]
    third = next(key for key in (BOB, CAROL) if key is not other)
    for key in (other, third):
        grant = ROOT_KEY.sign(last, 1, Action.GRANT, b"key", key.public)
        user.node.receive([grant], [])
        last = grant.hash
    user.does(lambda author: author.revoke((), b"key", third.fingerprint))
    assert dict(user.sees()["/"].keys) == dict.fromkeys(("root", "alice", KEY_NAMES[other.fingerprint]), 0)


@pytest.mark.parametrize("keys", [(ROOT_KEY, ALICE), (ALICE, ROOT_KEY)])
def test_acks_are_not_signed_by_the_key_that_is_revoked(tmp_path: Path, keys: tuple[SigningKey, ...]) -> None:
    user = User(tmp_path, *keys)
    user.node.receive([ALICE.sign(genesis()[0].hash, 1, Action.WRITE, b"f")], [])
    user.does(lambda author: author.revoke((), b"alice", ALICE.fingerprint))
    shown = user.sees()
    assert shown["/"].keys == (("root", 0),)
    assert "/f" in shown


def test_keys_are_granted_on_a_link_to_a_file_and_on_no_symbolic_link(user: User) -> None:
    user.writes("/f", b"x")
    user.links("/g", "/f")
    user.does(lambda author: author.grant(path("/g"), b"bob", BOB.public))
    user.writes("/g", b"y")
    shown = user.sees()
    assert ("bob", 1) in shown["/g"].keys and ("bob", 1) not in shown["/f"].keys
    user.does(lambda author: make_symlink(author, path("/s"), b"f"))
    with pytest.raises(NotPermitted):
        user.does(lambda author: author.grant(path("/s"), b"b", BOB.public))


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda author: author.make_directory(path("/d")), Exists),
        (lambda author: author.make_directory(()), Exists),
        (lambda author: author.make_directory(path("/f/x")), NotADirectory),
        (lambda author: author.make_directory(path("/none/x")), NotFound),
        (lambda author: author.make_directory((b"x" * (MAX_NAME + 1),)), NameTooLong),
        *[
            (lambda author, name=name: author.make_directory((name,)), InvalidName)
            for name in (b"", b".", b"..", b"a/b", b"/", b"a\x00")
        ],
        (lambda author: author.write(path("/d"), b"x"), IsADirectory),
        (lambda author: author.write((), b"x"), IsADirectory),
        (lambda author: make_symlink(author, path("/s"), b"x" * (MAX_CONTENT + 1)), NameTooLong),
        (lambda author: make_symlink(author, path("/s"), b""), NameTooLong),
        (lambda author: author.remove((), directory=True), NotPermitted),
        (lambda author: author.remove(path("/d"), directory=True), NotEmpty),
        (lambda author: author.remove(path("/d"), directory=False), IsADirectory),
        (lambda author: author.remove(path("/f"), directory=True), NotADirectory),
        (lambda author: author.remove(path("/none"), directory=False), NotFound),
    ],
)
def test_refused(user: User, make: Callable[[Author], Draft], error: type[PathError]) -> None:
    user.makes("/d", "/e")
    user.writes("/f", b"x")
    user.writes("/d/f", b"y")
    before = user.sees()
    with pytest.raises(error):
        user.does(make)
    assert user.sees() == before


def test_a_path_has_up_to_4096_bytes(user: User) -> None:
    user.makes("/d")
    user.writes("/d/f", b"x")
    top = (b"x" * MAX_NAME,) * 15
    for depth in range(1, len(top) + 1):
        user.does(lambda author, depth=depth: author.make_directory(top[:depth]))  # type: ignore[misc]
    user.does(lambda author: author.make_directory((*top, b"y" * MAX_NAME)))
    makes: list[Callable[[Author], Draft]] = [
        lambda author: author.make_directory((*top, b"y" * MAX_NAME, b"z")),
        lambda author: author.write((*top, b"y" * MAX_NAME, b"z"), b""),
        lambda author: make_symlink(author, (*top, b"y" * MAX_NAME, b"z"), b"f"),
        lambda author: make_link(author, (*top, b"y" * MAX_NAME, b"z"), path("/d/f")),
        lambda author: rename(author, path("/d/f"), (*top, b"y" * MAX_NAME, b"z")),
        # What is in it would have a longer path.
        lambda author: rename(author, path("/d"), (*top, b"z" * 254)),
    ]
    before = user.sees()
    for make in makes:
        with pytest.raises(NameTooLong):
            user.does(make)
    assert user.sees() == before
    user.does(lambda author: rename(author, path("/d"), (*top, b"z" * 253)))


@pytest.mark.parametrize(
    "make",
    [
        lambda author: author.make_directory(path("/x")),
        lambda author: author.write(path("/x"), b""),
        lambda author: author.write(path("/f"), b"y"),
        lambda author: author.remove(path("/f"), directory=False),
        lambda author: rename(author, path("/f"), path("/d/f")),
        lambda author: rename(author, path("/d/g"), path("/f")),
        lambda author: make_link(author, path("/x"), path("/f")),
        lambda author: author.set_attributes(path("/f"), mode=0o600),
        lambda author: author.grant((), b"s", STRANGER.public),
        lambda author: author.revoke((), b"a", ALICE.fingerprint),
    ],
)
def test_refused_without_a_key_for_the_path(tmp_path: Path, make: Callable[[Author], Draft]) -> None:
    root = User(tmp_path, ROOT_KEY)
    root.makes("/d")
    root.writes("/f", b"x")
    root.does(lambda author: author.grant(path("/d"), b"bob", BOB.public))
    bob = Node(make_replica(tmp_path / "bob", (BOB,), born=list(root.node.entries.values())))
    bob.receive([], list(root.node.blocks.values()))
    bob.replica.commit(lambda author: author.write(path("/d/g"), b"g"))
    before = tree_of(bob.replica)
    with pytest.raises(PermissionDenied):
        bob.replica.commit(make)
    assert tree_of(bob.replica) == before
    assert bob.replica.attributes(path("/d")).writable
    assert not bob.replica.attributes(path("/f")).writable
