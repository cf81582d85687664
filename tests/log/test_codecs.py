"""Codecs: what they make decodes to the same content, and nothing else that arrives does any harm."""

from __future__ import annotations

import bz2
import struct
import zlib

import bsdiff4.core
import pytest
from hypothesis import given
from hypothesis import strategies as st

from basefs.errors import InvalidEntry
from basefs.log import codecs
from basefs.log.blocks import GOSSIP_BLOCK_DATA
from basefs.log.codecs import BSDIFF, CODECS, MAX_BSDIFF, MAX_ZSTD_DICTIONARY, STORED, ZLIB, ZSTD, ContentCodec
from tests.support.helpers import noise

CONTENTS = st.binary(min_size=1, max_size=3000) | st.text(min_size=1).map(lambda text: text.encode() * 20)


def test_tags_never_change() -> None:
    assert {tag: codec.name for tag, codec in CODECS.items()} == {
        0: "stored",
        1: "zlib",
        2: "bsdiff4",
        3: "zstd",
        4: "zstd frame",
    }
    assert [codec.keyframe for codec in CODECS.values()] == [True, True, False, False, True]


@pytest.mark.parametrize("codec", CODECS.values(), ids=lambda codec: codec.name)
@given(new=CONTENTS, old=CONTENTS)
def test_round_trip(codec: ContentCodec, new: bytes, old: bytes) -> None:
    assert codecs.decode(codec.tag, codec.encode(new, old), old, len(new)) == new


@given(new=CONTENTS, old=CONTENTS | st.just(b""), keyframe=st.booleans())
def test_the_choice_is_never_worse_than_storing(new: bytes, old: bytes, keyframe: bool) -> None:
    tag, encoded = codecs.encode(new, old, keyframe=keyframe)
    assert codecs.decode(tag, encoded, old, len(new)) == new
    assert codecs.is_keyframe(tag) or not keyframe
    assert len(encoded) <= len(new)
    assert len(encoded) <= len(ZLIB.encode(new, b""))


@given(old=CONTENTS, change=st.binary(max_size=100))
def test_the_fewest_bytes_win(old: bytes, change: bytes) -> None:
    new = old + change
    _, encoded = codecs.encode(new, old, keyframe=False)
    choices = [codec.encode(new, old) for codec in (STORED, ZLIB, BSDIFF)]
    fewest = min(map(len, choices))
    assert len(encoded) == fewest or len(encoded) <= GOSSIP_BLOCK_DATA, "one event is as good as another"


def test_a_one_line_edit_of_a_large_file_fits_one_event() -> None:
    old = b"".join(b"option_%d = %s\n" % (number, noise(number, 6).hex().encode()) for number in range(800))
    assert len(old) > 20_000
    assert len(codecs.encode(old, b"", keyframe=True)[1]) > 10 * GOSSIP_BLOCK_DATA
    for line in (0, 400, 799):
        lines = old.splitlines(keepends=True)
        lines[line] = b"option_%d = changed\n" % line
        assert len(codecs.encode(b"".join(lines), old, keyframe=False)[1]) <= GOSSIP_BLOCK_DATA
    assert len(codecs.encode(old + b"one = more\n", old, keyframe=False)[1]) <= GOSSIP_BLOCK_DATA


def test_zstandard_serves_above_bsdiff() -> None:
    old = noise(1, MAX_BSDIFF + 1)
    new = old[: MAX_BSDIFF // 2] + b"changed" + old[MAX_BSDIFF // 2 :]
    tag, encoded = codecs.encode(new, old, keyframe=False)
    assert tag == ZSTD.tag
    assert len(encoded) < 2000
    assert codecs.decode(tag, encoded, old, len(new)) == new


def test_bsdiff_serves_at_its_limit() -> None:
    old = noise(1, MAX_BSDIFF)
    tag, encoded = codecs.encode(old[:-1] + b"x", old, keyframe=False)
    assert tag == BSDIFF.tag
    assert codecs.decode(tag, encoded, old, MAX_BSDIFF) == old[:-1] + b"x"


# -- what arrives ----------------------------------------------------------------------------------------------------


def decode_or_refuse(tag: int, encoded: bytes, old: bytes, size: int) -> None:
    """The one promise about contents from strangers: the stated size, or `InvalidEntry`."""
    try:
        assert len(codecs.decode(tag, encoded, old, size)) == size
    except InvalidEntry:
        return


@pytest.mark.parametrize("codec", CODECS.values(), ids=lambda codec: codec.name)
@given(data=st.data())
def test_a_damaged_content_gives_the_size_or_is_refused(codec: ContentCodec, data: st.DataObject) -> None:
    old = noise(3, 700)
    new = old[:300] + b"something else" + old[350:]
    chain = bytearray(codec.encode(new, old))
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(chain)))
        if data.draw(st.booleans()):
            chain[position : position + 1] = bytes((data.draw(st.integers(0, 255)),))
        else:
            del chain[position : position + data.draw(st.integers(1, 50))]
    decode_or_refuse(codec.tag, bytes(chain), old, len(new))
    decode_or_refuse(codec.tag, bytes(chain), old[:100], len(new))
    decode_or_refuse(codec.tag, bytes(chain), old, data.draw(st.integers(0, 2000)))


