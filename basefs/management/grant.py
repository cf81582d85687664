"""`basefs grant`: let a key write."""

from __future__ import annotations

import re
import shlex
import socket
from pathlib import Path

import click

from basefs.daemon.api.messages import GrantKey, GrantOutcome, ListKeys, PathVersions, encode
from basefs.daemon.config import Home
from basefs.daemon.keyfiles import own_key_files
from basefs.errors import UsageError
from basefs.management.differences import became, described
from basefs.management.output import SHORT, examples, json_option, note, print_json, print_table, printable, say
from basefs.management.session import ask
from basefs.management.signing import key_option, other_key
from basefs.management.target import parse_changed

_PUBLIC = re.compile(r"[0-9A-Fa-f]{64}|(ssh|ecdsa|sk)-.*")

dry_run_option = click.option("-n", "--dry-run", is_flag=True, help="List what would change, and change nothing.")


@click.command(
    epilog=examples(
        "basefs grant etc:/ two two.pub",
        "basefs grant --dry-run /cluster/nginx web web.pub",
        "basefs grant etc:/ two two.pub -k /media/usb/root.key",
    )
)
@click.argument("target", metavar="NAME[:/PATH]")
@click.argument("keyname")
@click.argument("key", metavar="PUBKEY|KEYFILE")
@dry_run_option
@click.option("-f", "--force", is_flag=True, help="Allow a name that another key has, or a second name for a key.")
@key_option
@json_option
def grant(
    target: str,
    keyname: str,
    key: str,
    dry_run: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Let a key write at a path and everywhere below it; NAME alone is the whole filesystem.

    PUBKEY is the public key, in hex or as a line of SSH ('ssh-ed25519 AAAA...'); KEYFILE a .pub file of 'basefs genkey'
    or 'ssh-keygen -t ed25519'. 'basefs log' and the other listings call the key KEYNAME. A grant changes no file: if
    the new key would turn a conflict, your key first confirms the current version.
    """
    home = Home.from_environment()
    parsed = parse_changed(home, target)
    request = GrantKey(parsed.path, keyname, public_key(key), dry_run, force, other_key())
    plan = ask(home, parsed.name, request)
    if as_json:
        print_json(encode(plan))
    elif not plan.entries:
        note("that key is granted there already: nothing to do")
    else:
        if not dry_run:
            say(f"granted: {printable(request.name)} may write at {printable(request.path)} and below")
            for one in plan.gained:
                if (one.path, one.name) != (request.path, request.name):
                    note(f"valid again: {printable(one.name)} at {printable(one.path)}, granted by that key")
        print_plan(plan, dry_run=dry_run)


def permission(home: Home, name: str) -> str:
    """What permits a key of this node to write, and where to type it."""
    return f"on a node with the key {granters(home, name)}: {grant_line(home, name)}"


def grant_line(home: Home, name: str) -> str:
    """The command that permits this node's key to write, for a node that may grant; `name` is of the filesystem.

    A key that was granted before gets the same path and name: nobody is to give a machine more than it ever had, and a
    key has one name.
    """
    rows = ask(home, name, ListKeys(every=True)) if name in home.names() else []
    had = [(one.path, one.name) for one in rows if one.own]
    path, key_name = min(had, key=lambda one: len(one[0]), default=("/", socket.gethostname()))
    line = ("basefs", "grant", f"{name}:{printable(path)}", printable(key_name), str(own_key_files(home)[0].public))
    return shlex.join(line)


def granters(home: Home, name: str) -> str:
    """The names of the keys that may grant everything, without invitations: `alpha or beta`.

    The root key grants itself; it is on no node, unless it is the only one.
    """
    # Imported here: it takes longer than most commands, which do not need it.
    from basefs.daemon.api.joining import is_for_invitations

    found = [one for one in ask(home, name, ListKeys("/")) if not is_for_invitations(one.name)]
    names = {one.name for one in found if one.granted_by != one.fingerprint} or {one.name for one in found}
    return " or ".join(sorted(map(printable, names)))


def public_key(text: str) -> str:
    """The public key that a user gives, as text or as a file, to be parsed by the daemon.  Raises `UsageError`."""
    if _PUBLIC.fullmatch(text.strip()):
        return text
    path = Path(text)
    if not path.is_file():
        raise UsageError(
            f"{text!r} is neither a file nor a public key: give the .pub file of 'basefs genkey' or ssh-keygen, or "
            "64 hexadecimal digits"
        )
    try:
        content = path.read_text()
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not a public key: give the .pub file of 'basefs genkey' or ssh-keygen") from None
    if "PRIVATE KEY" in content:
        raise UsageError(f"{path} is a private key, which must stay where it is: give {path}.pub")
    return content.strip()


def print_plan(plan: GrantOutcome, *, dry_run: bool) -> None:
    """What a grant or revoke does; once it is done, only what the user would not expect, on stderr."""
    if not dry_run:
        for change in plan.changed:
            note(f"{printable(change.path)} was {became(change)}: {_sides(change)}")
        return
    rows = [("acknowledged", path, "") for path in plan.acks]
    rows += [(became(change), change.path, _sides(change)) for change in plan.changed]
    for what, grants in (("grant fallen", plan.fallen), ("grant gained", plan.gained)):
        rows += [(what, one.path, f"{one.name} {one.fingerprint[:SHORT]}") for one in grants]
    print_table(("WHAT", "PATH", "DETAIL"), rows, "nothing would change")


def _sides(change: PathVersions) -> str:
    entries = " -> ".join(side.entry[:SHORT] for side in (change.before, change.after) if side is not None)
    return f"{described(change)} ({entries})"
