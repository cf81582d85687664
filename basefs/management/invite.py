"""`basefs invite`: let another machine join."""

from __future__ import annotations

import click

from basefs.daemon.api.client import FilesystemClient
from basefs.daemon.api.joining import OpenInvitation, open_invitations
from basefs.daemon.api.joining import invite as make_invitation
from basefs.daemon.api.messages import LEAST_DIGITS, RevokeKey, encode
from basefs.daemon.config import Home
from basefs.errors import NotFound, UsageError
from basefs.management.output import (
    SHORT,
    examples,
    json_option,
    moment,
    print_json,
    print_table,
    printable,
    say,
)
from basefs.management.session import client, notify
from basefs.management.target import parse_changed
from basefs.management.times import parse_span


@click.command(
    epilog=examples(
        "basefs invite etc",
        "basefs invite etc:/web --name gamma --expires 2h",
        "basefs invite etc --read-only --name monitor",
        "basefs invite etc --list",
        "basefs invite etc --cancel 3f1c0a9e",
    )
)
@click.argument("target", metavar="NAME[:/PATH]")
@click.option("--name", "machine", metavar="NAME", default="", help="Name of the new machine (default: its host name).")
@click.option("--read-only", is_flag=True, help="The machine may read everything, and write nothing.")
@click.option("--expires", default="24h", metavar="TIME", show_default=True, help="How long the invitation counts.")
@click.option("-l", "--list", "listing", is_flag=True, help="List the invitations in force.")
@click.option("--cancel", metavar="NAME|FINGERPRINT", help="Take an invitation back.")
@json_option
def invite(
    target: str,
    machine: str,
    read_only: bool,
    expires: str,
    listing: bool,
    cancel: str | None,
    as_json: bool,
) -> None:
    """Make an invitation: one line with which another machine joins by 'basefs join'.

    The machine may write at PATH and below; NAME alone is the whole filesystem. The line holds a key: anyone who
    has it may join until it is used, cancelled or expired, so send it as you would send a password. It is printed once
    and kept nowhere. The new machine makes a key of its own. It can join while this node is off, at any other member;
    once this node has received that, it grants the new key with its own, and the invitation is worthless.

    --list shows for each invitation whether it is open, used or expired; 'used' by two keys means that somebody else
    has seen it. --cancel also revokes the keys that joined with it, unless this node has granted them since.

    A machine of which this node learns only after the invitation has expired stays listed as 'used', and depends on the
    invitation: it joined in time, at another member, while this node was off, or with a line that had expired. 'basefs
    grant' of its key, here, ends that, or --cancel turns it away.
    """
    home = Home.from_environment()
    parsed = parse_changed(home, target)
    if listing and cancel is not None:
        raise UsageError("--list and --cancel do not go together: give one of them")
    filesystem = client(home, parsed.name)
    if listing:
        _list(filesystem, parsed.path, as_json)
        return
    if cancel is not None:
        _cancel(filesystem, parsed.name, cancel, as_json)
        return
    seconds = parse_span(expires)
    # Time to paste it, and not so long that it is forgotten.
    if not 60 <= seconds <= 365 * 86_400:
        raise UsageError(f"--expires takes a time from 1m to 365d, not {expires!r}")
    if read_only and parsed.path != "/":
        raise UsageError(f"a machine that reads, reads everything: write {parsed.name} without a path")
    path = None if read_only else parsed.path
    made = make_invitation(home, parsed.name, filesystem, path, machine, seconds)
    if as_json:
        print_json(encode(made))
        return
    click.echo(made.invitation)
    notify(f"valid until: {moment(made.until)}, or until it is used")
    notify("on the new machine: 'basefs join', and paste the line")


def _list(filesystem: FilesystemClient, path: str, as_json: bool) -> None:
    found = [one for one in open_invitations(filesystem) if path in ("/", one.path)]
    if as_json:
        print_json(encode(found))
        return
    rows = [
        (
            one.machine or None,
            one.fingerprint[:SHORT],
            one.standing,
            moment(one.until),
            ", ".join(one.used_by) or None,
            one.invited_by,
            one.path,
        )
        for one in found
    ]
    titles = ("NAME", "FINGERPRINT", "STANDING", "UNTIL", "USED BY", "INVITED BY", "PATH")
    print_table(titles, rows, "no invitation is in force")


def _find(filesystem: FilesystemClient, name: str, who: str) -> OpenInvitation:
    """The invitation in force for a machine, or with a fingerprint.  Raises `NotFound`, `UsageError` for several."""
    matching = [
        one
        for one in open_invitations(filesystem)
        if who == one.machine or (len(who) >= LEAST_DIGITS and one.fingerprint.startswith(who.lower()))
    ]
    if not matching:
        raise NotFound(f"no invitation {who} is in force: 'basefs invite {name} --list' lists them")
    if len(matching) > 1:
        raise UsageError(f"more than one invitation is for {who}: give the fingerprint")
    return matching[0]


def _cancel(filesystem: FilesystemClient, name: str, cancel: str, as_json: bool) -> None:
    one = _find(filesystem, name, cancel)
    # What the invite key has signed itself should not stay: an honest newcomer signs nothing with it but one grant.
    revoked = filesystem.ask(RevokeKey(one.path, one.fingerprint, discard=True))
    if as_json:
        print_json(encode(revoked))
        return
    say(f"cancelled: the invitation {one.fingerprint[:SHORT]} to {printable(one.path)}")
    for fallen in revoked.plan.fallen:
        if fallen.fingerprint != one.fingerprint:
            say(f"fallen with it: {printable(fallen.name)} at {printable(fallen.path)}")
