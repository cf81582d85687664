"""`basefs import`: what `basefs export` wrote, as a new filesystem or into one that is here."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import click

from basefs.daemon.config import Home
from basefs.daemon.lock import exclusive, is_held
from basefs.errors import ArchiveError, UsageError, WrongFilesystem
from basefs.log.hashes import BlockHash, EntryHash
from basefs.log.interface import AddResult
from basefs.management.archive.incoming import ALONE, SHARED, Add, Batching, import_all, salvage
from basefs.management.archive.records import Reader
from basefs.management.get import parse_identity
from basefs.management.newplace import new_place
from basefs.management.output import examples, json_option, print_json
from basefs.management.progress import transfer_bar
from basefs.management.session import ask, ask_daemon, default_keys
from basefs.replica.replica import LOG_FILE, Replica


@dataclass(frozen=True, slots=True)
class _Log:
    """Where an archive goes: how much at once, how, and what the log tells of itself afterwards."""

    batching: Batching
    add: Add
    entries: int


@click.command("import", epilog=examples("basefs import etc etc.basefs", "basefs import --salvage etc etc.basefs"))
@click.argument("name")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--id", "identity", metavar="ROOTHASH", help="Identity that the filesystem must have, in hex.")
@click.option("--salvage", "salvaging", is_flag=True, help="Take what is whole of a damaged file.")
@json_option
def import_(name: str, file: Path, identity: str | None, salvaging: bool, as_json: bool) -> None:
    """Make the filesystem NAME from FILE, which 'basefs export' wrote; '-' is standard input.

    If NAME is here already, what it lacks is added, also while it runs. Every hash and signature is verified as if it
    came from another node. A damaged file makes no filesystem, and adds nothing wrong to one that is here.
    """
    home = Home.from_environment()
    directory = home.directory(name)
    pinned = None if identity is None else parse_identity(identity)
    with _input(file) as (stream, total), transfer_bar("import", total) as progress:
        with _telling_of(file):
            reader = Reader(stream)
        if pinned not in (None, reader.header.identity):
            raise WrongFilesystem(f"{file} holds the filesystem {reader.header.identity.hex()}, not the one of --id")
        exists = (directory / LOG_FILE).exists()
        problems: list[str] = []
        with _existing(home, name, reader) if exists else _fresh(directory, reader) as log, _telling_of(file):
            if salvaging:
                problems = salvage(reader, log.add, log.batching, progress)
            else:
                import_all(reader, log.add, log.batching, progress)
    summary = ask(home, name, "summary")
    added = summary["entries"] - log.entries
    if as_json:
        facts = {"identity": summary["identity"], "entries": summary["entries"], "new": added, "problems": problems}
        print_json({"name": name, **facts})
        return
    click.echo(f"{name} {summary['identity']} {summary['entries']} entries, {added} of them new")
    if problems:
        click.echo(f"basefs: {file} is damaged, {len(problems)} findings, the first: {problems[0]}", err=True)


@contextlib.contextmanager
def _telling_of(file: Path) -> Iterator[None]:
    """Errors of the archive name its file and what to do."""
    try:
        yield
    except ArchiveError as error:
        raise ArchiveError(f"{file}: {error}") from None


@contextlib.contextmanager
def _input(file: Path) -> Iterator[tuple[BinaryIO, int | None]]:
    """The file, and its size where that is known."""
    if str(file) == "-":
        if sys.stdin.isatty():
            raise UsageError("an archive does not come from a terminal: name a file, or send it through a pipe")
        yield sys.stdin.buffer, None
        return
    with file.open("rb") as stream:
        facts = os.fstat(stream.fileno())
        yield stream, facts.st_size if stat.S_ISREG(facts.st_mode) else None


@contextlib.contextmanager
def _fresh(directory: Path, reader: Reader) -> Iterator[_Log]:
    with new_place(directory) as fresh, contextlib.closing(Replica.create(fresh, reader.header.identity)) as replica:
        yield _Log(ALONE, replica.add, 0)
        if not replica.totals()["entries"]:
            raise ArchiveError("not even the first entries of the filesystem are whole: nothing was imported")


@contextlib.contextmanager
def _existing(home: Home, name: str, reader: Reader) -> Iterator[_Log]:
    summary = ask(home, name, "summary")
    if summary["identity"] != reader.header.identity.hex():
        raise WrongFilesystem(
            f"{name} is the filesystem {summary['identity']}, the file holds {reader.header.identity.hex()}: "
            "import it under another name"
        )
    directory = home.existing(name)
    if is_held(directory):
        yield _Log(SHARED, lambda entries, blocks: _send(home, name, entries, blocks), summary["entries"])
        return
    with exclusive(directory, name), contextlib.closing(Replica(directory, default_keys(home))) as replica:
        yield _Log(ALONE, replica.add, summary["entries"])


def _send(home: Home, name: str, entries: Sequence[bytes], blocks: Sequence[bytes]) -> AddResult:
    """What `Replica.add` does, by the daemon."""
    told = ask_daemon(
        home,
        name,
        "import",
        entries=[b64encode(data).decode() for data in entries],
        blocks=[b64encode(data).decode() for data in blocks],
    )
    return AddResult(
        accepted=told["accepted"],
        missing_parents=tuple(EntryHash(bytes.fromhex(text)) for text in told["missing_parents"]),
        missing_blocks=tuple(BlockHash(bytes.fromhex(text)) for text in told["missing_blocks"]),
        rejected=tuple(told["rejected"]),
    )
