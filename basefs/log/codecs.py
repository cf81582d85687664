"""Codecs: how the content of a write becomes the bytes of its chain (design, section 3.3).

A chain is `tag (1 B) + encoded`.  A codec is a keyframe (the whole content) or a delta against the content of the
entry's parent.  Decoding never trusts the sender: it stops at the size that the signed entry states.
"""

from __future__ import annotations

import bz2
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import bsdiff4.core
import zstandard

from basefs.errors import InvalidEntry
from basefs.log.blocks import block_count

#: bsdiff needs 17 times the old size in memory; above this another codec serves (design, section 3.3).
MAX_BSDIFF = 1024 * 1024
#: zstandard keeps the old content as dictionary in memory; above this a keyframe is written.
MAX_ZSTD_DICTIONARY = 64 * 1024 * 1024
#: Window that a decoder must be ready to hold (2**27 = 128 MiB): old and new content at their limits.
_ZSTD_WINDOW_LOG = 27
_BSDIFF_MAGIC = b"BSDIFF40"
_BSDIFF_HEADER = struct.Struct("<8sQQQ")


@dataclass(frozen=True, slots=True)
class Codec:
    """One way to encode a content.

    Attributes:
        tag: first byte of the chain; a format constant, never reused.
        name: for people.
        keyframe: whether decoding does without the old content.
        encode: (new, old) -> encoded bytes.
        decode: (encoded, old, size of the new content) -> new content; raises `InvalidEntry`.
    """

    tag: int
    name: str
    keyframe: bool
    encode: Callable[[bytes, bytes], bytes]
    decode: Callable[[bytes, bytes, int], bytes]


def _stored_decode(encoded: bytes, old: bytes, size: int) -> bytes:
    return encoded


def _zlib_encode(new: bytes, old: bytes) -> bytes:
    return zlib.compress(new, 6)


def _zlib_decode(encoded: bytes, old: bytes, size: int) -> bytes:
    decompressor = zlib.decompressobj()
    try:
        data = decompressor.decompress(encoded, size + 1)
    except zlib.error as error:
        raise InvalidEntry(f"damaged zlib data: {error}") from None
    if not decompressor.eof:
        raise InvalidEntry("the zlib data do not end where the entry says")
    return data


def _bsdiff_encode(new: bytes, old: bytes) -> bytes:
    control, difference, extra = bsdiff4.core.diff(old, new)
    packed_control, packed_difference = bz2.compress(control), bz2.compress(difference)
    header = _BSDIFF_HEADER.pack(_BSDIFF_MAGIC, len(packed_control), len(packed_difference), len(new))
    return header + packed_control + packed_difference + bz2.compress(extra)


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
        # A control triple (24 bytes) yields at least one byte of the new content, or it is useless.
        control = _bunzip(encoded[start:middle], 24 * (size + 1))
        difference = _bunzip(encoded[middle:end], size)
        extra = _bunzip(encoded[end:], size)
        if len(control) % 24:
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


STORED = Codec(0, "stored", True, lambda new, old: new, _stored_decode)
ZLIB = Codec(1, "zlib", True, _zlib_encode, _zlib_decode)
BSDIFF = Codec(2, "bsdiff4", False, _bsdiff_encode, _bsdiff_decode)
ZSTD = Codec(3, "zstd", False, _zstd_encode, _zstd_decode)
CODECS = {codec.tag: codec for codec in (STORED, ZLIB, BSDIFF, ZSTD)}


def encode(new: bytes, old: bytes, *, keyframe: bool) -> bytes:
    """The chain's bytes for `new`, with the codec that takes the fewest blocks, then the fewest bytes.

    Args:
        new: the content, not empty.
        old: the content of the parent entry; empty where there is none.
        keyframe: whether a delta is out of the question.
    """
    choices = [bytes((codec.tag,)) + codec.encode(new, old) for codec in (ZLIB, STORED)]
    best = min(choices, key=len)
    # One block cannot be beaten, so the costly delta is not tried.
    if not keyframe and old and block_count(len(best)) > 1:
        delta = _delta_codec(len(old), len(new))
        if delta is not None:
            choices.append(bytes((delta.tag,)) + delta.encode(new, old))
    return min(choices, key=lambda chain: (block_count(len(chain)), len(chain)))


def _delta_codec(old_size: int, new_size: int) -> Codec | None:
    if old_size <= MAX_BSDIFF and new_size <= MAX_BSDIFF:
        return BSDIFF
    if max(old_size, new_size) <= MAX_ZSTD_DICTIONARY:
        return ZSTD
    return None


def is_keyframe(chain_start: bytes) -> bool:
    """Whether a chain that starts with these bytes decodes without the old content.  Raises `InvalidEntry`."""
    return _codec(chain_start).keyframe


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
        raise InvalidEntry(f"the content has {len(data)} bytes and the entry says {size}")
    return data


def _codec(chain: bytes) -> Codec:
    try:
        return CODECS[chain[0]]
    except (IndexError, KeyError):
        raise InvalidEntry("the content is in a codec that this version does not know: upgrade BaseFS") from None
