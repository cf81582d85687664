"""`basefs export`: a filesystem or a path of it, with all its history, into one file."""

from __future__ import annotations

import contextlib
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import click

from basefs.daemon.config import Home
from basefs.durable import replacement
from basefs.errors import NotRunning, UsageError
from basefs.log.check import open_log
from basefs.log.database import as_store_error, require_format
from basefs.management.archive.outgoing import export as write_archive
from basefs.management.archive.outgoing import size_of
from basefs.management.output import examples, json_option, print_json
from basefs.management.progress import transfer_bar
from basefs.management.session import ask_daemon
from basefs.management.target import parse_target
from basefs.path import parse
from basefs.replica.replica import LOG_FILE


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
    log_path = home.existing(parsed.name) / LOG_FILE
    path = parse(parsed.path or "/")
    waiting = _publish(home, parsed.name)
    with contextlib.closing(_open(log_path)) as source:
        total = None if path else size_of(source)
        with _output(file) as stream, transfer_bar("export", total) as progress:
            written = write_archive(source, path, stream, progress)
    to_pipe = str(file) == "-"
    if as_json:
        facts = {"entries": written.entries, "blocks": written.blocks, "bytes": written.size, "unpublished": waiting}
        print_json({"name": parsed.name, **facts}, err=to_pipe)
        return
    click.echo(f"{parsed.name} {written.entries} entries {written.blocks} blocks {written.size} bytes", err=to_pipe)
    if waiting:
        click.echo(f"not in it: {waiting} names that were saved here and cannot be published", err=True)


def _open(path: Path) -> sqlite3.Connection:
    source = open_log(path)
    try:
        require_format(path, source.execute("PRAGMA user_version").fetchone()[0])
        source.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error as error:
        source.close()
        raise as_store_error(path, error) from None
    return source


def _publish(home: Home, name: str) -> int:
    """Have what was just saved reach the log; returns how many names stay behind."""
    try:
        return int(ask_daemon(home, name, "publish"))
    except NotRunning:
        return 0


@contextlib.contextmanager
def _output(file: Path) -> Iterator[BinaryIO]:
    if str(file) == "-":
        if sys.stdout.isatty():
            raise UsageError("an archive is no text for a terminal: name a file, or send it through a pipe")
        with _naming("standard output"):
            yield sys.stdout.buffer
    elif file.exists() and not file.is_file():
        # A device or a pipe is written to, not replaced.
        with _naming(str(file)), file.open("wb") as stream:
            yield stream
    else:
        # Who may read the log may read all that anybody ever wrote.
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
