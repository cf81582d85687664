"""The token of an invitation: one encoding, and one plain line for anything else."""

from __future__ import annotations

import base64

import pytest

from basefs.daemon.config import NodeAddress
from basefs.daemon.token import MAX_ADDRESSES, MAX_KEYS, PREFIX, Token
from basefs.errors import UsageError
from basefs.log.hashes import sha224
from tests.support.helpers import ALICE, BOB, make_key

TOKEN = Token(
    name="etc",
    identity=bytes(range(28)),
    seed=bytes(range(100, 132)),
    until=1_790_000_000,
    is_open=False,
    keys=(ALICE.public, BOB.public),
    addresses=(NodeAddress("10.0.0.1", 18374), NodeAddress("fd00::1", 1)),
)
TEXT = str(TOKEN)
ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"


def refusal(text: str) -> str:
    with pytest.raises(UsageError) as caught:
        Token.parse(text)
    message = str(caught.value)
    assert "\n" not in message
    return message


def encoded(body: bytes) -> str:
    """A body with the checksum that belongs to it."""
    data = body + sha224(b"basefs invitation v1\0" + body)[:4]
    return PREFIX + base64.b32encode(data).decode().rstrip("=").lower()


def body(text: str = TEXT) -> bytes:
    digits = text.removeprefix(PREFIX).upper()
    return base64.b32decode(digits + "=" * (-len(digits) % 8))[:-4]


def test_there_and_back() -> None:
    assert Token.parse(TEXT) == TOKEN
    assert set(TEXT.removeprefix(PREFIX)) <= set(ALPHABET)
    assert encoded(body()) == TEXT


def test_as_many_members_as_there_may_be_are_one_line_that_a_terminal_takes() -> None:
    keys = tuple(make_key(str(number)).public for number in range(MAX_KEYS))
    addresses = tuple(NodeAddress(f"fd00::{number + 1:x}", 65000 + number) for number in range(MAX_ADDRESSES))
    full = Token("n" * 64, bytes(28), bytes(32), 2**32 - 1, True, keys, addresses)
    assert Token.parse(str(full)) == full
    # A terminal's line has 4095 characters (termios(3)).
    assert len(str(full)) < 2048


@pytest.mark.parametrize("text", [f" {TEXT}\n", TEXT[:60] + "\r\n " + TEXT[60:], "\t".join((TEXT[:9], TEXT[9:]))])
def test_what_mail_and_terminals_add_does_not_matter(text: str) -> None:
    assert Token.parse(text) == TOKEN


def test_it_shows_its_secret_to_no_log() -> None:
    assert TOKEN.seed.hex() not in repr(TOKEN) and repr(TOKEN.seed) not in repr(TOKEN) and TEXT[20:] not in repr(TOKEN)


def test_every_other_character_is_refused() -> None:
    for place in range(len(TEXT)):
        for other in (ALPHABET[(ALPHABET.find(TEXT[place]) + 1 + place) % 32], "1", "=", TEXT[place].upper(), "é"):
            if other != TEXT[place]:
                refusal(TEXT[:place] + other + TEXT[place + 1 :])


def test_every_end_that_is_missing_or_too_long_is_refused() -> None:
    for length in range(len(TEXT)):
        refusal(TEXT[:length])
    for more in ("a", "aa", "aaaaaaaa", "=", "======", TEXT):
        assert "damaged or cut off" in refusal(TEXT + more)


@pytest.mark.parametrize("text", ["basefs2-abcd", "basefs1", "hello", "x" + TEXT, "-----BEGIN PRIVATE KEY-----", "\0"])
def test_what_is_no_invitation(text: str) -> None:
    assert refusal(text) == "that is no invitation: it begins with basefs1-, as 'basefs invite' printed it"


@pytest.mark.parametrize("text", ["", " \n "])
def test_nothing(text: str) -> None:
    assert "there is no invitation in the input" in refusal(text)


def test_a_right_checksum_of_wrong_fields_is_refused() -> None:
    """Of a later version or of an adversary: the checksum is no secret."""
    whole = body()
    for wrong in (
        b"",
        whole[:-1],
        whole + b"\0",
        whole.replace(ALICE.public, bytes(32)),  # no sound key
        whole.replace(b"\x03etc", b"\x03\xff\xff\xff"),  # no UTF-8
        whole.replace(b"\x04\x0a\x00\x00\x01", b"\x05\x0a\x00\x00\x01\x00"),  # no IP address
        whole.replace(b"\x02" + ALICE.public, b"\xff" + ALICE.public),
    ):
        assert "damaged or cut off" in refusal(encoded(wrong))


def test_something_endless_is_refused_at_once() -> None:
    assert "damaged or cut off" in refusal(PREFIX + "a" * 10_000_000)
