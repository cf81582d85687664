"""Codecs: how the content of a write is encoded (docs/formats.md, section 6).

A codec is a keyframe (the whole content) or a delta against the content of the entry's parent.  Decoding never trusts
the sender: it stops at the size that the signed entry states.

Keyframes can be encoded and decoded piece by piece, for contents that do not fit in memory.  Deltas need the old
content and the new one in memory, so each kind of delta has a limit.
"""

from __future__ import annotations

import bz2
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, TypeAlias, cast

import bsdiff4.core
import zstandard

from basefs.errors import InvalidEntry
from basefs.log.blocks import GOSSIP_BLOCK_DATA
from basefs.log.content import PIECE, Content

#: bsdiff needs 17 times the old size in memory; above this another codec serves (docs/formats.md, section 6).
MAX_BSDIFF = 1024 * 1024
#: zstandard keeps the old content as dictionary in memory; a larger one is refused.
MAX_ZSTD_DICTIONARY = 64 * 1024 * 1024
#: Largest contents between which this node makes a delta: beyond it takes more than 200 MB of memory to make one.
MAX_DELTA_CONTENT = 32 * 1024 * 1024
#: bsdiff takes 0.5 to 2.5 s for 1 MiB.  From this size on it is only tried where zstandard, in 10 ms, finds that the
#: old content helps.
_BSDIFF_PROBE = 64 * 1024
#: Window that a decoder must be ready to hold (2**27 = 128 MiB): old and new content at their limits.
_ZSTD_WINDOW_LOG = 27
#: Window of a frame without dictionary: 8 MiB, which every decoder of RFC 8878 should support.
_ZSTD_FRAME_WINDOW_LOG = 23
_FRAME_LEVEL = 3
#: Bytes of each of the 16 samples that decide whether a large content is worth compressing.
_SAMPLE = 64 * 1024
#: A content has at most so many bytes for each byte of its encoding, besides those of the content that a delta builds
#: on.
MAX_RATIO = 1000
#: Bytes of a content for which any encoding will do.
RATIO_SLACK = 1024 * 1024
#: Begins a skippable frame, with its size (RFC 8878, section 3.1.2).
_SKIPPABLE = struct.Struct("<II")
_SKIPPABLE_MAGIC = 0x184D2A50
_BSDIFF_MAGIC = b"BSDIFF40"
_BSDIFF_HEADER = struct.Struct("<8sQQQ")
#: The fields of each entry of the control block; numbers that are not negative are the same as in C.
_BSDIFF_TRIPLE = struct.Struct("<qqq")

_DecodePieces: TypeAlias = Callable[[Iterable[bytes]], Iterator[bytes]]


@dataclass(frozen=True, slots=True)
class ContentCodec:
    """One way to encode a content.

    Attributes:
        tag: as in the entry; a format constant, never reused.
        name: for people.
        keyframe: whether decoding does without the old content.
        encode: (new, old) -> encoded bytes.
        decode: (encoded, old, size of the new content) -> new content; raises `InvalidEntry`.
        decode_pieces: for keyframes: pieces of the encoded bytes -> pieces of the new content, none of them much larger
            than `PIECE`; raises `InvalidEntry`.
    """

    tag: int
    name: str
    keyframe: bool
    encode: Callable[[bytes, bytes], bytes]
    decode: Callable[[bytes, bytes, int], bytes]
    decode_pieces: _DecodePieces | None = None


