"""`basefs members`: the members of the cluster."""

from __future__ import annotations

from typing import Any

import click

from basefs.daemon.api.messages import ClusterMember, GetNetwork, ListMembers, encode
from basefs.daemon.config import Home
from basefs.management.output import examples, json_option, print_json, print_table, printable, span
from basefs.management.session import ask_daemon
from basefs.management.target import parse_target


@click.command(epilog=examples("basefs members etc", "basefs members etc --json"))
@click.argument("target", metavar="NAME")
@json_option
def members(target: str, as_json: bool) -> None:
    """List the members of a running filesystem's cluster.

    STATUS is Serf's. COMPARED shows when the logs of this node and the member were last compared, and whether they
    differed; LAG, the least number of entries that the member is behind or ahead of this node; PUSH, whether a standing
    session pushes changes at once; SENT and RECEIVED, the bytes of all sessions with it. The last column shows the
    last failure, or for how long the member is banned because it broke the protocol.
    """
    home = Home.from_environment()
    name = parse_target(home, target).name
    # Serf lists them in no order.
    found = sorted(ask_daemon(home, name, ListMembers()), key=lambda member: member.name)
    network = ask_daemon(home, name, GetNetwork())
    if not network.serf_connected:
        click.echo("the Serf agent does not run at the moment: STATUS is the last known one", err=True)
    elif network.serf_trouble and not any(member.same_filesystem and not member.own for member in found):
        click.echo(f"nobody else has joined: {printable(network.serf_trouble)}", err=True)
    if as_json:
        print_json(encode(found))
        return
    titles = ("NAME", "ADDRESS", "STATUS", "COMPARED", "LAG", "PUSH", "SENT", "RECEIVED", "")
    print_table(titles, [cells(member) for member in found], "no members yet")


def cells(member: ClusterMember) -> tuple[Any, ...]:
    """A member in words: name, address, status, compared, lag, push, sent, received, note."""
    who = (member.name, member.address, member.status)
    if member.own or not member.same_filesystem:
        return (*who, None, None, None, None, None, "this node" if member.own else "another filesystem")
    compared = None
    if member.compared is not None:
        compared = f"{span(member.compared)} ago{'' if member.equal else ', differed'}"
    note = member.trouble
    if member.banned is not None:
        # Whole seconds, of which the last one counts.
        note = f"banned for {span(member.banned + 1)}" + (f": {note}" if note else "")
    return (*who, compared, _lag(member), member.standing, member.sent, member.received, note)


def _lag(member: ClusterMember) -> str | None:
    """How far the logs are apart: numbers where they tell it."""
    lag = member.lag
    if lag is None:
        return None
    if lag.behind:
        return f"{lag.behind} behind"
    if lag.ahead:
        return f"{lag.ahead} ahead"
    if lag.differs:
        return "differs"
    # A member that cannot be reached may have written what nobody else has yet.
    return "0" if member.reachable and member.status == "alive" else "unknown"
