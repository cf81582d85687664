"""The formats are what they were: code, golden vectors and document agree."""

from __future__ import annotations

import pytest

from basefs.log import codecs
from basefs.log.blocks import Block
from basefs.log.entries import FIRST_ANNOTATION, Action, Entry
from basefs.log.extensions import Extensions
from basefs.log.keys import SigningKey, verify
from tests.log.vectors import load, table, vectors
from tests.support.project import ROOT

DOCUMENT = ROOT / "docs" / "formats.md"


def field(vector: dict[str, object], name: str) -> bytes:
    """A field in hexadecimal."""
    text = vector[name]
    assert isinstance(text, str)
    return bytes.fromhex(text)


def number(vector: dict[str, object], name: str) -> int:
    """A field that is a number."""
    value = vector[name]
    assert isinstance(value, int)
    return value


def recoverable() -> Entry:
    """The root entry with recovery keys."""
    (vector,) = (one for one in load()["entries"] if one["label"] == "root recoverable")
    return Entry.decode(field(vector, "encoded"))


@pytest.mark.parametrize("vector", load()["entries"], ids=lambda vector: str(vector["label"]))
def test_entry(vector: dict[str, object]) -> None:
    encoded = field(vector, "encoded")
    entry = Entry.decode(encoded)
    assert entry.encode() == encoded
    assert entry.hash == field(vector, "hash")
    assert entry.signature == field(vector, "signature")
    key = SigningKey.from_seed(field(vector, "secret"))
    verify(entry, key.public, recoverable())
    signed = key.sign(
        field(vector, "parent"),
        number(vector, "made"),
        Action(number(vector, "action")),
        field(vector, "name"),
        field(vector, "content"),
        Extensions.decode(field(vector, "extensions")),
    )
    assert signed == entry
    assert entry.fingerprint == field(vector, "fingerprint")


def test_every_action_has_a_vector() -> None:
    assert {number(vector, "action") for vector in load()["entries"]} == {*map(int, Action), FIRST_ANNOTATION}


@pytest.mark.parametrize("vector", load()["blocks"], ids=lambda vector: str(vector["label"]))
def test_block(vector: dict[str, object]) -> None:
    block = Block.decode(field(vector, "data"))
    assert block.hash == field(vector, "hash")


@pytest.mark.parametrize("vector", load()["contents"], ids=lambda vector: str(vector["codec"]))
def test_content(vector: dict[str, object]) -> None:
    # What compressors write may differ between versions, what their data stand for may not.
    encoded, old = field(vector, "encoded"), field(vector, "old")
    content = codecs.decode(number(vector, "tag"), encoded, old, number(vector, "size"))
    assert content == field(vector, "content")


def test_every_codec_has_a_vector() -> None:
    assert [number(vector, "tag") for vector in load()["contents"]] == sorted(codecs.CODECS)


def test_code_makes_the_same_entries_and_blocks() -> None:
    made = vectors()
    assert made["entries"] == load()["entries"]
    assert made["blocks"] == load()["blocks"]


def test_the_document_holds_the_table() -> None:
    assert table() in DOCUMENT.read_text(encoding="utf-8")
