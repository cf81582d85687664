"""Bytes <-> lines <-> messages.  The grammar, with its meaning, is in `docs/sync-protocol.md`.

`LineBuffer` cuts received bytes into lines.  `parse` takes a line without its newline and returns a message or raises
`RemoteProtocolError`, nothing else; what it returns is within all limits of the wire.  `encode` is its inverse:
`parse(encode(m)[:-1]) == m`.  Every value has one encoding: base64 without padding, percent-encoded names, decimals.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from urllib.parse import quote_from_bytes, unquote_to_bytes

from basefs.errors import LocalProtocolError, NameTooLong, RemoteProtocolError
from basefs.log.blocks import SYNC_BLOCK_DATA
from basefs.log.entries import ROOT_NAME, check_name
from basefs.log.hashes import HASH_SIZE, ZERO_HASH, BlockHash, EntryHash, sha224
from basefs.log.interface import Digest
from basefs.path import Path, check_length
from basefs.sync.wire.limits import (
    MAX_BLOCKS,
    MAX_DATA_ITEMS,
    MAX_HASHES,
    MAX_ITEMS,
    MAX_KEPT,
    MAX_LINE,
    MAX_NUMBER,
    VERSION,
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
    Message,
    Part,
    PathReq,
    Prune,
    Refusal,
    Refuse,
    Root,
    Same,
    Stay,
    Wait,
)

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


def encode_path(path: Path) -> bytes:
    """'/' and the encoded names joined by '/'."""
    return b"/" + b"/".join(map(encode_name, path))


def decode_path(field: bytes) -> Path:
    """Undo `encode_path`.  Raises `RemoteProtocolError`, also for a path that no entry may have."""
    if field[:1] != b"/":
        raise RemoteProtocolError("a path begins with '/'")
    path = tuple(map(decode_name, field[1:].split(b"/"))) if len(field) > 1 else ()
    _check_length(path)
    return path


def decode_names(path: Path, fields: Sequence[bytes]) -> tuple[bytes, ...]:
    """The names of sub-paths, none twice.  Raises `RemoteProtocolError`, also where one makes a path too long."""
    names = tuple(map(decode_name, fields))
    if len(set(names)) != len(names):
        raise RemoteProtocolError("a name comes twice")
    if names:
        _check_length((*path, max(names, key=len)))
    return names


def _check_length(path: Path) -> None:
    try:
        check_length(path)
    except NameTooLong as error:
        raise RemoteProtocolError(str(error)) from None


def encode_part(part: Part) -> bytes:
    """'-' for all items, otherwise 'e' or 'c' and the prefix."""
    return b"-" if part.kind is ItemKind.ALL else (part.kind.value + part.prefix).encode("ascii")


def decode_part(field: bytes) -> Part:
    """Undo `encode_part`.  Raises `RemoteProtocolError` for anything that it does not write."""
    if not _PART.fullmatch(field):
        raise RemoteProtocolError("an LS is about '-', or 'e' or 'c' and a prefix")
    text = field.decode()
    return Part(ItemKind(text[0]), text[1:])


Fields = list[bytes]

_DIGIT = re.compile(rb"[0-9a-f]")
_BITS = re.compile(rb"[1-9a-f][0-9a-f]{0,63}")
_MAX_TEXT = 200
_FULL = b"full"
#: The sections without a field.
_WORDS: dict[type, bytes] = {Eof: b"EOF", Wait: b"WAIT", Stay: b"STAY", Prune: b"PRUNE", Graft: b"GRAFT"}


def encode(message: Message) -> bytes:
    """The line of a message, newline included."""
    fields = _ENCODERS[type(message)](message)
    line = b" ".join(fields)
    if len(line) > MAX_LINE:
        raise LocalProtocolError(f"a line of {len(line)} bytes was about to be sent")
    return line + b"\n"


def _refusal(message: Refuse) -> Fields:
    cut = message.text.encode()[:_MAX_TEXT].decode(errors="ignore").encode()
    return [b"CLOSE", b"NO", message.refusal.value.encode(), quote_from_bytes(cut, safe="").encode() or b"-"]


def _digest(log: Digest) -> Fields:
    """A log in one line: root hash, entries, contents that wait and that are missing, and which are missing."""
    lacks = b"-" if log.lacks == ZERO_HASH else encode_bytes(log.lacks)
    return [encode_bytes(log.root), b"%d" % log.entries, b"%d" % log.waiting, b"%d" % log.missing, lacks]


def _items(ls: Ls) -> Iterable[bytes]:
    """The items of an LS as fields."""
    for entry in ls.entries:
        yield b"e:" + encode_bytes(entry)
    for digit, value in (ls.entry_buckets or {}).items():
        yield b"E:" + digit.encode() + b":" + encode_bytes(value)
    for name, value in ls.children:
        yield b"c:" + encode_bytes(value) + b":" + encode_name(name)
    for digit, value in (ls.child_buckets or {}).items():
        yield b"C:" + digit.encode() + b":" + encode_bytes(value)


#: The fields of each message.
_ENCODERS: dict[type, Callable[[Any], Iterable[bytes]]] = {
    Hash: lambda m: [
        b"HASH",
        b"%d" % m.version,
        encode_bytes(m.identity),
        *_digest(m.log),
        b"%d" % m.port,
        _FULL if m.full else b"-",
    ],
    Ls: lambda m: [b"LS", encode_path(m.path), encode_part(m.part), *_items(m)],
    PathReq: lambda m: [b"PATH_REQ", encode_path(m.path), *map(encode_name, m.names)],
    EntryReq: lambda m: [b"ENTRY_REQ", *map(encode_bytes, m.hashes)],
    BlockReq: lambda m: [b"BLOCK_REQ", *map(encode_bytes, m.hashes)],
    Entries: lambda m: [b"ENTRIES", *map(encode_bytes, m.encoded)],
    Blocks: lambda m: [b"BLOCKS", *map(encode_bytes, m.blocks)],
    Close: lambda m: [b"CLOSE", b"OK", b"%d" % m.answered, *_digest(m.log)],
    Root: lambda m: [b"ROOT", *_digest(m.log), b"%d" % m.kept],
    Have: lambda m: [b"HAVE", encode_bytes(m.root), b"%x" % m.blocks],
    Same: lambda m: [b"SAME", b"%d" % m.port],
    Refuse: _refusal,
    **{kind: lambda m: [_WORDS[type(m)]] for kind in _WORDS},
}


def parse(line: bytes) -> Message:
    """The message of a line (without newline).  Raises `RemoteProtocolError` for everything that is not one."""
    section, *fields = line.split(b" ")
    parser = _PARSERS.get(section)
    if parser is None:
        raise RemoteProtocolError(f"there is no section {section[:20].decode('latin-1')!a}")
    return parser(fields)


def _expect(fields: Fields, low: int, high: int) -> None:
    if not low <= len(fields) <= high:
        raise RemoteProtocolError(f"a section has {low} to {high} fields, not {len(fields)}")


def _hash(fields: Fields) -> Hash:
    _expect(fields, 1, MAX_LINE)
    version = decode_number(fields[0], 999)
    if version != VERSION:
        # What another version puts behind its number is not ours to judge: the core tells it the reason and closes.
        return Hash(version, bytes(HASH_SIZE), Digest(bytes(HASH_SIZE), 0), 0)
    _expect(fields, 9, 9)
    if fields[8] not in (_FULL, b"-"):
        raise RemoteProtocolError("HASH ends with 'full' or '-'")
    log, port = _decode_digest(fields[2:7]), decode_number(fields[7], 65535)
    return Hash(version, decode_hash(fields[1]), log, port, fields[8] == _FULL)


def _decode_digest(fields: Fields) -> Digest:
    root = decode_hash(fields[0])
    entries, waiting, missing = (decode_number(field, MAX_NUMBER) for field in fields[1:4])
    lacks = ZERO_HASH if fields[4] == b"-" else decode_hash(fields[4])
    if fields[4] != b"-" and (lacks == ZERO_HASH or not missing):
        raise RemoteProtocolError("a log that lacks no content has '-'")
    return Digest(root, entries, waiting, missing, lacks)


def _ls(fields: Fields) -> Ls:
    _expect(fields, 2, 2 + 2 * MAX_ITEMS)
    path = decode_path(fields[0])
    part = decode_part(fields[1])
    entries: list[EntryHash] = []
    children: dict[bytes, bytes] = {}
    buckets: dict[bytes, dict[str, bytes]] = {b"E": {}, b"C": {}}
    for field in fields[2:]:
        sort, _, rest = field.partition(b":")
        value, _, more = rest.partition(b":")
        if sort == b"e":
            entries.append(EntryHash(decode_hash(rest)))
        elif sort == b"c":
            children[decode_name(more)] = decode_hash(value)
        elif sort in buckets and _DIGIT.fullmatch(value):
            buckets[sort][value.decode()] = decode_hash(more)
        else:
            raise RemoteProtocolError("an item of an LS is none of e, c, E, C")
    _check_list(part, ItemKind.ENTRIES, entries, buckets[b"E"])
    _check_list(part, ItemKind.CHILDREN, [sha224(name) for name in children], buckets[b"C"])
    if len(set(entries)) + len(children) + len(buckets[b"E"]) + len(buckets[b"C"]) != len(fields) - 2:
        raise RemoteProtocolError("an LS has an item twice")
    return Ls(
        path,
        part,
        entries=tuple(entries),
        children=tuple(children.items()),
        entry_buckets=buckets[b"E"] or None,
        child_buckets=buckets[b"C"] or None,
    )


def _check_list(part: Part, kind: ItemKind, keys: Sequence[bytes], buckets: dict[str, bytes]) -> None:
    """Items must belong to the part, be listed or aggregated but not both, and be few."""
    if part.kind not in (ItemKind.ALL, kind) and (keys or buckets):
        raise RemoteProtocolError("an LS has items that are not of its part")
    if buckets and (keys or len(part.prefix) == 2 * HASH_SIZE):
        raise RemoteProtocolError("an LS lists items and aggregates them")
    if len(keys) > MAX_ITEMS:
        raise RemoteProtocolError(f"an LS lists at most {MAX_ITEMS} items of a kind")
    if any(not key.hex().startswith(part.prefix) for key in keys):
        raise RemoteProtocolError("an item of an LS is outside of its prefix")


def _path_req(fields: Fields) -> PathReq:
    _expect(fields, 1, 1 + MAX_ITEMS)
    return PathReq(path := decode_path(fields[0]), decode_names(path, fields[1:]))


def _entry_hashes(fields: Fields) -> tuple[EntryHash, ...]:
    _expect(fields, 1, MAX_HASHES)
    return tuple(EntryHash(decode_hash(field)) for field in fields)


def _block_req(fields: Fields) -> BlockReq:
    _expect(fields, 1, MAX_BLOCKS)
    hashes = tuple(BlockHash(decode_hash(field)) for field in fields)
    if len(set(hashes)) != len(hashes):
        raise RemoteProtocolError("a block comes twice in a BLOCK_REQ")
    return BlockReq(hashes)


def _entries(fields: Fields) -> Entries:
    _expect(fields, 1, MAX_DATA_ITEMS)
    return Entries(tuple(map(decode_bytes, fields)))


def _blocks(fields: Fields) -> Blocks:
    _expect(fields, 1, MAX_DATA_ITEMS)
    blocks = tuple(map(decode_bytes, fields))
    if not all(len(block) <= SYNC_BLOCK_DATA for block in blocks):
        raise RemoteProtocolError(f"a block has 1 to {SYNC_BLOCK_DATA} bytes")
    return Blocks(blocks)


def _root(fields: Fields) -> Root:
    _expect(fields, 6, 6)
    return Root(_decode_digest(fields[:5]), decode_number(fields[5], MAX_KEPT))


def _have(fields: Fields) -> Have:
    _expect(fields, 2, 2)
    if not _BITS.fullmatch(fields[1]):
        raise RemoteProtocolError("HAVE ends with 1 to 64 hexadecimal digits")
    return Have(BlockHash(decode_hash(fields[0])), int(fields[1], 16))


def _same(fields: Fields) -> Same:
    _expect(fields, 1, 1)
    return Same(decode_number(fields[0], 65535))


def _word(message: Message) -> Callable[[Fields], Message]:
    """The parser of a section without a field."""

    def parse_word(fields: Fields) -> Message:
        _expect(fields, 0, 0)
        return message

    return parse_word


def _close(fields: Fields) -> Close | Refuse:
    if fields[:1] == [b"OK"]:
        _expect(fields, 7, 7)
        return Close(decode_number(fields[1], MAX_NUMBER), _decode_digest(fields[2:]))
    _expect(fields, 3, 3)
    if fields[0] != b"NO" or len(fields[2]) > 3 * _MAX_TEXT:
        raise RemoteProtocolError("a CLOSE is OK or NO")
    try:
        refusal = Refusal(fields[1].decode("ascii"))
    except ValueError:
        refusal = Refusal.FAILURE  # a later version may know more reasons
    text = unquote_to_bytes(fields[2]).decode(errors="replace")
    # The text ends up in our log and on our user's terminal.
    return Refuse(refusal, "".join(c if c.isprintable() else "?" for c in text)[:_MAX_TEXT])


_PARSERS: dict[bytes, Callable[[Fields], Message]] = {
    b"HASH": _hash,
    b"LS": _ls,
    b"PATH_REQ": _path_req,
    b"ENTRY_REQ": lambda fields: EntryReq(_entry_hashes(fields)),
    b"BLOCK_REQ": _block_req,
    b"ENTRIES": _entries,
    b"BLOCKS": _blocks,
    b"CLOSE": _close,
    b"ROOT": _root,
    b"HAVE": _have,
    b"SAME": _same,
    **{word: _word(kind()) for kind, word in _WORDS.items()},
}


#: How a line of entries begins.
ENTRIES = b"ENTRIES "
#: Lines that may come between entries which are given to the log together: data, and requests for what the peer lacks,
#: which have nothing to do with what it sends.  A list is compared with the log, so it waits until that has them.
_BETWEEN = (ENTRIES, b"BLOCKS ", b"PATH_REQ ", b"ENTRY_REQ ", b"BLOCK_REQ ")


class LineBuffer:
    """Bytes that have arrived and were not read as lines yet.

    Costs are linear in the bytes received: the search for a newline never starts over, and consumed bytes are dropped
    only when they are half of the buffer.
    """

    def __init__(self) -> None:
        self._data = bytearray()
        self._start = 0  # where the next line begins
        self._searched = 0  # no newline between _start and here

    @property
    def ready(self) -> bool:
        """Whether `next_line` might return something other than what it returned last."""
        return self._searched < len(self._data)

    def feed(self, data: bytes) -> None:
        """Append received bytes."""
        self._data += data

    def next_line(self) -> bytes | None:
        """The next complete line without its newline; None if there is none yet.

        Raises `RemoteProtocolError` as soon as a line is longer than `MAX_LINE`, complete or not.
        """
        end = self._data.find(b"\n", self._searched)
        size = (end if end >= 0 else len(self._data)) - self._start
        if size > MAX_LINE:
            raise RemoteProtocolError(f"a line has at most {MAX_LINE} bytes")
        if end < 0:
            self._searched = len(self._data)
            return None
        line = bytes(self._data[self._start : end])
        self._start = self._searched = end + 1
        if 2 * self._start >= len(self._data):
            del self._data[: self._start]
            self._start = self._searched = 0
        return line


def belongs(line: bytes | None, *, more: bool) -> bool:
    """Whether entries that were gathered may become more behind this line; `more`: an answer with some follows.

    Answers to requests for many small files hold an entry each, and a transaction for each costs more than the entry.
    What an EOF leads to is looked at again at the EOF of the next answer.
    """
    return line is not None and (line.startswith(_BETWEEN) or (more and line == b"EOF"))
