"""Test vectors of the formats.

`tests/data/vectors.json` holds what `vectors()` made once.  It never changes: a format that needs other bytes gets
another tag, and vectors of its own.
"""

from __future__ import annotations

import json
import os

from basefs.log import blocks, codecs
from basefs.log.entries import Action, Entry
from basefs.log.extensions import NO_EXTENSIONS, Extensions, Recovery, RecoveryKeys
from basefs.log.hashes import HASH_SIZE, BlockHash, sha224
from basefs.log.keys import SigningKey
from basefs.log.recovery import message
from basefs.view.states import Kind, Owner, encode_mode, encode_node, encode_xattrs
from tests.support.project import ROOT

FILE = ROOT / "tests" / "data" / "vectors.json"
#: The secret keys of tests 1 to 3 in RFC 8032, section 7.1.
SECRETS = (
    bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"),
    bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb"),
    bytes.fromhex("c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7"),
)
#: Nanoseconds since 1970.
BIRTH = 1_400_000_000 * 10**9
OLD = b"".join(b"option%d = %d\n" % (number, number * number) for number in range(100))
NEW = OLD.replace(b"option50 = 2500", b"option50 = 1")


def entries() -> dict[str, Entry]:
    """One entry of each action, and some at their limits."""
    root, other, third = (SigningKey.from_seed(secret) for secret in SECRETS)
    hello = blocks.Encoded(blocks.split(b"hello\n")[0], codecs.STORED.tag, 6).encode()
    # A manifest of 524 288 parts.
    huge = blocks.Encoded(BlockHash(sha224(b"huge")), codecs.STORED.tag, blocks.MAX_CONTENT_BYTES).encode()
    made = {"root": root.sign(bytes(range(HASH_SIZE)), BIRTH, Action.MKDIR, b"/")}

    def add(
        label: str,
        behind: str,
        action: Action,
        name: bytes,
        content: bytes = b"",
        extensions: Extensions = NO_EXTENSIONS,
    ) -> None:
        made[label] = root.sign(made[behind].hash, BIRTH + len(made), action, name, content, extensions)

    add("grant", "root", Action.GRANT, b"root", root.public)
    add("grant other", "grant", Action.GRANT, "clé".encode(), other.public)
    add("mkdir", "root", Action.MKDIR, b"etc")
    add("write", "mkdir", Action.WRITE, b"motd", hello, Extensions(6))
    add("write empty", "mkdir", Action.WRITE, b"empty")
    add("write largest", "mkdir", Action.WRITE, b"huge", huge, Extensions(blocks.MAX_CONTENT_BYTES, mtime=-1))
    add("mode", "write", Action.MODE, b"motd", encode_mode(0o640, None))
    add("mode owner", "mode", Action.MODE, b"motd", encode_mode(0o640, Owner(b"root", b"adm", 0, 4)))
    add("ack", "mode owner", Action.ACK, b"motd")
    add("delete", "ack", Action.DELETE, b"motd")
    add("revert", "delete", Action.REVERT, b"motd", made["write"].hash)
    add("link", "mkdir", Action.LINK, b"motd.bak", made["write"].hash)
    add("slink", "mkdir", Action.SLINK, b"issue", b"../usr/share/issue")
    add("name of 255 bytes", "mkdir", Action.MKDIR, b"n" * 255)
    add("revoke", "grant other", Action.REVOKE, "clé".encode(), other.fingerprint)
    add("mode special", "write", Action.MODE, b"motd", encode_mode(0o4755, None), Extensions(mtime=BIRTH + 123_456_789))
    add("fifo", "mkdir", Action.NODE, b"pipe", encode_node(Kind.FIFO))
    add("block device", "mkdir", Action.NODE, b"disk", encode_node(Kind.BLOCK, os.makedev(8, 1)))
    xattrs = encode_xattrs(((b"user.comment", b"greeting"), (b"user.empty", b"")))
    add("xattr", "mode special", Action.XATTR, b"motd", xattrs)
    add("xattr removed", "xattr", Action.XATTR, b"motd")
    add("grant again", "revoke", Action.GRANT, "clé".encode(), other.public)
    add("admit", "grant again", Action.ADMIT, b"reader", other.public)
    add("annotation 64", "mode", Action(64), b"", b"of a later version")
    add("extension 255", "mkdir", Action.MKDIR, b"later", extensions=Extensions(unknown=((255, b"ignored"),)))
    nonce, is_open = bytes(range(HASH_SIZE)), Extensions(is_open=True)
    made["root open"] = root.sign(nonce, BIRTH, Action.MKDIR, b"/", extensions=is_open)
    publics = tuple(sorted((other.public, third.public)))
    named = Extensions(recovery_keys=RecoveryKeys(2, publics))
    made["root recoverable"] = root.sign(nonce, BIRTH, Action.MKDIR, b"/", extensions=named)
    signed = message(made["root recoverable"].hash, 1, root.public)
    by = {key.public: key.secret.sign(signed) for key in (other, third)}
    recovery = Recovery(1, tuple((index, by[public]) for index, public in enumerate(publics)))
    add("recovery", "root recoverable", Action.GRANT, b"root", root.public, Extensions(recovery=recovery))
    add("gossip key", "revoke", Action.GOSSIP_KEY, b"", bytes(range(32)))
    return made


def vectors() -> dict[str, object]:
    """Everything that the file holds."""
    return {
        "entries": [
            {
                "label": label,
                "secret": SECRETS[0].hex(),
                "parent": entry.parent.hex(),
                "made": entry.made,
                "action": int(entry.action),
                "name": entry.name.hex(),
                "content": entry.content.hex(),
                "extensions": entry.extensions.encode().hex(),
                "fingerprint": entry.fingerprint.hex(),
                "signature": entry.signature.hex(),
                "hash": entry.hash.hex(),
                "encoded": entry.encode().hex(),
            }
            for label, entry in entries().items()
        ],
        "blocks": [
            {"label": label, "data": block.data.hex(), "hash": block.hash.hex()}
            for label, block in zip(
                ("only one", "list of two", "first of two", "last of two"),
                [*blocks.split(b"hello\n")[1], *blocks.split(b"a" * 600)[1]],
                strict=True,
            )
        ],
        "contents": [
            {
                "codec": codec.name,
                "tag": codec.tag,
                "old": "" if codec.keyframe else OLD.hex(),
                "size": len(NEW),
                "encoded": codec.encode(NEW, OLD).hex(),
                "content": NEW.hex(),
            }
            for codec in codecs.CODECS.values()
        ],
    }


def table() -> str:
    """The table of `docs/formats.md`."""
    lines = [
        "| vector | action | name | content | extensions | hash |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for label, entry in entries().items():
        name = "255 x `6e`" if len(entry.name) > 100 else f"`{entry.name.hex()}`"
        content = f"`{entry.content.hex()}`" if entry.content else ""
        extensions = f"`{entry.extensions.encode().hex()}`" if entry.extensions != NO_EXTENSIONS else ""
        lines.append(f"| {label} | {int(entry.action)} | {name} | {content} | {extensions} | `{entry.hash.hex()}` |")
    return "\n".join(lines) + "\n"


def load() -> dict[str, list[dict[str, object]]]:
    """The golden file."""
    found: dict[str, list[dict[str, object]]] = json.loads(FILE.read_text())
    return found
