"""`basefs join`: join a filesystem with an invitation."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from basefs.daemon.api.joining import join as join_by
from basefs.daemon.config import Home
from basefs.daemon.token import PREFIX, Token
from basefs.errors import UsageError
from basefs.management.get import amounts
from basefs.management.output import examples, json_option, note, print_json, printable, say, size
from basefs.management.progress import progress_line
from basefs.management.session import connections, notify

#: Bytes that are read of an input: tokens have some hundred.
_MOST = 64 * 1024


@click.command(epilog=examples("basefs join", "basefs join conf", "basefs join conf ./invitation.txt"))
@click.argument("name", required=False)
@click.argument("file", metavar="[FILE|-]", default="-")
@json_option
def join(name: str | None, file: str, as_json: bool) -> None:
    """Join a filesystem with an invitation, the line that 'basefs invite' printed on a member.

    The invitation is read from FILE, or from the standard input; it is never an argument, which every user of the
    machine could see. The filesystem is called NAME here; by default as on the machine that made the invitation. With
    one argument, '-' or a path with a '/' is FILE.

    The members that the invitation names are tried one after another. Every hash and signature is verified, and so is
    the identity of the filesystem. A machine without a key gets one, which never leaves it. It can write at
    once, unless the invitation is read-only.
    """
    given = [name] if name is not None else []
    if given and file == "-" and (given[0] == "-" or "/" in given[0]):
        file = given.pop()
    if any(text.startswith(PREFIX) for text in (*given, file)):
        raise UsageError(
            "an invitation is no argument, as every user of this machine can see it there: cancel that one, and paste "
            "the next one into 'basefs join'"
        )
    token = Token.parse(_read(file))
    called = given[0] if given else token.name
    home = Home.from_environment()
    with progress_line() as show, connections():
        joined = join_by(
            home,
            called,
            token,
            lambda so_far: show(f"{amounts(so_far)}, {size(so_far.bytes)}"),
            note,
        )
    fetched = joined.fetched
    if as_json:
        print_json(
            {
                "name": called,
                "identity": fetched.identity,
                "entries": fetched.entries,
                "blocks": fetched.blocks,
                "path": joined.path,
                "key_name": joined.key_name,
            }
        )
    else:
        say(f"{called} {fetched.identity} {amounts(fetched)}")
        what = "may read" if joined.path is None else f"may write at {printable(joined.path)} and below"
        say(f"joined: {printable(joined.key_name)} {what}")
    notify(f"mount it:    basefs mount {called} DIR")


def _read(file: str) -> str:
    """What an input holds.  A terminal shows nothing of it."""
    if file == "-" and sys.stdin.isatty():
        found: str = click.prompt("Invitation", hide_input=True, prompt_suffix=": ", err=True)
        return found
    try:
        data = sys.stdin.buffer.read(_MOST) if file == "-" else _read_file(Path(file))
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror or error}") from None
    return data.decode("utf-8", "replace")


def _read_file(path: Path) -> bytes:
    with path.open("rb") as opened:
        return opened.read(_MOST)
