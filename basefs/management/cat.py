"""`basefs cat`: the content of a file, now or at an earlier moment."""

from __future__ import annotations

import base64
import sys
from typing import Any

import click

from basefs.daemon.api.messages import ContentPiece, GetVersion, ReadContents, encode
from basefs.daemon.config import Home
from basefs.errors import IncompleteContent, IsADirectory, NotPermitted
from basefs.management.output import SHORT, examples, json_option, print_json
from basefs.management.session import ask
from basefs.management.target import parse_target
from basefs.management.times import parse_moment


@click.command(
    epilog=examples(
        "basefs cat etc:/hosts",
        "basefs cat etc:/hosts --at 5f3a09c1d2e4",
        "basefs cat /cluster/nginx/nginx.conf --at yesterday",
    )
)
@click.argument("target", metavar="NAME:/PATH")
@click.option("--at", "moment", metavar="TIME|HASH", help="Print what this node had then, or that revision.")
@json_option
def cat(target: str, moment: str | None, as_json: bool) -> None:
    """Print a file, also an earlier version or a deleted one, whether the filesystem runs or not.

    --at takes the HASH of a revision of the file, lost ones included. With a TIME (15m, '2 hours ago', 18:56,
    yesterday, '2026-01-31 12:00'), or the HASH of another entry, the command prints the file as it was here at that
    moment.
    """
    home = Home.from_environment()
    parsed = parse_target(home, target)
    path = parsed.path
    version = ask(home, parsed.name, GetVersion(path, None if moment is None else parse_moment(moment)))
    if version.kind == "directory":
        raise IsADirectory(f"{path} is a directory: 'basefs show -l {target}' lists it")
    if version.target is not None:
        raise NotPermitted(f"{path} is a symbolic link to {version.target}")
    if version.kind != "file":
        raise NotPermitted(f"{path} is a {version.kind}, which has no content")
    size, entry = 4 * 1024 * 1024, version.content or version.entry
    wanted = (ContentPiece(entry, offset, size) for offset in range(0, version.size, size))
    pieces = (_fetch(home, parsed.name, piece) for piece in wanted)
    if as_json:
        content: Any = base64.b64encode(b"".join(pieces)).decode()
        print_json({"path": path, **encode(version), "base64": content})
        return
    for piece in pieces:
        sys.stdout.buffer.write(piece)


def _fetch(home: Home, name: str, wanted: ContentPiece) -> bytes:
    (piece,) = ask(home, name, ReadContents([wanted]))
    if piece is None:
        raise IncompleteContent(
            f"the content of {wanted.entry[:SHORT]} has not arrived yet: 'basefs blocks {name}' says more"
        )
    return piece
