"""`basefs members`: the members of the cluster."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from basefs.daemon.api.messages import ClusterMember, ForgetMember, GetNetwork, ListMembers, encode
from basefs.daemon.config import Home
from basefs.management.output import (
    counted,
    examples,
    json_option,
    note,
    print_json,
    print_table,
    printable,
    size,
    span,
)
from basefs.management.session import ask_daemon
from basefs.management.target import parse_name

#: Of a member that has told nothing of its log.
UNKNOWN = "unknown"


@click.command(epilog=examples("basefs members etc", "basefs members etc --forget gamma-0f3a52"))
@click.argument("target", metavar="NAME")
@click.option("--forget", metavar="MEMBER", help="Stop counting a member that will not come back (name or address).")
@json_option
def members(target: str, forget: str | None, as_json: bool) -> None:
    """List the members of a running filesystem's cluster.

    STATUS is alive, silent (does not answer), failed (Serf has lost it), leaving or left. HEARD is the time since its
    last answer. LAG is the number of entries, at least, by which it is behind or ahead of this node, or of contents for
    which it has no room, and for how long. PUSH tells whether a session stays open over which changes are sent at once.
    SENT and RECEIVED are the bytes of all sessions with it. The last column says what is wrong: the time left of a ban
    for breaking the protocol, a full disk or a reached limit there, the last failure, or another member with the
    same key.

    A failed member is listed until --forget. Other nodes forget it as well if their Serf still lists it; repeat it on
    the others. An expelled member is forgotten without --forget. A forgotten member may join again.
    """
    home = Home.from_environment()
    name = parse_name(home, target)
    if forget is not None:
        ask_daemon(home, name, ForgetMember(forget))
        return
    # Serf lists them in no order.
    found = sorted(ask_daemon(home, name, ListMembers()), key=lambda member: member.name)
    network = ask_daemon(home, name, GetNetwork())
    if not network.serf_connected:
        note("the Serf agent is not running: STATUS is the last known status")
    elif network.serf_trouble and not any(member.same_filesystem and not member.own for member in found):
        note(f"nobody else has joined: {printable(network.serf_trouble)}")
    if as_json:
        print_json(encode(found))
        return
    titles = ("NAME", "ADDRESS", "STATUS", "HEARD", "LAG", "PUSH", "SENT", "RECEIVED", "")
    print_table(titles, [cells(member) for member in found], "no members yet")


def cells(member: ClusterMember) -> tuple[Any, ...]:
    """A member in words: name, address, status, heard, lag, push, sent, received, note."""
    who = (member.name, member.address, member.status)
    if member.own or not member.same_filesystem:
        note = "this node" if member.own else "another filesystem"
        more = "its disk is full" if member.disk_full else _same(member)
        return (*who, None, None, None, None, None, f"{note}: {more}" if more else note)
    heard = None if member.heard is None else f"{span(member.heard)} ago"
    if member.status == "left":
        # It does not answer because it is gone, and what it lacks is of no concern.
        return (*who, heard, None, member.push, size(member.sent), size(member.received), "")
    note = lack_of_room(member) or member.trouble or _same(member)
    if member.banned is not None:
        # Whole seconds, of which the last one counts.
        note = f"banned for {span(member.banned + 1)}" + (f": {note}" if note else "")
    return (*who, heard, lag_of(member), member.push, size(member.sent), size(member.received), note)


def lack_of_room(member: ClusterMember) -> str:
    """Why a member cannot store something that it should, '' if it can."""
    if member.disk_full:
        return "disk full there"
    return "limit reached there" if member.lag is not None and member.lag.contents_waiting else ""


def _same(member: ClusterMember) -> str:
    return f"same key as {', '.join(member.clones)}" if member.clones else ""


def clones_in_words(members: Iterable[ClusterMember]) -> list[str]:
    """The members that use one key, with their addresses: `2 members use one key (IP:PORT, IP:PORT)`."""
    groups = {tuple(sorted([member.address, *member.clones])) for member in members if member.clones}
    return [f"{len(addresses)} members use one key ({', '.join(addresses)})" for addresses in sorted(groups)]


def lag_of(member: ClusterMember) -> str:
    """How far the logs are apart: `in step`, `3 behind for 12 s`, `3 not confirmed for 12 s`, `unknown`."""
    lag = member.lag
    if lag is not None and lag.in_step:
        return "in step"
    if lag is not None and lag.contents_missing:
        return "contents missing here"
    if lag is None or lag.apart is None:
        # It may have written what nobody else has yet.
        return UNKNOWN
    if lag.behind and (member.status != "alive" or member.refuses):
        # Some of it may have arrived before the member was lost, or by way of others.
        return f"{lag.behind} not confirmed for {span(lag.apart)}"
    how = f"{lag.behind} behind" if lag.behind else f"{lag.ahead} ahead" if lag.ahead else ""
    waiting = f"{counted(lag.contents_waiting, 'content')} missing there" if lag.contents_waiting else ""
    return f"{' and '.join(filter(None, (how, waiting))) or 'differs'} for {span(lag.apart)}"
