"""`basefs keys`: which key may write where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from basefs.daemon.api.messages import MAX_PENDING, GetRecovery, GetSummary, ListKeys, ListPending, encode
from basefs.daemon.config import Home
from basefs.daemon.keyfiles import own_key_files
from basefs.errors import UsageError
from basefs.management.errors import decline
from basefs.management.output import (
    SHORT,
    examples,
    json_option,
    moment,
    note,
    print_json,
    print_table,
    say,
)
from basefs.management.session import ask, ask_daemon, notify
from basefs.management.target import parse_name, parse_target

#: Of a closed filesystem, where a request is believed of a member alone.
NO_MEMBER_ASKS = "a machine that is no member cannot ask: 'basefs invite {name}' or 'basefs grant {name}' lets it in"


def confirm_key(claim: str, shown: Sequence[str], question: str, refusal: str) -> None:
    """Ask on the terminal whether a key is that of the machine that claims it.

    Args:
        claim: what the machine claims.
        shown: the key, a line for each of its forms.
        question: what follows from a 'yes'.
        refusal: what a 'no' says as it ends the command.
    """
    note(claim)
    for line in shown:
        note(f"  {line}")
    note("Is that what 'basefs keys' prints on that machine?")
    if not click.confirm(question, err=True):
        decline(refusal)


@click.command(
    epilog=examples("basefs keys", "basefs keys etc", "basefs keys etc:/nginx --all", "basefs keys etc --pending")
)
@click.argument("target", metavar="[NAME[:/PATH]]", required=False)
@click.option("-d", "--directories", is_flag=True, help="Order by directory instead of by key.")
@click.option("-a", "--all", "every", is_flag=True, help="Also list grants that are no longer valid.")
@click.option("-p", "--pending", is_flag=True, help="List the machines of a running filesystem that ask to write.")
@json_option
def keys(target: str | None, directories: bool, every: bool, pending: bool, as_json: bool) -> None:
    """List the keys granted in a filesystem, or those valid at a path; without NAME, this node's own key.

    DEPTH is the authority of the key there: 0 for a key granted on '/', the highest, 1 for one granted on '/x', and so
    on; a key without one may only read. STANDING is valid; reads (the path was deleted, and the key may still read);
    revoked; fallen (the granter's own grant was revoked); or gone (the path was deleted). Recovery keys, if the
    filesystem has any, are listed below, with the present root key.

    --pending lists the machines that ask to write. SINCE is when the running daemon first saw the request. 'basefs
    accept' lets one of them write. A machine that joined with an invitation to read does not ask. In an open filesystem
    anyone can claim to be such a machine.
    """
    home = Home.from_environment()
    if pending:
        if target is None:
            raise UsageError("--pending needs NAME: write 'basefs keys NAME --pending'")
        _print_pending(home, parse_name(home, target), as_json)
        return
    if target is None:
        _print_own(home, as_json)
        return
    parsed = parse_target(home, target)
    granted = ask(home, parsed.name, ListKeys(None if parsed.path == "/" else parsed.path, every))
    if not directories:
        granted.sort(key=lambda one: (one.name, one.fingerprint))
    if as_json:
        print_json(encode(granted))
        return
    rows: list[tuple[Any, ...]] = [
        (
            one.name,
            one.fingerprint[:SHORT],
            one.own,
            one.depth,
            one.standing,
            one.granted_by_name or one.granted_by[:SHORT],
            one.path,
        )
        for one in granted
    ]
    titles: tuple[str, ...] = ("NAME", "FINGERPRINT", "OWN", "DEPTH", "STANDING", "GRANTED BY", "PATH")
    if directories:
        titles, rows = titles[-1:] + titles[:-1], [row[-1:] + row[:-1] for row in rows]
    print_table(titles, rows, "no key is granted there")
    if parsed.path == "/":
        _print_recovery(home, parsed.name)


def _print_pending(home: Home, name: str, as_json: bool) -> None:
    """The machines that ask to write."""
    found = ask_daemon(home, name, ListPending())
    if as_json:
        print_json(encode(found))
        return
    rows = [(one.name, one.fingerprint[:SHORT], moment(one.asked), one.address, one.public) for one in found]
    empty = "no machine asks to write"
    if not found and not ask(home, name, GetSummary()).open:
        empty += "; " + NO_MEMBER_ASKS.format(name=name)
    print_table(("NAME", "FINGERPRINT", "SINCE", "ADDRESS", "PUBLIC"), rows, empty)
    if len(found) == MAX_PENDING:
        note(f"only the first {MAX_PENDING} are listed; 'basefs grant {name}' takes the public key of any machine")
    if any(not one.proved for one in found):
        notify("these are claims, since the filesystem is open: compare the key on the machine before you accept it")


def _print_recovery(home: Home, name: str) -> None:
    """The root key and the recovery keys, in a filesystem that has any."""
    state = ask(home, name, GetRecovery())
    if state.keys:
        keys = ", ".join(key.fingerprint[:SHORT] for key in state.keys)
        since = f", by recovery {state.last}" if state.last else ""
        click.echo()
        say(f"{state.root_key.fingerprint[:SHORT]}{since}", label="root key:      ")
        say(f"{state.threshold} of {keys}", label="recovery keys: ")


def _print_own(home: Home, as_json: bool) -> None:
    found = own_key_files(home)
    if as_json:
        print_json(encode(found))
        return
    rows = [(key.file, key.fingerprint[:SHORT], key.public) for key in found]
    empty = f"there is no key at {home.default_key}: 'basefs genkey' makes one"
    print_table(("KEY", "FINGERPRINT", "PUBLIC"), rows, empty)
