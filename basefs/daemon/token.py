"""The token of an invitation: one line that a person pastes on the new machine (docs/formats.md, section 12).

It holds the private key of the invitation, so who has it may join: it is a password until it is used.
"""

from __future__ import annotations

import base64
import ipaddress
import re
import struct
from dataclasses import dataclass

from basefs.daemon.config import NodeAddress
from basefs.errors import UsageError
from basefs.log.ed25519 import PUBLIC_KEY_SIZE, is_sound
from basefs.log.hashes import HASH_SIZE, sha224

PREFIX = "basefs1-"
#: Bytes of an Ed25519 secret (RFC 8032).
SEED_SIZE = 32
#: Keys and addresses of members in a token: more make a line that is hard to paste, fewer may all be off.
MAX_KEYS = 8
MAX_ADDRESSES = 6
_DOMAIN = b"basefs invitation v1\0"
_PORT = struct.Struct(">H")
_EXPIRY = struct.Struct(">I")
_SPACE = re.compile(r"\s+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Token:
    """What a token says.

    Attributes:
        name: of the filesystem where the invitation was made.
        identity: of the filesystem.
        seed: the secret of the invite key, `SEED_SIZE` bytes.
        until: when it expires, UNIX seconds.
        is_open: whether anybody may read the filesystem: members of a closed one are met under TLS alone.
        keys: raw public keys of members, at most `MAX_KEYS`, the inviter's first.
        addresses: IP addresses and gossip ports of members, at most `MAX_ADDRESSES`.
    """

    name: str
    identity: bytes
    seed: bytes
    until: int
    is_open: bool
    keys: tuple[bytes, ...]
    addresses: tuple[NodeAddress, ...]

    def __str__(self) -> str:
        """The one encoding."""
        body = b"".join(
            (
                self.identity,
                self.seed,
                _EXPIRY.pack(self.until),
                bytes((self.is_open,)),
                _string(self.name.encode()),
                bytes((len(self.keys),)),
                *self.keys,
                bytes((len(self.addresses),)),
                *(
                    _PORT.pack(address.port) + _string(ipaddress.ip_address(address.host).packed)
                    for address in self.addresses
                ),
            )
        )
        return to_line(PREFIX, _DOMAIN, body)

    def __repr__(self) -> str:
        # The seed must not get into a log by accident.
        return f"<Token of {self.name}, {self.identity.hex()}>"

    @classmethod
    def parse(cls, text: str) -> Token:
        """The token in a text; spaces and line ends, which mail adds, do not matter.  Raises `UsageError`."""
        compact = _SPACE.sub("", text)
        if not compact:
            raise UsageError("there is no invitation in the input: paste the line that 'basefs invite' printed")
        if not compact.startswith(PREFIX):
            raise UsageError(f"that is no invitation: it begins with {PREFIX}, as 'basefs invite' printed it")
        try:
            return _decode(_Reader(from_line(PREFIX, _DOMAIN, compact)))
        except ValueError:
            raise UsageError(
                "the invitation is damaged or cut off: copy the whole line that 'basefs invite' printed"
            ) from None


def to_line(prefix: str, domain: bytes, body: bytes) -> str:
    """Bytes as one line of letters and digits, with a hash at the end against slips of the hand and of the mouse."""
    text = base64.b32encode(body + sha224(domain + body)[:4]).decode().rstrip("=")
    return prefix + text.lower()


def from_line(prefix: str, domain: bytes, line: str) -> bytes:
    """The bytes of a line with this prefix.  Raises `ValueError` for what `to_line` has not made."""
    digits = line[len(prefix) :]
    if len(line) > 2048:
        raise ValueError("too long")
    body = base64.b32decode(digits.upper() + "=" * (-len(digits) % 8))[:-4]
    # Besides the hash: the last digit may hold bits that stand for nothing, and the case of letters, too.
    if to_line(prefix, domain, body) != line:
        raise ValueError("damaged")
    return body


def _string(data: bytes) -> bytes:
    return bytes((len(data),)) + data


class _Reader:
    """Takes fields off the front of bytes.  Raises `ValueError` where there are too few."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def take(self, count: int) -> bytes:
        """So many bytes."""
        if len(self._data) < count:
            raise ValueError("too short")
        found, self._data = self._data[:count], self._data[count:]
        return found

    def count(self, most: int = 255) -> int:
        """A number in one byte."""
        (number,) = self.take(1)
        if number > most:
            raise ValueError("too many")
        return int(number)

    def string(self) -> bytes:
        """Bytes behind their number."""
        return self.take(self.count())

    def end(self) -> None:
        """There is nothing more."""
        if self._data:
            raise ValueError("too long")


def _decode(reader: _Reader) -> Token:
    identity, seed = reader.take(HASH_SIZE), reader.take(SEED_SIZE)
    (until,) = _EXPIRY.unpack(reader.take(_EXPIRY.size))
    is_open = bool(reader.count(1))
    name = reader.string().decode()
    keys = tuple(reader.take(PUBLIC_KEY_SIZE) for _ in range(reader.count(MAX_KEYS)))
    addresses = tuple(_address(reader) for _ in range(reader.count(MAX_ADDRESSES)))
    reader.end()
    if not all(map(is_sound, keys)):
        raise ValueError("no Ed25519 key")
    return Token(name, identity, seed, until, is_open, keys, addresses)


def _address(reader: _Reader) -> NodeAddress:
    (port,) = _PORT.unpack(reader.take(_PORT.size))
    # Raises `ValueError` unless these are 4 or 16 bytes.
    return NodeAddress(str(ipaddress.ip_address(reader.string())), port)
