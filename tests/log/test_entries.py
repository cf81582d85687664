"""Entries: strict decoding, one encoding each."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basefs.errors import InvalidEntry
from basefs.log.entries import (
    MAX_CONTENT,
    MAX_ENTRY,
    MAX_SIZE,
    MAX_TIMESTAMP,
    SIGNATURE_SIZE,
    TAG,
    Action,
    Entry,
    check_fields,
)
from basefs.log.hashes import FINGERPRINT_SIZE, HASH_SIZE, EntryHash, Fingerprint, sha224
from basefs.path import MAX_NAME

PARENT = bytes(range(HASH_SIZE))
TRAILER = b"f" * FINGERPRINT_SIZE + b"s" * SIGNATURE_SIZE
CONTENTS = {
    Action.MKDIR: b"",
    Action.WRITE: b"h" * HASH_SIZE,
    Action.DELETE: b"",
    Action.REVERT: b"h" * HASH_SIZE,
    Action.GRANT: b"k" * 32,
    Action.REVOKE: b"f" * FINGERPRINT_SIZE,
    Action.ACK: b"",
    Action.LINK: b"h" * HASH_SIZE,
    Action.SLINK: b"target",
    Action.MODE: b"\x01\xa4",
}


def make(action: Action = Action.WRITE, **changes: object) -> Entry:
    """An entry of an action, with default fields."""
    fields: dict[str, object] = {
        "parent": PARENT,
        "timestamp": 1,
        "action": action,
        "name": b"name",
        "content": CONTENTS[action],
        "size": 7 if action is Action.WRITE else 0,
        "fingerprint": TRAILER[:FINGERPRINT_SIZE],
        "signature": TRAILER[FINGERPRINT_SIZE:],
        **changes,
    }
    return Entry(**fields)  # type: ignore[arg-type]


def raw(
    action: int = Action.WRITE,
    *,
    tag: int = TAG,
    name: bytes = b"\x04name",
    content: bytes = bytes((HASH_SIZE,)) + b"h" * HASH_SIZE,
    size: bytes = b"\x07",
) -> bytes:
    """An encoding put together by hand, right or wrong."""
    return bytes((tag,)) + PARENT + b"\x00\x00\x00\x01" + bytes((action,)) + name + content + size + TRAILER


NAMES = st.binary(min_size=1, max_size=MAX_NAME).filter(
    lambda name: b"/" not in name and b"\x00" not in name and name not in (b".", b"..")
)


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    """Any valid entry, signature aside."""
    action = draw(st.sampled_from(Action))
    content, size = CONTENTS[action], 0
    if action is Action.WRITE and draw(st.booleans()):
        content = b""
    elif action is Action.WRITE:
        size = draw(st.integers(1, MAX_SIZE))
    elif action is Action.SLINK:
        content = draw(st.binary(min_size=1, max_size=300)).replace(b"\x00", b"0")
    elif action is Action.MODE:
        content = draw(st.binary(min_size=2, max_size=200))
    return make(
        action,
        parent=draw(st.binary(min_size=HASH_SIZE, max_size=HASH_SIZE)),
        timestamp=draw(st.integers(0, MAX_TIMESTAMP)),
        name=draw(NAMES),
        content=content,
        size=size,
    )


@given(entries())
def test_decode_inverts_encode(entry: Entry) -> None:
    decoded = Entry.decode(entry.encode())
    assert decoded == entry
    assert decoded.hash == entry.hash == sha224(entry.encode()[:-SIGNATURE_SIZE])


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A valid encoding with some bytes changed, removed or added."""
    data = bytearray(draw(entries()).encode())
    for _ in range(draw(st.integers(1, 3))):
        position = draw(st.integers(0, len(data)))
        match draw(st.integers(0, 2)):
            case 0:
                data[position : position + 1] = bytes((draw(st.integers(0, 255)),))
            case 1:
                del data[position : position + draw(st.integers(1, 8))]
            case _:
                data[position:position] = draw(st.binary(min_size=1, max_size=8))
    return bytes(data)


@given(st.binary(max_size=400) | damaged())
def test_any_bytes_are_an_entry_with_this_encoding_or_refused(data: bytes) -> None:
    try:
        entry = Entry.decode(data)
    except InvalidEntry:
        return
    assert entry.encode() == data


def test_what_is_put_together_by_hand_is_what_encode_makes() -> None:
    assert raw() == make().encode()


@pytest.mark.parametrize("action", Action)
def test_cut_anywhere(action: Action) -> None:
    data = make(action).encode()
    # A cut entry might be another one, if its last bytes make sense: never the same.
    for end in range(len(data)):
        try:
            assert Entry.decode(data[:end]).hash != make(action).hash
        except InvalidEntry:
            continue


@pytest.mark.parametrize("action", [action for action in Action if action is not Action.WRITE])
def test_trailing_bytes(action: Action) -> None:
    with pytest.raises(InvalidEntry):
        Entry.decode(make(action).encode() + b"x")


