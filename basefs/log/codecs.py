"""Codecs: how the content of a write becomes the bytes of its chain (docs/formats.md, section 6).

A chain is `tag (1 B) + encoded`.  A codec is a keyframe (the whole content) or a delta against the content of the
entry's parent.  Decoding never trusts the sender: it stops at the size that the signed entry states.

Keyframes can be encoded and decoded piece by piece, for contents that do not fit in memory.  Deltas need the old
content and the new one in memory, so each kind of delta has a limit.
"""

from __future__ import annotations

import bz2
import itertools
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, TypeAlias, cast

import bsdiff4.core
import zstandard

from basefs.errors import InvalidEntry
from basefs.log.blocks import block_count
from basefs.log.content import PIECE, Content

#: Largest content, bytes.  An entry could state 2**48 - 1, and each reader needs space to unpack it.
MAX_CONTENT_BYTES = 16 * 1024 * 1024 * 1024
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
#: A chain has at most the size of its content, a 256th of it and this: more than any codec adds to noise.
_CHAIN_SLACK = 1024
#: A content has at most so many bytes for each byte of its chain, besides those of the content that a delta builds on.
MAX_RATIO = 1000
#: Bytes of a content for which any chain will do.
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
        tag: first byte of the chain; a format constant, never reused.
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


def chain_limit(size: int) -> int:
    """Bytes that the chain of a content of `size` bytes may have, at least 1.

    The first block says whether the content builds on another one, also of one that no node can hold.
    """
    return size + size // 256 + _CHAIN_SLACK if size <= MAX_CONTENT_BYTES else 1