def _counted(pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Pass pieces on, `size` bytes in all.  Raises `InvalidEntry` as soon as it is another size."""
    room = size
    for piece in pieces:
        room -= len(piece)
        if room < 0:
            break
        yield piece
    if room:
        raise InvalidEntry(f"the content does not have the {size} bytes that its entry states")


def _by_pieces(decode: _DecodePieces) -> Callable[[bytes, bytes, int], bytes]:
    return lambda encoded, old, size: b"".join(_counted(decode((encoded,)), size))


def _stored_pieces(encoded: Iterable[bytes]) -> Iterator[bytes]:
    yield from encoded


def _zlib_encode(new: bytes, old: bytes) -> bytes:
    return zlib.compress(new, 6)


def _zlib_pieces(encoded: Iterable[bytes]) -> Iterator[bytes]:
    decompressor = zlib.decompressobj()
    for piece in encoded:
        todo = piece
        while todo and not decompressor.eof:
            try:
                yield decompressor.decompress(todo, PIECE)
            except zlib.error as error:
                raise InvalidEntry(f"damaged zlib data: {error}") from None
            todo = decompressor.unconsumed_tail
    # The rest that the decompressor holds at the end of the input; it is less than a window.
    yield decompressor.flush()
    if not decompressor.eof:
        raise InvalidEntry("the zlib data are cut off")


def _bsdiff_encode(new: bytes, old: bytes) -> bytes:
    control, difference, extra = bsdiff4.core.diff(old, new)
    if len(control) > _control_limit(len(new)):
        # No reader would accept it: store the new content instead, although that is no useful delta.
        control, difference, extra = _BSDIFF_TRIPLE.pack(0, len(new), 0), b"", new
    packed_control, packed_difference = bz2.compress(control), bz2.compress(difference)
    header = _BSDIFF_HEADER.pack(_BSDIFF_MAGIC, len(packed_control), len(packed_difference), len(new))
    return header + packed_control + packed_difference + bz2.compress(extra)


def _control_limit(size: int) -> int:
    """Bytes that the control block of a patch may have: bsdiff begins a triple only where it matches 8 bytes more.

    Triples that yield nothing would keep a reader of the file busy for long.
    """
    return _BSDIFF_TRIPLE.size * (size // 8 + 2)


def _bunzip(packed: bytes, limit: int) -> bytes:
    decompressor = bz2.BZ2Decompressor()
    data = decompressor.decompress(packed, limit + 1)
    if not decompressor.eof or len(data) > limit:
        raise InvalidEntry("a part of the bsdiff patch is cut off or too large")
    return data


def _bsdiff_decode(encoded: bytes, old: bytes, size: int) -> bytes:
    if len(old) > MAX_BSDIFF or size > 2 * MAX_BSDIFF:
        raise InvalidEntry("a bsdiff patch on a content that is too large for it")
    try:
        magic, control_size, difference_size, new_size = _BSDIFF_HEADER.unpack_from(encoded)
        if magic != _BSDIFF_MAGIC or new_size != size:
            raise InvalidEntry("the bsdiff header does not fit the entry")
        start = _BSDIFF_HEADER.size
        middle = start + control_size
        end = middle + difference_size
        control = _bunzip(encoded[start:middle], _control_limit(size))
        difference = _bunzip(encoded[middle:end], size)
        extra = _bunzip(encoded[end:], size)
        if len(control) % _BSDIFF_TRIPLE.size:
            raise InvalidEntry("the bsdiff control block is cut off")
        data: bytes = bsdiff4.core.patch(old, size, control, difference, extra)
    except (struct.error, OSError, ValueError, EOFError) as error:
        raise InvalidEntry(f"damaged bsdiff patch: {error}") from None
    return data


def _zstd_encode(new: bytes, old: bytes) -> bytes:
    dictionary = zstandard.ZstdCompressionDict(old, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    parameters = zstandard.ZstdCompressionParameters.from_level(
        3,
        source_size=len(new),
        dict_size=len(old),
        window_log=_ZSTD_WINDOW_LOG,
        strategy=zstandard.STRATEGY_LAZY2,
        # The level's own tables index 1 MiB of the dictionary.  With these a 20 MiB file of random bytes, changed in
        # two places, needs 2.4 MB instead of 20 MB.
        hash_log=23,
        chain_log=23,
        enable_ldm=True,
    )
    return zstandard.ZstdCompressor(dict_data=dictionary, compression_params=parameters).compress(new)


def _zstd_decode(encoded: bytes, old: bytes, size: int) -> bytes:
    if max(len(old), size) > MAX_ZSTD_DICTIONARY:
        raise InvalidEntry("zstandard data of a content that is too large for it")
    dictionary = zstandard.ZstdCompressionDict(old, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    decompressor = zstandard.ZstdDecompressor(dict_data=dictionary, max_window_size=1 << _ZSTD_WINDOW_LOG)
    try:
        # The frame states its size; a frame that lies about it is refused before memory is taken.
        if zstandard.frame_content_size(encoded) != size:
            raise InvalidEntry("the zstandard frame does not fit the entry")
        return decompressor.decompress(encoded, max_output_size=size)
    except zstandard.ZstdError as error:
        raise InvalidEntry(f"damaged zstandard data: {error}") from None


def _frame_encode(new: bytes, old: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=_FRAME_LEVEL).compress(new)


class _Joined:
    """Pieces as a file to be read."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._rest = b""

    def read(self, size: int) -> bytes:
        """Up to `size` bytes, none at the end."""
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._rest = piece
        data, self._rest = self._rest[:size], self._rest[size:]
        return data


def _frame_pieces(encoded: Iterable[bytes]) -> Iterator[bytes]:
    decompressor = zstandard.ZstdDecompressor(max_window_size=1 << _ZSTD_FRAME_WINDOW_LOG)
    # Asked for pieces, the reader holds a window and no more, whatever a frame claims to hold.
    with decompressor.stream_reader(cast(BinaryIO, _Joined(encoded)), closefd=False) as reader:
        try:
            while piece := reader.read(PIECE):
                yield piece
        except zstandard.ZstdError as error:
            raise InvalidEntry(f"damaged zstandard data: {error}") from None


STORED = ContentCodec(0, "stored", True, lambda new, old: new, _by_pieces(_stored_pieces), _stored_pieces)
ZLIB = ContentCodec(1, "zlib", True, _zlib_encode, _by_pieces(_zlib_pieces), _zlib_pieces)
BSDIFF = ContentCodec(2, "bsdiff4", False, _bsdiff_encode, _bsdiff_decode)
ZSTD = ContentCodec(3, "zstd", False, _zstd_encode, _zstd_decode)
FRAME = ContentCodec(4, "zstd frame", True, _frame_encode, _by_pieces(_frame_pieces), _frame_pieces)
CODECS = {codec.tag: codec for codec in (STORED, ZLIB, BSDIFF, ZSTD, FRAME)}


def shortest(size: int, old_size: int = 0) -> int:
    """Bytes that a content of `size` bytes must have when it is encoded, where a delta builds on `old_size` bytes.

    So the bytes that a peer makes others unpack are in proportion to what it sends.
    """
    return max(0, -(-(size - old_size - RATIO_SLACK) // MAX_RATIO))


def encode(new: bytes, old: bytes, *, keyframe: bool) -> tuple[int, bytes]:
    """The tag and the encoding of `new`, with the codec that takes the fewest bytes.

    Args:
        new: the content, not empty.
        old: the content of the parent entry; empty where there is none.
        keyframe: whether a delta is out of the question.
    """
    choices = [(codec.tag, codec.encode(new, b"")) for codec in (ZLIB, STORED)]
    best = min(map(_length, choices))
    # Less than one event saves nothing, so the costly delta is not tried.
    if not keyframe and old and best > GOSSIP_BLOCK_DATA:
        if max(len(old), len(new)) <= MAX_BSDIFF:
            if max(len(old), len(new)) < _BSDIFF_PROBE or len(_zstd_encode(new, old)) < best:
                choices.append((BSDIFF.tag, _bsdiff_encode(new, old)))
        elif max(len(old), len(new)) <= MAX_DELTA_CONTENT:
            choices.append((ZSTD.tag, _zstd_encode(new, old)))
    least = shortest(len(new), len(old))
    return min((choice for choice in choices if _length(choice) >= least), key=_length)


def _length(choice: tuple[int, bytes]) -> int:
    return len(choice[1])


def encode_large(new: Content, old: Content | None, file: BinaryIO) -> int:
    """Write the encoding of a content of any size to a file, in pieces; a delta only up to `MAX_DELTA_CONTENT`.

    Args:
        new: the content, not empty.
        old: the content of the parent entry; `None` where a delta is out of the question.
        file: an empty file.

    Returns the tag.  Raises `StoreError` and OSError.
    """
    tag = STORED.tag
    if _compresses(new):
        tag = FRAME.tag
        compressor = zstandard.ZstdCompressor(level=_FRAME_LEVEL).compressobj(size=new.size)
        for piece in new.pieces():
            file.write(compressor.compress(piece))
        file.write(compressor.flush())
        _pad(file, shortest(new.size))
    else:
        for piece in new.pieces():
            file.write(piece)
    if old is not None and 0 < old.size <= MAX_DELTA_CONTENT >= new.size:
        delta = _zstd_encode(new.whole(), old.whole())
        if shortest(new.size, old.size) <= len(delta) < file.tell():
            tag = ZSTD.tag
            file.seek(0)
            file.truncate()
            file.write(delta)
    return tag


def _pad(file: BinaryIO, least: int) -> None:
    """Bring an encoding that is too short for its content to its length, with a frame that decoders skip."""
    missing = least - file.tell() - _SKIPPABLE.size
    if missing > -_SKIPPABLE.size:
        file.write(_SKIPPABLE.pack(_SKIPPABLE_MAGIC, max(missing, 0)))
        for start in range(0, missing, PIECE):
            file.write(bytes(min(PIECE, missing - start)))


def _compresses(content: Content) -> bool:
    """Whether samples of a large content shrink by more than a twentieth."""
    samples = b"".join(
        content.read(offset, _SAMPLE) for offset in range(0, content.size, max(_SAMPLE, content.size // 16))
    )
    return len(zstandard.ZstdCompressor(level=1).compress(samples)) < len(samples) * 0.95


def is_keyframe(tag: int) -> bool:
    """Whether a content decodes without the one before, or not at all, as this version does not know the codec."""
    codec = CODECS.get(tag)
    return codec is None or codec.keyframe


def check(tag: int, length: int, old_size: int, size: int) -> None:
    """Raise `InvalidEntry`, before anything is read, for a content that no reader decodes.

    Args:
        tag: of the codec.
        length: bytes of the encoding.
        old_size: of the content that a delta builds on.
        size: of the content, as its entry states it.
    """
    codec = _codec(tag)
    limit = 2 * MAX_BSDIFF if codec is BSDIFF else MAX_ZSTD_DICTIONARY
    if not codec.keyframe and max(old_size, size) > limit:
        raise InvalidEntry(f"a {codec.name} delta between contents that are too large for it")
    if length < shortest(size, 0 if codec.keyframe else old_size):
        raise InvalidEntry(f"{length} bytes unpack to {size}: more than {MAX_RATIO} for each")


def decode(tag: int, encoded: bytes, old: bytes, size: int) -> bytes:
    """A content from its encoding.

    Args:
        tag: of the codec.
        encoded: the encoding.
        old: content of the parent entry; ignored by keyframes.
        size: size of the content in bytes, as the entry states it.

    Raises `InvalidEntry` if the encoding is damaged or its content has another size.
    """
    data = _codec(tag).decode(encoded, old, size)
    if len(data) != size:
        raise InvalidEntry(f"the content has {len(data)} bytes, its entry states {size}")
    return data


def decode_pieces(tag: int, encoded: Iterator[bytes], size: int) -> Iterator[bytes]:
    """The content of a keyframe in pieces, as `decode`.

    Args:
        tag: of the codec.
        encoded: the encoding in pieces.
        size: size of the content in bytes, as the entry states it.

    Raises `InvalidEntry` as soon as the encoding is found to be damaged or of another size, or for a delta.
    """
    pieces = _codec(tag).decode_pieces
    if pieces is None:
        raise InvalidEntry("a delta where a keyframe is needed")
    return _counted(pieces(encoded), size)


def _codec(tag: int) -> ContentCodec:
    try:
        return CODECS[tag]
    except KeyError:
        raise InvalidEntry("the content is in a codec that this version does not know: upgrade BaseFS") from None
