"""`basefs import`: what `basefs export` wrote, as a new filesystem or into one that is here."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import click

from basefs.daemon.api.archives import import_archive
from basefs.daemon.api.creation import parse_identity
from basefs.daemon.config import Home
from basefs.errors import ArchiveError, UsageError
from basefs.management.output import counted, examples, json_option, note, print_json, say
from basefs.management.progress import transfer_bar


@click.command("import", epilog=examples("basefs import etc etc.basefs", "basefs import --salvage etc etc.basefs"))
@click.argument("name")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--id", "identity", metavar="ROOTHASH", help="Identity that the filesystem must have, in hex.")
@click.option("--salvage", "salvaging", is_flag=True, help="Import the intact parts of a damaged file.")
@json_option
def import_(name: str, file: Path, identity: str | None, salvaging: bool, as_json: bool) -> None:
    """Create the filesystem NAME from FILE, which 'basefs export' wrote; '-' is standard input.

    If NAME exists, missing entries and contents are added, also while it runs. Every hash and signature is verified as
    if it came from another node. A damaged file creates no filesystem; an existing one takes only what is verified.
    """
    home = Home.from_environment()
    home.directory(name)
    pinned = None if identity is None else parse_identity(identity)
    with _input(file) as (stream, total), transfer_bar("import", total) as progress:
        try:
            found = import_archive(home, name, stream, pinned, progress, salvages=salvaging)
        except ArchiveError as error:
            raise ArchiveError(f"{file}: {error}") from None
    if as_json:
        print_json({"name": name, **dataclasses.asdict(found)})
        return
    say(f"{name} {found.identity} {counted(found.entries, 'entry')}, {found.new} new")
    if found.problems:
        note(
            f"basefs: {file} is damaged, {counted(len(found.problems), 'finding')}, the first: {found.problems[0]}",
        )


@contextlib.contextmanager
def _input(file: Path) -> Iterator[tuple[BinaryIO, int | None]]:
    """The file, and its size where that is known."""
    if str(file) == "-":
        if sys.stdin.isatty():
            raise UsageError("refusing to read an archive from a terminal: give FILE, or redirect stdin")
        yield sys.stdin.buffer, None
        return
    with file.open("rb") as stream:
        facts = os.fstat(stream.fileno())
        yield stream, facts.st_size if stat.S_ISREG(facts.st_mode) else None
