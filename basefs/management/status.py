"""`basefs status`: how this node is, in ten lines."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import click

from basefs.daemon.api.client import Look
from basefs.daemon.api.inspection import DiskUsage, disk_usage
from basefs.daemon.api.messages import ClusterMember, GetStatus, LatestEntry, RunningNode, Status, Summary, encode
from basefs.daemon.api.shutdown import ending
from basefs.daemon.config import Home
from basefs.daemon.keyfiles import unused_key
from basefs.daemon.mounts import Mount
from basefs.errors import some_of
from basefs.management.errors import ExitCode
from basefs.management.grant import permission
from basefs.management.list import NONE_HERE, hint_other_home
from basefs.management.members import clones_in_words, lack_of_room, lag_of
from basefs.management.output import (
    SHORT,
    counted,
    examples,
    json_option,
    moment,
    note,
    print_fields,
    print_json,
    printable,
    size,
    span,
)
from basefs.management.session import client
from basefs.management.target import parse_name

_OPEN = "open: anyone who can reach the sync port reads everything"
_CLOSED = "closed: members only"
#: What a node without a key that is a member can do.  An invitation is for a machine without the filesystem.
NOT_A_MEMBER = "'basefs grant {name}' on a member lets it in, with what 'basefs keys' prints here"


@click.command(epilog=examples("basefs status", "basefs status etc", "basefs status etc --json"))
@click.argument("target", metavar="[NAME]", required=False)
@json_option
def status(target: str | None, as_json: bool) -> None:
    """Show the status of the filesystem NAME on this node, or of all filesystems.

    A filesystem that is not running has a shorter status. IN STEP counts the members that confirmed within the last
    two seconds that they have the same log and contents, out of all that have not left. 'basefs doctor' checks the
    machine itself.
    """
    home = Home.from_environment()
    names = home.names() if target is None else [parse_name(home, target)]
    found = [(client(home, name).look(GetStatus()), disk_usage(home, name)) for name in names]
    if as_json:
        rows = [{**encode(look), "disk": encode(disk)} for look, disk in found]
        print_json(rows if target is None else rows[0])
    else:
        _print(home, found, hint=target is None)
    if target is not None and found[0][0].state == "dead":
        raise click.exceptions.Exit(ExitCode.FAILED)


def _print(home: Home, found: list[tuple[Look[Status], DiskUsage]], *, hint: bool) -> None:
    if hint:
        hint_other_home(home)
    if not found:
        note(NONE_HERE)
    for number, (look, disk) in enumerate(found):
        if number:
            click.echo()
        print_fields(_lines(look, disk))


def _lines(look: Look[Status], disk: DiskUsage) -> dict[str, str]:
    """What is known, a line each."""
    status, name = look.answer, look.name
    lines = {name: "unknown" if status is None else status.summary.identity, "state": _state(look)}
    if status is not None:
        lines["members"], lines["in step"] = _members(name, status.node), in_step_in_words(status.node)
        lines["access"] = _access(name, status.summary)
        lines["contents"] = _contents(name, status)
        lines["last change"] = _latest(status.latest)
        conflicts = status.conflicts
        lines["conflicts"] = f"{conflicts}: 'basefs conflicts {name}' lists them" if conflicts else "none"
        lines["handlers"] = _handlers(status.summary)
        lines["may write"] = _writable(name, status)
    lines["disk"] = (
        f"log {size(disk.log)}, cache {size(disk.cache)}, tree {size(disk.tree)}, other {size(disk.other)}; "
        f"{size(disk.free)} free of {size(disk.total)}"
    )
    return lines


def _access(name: str, summary: Summary) -> str:
    if summary.open:
        return _OPEN
    return _CLOSED if summary.member else f"{_CLOSED}; no key of this node is one: {NOT_A_MEMBER.format(name=name)}"


def _state(look: Look[Status]) -> str:
    name, state, status = look.name, look.state, look.answer
    if look.failure is not None:
        return f"{state}: {look.failure.error}"
    if state == "dead" and look.mountpoint is not None:
        where = printable(look.mountpoint)
        return (
            f"its daemon has died; {where} can be read and written, and nothing of it is published until "
            f"'basefs mount {name} {where}' starts it again"
        )
    if state == "dead":
        return f"its daemon has died: 'basefs mount {name} DIR' or 'basefs run {name}' starts it again"
    if status is None or status.node is None:
        return f"not running: 'basefs mount {name} DIR' or 'basefs run {name}' starts it"
    if state == "ending" and look.mountpoint is not None:
        return f"ending, process {look.pid}: {ending(Mount(name, Path(look.mountpoint)))}"
    where = f"mounted on {printable(look.mountpoint)}" if look.mountpoint else "running without a mount"
    text = f"{where} for {span(time.time() - status.node.started)}, process {look.pid}"
    if status.node.disk_full:
        text += "; no room: its disk is full, and what does not fit waits until there is room"
    if status.summary.damaged:
        text += f"; read-only, because the log is damaged: 'basefs check {name}'"
    return text


def _members(name: str, node: RunningNode | None) -> str:
    if node is None:
        return "unknown while it is not running"
    if node.members is None:
        return "none: it runs with --single-node"
    members = [member for member in node.members if member.same_filesystem and member.status != "left"]
    away = [member for member in members if member.status != "alive"]
    text = f"{len(members) - len(away)} of {len(members)} alive"
    if away:
        text += "; " + _some(_absent(member) for member in away)
    refusing = [member.name for member in members if member.refuses]
    if refusing:
        text += f"; turned away by {_some(refusing)}: 'basefs members {name}' says why"
    shared = clones_in_words(members)
    return text if not shared else f"{text}; {_some(shared)}: 'basefs doctor {name}'"


def _absent(member: ClusterMember) -> str:
    last = "not heard since the start" if member.heard is None else f"heard {span(member.heard)} ago"
    return f"{member.name} {member.status} ({last})"


def in_step_in_words(node: RunningNode | None) -> str:
    """Which members have told a moment ago that they have the same log, and how far the others are apart."""
    if node is None or node.members is None:
        return "-"
    others = [m for m in node.members if m.same_filesystem and not m.own and m.status != "left"]
    if not others:
        return "no other member"
    apart = [member for member in others if member.lag is None or not member.lag.in_step]
    text = f"with {len(others) - len(apart)} of {len(others)}"
    return text if not apart else text + "; " + _some(map(_apart, apart))


def _apart(member: ClusterMember) -> str:
    return f"{member.name} {lag_of(member)}" + (f" ({lack})" if (lack := lack_of_room(member)) else "")


def _some(names: Iterable[str]) -> str:
    return some_of(map(printable, names))


def _contents(name: str, status: Status) -> str:
    summary = status.summary
    text = f"{counted(summary.entries, 'entry')}, {counted(summary.blocks, 'block')}"
    newest = lost_in_words(status)
    if newest:
        text += f"; no member that answers has the content of {newest}: write it again ('basefs doctor {name}')"
    elif summary.incomplete:
        more = ", which no member that answers has" if status.lost_contents else ""
        text += f"; {counted(summary.incomplete, 'content')} incomplete{more}: 'basefs blocks {name}' lists them"
    if status.limit_reached:
        text += (
            f"; those of other nodes wait, {status.limit_reached} is reached: 'basefs doctor {name}' says what to do"
        )
    busiest = None if status.node is None else status.node.busiest
    if busiest is not None and busiest.alarm:
        by = printable(busiest.key or busiest.fingerprint[:SHORT])
        text += f"; {by} writes most: {counted(busiest.entries, 'entry')}, {size(busiest.bytes)} within an hour"
    if summary.orphans:
        text += f"; {counted(summary.orphans, 'entry')} waiting for earlier ones"
    if summary.pending is not None and summary.pending.unpublished:
        text += f"; {counted(summary.pending.unpublished, 'name')} not published yet"
    return text


def lost_in_words(status: Status) -> str:
    """The files of which no member that answers has the newest content, '' if there are none."""
    return _some(dict.fromkeys(one.path for one in status.lost_contents if one.newest))


def _latest(latest: LatestEntry | None) -> str:
    if latest is None:
        return "none"
    by = printable(latest.key or latest.fingerprint[:SHORT])
    here = span(time.time() - latest.arrived)
    return f"{latest.action} of {printable(latest.path)} by {by} at {moment(latest.time)}, arrived {here} ago"


def _handlers(summary: Summary) -> str:
    if summary.pending is None:
        return "unknown while it is not running"
    counts = summary.pending.handlers
    if counts is None:
        return "none"
    text = f"{counts.done} done, {counts.failed} failed, {counts.running} running, {counts.queued} waiting"
    if counts.failed:
        text += " (see the daemon's log for the reasons)"
    return f"{text}; on each change: {'; '.join(counts.rules)}"


def _writable(name: str, status: Status) -> str:
    unused = None if status.node is None else unused_key(Home.from_environment(), status.fingerprints)
    if unused is not None:
        return (_some(status.may_write) or "nowhere") + f"; the daemon does not use {unused}: restart it, without -k"
    if status.may_write:
        return _some(status.may_write)
    if not status.fingerprints:
        return "nowhere: this node has no key; 'basefs genkey' makes one"
    remedy = permission(Home.from_environment(), name)
    if not (status.summary.open or status.summary.member):
        return f"nowhere: no key of this node is a member; {remedy}"
    return f"nowhere; to permit it, type {remedy}"
