"""The fields of a line: base64 without padding, percent-encoded names, decimal numbers.  One encoding per value."""

from __future__ import annotations

import binascii
import re
from collections.abc import Sequence
from urllib.parse import quote_from_bytes, unquote_to_bytes

from basefs.errors import RemoteProtocolError
from basefs.log.entries import ROOT_NAME, check_name
from basefs.log.hashes import HASH_SIZE
from basefs.path import Path
from basefs.sync.wire.limits import MAX_PATH
from basefs.sync.wire.messages import Kind, Part

_PART = re.compile(rb"-|[ec][0-9a-f]{1,%d}" % (2 * HASH_SIZE))
_NUMBER = re.compile(rb"0|[1-9][0-9]{0,17}")


def encode_bytes(data: bytes) -> bytes:
    """Base64 (RFC 4648, section 4) without padding."""
    return binascii.b2a_base64(data, newline=False).rstrip(b"=")


def decode_bytes(field: bytes) -> bytes:
    """Undo `encode_bytes`.  Raises `RemoteProtocolError` for anything that it does not write."""
    try:
        data = binascii.a2b_base64(field + b"=" * (-len(field) % 4))
    except binascii.Error:
        raise RemoteProtocolError("a field is not base64") from None
    # a2b_base64 skips foreign characters and ignores left-over bits; comparing is simpler than checking for both.
    if not data or encode_bytes(data) != field:
        raise RemoteProtocolError("a field is not base64 in its only form")
    return data


def decode_hash(field: bytes) -> bytes:
    """A 28-byte hash.  Raises `RemoteProtocolError`."""
    data = decode_bytes(field)
    if len(data) != HASH_SIZE:
        raise RemoteProtocolError(f"a hash has {HASH_SIZE} bytes, not {len(data)}")
    return data


def decode_number(field: bytes, maximum: int) -> int:
    """A decimal number from 0 to `maximum`, without leading zeros.  Raises `RemoteProtocolError`."""
    if not _NUMBER.fullmatch(field) or int(field) > maximum:
        raise RemoteProtocolError(f"a number from 0 to {maximum} was expected")
    return int(field)


def encode_name(name: bytes) -> bytes:
    """Percent-encode everything but ASCII letters, digits and '_.-~'."""
    return quote_from_bytes(name, safe="").encode("ascii")


def decode_name(field: bytes) -> bytes:
    """Undo `encode_name`.  Raises `RemoteProtocolError` for any other encoding, and for what no path may contain."""
    name = unquote_to_bytes(field)
    if encode_name(name) != field:
        raise RemoteProtocolError("a name is not percent-encoded in its only form")
    check_name(name)
    if name == ROOT_NAME:
        raise RemoteProtocolError("a component of a path cannot be '/'")
    return name


def path_size(path: Path) -> int:
    """Bytes of the path as '/a/b', which `MAX_PATH` limits."""
    return sum(map(len, path)) + max(len(path), 1)


def encode_path(path: Path) -> bytes:
    """'/' and the encoded names joined by '/'."""
    return b"/" + b"/".join(map(encode_name, path))


def decode_path(field: bytes) -> Path:
    """Undo `encode_path`.  Raises `RemoteProtocolError`, also for a path longer than `MAX_PATH`."""
    if field[:1] != b"/":
        raise RemoteProtocolError("a path begins with '/'")
    path = tuple(map(decode_name, field[1:].split(b"/"))) if len(field) > 1 else ()
    if path_size(path) > MAX_PATH:
        raise RemoteProtocolError(f"a path has at most {MAX_PATH} bytes")
    return path


def decode_names(path: Path, fields: Sequence[bytes]) -> tuple[bytes, ...]:
    """The names of sub-paths, none twice.  Raises `RemoteProtocolError`, also where one makes a path too long."""
    names = tuple(map(decode_name, fields))
    if len(set(names)) != len(names):
        raise RemoteProtocolError("a name comes twice")
    if any(path_size((*path, name)) > MAX_PATH for name in names):
        raise RemoteProtocolError(f"a path has at most {MAX_PATH} bytes")
    return names


def encode_part(part: Part) -> bytes:
    """'-' for all items, otherwise 'e' or 'c' and the prefix."""
    return b"-" if part.kind is Kind.ALL else (part.kind.value + part.prefix).encode("ascii")


def decode_part(field: bytes) -> Part:
    """Undo `encode_part`.  Raises `RemoteProtocolError` for anything that it does not write."""
    if not _PART.fullmatch(field):
        raise RemoteProtocolError("an LS is about '-', or 'e' or 'c' and a prefix")
    text = field.decode()
    return Part(Kind(text[0]), text[1:])