def shortest_chain(size: int, old_size: int = 0) -> int:
    """Bytes that the chain of a content of `size` bytes must have, where a delta builds on `old_size` bytes.

    So the bytes that a peer makes others unpack are in proportion to what it sends.
    """
    return max(0, -(-(size - old_size - RATIO_SLACK) // MAX_RATIO))


def encode(new: bytes, old: bytes, *, keyframe: bool) -> bytes:
    """The chain's bytes for `new`, with the codec that takes the fewest bytes, and so the fewest blocks of one size.

    Args:
        new: the content, not empty.
        old: the content of the parent entry; empty where there is none.
        keyframe: whether a delta is out of the question.
    """
    choices = [_chain(codec, new) for codec in (ZLIB, STORED)]
    best = min(choices, key=len)
    # One block cannot be beaten, so the costly delta is not tried.
    if not keyframe and old and block_count(len(best)) > 1:
        if max(len(old), len(new)) <= MAX_BSDIFF:
            if max(len(old), len(new)) < _BSDIFF_PROBE or len(_zstd_encode(new, old)) < len(best):
                choices.append(_chain(BSDIFF, new, old))
        elif max(len(old), len(new)) <= MAX_DELTA_CONTENT:
            choices.append(_chain(ZSTD, new, old))
    shortest = shortest_chain(len(new), len(old))
    return min((chain for chain in choices if len(chain) >= shortest), key=len)


def _chain(codec: ContentCodec, new: bytes, old: bytes = b"") -> bytes:
    return bytes((codec.tag,)) + codec.encode(new, old)


def encode_large(new: Content, old: Content | None, chain: BinaryIO) -> None:
    """Write the chain's bytes of a content of any size to a file, in pieces; a delta only up to `MAX_DELTA_CONTENT`.

    Args:
        new: the content, not empty.
        old: the content of the parent entry; `None` where a delta is out of the question.
        chain: an empty file.

    Raises `StoreError` and OSError.
    """
    if _compresses(new):
        chain.write(bytes((FRAME.tag,)))
        compressor = zstandard.ZstdCompressor(level=_FRAME_LEVEL).compressobj(size=new.size)
        for piece in new.pieces():
            chain.write(compressor.compress(piece))
        chain.write(compressor.flush())
        _pad(chain, shortest_chain(new.size))
    else:
        chain.write(bytes((STORED.tag,)))
        for piece in new.pieces():
            chain.write(piece)
    if old is not None and 0 < old.size <= MAX_DELTA_CONTENT >= new.size:
        delta = _zstd_encode(new.whole(), old.whole())
        if shortest_chain(new.size, old.size) <= len(delta) + 1 < chain.tell():
            chain.seek(0)
            chain.truncate()
            chain.write(bytes((ZSTD.tag,)))
            chain.write(delta)


def _pad(chain: BinaryIO, shortest: int) -> None:
    """Bring a chain that is too short for its content to its length, with a frame that decoders skip."""
    missing = shortest - chain.tell() - _SKIPPABLE.size
    if missing > -_SKIPPABLE.size:
        chain.write(_SKIPPABLE.pack(_SKIPPABLE_MAGIC, max(missing, 0)))
        for start in range(0, missing, PIECE):
            chain.write(bytes(min(PIECE, missing - start)))


def _compresses(content: Content) -> bool:
    """Whether samples of a large content shrink by more than a twentieth."""
    samples = b"".join(
        content.read(offset, _SAMPLE) for offset in range(0, content.size, max(_SAMPLE, content.size // 16))
    )
    return len(zstandard.ZstdCompressor(level=1).compress(samples)) < len(samples) * 0.95


def is_keyframe(chain_start: bytes) -> bool:
    """Whether a chain that starts with these bytes decodes without the old content.  Raises `InvalidEntry`."""
    return _codec(chain_start).keyframe


def check_delta(chain_start: bytes, old_size: int, size: int) -> None:
    """Raise `InvalidEntry` for a delta between contents that are too large for its codec, before they are read."""
    codec = _codec(chain_start)
    limit = 2 * MAX_BSDIFF if codec is BSDIFF else MAX_ZSTD_DICTIONARY
    if not codec.keyframe and max(old_size, size) > limit:
        raise InvalidEntry(f"a {codec.name} delta between contents that are too large for it")


def check_chain(chain: bytes, old_size: int, size: int) -> None:
    """Raise `InvalidEntry` for a chain that is too long or too short for its content, before it is decoded."""
    if len(chain) > chain_limit(size):
        raise InvalidEntry(f"its {size} bytes are in a chain that is longer than {chain_limit(size)} bytes")
    if len(chain) < shortest_chain(size, 0 if is_keyframe(chain) else old_size):
        raise InvalidEntry(_too_short(len(chain), size))


def _too_short(length: int, size: int) -> str:
    return f"{length} bytes unpack to {size}: more than {MAX_RATIO} for each"


def _long_enough(chain: Iterator[bytes], size: int) -> Iterator[bytes]:
    """The pieces of a keyframe's chain; as many are read now as its content needs at least."""
    pieces: list[bytes] = []
    length, shortest = 0, shortest_chain(size)
    while length < shortest:
        piece = next(chain, b"")
        if not piece:
            raise InvalidEntry(_too_short(length, size))
        pieces.append(piece)
        length += len(piece)
    return itertools.chain(pieces, chain)


def decode(chain: bytes, old: bytes, size: int) -> bytes:
    """The content that a chain's bytes stand for.

    Args:
        chain: tag and encoded bytes.
        old: content of the parent entry; ignored by keyframes.
        size: size of the content in bytes, as the entry states it.

    Raises `InvalidEntry` if the chain is damaged or its content has another size.
    """
    data = _codec(chain).decode(chain[1:], old, size)
    if len(data) != size:
        raise InvalidEntry(f"the content has {len(data)} bytes, its entry states {size}")
    return data


def decode_pieces(chain: Iterator[bytes], size: int) -> Iterator[bytes]:
    """The content of a keyframe in pieces, as `decode`.

    Args:
        chain: the chain's bytes in pieces, the first of which is not empty.
        size: size of the content in bytes, as the entry states it.

    Raises `InvalidEntry` as soon as the chain is found to be damaged or of another size, or for a delta.
    """
    chain = _long_enough(chain, size)
    start = next(chain, b"")
    pieces = _codec(start).decode_pieces
    if pieces is None:
        raise InvalidEntry("a delta where a keyframe is needed")
    return _to_the_end(_counted(pieces(itertools.chain((start[1:],), chain)), size), chain)


def _to_the_end(content: Iterator[bytes], chain: Iterator[bytes]) -> Iterator[bytes]:
    """Pieces of a content, and then the rest of its chain, which may be too long although nothing of it is needed."""
    yield from content
    for _ in chain:
        pass


def _codec(chain: bytes) -> ContentCodec:
    try:
        return CODECS[chain[0]]
    except (IndexError, KeyError):
        raise InvalidEntry("the content is in a codec that this version does not know: upgrade BaseFS") from None
