"""Lines <-> messages: one table drives both directions."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basefs.errors import LocalProtocolError, RemoteProtocolError
from basefs.log.blocks import SYNC_BLOCK_DATA
from basefs.log.hashes import ZERO_HASH, BlockHash, EntryHash, sha224
from basefs.log.interface import Digest
from basefs.path import MAX_DEPTH, MAX_PATH, path_size
from basefs.sync.wire import codec as fields
from basefs.sync.wire.codec import encode, parse
from basefs.sync.wire.limits import (
    MAX_BLOCKS,
    MAX_DATA_ITEMS,
    MAX_HASHES,
    MAX_ITEMS,
    MAX_LINE,
)
from basefs.sync.wire.messages import (
    BlockReq,
    Blocks,
    Close,
    Entries,
    EntryReq,
    Eof,
    Graft,
    Hash,
    Have,
    ItemKind,
    Ls,
    Part,
    PathReq,
    Prune,
    Refusal,
    Refuse,
    Root,
    Same,
    Wait,
)

A = EntryHash(sha224(b"a"))
B = BlockHash(sha224(b"b"))
a, b, zero = (fields.encode_bytes(hash) for hash in (A, B, ZERO_HASH))

CASES = [
    (Same(18375), b"SAME 18375"),
    (Wait(), b"WAIT"),
    (Root(Digest(A, 12, 3, 4), 8), b"ROOT %s 12 3 4 - 8" % a),
    (Root(Digest(A, 12, 3, 4, B), 0), b"ROOT %s 12 3 4 %s 0" % (a, b)),
    (Have(A, 0x1A05), b"HAVE %s 1a05" % a),
    (Prune(), b"PRUNE"),
    (Graft(), b"GRAFT"),
    (Hash(3, A, Digest(B, 3), 18375), b"HASH 3 %s %s 3 0 0 - 18375 -" % (a, b)),
    (Hash(3, A, Digest(B, 3, 2, 5), 0, full=True), b"HASH 3 %s %s 3 2 5 - 0 full" % (a, b)),
    (Ls((), Part()), b"LS / -"),
    (Ls((b"etc", b"a b"), Part(), entries=(A,)), b"LS /etc/a%%20b - e:%s" % a),
    (Ls((), Part(), children=((b"\xff:", B),)), b"LS / - c:%s:%%FF%%3A" % b),
    (Ls((), Part(ItemKind.ENTRIES, A.hex()[:2]), entries=(A,)), b"LS / e%s e:%s" % (A.hex()[:2].encode(), a)),
    (Ls((), Part(ItemKind.CHILDREN, "0f"), child_buckets={"0": B, "f": A}), b"LS / c0f C:0:%s C:f:%s" % (b, a)),
    (Ls((), Part(), entry_buckets={"a": B}, children=((b"n", A),)), b"LS / - E:a:%s c:%s:n" % (b, a)),
    (PathReq((b"a", b"b")), b"PATH_REQ /a/b"),
    (PathReq(()), b"PATH_REQ /"),
    (PathReq((b"a",), (b"b", b"c d")), b"PATH_REQ /a b c%20d"),
    (EntryReq((A,)), b"ENTRY_REQ " + a),
    (BlockReq((B,)), b"BLOCK_REQ " + b),
    (BlockReq((B, BlockHash(A))), b"BLOCK_REQ %s %s" % (b, a)),
    (Entries((b"xyz", b"x")), b"ENTRIES eHl6 eA"),
    (Blocks((ZERO_HASH + b"data",)), b"BLOCKS " + fields.encode_bytes(ZERO_HASH + b"data")),
    (Eof(), b"EOF"),
    (Close(7, Digest(A, 2**53)), b"CLOSE OK 7 %s 9007199254740992 0 0 -" % a),
    (Refuse(Refusal.IDENTITY, "another one"), b"CLOSE NO identity another%20one"),
]


@pytest.mark.parametrize(("message", "line"), CASES, ids=lambda value: type(value).__name__)
def test_both_directions(message, line):
    assert encode(message) == line + b"\n"
    assert parse(line) == message


def test_every_case_is_refused_with_something_behind():
    for message, line in CASES:
        if not isinstance(message, Entries | PathReq):
            with pytest.raises(RemoteProtocolError):
                parse(line + b" x")
        with pytest.raises(RemoteProtocolError):
            parse(line + b" ")


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b" ",
        b"hash 1 %s %s 1 0" % (a, a),
        b"HASH 01 %s %s 1 0 0 -" % (a, a),
        b"HASH 3 %s %s 1 0 0 - 65536 -" % (a, a),
        b"HASH 3 %s %s 1 0 0 - -1 -" % (a, a),
        b"HASH 3 %s %s 0" % (a, a),
        b"HASH 3 %s %s -1 0 0 - 0 -" % (a, a),
        b"HASH 3 %s %s 01 0 0 - 0 -" % (a, a),
        b"HASH 3 %s %s 9007199254740993 0 0 - 0 -" % (a, a),
        b"HASH 3 %s %s 1e3 0 0 - 0 -" % (a, a),
        b"HASH 3 %s %s x 0 0 - 0 -" % (a, a),
        b"HASH 3 %s %s 1 -1 0 - 0 -" % (a, a),
        b"HASH 3 %s %s 1 0" % (a, a),
        b"HASH 3 %s %s 1 0 0" % (a, a),
        b"HASH 3 %s %s 1 0 0 - 0 no" % (a, a),
        b"HASH 3 %s %s 1 0 0 - 0 - -" % (a, a),
        b"HASH 3 %s %s 1 0 0 0 -" % (a, a),
        b"HASH 3 %s %s 1 0 1 x 0 -" % (a, a),
        b"HASH 3 %s %s 1 0 0 %s 0 -" % (a, a, a),
        b"HASH 3 %s %s 1 0 1 %s 0 -" % (a, a, fields.encode_bytes(bytes(28))),
        b"HASH 1000 %s %s 1 0 0 -" % (a, a),
        b"HASH",
        b"LS /",
        b"LS etc -",
        b"LS //a -",
        b"LS /a/ -",
        b"LS /%2e -",
        b"LS /.. -",
        b"LS /%2F -",
        b"LS /%00 -",
        b"LS /a%2f -",
        b"LS /%61 -",
        b"LS /a:b -",
        b"LS / e",
        b"LS / x1",
        b"LS / eG",
        b"LS / c" + b"0" * 57,
        b"LS / - e:" + a[:-1],
        b"LS / - e:" + a + b"=",
        b"LS / - e:" + a + b" e:" + a,
        b"LS / - s:" + a,
        b"LS / - s:" + a + b":" + b,
        b"LS / - e:" + a + b" E:0:" + b,
        b"LS / - c:" + a + b":n C:0:" + b,
        b"LS / - C:g:" + b,
        b"LS / - C:0:" + b + b" C:0:" + a,
        b"LS / - q:" + a,
        b"LS / c0 e:" + a,
        b"LS / e%s c:%s:n" % (A.hex()[:1].encode(), a),
        b"LS / e%x e:%s" % ((A[0] >> 4) ^ 1, a),
        b"LS / e%s E:0:%s" % (A.hex().encode(), a),
        b"ENTRY_REQ",
        b"BLOCK_REQ",
        b"BLOCK_REQ %s %s" % (a, a),
        b"BLOCK_REQ " + b" ".join(fields.encode_bytes(sha224(b"%d" % number)) for number in range(MAX_BLOCKS + 1)),
        b"CHAIN_REQ " + a,
        b"BLOCKS_REC " + a,
        b"ENTRIES",
        b"ENTRIES ?",
        b"ENTRIES eHl7=",
        b"ENTRIES eB",
        b"BLOCKS " + fields.encode_bytes(b"x") + b" ",
        b"EOF EOF",
        b"WAIT 1",
        b"PRUNE GRAFT",
        b"SAME",
        b"SAME 65536",
        b"HAVE " + a,
        b"HAVE %s 0" % a,
        b"HAVE %s 01" % a,
        b"HAVE %s 1A" % a,
        b"HAVE %s 1%s" % (a, b"0" * 64),
        b"ROOT " + a,
        b"ROOT %s 1" % a,
        b"ROOT %s 1 0 0 9" % a,
        b"ROOT %s 1 0 0 -1" % a,
        b"ROOT %s -1 0 0 0" % a,
        b"ROOT %s 1 01 0 0" % a,
        b"ROOT %s 9007199254740993 0 0 0" % a,
        b"CLOSE",
        b"CLOSE OK",
        b"CLOSE OK 1 " + a,
        b"CLOSE OK -1 %s 1 0 0" % a,
        b"CLOSE OK 1 %s -1 0 0" % a,
        b"CLOSE OK 1 %s 9007199254740993 0 0" % a,
        b"CLOSE MAYBE 1 " + a,
        b"CLOSE NO identity " + b"x" * 601,
        b"GET / HTTP/1.1",
        b"\xff\xfe\x00",
    ],
)
def test_refused(line):
    with pytest.raises(RemoteProtocolError):
        parse(line)


def test_another_version_is_recognized_whatever_follows():
    assert parse(b"HASH 4 something else entirely").version == 4
    assert parse(b"HASH 999").version == 999


def test_an_unknown_refusal_is_a_failure_and_its_text_is_harmless():
    refuse = parse(b"CLOSE NO cosmic %1B%5B31mred%0A")
    assert refuse == Refuse(Refusal.FAILURE, "?[31mred?")


def test_a_long_refusal_is_cut():
    refuse = parse(encode(Refuse(Refusal.PROTOCOL, "ä" * 1000))[:-1])
    assert refuse.text == "ä" * 100


# Limits: at, and one above


def hashes(count):
    return tuple(EntryHash(sha224(b"%d" % number)) for number in range(count))


def test_items_of_an_ls():
    own = hashes(MAX_ITEMS + 1)
    children = tuple((b"%d" % number, A) for number in range(MAX_ITEMS + 1))
    fits = Ls((), Part(), entries=own[1:], children=children[1:])
    assert parse(encode(fits)[:-1]) == fits
    for ls in (Ls((), Part(), entries=own), Ls((), Part(), children=children)):
        with pytest.raises(RemoteProtocolError):
            parse(encode(ls)[:-1])


def test_hashes_of_a_request():
    for make, most in ((EntryReq, MAX_HASHES), (BlockReq, MAX_BLOCKS)):
        assert parse(encode(make(hashes(most)))[:-1])
        with pytest.raises(RemoteProtocolError):
            parse(encode(make(hashes(most + 1)))[:-1])


def test_names_of_a_request():
    names = tuple(b"%d" % number for number in range(MAX_ITEMS))
    assert parse(encode(PathReq((b"p",), names))[:-1]) == PathReq((b"p",), names)
    longest = tuple(bytes((number,)) * 255 for number in range(200, 200 + MAX_ITEMS))
    deep = (b"\xff" * 255,) * 15
    assert parse(encode(PathReq(deep, longest))[:-1]) == PathReq(deep, longest), "they fit into a line"
    for wrong in ((*names, b"x"), (b"a", b"b", b"a"), (b"a/b",), (b"..",)):
        with pytest.raises(RemoteProtocolError):
            parse(encode(PathReq((b"p",), wrong))[:-1])
    with pytest.raises(RemoteProtocolError):
        parse(encode(PathReq((*deep, b"x" * 254), (b"a", b"bc")))[:-1])


def test_path_length():
    for path in ((b"x" * 255,) * 16, (b"x",) * MAX_DEPTH):
        assert path_size(path) == MAX_PATH or len(path) == MAX_DEPTH
        assert parse(encode(PathReq(path))[:-1]) == PathReq(path)
        with pytest.raises(RemoteProtocolError):
            parse(encode(PathReq((*path[:-1], path[-1], b"x")))[:-1])
    with pytest.raises(RemoteProtocolError):
        parse(b"PATH_REQ /" + b"x" * 256)


def test_block_size():
    assert parse(encode(Blocks((bytes(SYNC_BLOCK_DATA),)))[:-1])
    with pytest.raises(RemoteProtocolError):
        parse(encode(Blocks((bytes(SYNC_BLOCK_DATA + 1),)))[:-1])


def test_items_of_a_parcel():
    for make, item in ((Entries, b"x"), (Blocks, b"x")):
        assert parse(encode(make((item,) * MAX_DATA_ITEMS))[:-1])
        with pytest.raises(RemoteProtocolError):
            parse(encode(make((item,) * (MAX_DATA_ITEMS + 1)))[:-1])


def test_the_longest_ls_fits_into_a_line():
    names = tuple((b"\xff" * 253 + b"%02d" % number, A) for number in range(MAX_ITEMS))
    path = (*(b"\xff" * 255,) * 15, b"\xff" * 255)
    assert path_size(path) == MAX_PATH
    entries = tuple(EntryHash(sha224(b"%d" % number)) for number in range(MAX_ITEMS))
    line = encode(Ls(path, Part(), entries=entries, children=names))
    assert MAX_LINE * 3 // 4 < len(line) <= MAX_LINE


def test_a_longer_line_is_our_own_fault():
    with pytest.raises(LocalProtocolError):
        encode(Blocks((bytes(SYNC_BLOCK_DATA),) * 2))


# Any input


@given(st.binary(max_size=200))
def test_base64_has_one_form(data):
    if data:
        assert fields.decode_bytes(fields.encode_bytes(data)) == data
    with contextlib.suppress(RemoteProtocolError):
        assert fields.encode_bytes(fields.decode_bytes(data)) == data


@given(st.binary(max_size=300))
def test_names_have_one_form(data):
    with contextlib.suppress(RemoteProtocolError):
        assert fields.encode_name(fields.decode_name(data)) == data


@given(st.sampled_from([line for _, line in CASES]), st.data())
def test_mutated_lines_parse_or_are_refused(line, data):
    mutated = bytearray(line)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(mutated)))
        mutated[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    line = bytes(mutated).replace(b"\n", b"")
    try:
        message = parse(line)
    except RemoteProtocolError:
        return
    # One encoding per message; only the order of buckets and items is free, and refusals are read leniently.
    if not isinstance(message, Refuse | Ls | Hash):
        assert encode(message) == line + b"\n"