AT_THE_LIMIT = [
    make(name=b"n" * MAX_NAME),
    make(Action.GRANT, name=b"n" * MAX_NAME),
    make(Action.GRANT, name=b""),
    make(Action.GRANT, name=b"a/b"),
    make(Action.SLINK, content=b"t" * MAX_CONTENT),
    make(Action.SLINK, content=b"t"),
    make(Action.MODE, content=b"\x01\xa4"),
    make(size=MAX_SIZE),
    make(size=1),
    make(content=b"", size=0),
    make(timestamp=0),
    make(timestamp=MAX_TIMESTAMP),
    make(Action.MKDIR, name=b"/"),
    make(name=b"..."),
    make(name=b"\xff\n"),
]


@pytest.mark.parametrize("entry", AT_THE_LIMIT, ids=range(len(AT_THE_LIMIT)))
def test_accepted_at_the_limit(entry: Entry) -> None:
    assert Entry.decode(entry.encode()) == entry


def test_the_longest_entry() -> None:
    longest = make(Action.SLINK, name=b"n" * MAX_NAME, content=b"t" * MAX_CONTENT)
    assert len(longest.encode()) == MAX_ENTRY - 6, "a symbolic link has no size"
    with pytest.raises(InvalidEntry):
        Entry.decode(longest.encode() + b"x" * 7)


BEYOND = {
    "name empty": raw(name=b"\x00"),
    "name with slash": raw(name=b"\x03a/b"),
    "name with NUL": raw(name=b"\x03a\x00b"),
    "name of this directory": raw(name=b"\x01."),
    "name of the directory above": raw(name=b"\x02.."),
    "key name with NUL": raw(Action.GRANT, name=b"\x03a\x00b", content=b"\x20" + b"k" * 32, size=b""),
    "name longer than the rest": raw(name=b"\xffname"),
    "tag 0": raw(tag=0),
    "tag 2": raw(tag=2),
    "action 0": raw(0),
    "action 11": raw(max(Action) + 1),
    "target one byte too long": raw(Action.SLINK, content=b"\x80\x20" + b"t" * 4096, size=b""),
    "target empty": raw(Action.SLINK, content=b"\x00", size=b""),
    "target with NUL": raw(Action.SLINK, content=b"\x03a\x00b", size=b""),
    "content length not minimal": raw(content=bytes((HASH_SIZE | 0x80, 0)) + b"h" * HASH_SIZE),
    "content length of three bytes": raw(Action.SLINK, content=b"\x80\x80\x01" + b"t" * 16384, size=b""),
    "content longer than the rest": raw(content=b"\xff\x01" + b"h" * HASH_SIZE),
    "size with a leading zero": raw(size=b"\x00\x07"),
    "size of one zero byte": raw(content=b"\x00", size=b"\x00"),
    "size of seven bytes": raw(size=b"\x01" * 7),
    "size without blocks": raw(content=b"\x00", size=b"\x07"),
    "blocks without size": raw(size=b""),
    **{
        f"{action.name.lower()} with a size": raw(
            action, content=bytes((len(CONTENTS[action]),)) + CONTENTS[action], size=b"\x07"
        )
        for action in Action
        if action is not Action.WRITE
    },
    **{
        f"{action.name.lower()} with a content one byte longer": raw(
            action,
            content=bytes((len(CONTENTS[action]) + 1,)) + CONTENTS[action] + b"x",
            size=b"\x07" if action is Action.WRITE else b"",
        )
        for action in Action
        if action not in (Action.SLINK, Action.MODE)
    },
    **{
        f"{action.name.lower()} with a content one byte shorter": raw(
            action,
            content=bytes((len(CONTENTS[action]) - 1,)) + CONTENTS[action][1:],
            size=b"\x07" if action is Action.WRITE else b"",
        )
        for action in Action
        if CONTENTS[action] and action is not Action.SLINK
    },
}


@pytest.mark.parametrize("data", BEYOND.values(), ids=BEYOND.keys())
def test_refused(data: bytes) -> None:
    with pytest.raises(InvalidEntry):
        Entry.decode(data)


def test_action_numbers_never_change() -> None:
    assert {action.name: action.value for action in Action} == {
        "MKDIR": 1, "WRITE": 2, "DELETE": 3, "REVERT": 4, "GRANT": 5,
        "REVOKE": 6, "ACK": 7, "LINK": 8, "SLINK": 9, "MODE": 10,
    }  # fmt: skip


def test_the_hash_covers_all_but_the_signature() -> None:
    entry = make()
    assert dataclasses.replace(entry, signature=b"x" * SIGNATURE_SIZE).hash == entry.hash
    for change in (
        {"parent": EntryHash(PARENT[::-1])}, {"timestamp": 2}, {"action": Action.LINK, "size": 0}, {"name": b"x"},
        {"content": b"i" * HASH_SIZE}, {"size": 8}, {"fingerprint": Fingerprint(b"g" * FINGERPRINT_SIZE)},
    ):  # fmt: skip
        assert dataclasses.replace(entry, **change).hash != entry.hash


def test_only_mkdir_slash_is_a_root() -> None:
    assert make(Action.MKDIR, name=b"/").is_root
    assert not make(Action.MODE, name=b"/").is_root
    assert not make(Action.MKDIR).is_root


def test_what_is_signed_obeys_the_same_rules() -> None:
    with pytest.raises(InvalidEntry):
        check_fields(Action.WRITE, b"a/b", b"", 0)
