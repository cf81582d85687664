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
from basefs.management.output import examples, json_option, print_json
from basefs.management.progress import transfer_bar
from basefs.management.target import parse_target


@click.command(epilog=examples("basefs export etc etc.basefs", "basefs export etc:/nginx nginx.basefs"))
@click.argument("target", metavar="NAME[:/PATH]")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@json_option
def export(target: str, file: Path, as_json: bool) -> None:
    """Write a filesystem, or a path and all below it, with all history, into FILE; '-' is standard output.

    It is whole and signed, and 'basefs import' makes the same filesystem of it. What the path's signatures need, the
    grants above it, comes with it. Private keys do not. A file that is there is replaced once the new one is whole.
    """
    home = Home.from_environment()
    parsed = parse_target(home, target)
    with (
        open_export(home, parsed.name, parsed.path or "/") as archive,
        _output(file) as stream,
        transfer_bar("export", archive.size) as progress,
    ):
        written = archive.write(stream, progress)
    to_pipe = str(file) == "-"
    if as_json:
        print_json({"name": parsed.name, **dataclasses.asdict(written)}, err=to_pipe)
        return
    click.echo(f"{parsed.name} {written.entries} entries {written.blocks} blocks {written.bytes} bytes", err=to_pipe)
    if written.unpublished:
        click.echo(f"not in it: {written.unpublished} names that were saved here and cannot be published", err=True)


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
