"""States: all that a directory tree has goes into the log and comes back."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basefs.errors import InvalidEntry, NotPermitted, TooLarge
from basefs.log.content import BytesContent
from basefs.log.entries import Action, Entry
from basefs.log.extensions import MAX_TIME, MIN_TIME
from basefs.log.treerows import IndexRow, TreeRows
from basefs.view.author import Author
from basefs.view.draft import Draft, End
from basefs.view.states import (
    ABSENT,
    MAX_ID,
    MODE_MASK,
    Kind,
    Owner,
    State,
    decode_mode,
    encode_mode,
    encode_node,
    encode_xattrs,
    step,
)
from tests.support.helpers import ALICE, ROOT_KEY, make_replica, path, tree_of
from tests.support.names import make_node, make_symlink
from tests.view.users import User

NAMES = st.binary(max_size=255).filter(lambda name: b"\0" not in name)
IDS = st.integers(0, MAX_ID)
OWNERS = st.builds(Owner, NAMES, NAMES, IDS, IDS)
SHORT = st.binary(min_size=1, max_size=20).filter(lambda name: b"\0" not in name)
XATTRS = st.dictionaries(SHORT.map(lambda name: b"user." + name), st.binary(max_size=100), max_size=8).map(
    lambda found: tuple(sorted(found.items()))
)
DEVICES = st.builds(os.makedev, st.integers(0, 2**12 - 1), st.integers(0, 2**20 - 1))
ROOT = ROOT_KEY.sign(bytes(28), 1, Action.MKDIR, b"/", b"")


@given(st.integers(0, MODE_MASK), OWNERS | st.none())
def test_a_mode_comes_back(mode: int, owner: Owner | None) -> None:
    assert decode_mode(encode_mode(mode, owner)) == (mode, owner)


@given(st.binary(max_size=40))
def test_a_mode_has_one_encoding(content: bytes) -> None:
    try:
        mode, owner = decode_mode(content)
    except InvalidEntry:
        return
    assert encode_mode(mode, owner) == content


@given(XATTRS)
def test_extended_attributes_come_back(xattrs: tuple[tuple[bytes, bytes], ...]) -> None:
    entry = ROOT_KEY.sign(ROOT.hash, 1, Action.XATTR, b"f", encode_xattrs(xattrs))
    assert step(State(Kind.FILE), Entry.decode(entry.encode()), complete=True).xattrs == xattrs


@given(DEVICES, st.sampled_from((Kind.CHARACTER, Kind.BLOCK)))
def test_a_device_comes_back(rdev: int, kind: Kind) -> None:
    entry = ROOT_KEY.sign(ROOT.hash, 1, Action.NODE, b"f", encode_node(kind, rdev))
    state = step(ABSENT, Entry.decode(entry.encode()), complete=True)
    assert (state.kind, state.rdev) == (kind, rdev)


@pytest.mark.parametrize("kind", [Kind.FIFO, Kind.CHARACTER, Kind.BLOCK])
def test_a_node_is_made_replaced_and_linked(tmp_path: Path, kind: Kind) -> None:
    user = User(tmp_path, ROOT_KEY)
    rdev = 0 if kind is Kind.FIFO else os.makedev(8, 300)
    user.does(lambda author: make_node(author, path("/n"), kind, rdev, mode=0o620))
    user.links("/m", "/n")
    user.writes("/n", b"a file")
    found = user.replica.attributes(path("/m"))
    assert (found.kind, found.rdev, found.mode) == (kind, rdev, 0o620)
    assert user.sees()["/n"].content == b"a file"


def test_extended_attributes_belong_to_files_and_directories_and_stay(tmp_path: Path) -> None:
    user = User(tmp_path, ROOT_KEY)
    user.makes("/d")
    user.writes("/f", b"one")
    user.does(lambda author: make_symlink(author, path("/s"), b"f"))
    xattrs = (b"user.b", b"2"), (b"user.a", b"")
    for text in ("/d", "/f", "/s"):
        user.does(lambda author, text=text: author.set_attributes(path(text), xattrs=xattrs))  # type: ignore[misc]
    user.writes("/f", b"two")
    user.does(lambda author: author.set_attributes(path("/f"), mode=0o600))
    assert [user.replica.attributes(path(text)).xattrs for text in ("/d", "/f", "/s")] == [
        tuple(sorted(xattrs)),
        tuple(sorted(xattrs)),
        (),
    ]
    assert not user.does(lambda author: author.set_attributes(path("/f"), xattrs=xattrs)).entries
    user.does(lambda author: author.set_attributes(path("/f"), xattrs=()))
    assert user.replica.attributes(path("/f")).xattrs == ()


def test_what_no_entry_holds_is_refused(tmp_path: Path) -> None:
    user = User(tmp_path, ROOT_KEY)
    user.writes("/f", b"")
    with pytest.raises(TooLarge, match="up to 4095 bytes"):
        user.does(lambda author: author.set_attributes(path("/f"), xattrs=((b"user.a", bytes(4092)),)))
    user.does(lambda author: author.set_attributes(path("/f"), xattrs=((b"user.a", bytes(4091)),)))
    with pytest.raises(NotPermitted, match=r"only attributes named 'user\.\*' are"):
        user.does(lambda author: author.set_attributes(path("/f"), xattrs=((b"security.capability", b"x"),)))


def test_times_beyond_what_a_file_can_have_become_the_nearest(tmp_path: Path) -> None:
    user = User(tmp_path, ROOT_KEY)
    for mtime, kept in ((MIN_TIME - 1, MIN_TIME), (MAX_TIME + 1, MAX_TIME), (-1, -1), (0, 0)):
        user.does(lambda author, m=mtime: author.write(path("/f"), b"%d" % m, mtime=m))  # type: ignore[misc]
        assert user.replica.attributes(path("/f")).mtime == kept
        user.does(lambda author, m=mtime: author.set_attributes(path("/f"), mtime=m))  # type: ignore[misc]
        assert user.replica.attributes(path("/f")).mtime == kept


def test_what_a_publisher_drafts_is_what_is_shown(tmp_path: Path) -> None:
    """One entry behind the other on chosen ends, whatever the view shows meanwhile."""
    replica = make_replica(tmp_path / "one", (ROOT_KEY,))
    owner = Owner(b"root", b"", 0, MAX_ID)
    wanted = State(Kind.FILE, 0o4755, owner, MAX_TIME, xattrs=((b"user.a", b"1"),))
    content = BytesContent(b"text")
    ends: list[End] = []

    def make(author: Author) -> Draft:
        draft, key = Draft(), author.signer.key_for(author.tree.root.authority, ())
        slot = author.slot(path("/f"))
        assert slot is not None
        end = author.make(draft, key, End(b"f", slot, ABSENT), wanted, content)
        link = author.link(draft, key, End(b"g", slot, ABSENT), end, wanted._replace(mode=0o600))
        ends[:] = end, link, author.settle(draft, key, link, link.state)
        return draft

    applied = replica.commit(make)
    assert [entry.action for entry in applied.entries] == [
        Action.WRITE,
        Action.MODE,
        Action.XATTR,
        Action.LINK,
        Action.MODE,
    ]
    assert ends[1] == ends[2]
    for end, mode in ((ends[0], 0o4755), (ends[1], 0o600)):
        outcome = replica.outcomes([(end.name,)])[(end.name,)]
        assert outcome is not None and not outcome.directories
        state = outcome.state
        assert (state, [tip.hash for tip in outcome.tips]) == (end.state, [end.tip])
        assert state._replace(size=0, content=None, origin=None) == wanted._replace(mode=mode)
    replica.close()


def test_a_publisher_ends_what_it_has_seen_and_nothing_else(tmp_path: Path) -> None:
    one, other = (make_replica(tmp_path / name, (key,)) for name, key in (("one", ROOT_KEY), ("other", ROOT_KEY)))
    names = path("/f")
    one.commit(lambda author: author.write(names, b"one"))
    theirs = other.commit(lambda author: author.write(names, b"other"))
    one.apply(theirs.entries, theirs.blocks)
    seen = one.entry_count
    ends = one.plan(lambda author: author.live_ends(names))
    assert len(ends) == 2
    late = other.commit(lambda author: author.write(names, b"late"))
    one.apply(late.entries, late.blocks)

    def remove(author: Author) -> Draft:
        draft, key = Draft(), author.signer.key_for(author.tree.root.authority, ())
        for tip in author.live_ends(names, seen):
            author.delete(draft, key, End(b"f", tip, State(Kind.FILE)))
        return draft

    one.commit(remove)
    assert one.read(names) == b"late"
    one.commit(lambda author: author.remove(names, directory=False))
    assert names not in tree_of(one)
    for replica in (one, other):
        replica.close()


def test_a_name_in_a_directory_that_was_made_again_is_seen(tmp_path: Path) -> None:
    """A removal counts below its own mkdir: `rm -r d; mkdir d; echo > d/x` shows x."""
    user = User(tmp_path, ROOT_KEY, ALICE)
    user.makes("/d")
    user.writes("/d/x", b"one")
    user.removes("/d/x")
    slots = [user.replica.plan(lambda author: author.slot(path("/d/x")))]
    user.removes("/d")
    assert user.replica.plan(lambda author: author.slot(path("/d/x"))) is None
    user.makes("/d")
    slots.append(user.replica.plan(lambda author: author.slot(path("/d/x"))))
    shown = user.replica.outcomes([path("/d")])[path("/d")]
    assert shown is not None and (slots[1],) == shown.directories and slots[1] != slots[0]
    user.writes("/d/x", b"two")
    assert user.sees()["/d/x"].content == b"two"
    assert user.replica.plan(lambda author: author.slot(path("/d/x"))) is None


def test_rows_and_entries_are_one_transaction(tmp_path: Path) -> None:
    replica = make_replica(tmp_path / "log", (ROOT_KEY,))

    def put(*rows: bytes) -> Callable[[TreeRows], None]:
        return lambda tree: tree.put({b"/" + data: IndexRow(None, None, data) for data in rows})

    def kept() -> list[bytes]:
        return sorted(data for _, data in replica.rows(lambda tree: tree.directory(b"/")))

    replica.commit(lambda author: author.write(path("/f"), b""), rows=put(b"f", b"g"))
    assert kept() == [b"f", b"g"]
    with pytest.raises(NotPermitted):
        replica.commit(lambda author: author.remove((), directory=True), rows=put(b"h"))
    assert kept() == [b"f", b"g"]
    replica.keep_rows(lambda tree: tree.put({b"/g": None}))
    assert kept() == [b"f"]
    replica.close()