@given(st.integers(0, 255), st.binary(max_size=200), st.binary(max_size=50), st.integers(0, 300))
def test_any_bytes_give_the_size_or_are_refused(tag: int, encoded: bytes, old: bytes, size: int) -> None:
    decode_or_refuse(tag, encoded, old, size)
    decode_or_refuse(tag % (len(CODECS) + 1), encoded, old, size)


@given(st.data())
def test_a_bsdiff_patch_with_a_wild_control_block(data: st.DataObject) -> None:
    old = noise(3, 300)
    new = old[:100] + b"between" + old[100:]
    control, difference, extra = bsdiff4.core.diff(old, new)
    wild = bytearray(control)
    for _ in range(data.draw(st.integers(0, 3))):
        value = data.draw(st.integers(-(2**63) + 1, 2**63 - 1) | st.integers(-400, 400))
        offset = 8 * data.draw(st.integers(0, len(wild) // 8 - 1))
        wild[offset : offset + 8] = struct.pack("<Q", value if value >= 0 else -value | 1 << 63)
    parts = [bz2.compress(part) for part in (bytes(wild), difference, extra)]
    header = struct.pack("<8sQQQ", b"BSDIFF40", len(parts[0]), len(parts[1]), len(new))
    encoded = header + b"".join(parts)
    decode_or_refuse(BSDIFF.tag, encoded, old, len(new))
    if bytes(wild) == control:
        assert codecs.decode(BSDIFF.tag, encoded, old, len(new)) == new


@given(st.integers(0, 40), st.integers(0, 200), st.data())
def test_a_bsdiff_patch_is_written_so_that_it_is_read(size: int, edits: int, data: st.DataObject) -> None:
    """With few different bytes there are matches everywhere, so that the control block is long."""
    random = data.draw(st.randoms(use_true_random=False))
    old = bytes(random.choice(b"abcd") for _ in range(size * 20))
    new = bytearray(old)
    for _ in range(edits):
        at, length = random.randrange(len(new) + 1), random.choice((1, 5, 9, 17))
        new[at : at + length * random.randrange(2)] = bytes(random.choice(b"abcd") for _ in range(length))
    encoded = BSDIFF.encode(bytes(new), old)
    assert codecs.decode(BSDIFF.tag, encoded, old, len(new)) == new


def test_a_bsdiff_patch_of_triples_that_yield_nothing_is_refused_at_once() -> None:
    size = 100_000
    parts = [bz2.compress(part) for part in (bytes(24 * size), b"", b"")]
    header = struct.pack("<8sQQQ", b"BSDIFF40", len(parts[0]), len(parts[1]), size)
    with pytest.raises(InvalidEntry, match="too large"):
        codecs.decode(BSDIFF.tag, header + b"".join(parts), b"old", size)


SMALL = len(zlib.compress(b"x" * 1000))


@pytest.mark.parametrize(
    ("tag", "encoded", "size"),
    [
        (4, b"x", 1),
        (255, b"", 0),
        (0, b"xx", 1),
        (0, b"", 1),
        (1, zlib.compress(b"x" * 1000), 999),
        (1, zlib.compress(b"x" * 1000), 1001),
        (1, zlib.compress(b"x" * 1000)[: SMALL - 1], 1000),
        (1, zlib.compress(bytes(10_000_000)), 1),
        (2, BSDIFF.encode(b"new" * 100, b"old" * 100), 299),
        (3, ZSTD.encode(b"new" * 100, b"old" * 100), 299),
        # A frame of zstandard that claims a terabyte, as the entry does.
        (3, b"\x28\xb5\x2f\xfd\xc0\x00" + struct.pack("<Q", 2**40) + b"\x01\x00\x00", 2**40),
        (2, struct.pack("<8sQQQ", b"BSDIFF40", 2**62, 2**62, 2**40), 2**40),
    ],
)
def test_refused(tag: int, encoded: bytes, size: int) -> None:
    with pytest.raises(InvalidEntry):
        codecs.decode(tag, encoded, b"old" * 100, size)


def test_deltas_on_contents_beyond_their_limits_are_refused() -> None:
    with pytest.raises(InvalidEntry):
        codecs.decode(BSDIFF.tag, BSDIFF.encode(b"new", b"old"), bytes(MAX_BSDIFF + 1), 3)
    with pytest.raises(InvalidEntry):
        codecs.decode(ZSTD.tag, ZSTD.encode(b"new", b"old"), b"old", MAX_ZSTD_DICTIONARY + 1)
