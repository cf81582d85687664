"""Entries: strict decoding, one encoding each."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basefs.errors import InvalidEntry, UnsupportedEntry
from basefs.log.blocks import MAX_CONTENT_BYTES, Encoded, most_encoded
from basefs.log.ed25519 import SIGNATURE_SIZE
from basefs.log.entries import (
    MAX_ANNOTATION,
    MAX_CONTENT,
    MAX_ENTRY,
    MAX_MADE,
    TAG,
    Action,
    Entry,
    check_fields,
    encoded_of,
)
from basefs.log.extensions import MAX_TIME, MAX_UNKNOWN, MIN_TIME, NO_EXTENSIONS, Extensions
from basefs.log.hashes import FINGERPRINT_SIZE, HASH_SIZE, BlockHash, EntryHash, Fingerprint, sha224
from basefs.path import MAX_NAME

PARENT = bytes(range(HASH_SIZE))
TRAILER = b"f" * FINGERPRINT_SIZE + b"s" * SIGNATURE_SIZE
#: Seven bytes that are stored as they are.
NAMED = Encoded(BlockHash(b"h" * HASH_SIZE), 0, 7)
CONTENTS = {
    Action.MKDIR: b"",
    Action.WRITE: NAMED.encode(),
    Action.DELETE: b"",
    Action.REVERT: b"h" * HASH_SIZE,
    Action.GRANT: b"k" * 32,
    Action.REVOKE: b"f" * FINGERPRINT_SIZE,
    Action.ACK: b"",
    Action.LINK: b"h" * HASH_SIZE,
    Action.SLINK: b"target",
    Action.MODE: b"\x01\xa4",
    Action.NODE: b"\x01",
    Action.XATTR: b"\x01a\x00\x05value",
    Action.ADMIT: b"k" * 32,
    Action.GOSSIP_KEY: b"s" * 32,
}
SEVEN = Extensions(size=7)


def make(action: Action = Action.WRITE, **changes: object) -> Entry:
    """An entry of an action, with default fields."""
    fields: dict[str, object] = {
        "parent": PARENT,
        "made": 1,
        "action": action,
        "name": b"name",
        "content": CONTENTS.get(action, b""),
        "extensions": SEVEN if action is Action.WRITE else NO_EXTENSIONS,
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
    content: bytes = bytes((HASH_SIZE + 2,)) + NAMED.encode(),
    extensions: bytes = b"\x02\x01\x07",
) -> bytes:
    """An encoding put together by hand, right or wrong."""
    return bytes((tag,)) + PARENT + bytes(7) + b"\x01" + bytes((action,)) + name + content + extensions + TRAILER


def encoded(size: int, length: int) -> bytes:
    """The encoding of a write of so many bytes, and so many when they are encoded."""
    content = Encoded(NAMED.root, 0, length).encode()
    return raw(content=bytes((len(content),)) + content, extensions=Extensions(size).encode())


NAMES = st.binary(min_size=1, max_size=MAX_NAME).filter(
    lambda name: b"/" not in name and b"\x00" not in name and name not in (b".", b"..")
)
TIMES = st.integers(MIN_TIME, MAX_TIME)
STAMPS = st.integers(-MAX_MADE - 1, MAX_MADE)
#: Numbers of extensions that this version ignores.
UNKNOWN = st.integers(1, 127).map(lambda half: 2 * half + 1)


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    """Any valid entry, signature aside."""
    action = draw(st.sampled_from([*Action, Action(64), Action(255)]))
    content, size = CONTENTS.get(action, b"anything"), 0
    if action is Action.WRITE and draw(st.booleans()):
        content = b""
    elif action is Action.WRITE:
        size = draw(st.integers(1, MAX_CONTENT_BYTES))
        content = Encoded(NAMED.root, draw(st.integers(0, 255)), draw(st.integers(1, most_encoded(size)))).encode()
    elif action is Action.SLINK:
        content = draw(st.binary(min_size=1, max_size=300)).replace(b"\x00", b"0")
    elif action is Action.MODE:
        content = draw(st.binary(min_size=2, max_size=200))
    extensions = Extensions(
        size,
        mtime=draw(st.none() | TIMES),
        unknown=tuple(sorted(draw(st.dictionaries(UNKNOWN, st.binary(max_size=19), max_size=3)).items())),
    )
    return make(
        action,
        parent=draw(st.binary(min_size=HASH_SIZE, max_size=HASH_SIZE)),
        made=draw(STAMPS),
        name=draw(NAMES),
        content=content,
        extensions=extensions,
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
    make(extensions=Extensions(size=MAX_CONTENT_BYTES)),
    make(extensions=Extensions(size=1)),
    make(content=b"", extensions=NO_EXTENSIONS),
    make(made=-MAX_MADE - 1),
    make(made=MAX_MADE),
    make(extensions=Extensions(size=7, mtime=MIN_TIME)),
    make(extensions=Extensions(size=7, mtime=MAX_TIME)),
    make(Action.MKDIR, name=b"/", extensions=Extensions(is_open=True)),
    make(Action.DELETE, extensions=Extensions(unknown=((255, b"x" * (MAX_UNKNOWN - 2)),))),
    make(Action.DELETE, extensions=Extensions(unknown=((253, b""), (255, b"x" * (MAX_UNKNOWN - 4))))),
    make(Action.NODE, content=b"\x01"),
    make(Action.NODE, content=b"\x03\x00\x00\x0f\xff\x00\x0f\xff\xff"),
    make(Action.XATTR, content=b""),
    make(Action.XATTR, content=b"\x01a\x00\x00\x01b\x00\x00"),
    make(Action.XATTR, content=b"\xfa" + b"a" * 250 + b"\x0f\x02" + bytes(3842)),
    make(Action(64), content=b""),
    make(Action(255), name=b"", content=bytes(MAX_ANNOTATION)),
    make(Action.MKDIR, name=b"/"),
    make(name=b"..."),
    make(name=b"\xff\n"),
]


@pytest.mark.parametrize("entry", AT_THE_LIMIT, ids=range(len(AT_THE_LIMIT)))
def test_accepted_at_the_limit(entry: Entry) -> None:
    assert Entry.decode(entry.encode()) == entry


def test_the_longest_entry() -> None:
    extensions = Extensions(mtime=MAX_TIME, unknown=((255, b"x" * (MAX_UNKNOWN - 2)),))
    longest = make(Action.SLINK, name=b"n" * MAX_NAME, content=b"t" * MAX_CONTENT, extensions=extensions)
    assert len(longest.encode()) == MAX_ENTRY
    with pytest.raises(InvalidEntry):
        Entry.decode(longest.encode() + b"x")


def _bytes(number: int, size: int) -> bytes:
    return number.to_bytes(size, "big", signed=True)


@pytest.mark.parametrize(
    ("action", "content", "unknown"),
    [
        (Action(64), bytes(MAX_ANNOTATION + 1), ()),
        (Action(255), bytes(MAX_CONTENT), ()),
        (Action.DELETE, b"", ((255, b"x" * (MAX_UNKNOWN - 1)),)),
        (Action.DELETE, b"", ((253, b""), (255, b"x" * (MAX_UNKNOWN - 3)))),
    ],
)
def test_what_this_version_does_not_know_is_small(
    action: Action, content: bytes, unknown: tuple[tuple[int, bytes], ...]
) -> None:
    """No key has a limit on the number of its entries, and every node stores them."""
    with pytest.raises(InvalidEntry, match=f"{MAX_ANNOTATION + 1}|{MAX_CONTENT}|{MAX_UNKNOWN} bytes"):
        check_fields(action, b"name", content, Extensions(unknown=unknown))


BEYOND = {
    "name empty": raw(name=b"\x00"),
    "name with slash": raw(name=b"\x03a/b"),
    "name with NUL": raw(name=b"\x03a\x00b"),
    "name of this directory": raw(name=b"\x01."),
    "name of the directory above": raw(name=b"\x02.."),
    "key name with NUL": raw(Action.GRANT, name=b"\x03a\x00b", content=b"\x20" + b"k" * 32, extensions=b""),
    "name longer than the rest": raw(name=b"\xffname"),
    "tag 0": raw(tag=0),
    "tag 2": raw(tag=2),
    "action 0": raw(0),
    "action 14": raw(max(Action) + 1),
    "action 63": raw(63),
    "target one byte too long": raw(Action.SLINK, content=b"\x80\x20" + b"t" * 4096, extensions=b""),
    "target empty": raw(Action.SLINK, content=b"\x00", extensions=b""),
    "target with NUL": raw(Action.SLINK, content=b"\x03a\x00b", extensions=b""),
    "content length not minimal": raw(content=bytes((HASH_SIZE + 2 | 0x80, 0)) + NAMED.encode()),
    "content length of three bytes": raw(Action.SLINK, content=b"\x80\x80\x01" + b"t" * 16384, extensions=b""),
    "content longer than the rest": raw(content=b"\xff\x01" + b"h" * HASH_SIZE),
    "content without a length": raw(content=bytes((HASH_SIZE + 1,)) + NAMED.encode()[:-1]),
    "encoded content of no byte": raw(content=bytes((HASH_SIZE + 2,)) + NAMED.encode()[:-1] + b"\x00"),
    "encoded length not minimal": raw(content=bytes((HASH_SIZE + 3,)) + NAMED.encode()[:-1] + b"\x87\x00"),
    "encoded content longer than any codec makes it": encoded(7, most_encoded(7) + 1),
    "content larger than a node can hold": encoded(MAX_CONTENT_BYTES + 1, 7),
    "size with a leading zero": raw(extensions=b"\x02\x02\x00\x07"),
    "size of one zero byte": raw(content=b"\x00", extensions=b"\x02\x01\x00"),
    "size of no byte": raw(content=b"\x00", extensions=b"\x02\x00"),
    "size of seven bytes": raw(extensions=b"\x02\x07" + b"\x01" * 7),
    "size without blocks": raw(content=b"\x00"),
    "blocks without size": raw(extensions=b""),
    "time of no byte": raw(extensions=b"\x01\x00\x02\x01\x07"),
    "time with a leading byte": raw(extensions=b"\x01\x02\x00\x07\x02\x01\x07"),
    "time before 1901": raw(extensions=b"\x01\x08" + _bytes(MIN_TIME - 1, 8) + b"\x02\x01\x07"),
    "time behind 2446": raw(extensions=b"\x01\x09" + _bytes(MAX_TIME + 1, 9) + b"\x02\x01\x07"),
    "open directory": raw(Action.MKDIR, content=b"\x00", extensions=b"\x04\x00"),
    "open mode of the root": raw(Action.MODE, name=b"\x01/", content=b"\x02\x01\xff", extensions=b"\x04\x00"),
    "open with a value": raw(Action.MKDIR, name=b"\x01/", content=b"\x00", extensions=b"\x04\x01\x01"),
    "extension twice": raw(extensions=b"\x02\x01\x07" * 2),
    "extensions out of order": raw(extensions=b"\x02\x01\x07\x01\x08" + bytes(8)),
    "extension cut off": raw(extensions=b"\x02\x01\x07\x05"),
    "extension longer than the rest": raw(extensions=b"\x02\x01\x07\x05\x02a"),
    "length of an extension not minimal": raw(extensions=b"\x02\x81\x00\x07"),
    "unknown even extension": raw(extensions=b"\x02\x01\x07\x0a\x00"),
    "more extensions than there is room for": raw(
        extensions=b"\x02\x01\x07\x05\xfe\x07" + bytes(1022),
    ),
    "node of kind 0": raw(Action.NODE, content=b"\x01\x00", extensions=b""),
    "node of kind 4": raw(Action.NODE, content=b"\x09\x04" + bytes(8), extensions=b""),
    "fifo with numbers": raw(Action.NODE, content=b"\x09\x01" + bytes(8), extensions=b""),
    "device without numbers": raw(Action.NODE, content=b"\x01\x03", extensions=b""),
    "device with a major number of 13 bits": raw(
        Action.NODE, content=b"\x09\x02\x00\x00\x10\x00" + bytes(4), extensions=b""
    ),
    "device with a minor number of 21 bits": raw(
        Action.NODE, content=b"\x09\x02" + bytes(4) + b"\x00\x10\x00\x00", extensions=b""
    ),
    "attribute without a name": raw(Action.XATTR, content=b"\x03\x00\x00\x00", extensions=b""),
    "attribute with NUL in its name": raw(Action.XATTR, content=b"\x05\x02a\x00\x00\x00", extensions=b""),
    "attribute with a name of 251 bytes": raw(
        Action.XATTR, content=b"\xfe\x01\xfb" + b"a" * 251 + b"\x00\x00", extensions=b""
    ),
    "attribute with its name cut off": raw(Action.XATTR, content=b"\x03\x03ab", extensions=b""),
    "attribute with its value cut off": raw(Action.XATTR, content=b"\x05\x01a\x00\x02x", extensions=b""),
    "attribute twice": raw(Action.XATTR, content=b"\x08\x01a\x00\x00\x01a\x00\x00", extensions=b""),
    "attributes out of order": raw(Action.XATTR, content=b"\x08\x01b\x00\x00\x01a\x00\x00", extensions=b""),
    **{
        f"{action.name.lower()} with a size": raw(
            action, content=bytes((len(CONTENTS[action]),)) + CONTENTS[action], extensions=b"\x02\x01\x07"
        )
        for action in Action
        if action is not Action.WRITE
    },
    **{
        f"{action.name.lower()} with a content one byte longer": raw(
            action,
            content=bytes((len(CONTENTS[action]) + 1,)) + CONTENTS[action] + b"x",
            extensions=b"\x02\x01\x07" if action is Action.WRITE else b"",
        )
        for action in Action
        if action not in (Action.SLINK, Action.MODE, Action.XATTR)
    },
    **{
        f"{action.name.lower()} with a content one byte shorter": raw(
            action,
            content=bytes((len(CONTENTS[action]) - 1,)) + CONTENTS[action][1:],
            extensions=b"\x02\x01\x07" if action is Action.WRITE else b"",
        )
        for action in Action
        if CONTENTS[action] and action not in (Action.SLINK, Action.XATTR)
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
        "NODE": 11, "XATTR": 12, "ADMIT": 13, "GOSSIP_KEY": 65,
    }  # fmt: skip


def test_the_hash_covers_all_but_the_signature() -> None:
    entry = make()
    assert dataclasses.replace(entry, signature=b"x" * SIGNATURE_SIZE).hash == entry.hash
    for change in (
        {"parent": EntryHash(PARENT[::-1])}, {"made": 2}, {"action": Action.LINK, "extensions": NO_EXTENSIONS},
        {"name": b"x"}, {"content": b"i" * HASH_SIZE}, {"extensions": Extensions(size=8)},
        {"fingerprint": Fingerprint(b"g" * FINGERPRINT_SIZE)},
    ):  # fmt: skip
        assert dataclasses.replace(entry, **change).hash != entry.hash


def test_only_mkdir_slash_is_a_root() -> None:
    assert make(Action.MKDIR, name=b"/").is_root
    assert not make(Action.MODE, name=b"/").is_root
    assert not make(Action.MKDIR).is_root


def test_what_is_signed_obeys_the_same_rules() -> None:
    with pytest.raises(InvalidEntry):
        check_fields(Action.WRITE, b"a/b", b"", NO_EXTENSIONS)


@pytest.mark.parametrize("data", [raw(14), raw(extensions=b"\x02\x01\x07\x0a\x00")])
def test_an_entry_of_a_later_version_says_what_to_upgrade(data: bytes) -> None:
    with pytest.raises(UnsupportedEntry, match="upgrade the package basefs on this node"):
        Entry.decode(data)


def test_an_unknown_annotation_is_an_entry() -> None:
    entry = Entry.decode(make(Action(200), content=b"later").encode())
    assert entry.action.is_annotation and not entry.action.is_state
    assert entry.action.name == "ANNOTATION_200"
    assert {action for action in Action if action.is_annotation} == {Action.GOSSIP_KEY}
    with pytest.raises(ValueError):
        Action(256)


def test_the_time_of_a_file_is_that_of_the_entry_unless_it_has_another() -> None:
    assert make(Action.MKDIR, made=5).mtime == 5
    assert make(Action.MKDIR, made=5, extensions=Extensions(mtime=-1)).mtime == -1


def test_the_content_of_an_entry_is_found_without_decoding_it() -> None:
    assert encoded_of(make().encode()) == make().encoded == NAMED
    for other in (make(content=b"", extensions=NO_EXTENSIONS), make(Action.LINK)):
        assert encoded_of(other.encode()) is other.encoded is None


def test_the_longest_encoding_of_a_content_is_accepted() -> None:
    assert Entry.decode(encoded(7, most_encoded(7))).encoded == NAMED._replace(length=most_encoded(7))
