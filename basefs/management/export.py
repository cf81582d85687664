"""`basefs export`: a filesystem or a path of it, with all its history, into one file."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import click

from basefs.daemon.api.archives import open_export
from basefs.daemon.config import Home
from basefs.durable import replacement
from basefs.errors import UsageError
from basefs.management.output import counted, examples, json_option, note, print_json, size
from basefs.management.progress import transfer_bar
from basefs.management.target import parse_target


@click.command(epilog=examples("basefs export etc etc.basefs", "basefs export etc:/nginx nginx.basefs"))
@click.argument("target", metavar="NAME[:/PATH]")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@json_option
def export(target: str, file: Path, as_json: bool) -> None:
    """Write a filesystem, or a path and all below it, with all history, into FILE; '-' is standard output.

    'basefs import' creates the same filesystem from FILE. The grants above the path are included, because its
    signatures depend on them; private keys are not. An existing FILE is replaced when the new one is complete.
    """
    home = Home.from_environment()
    parsed = parse_target(home, target)
    with (
        open_export(home, parsed.name, parsed.path) as archive,
        _output(file) as stream,
        transfer_bar("export", archive.size) as progress,
    ):
        written = archive.write(stream, progress)
    to_pipe = str(file) == "-"
    if as_json:
        print_json({"name": parsed.name, **dataclasses.asdict(written)}, err=to_pipe)
        return
    amounts = f"{counted(written.entries, 'entry')}, {counted(written.blocks, 'block')}, {size(written.bytes)}"
    click.echo(f"{parsed.name} {amounts}", err=to_pipe)
    if written.unpublished:
        names = counted(written.unpublished, "name")
        note(f"not in it: {names} with changes on this node that cannot be published")


@contextlib.contextmanager
def _output(file: Path) -> Iterator[BinaryIO]:
    if str(file) == "-":
        if sys.stdout.isatty():
            raise UsageError("refusing to write an archive to a terminal: give FILE, or redirect stdout")
        with _naming("standard output"):
            yield sys.stdout.buffer
    elif file.exists() and not file.is_file():
        # A device or a pipe is written to, not replaced.
        with _naming(str(file)), file.open("wb") as stream:
            yield stream
    else:
        # An archive holds every content that was ever written.
        with replacement(file.absolute(), mode=0o600) as stream:
            yield stream


@contextlib.contextmanager
def _naming(what: str) -> Iterator[None]:
    """An error of writing says what could not be written."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or what
        raise
