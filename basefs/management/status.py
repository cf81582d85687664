"""`basefs status`: how this node is, in ten lines."""

from __future__ import annotations

import time
from collections.abc import Iterable

import click

from basefs.daemon.api.client import Look
from basefs.daemon.api.inspection import DiskUsage, disk_usage
from basefs.daemon.api.messages import ClusterMember, GetStatus, LatestEntry, RunningNode, Status, Summary, encode
from basefs.daemon.config import Home
from basefs.management.list import NONE_HERE
from basefs.management.output import (
    counted,
    examples,
    json_option,
    print_fields,
    print_json,
    printable,
    size,
    span,
)
from basefs.management.session import client
from basefs.management.target import parse_target

#: Names that are listed before the others are only counted.
_NAMED = 3


@click.command(epilog=examples("basefs status", "basefs status etc", "basefs status etc --json"))
@click.argument("target", metavar="[NAME]", required=False)
@json_option
def status(target: str | None, as_json: bool) -> None:
    """Show the status of the filesystem NAME on this node, or of each of them.

    Works while it is not running, too; what only a running one knows is left out then. How many entries another node is
    ahead is not known before they are fetched: IN STEP shows with which nodes the logs were equal when last compared,
    and how long ago. What is wrong with the machine itself, 'basefs doctor' finds.
    """
    home = Home.from_environment()
    names = home.names() if target is None else [parse_target(home, target).name]
    found = [(client(home, name).look(GetStatus()), disk_usage(home, name)) for name in names]
    if as_json:
        rows = [{**encode(look), "disk": encode(disk)} for look, disk in found]
        print_json(rows if target is None else rows[0])
        return
    if not found:
        click.echo(NONE_HERE, err=True)
    for number, (look, disk) in enumerate(found):
        if number:
            click.echo()
        print_fields(_lines(look, disk))


def _lines(look: Look[Status], disk: DiskUsage) -> dict[str, str]:
    """What is known, a line each."""
    status, name = look.answer, look.name
    lines = {name: "unknown" if status is None else status.summary.identity, "state": _state(look)}
    if status is not None:
        lines["members"], lines["in step"] = _members(status.node), _in_step(status.node)
        lines["contents"] = _contents(name, status)
        lines["last change"] = _latest(status.latest)
        conflicts = status.conflicts
        lines["conflicts"] = f"{conflicts}: 'basefs conflicts {name}' lists them" if conflicts else "none"
        lines["handlers"] = _handlers(status.summary)
        lines["may write"] = _writable(name, status)
    lines["disk"] = (
        f"log {size(disk.log)}, cache {size(disk.cache)}, other {size(disk.other)}; "
        f"{size(disk.free)} free of {size(disk.total)}"
    )
    return lines


def _state(look: Look[Status]) -> str:
    name, state, status = look.name, look.state, look.answer
    if look.failure is not None:
        return f"{state}: {look.failure.error}"
    if state == "dead":
        return f"its daemon has died: 'basefs mount {name} DIR' or 'basefs run {name}' starts it again"
    if status is None or status.node is None:
        return f"not running: 'basefs mount {name} DIR' or 'basefs run {name}' starts it"
    where = f"mounted on {printable(look.mountpoint)}" if look.mountpoint else "running without a mount"
    text = f"{where} for {span(time.time() - status.node.since)}, process {look.pid}"
    if status.summary.damaged:
        text += f"; read-only, because the log is damaged: 'basefs check {name}'"
    return text


def _members(node: RunningNode | None) -> str:
    if node is None:
        return "unknown while it is not running"
    if node.members is None:
        return "none: it runs with --single-node"
    members = [member for member in node.members if member.same_filesystem]
    away = [member for member in members if member.status != "alive"]
    text = f"{len(members) - len(away)} of {len(members)} alive"
    return text if not away else text + "; " + _some(f"{member.name} {member.status}" for member in away)


def _in_step(node: RunningNode | None) -> str:
    """With which nodes the logs were equal, as far as sessions have shown."""
    if node is None or not node.members:
        return "-"
    others = [member for member in node.members if _is_alive_peer(member)]
    if not others:
        return "no other node is alive"
    here = [member for member in others if member.reachable]
    behind = [member for member in here if member.differs or member.equal is False]
    unknown = [member for member in here if member.equal is None]
    parts = (
        ("not with", map(_difference, behind)),
        ("not compared yet with", (member.name for member in unknown)),
        ("cannot reach", (_difference(member) for member in others if not member.reachable)),
    )
    text = f"with {len(here) - len(behind) - len(unknown)} of {len(others)}"
    return text + "".join(f"; {what} {listed}" for what, names in parts if (listed := _some(names)))


def _is_alive_peer(member: ClusterMember) -> bool:
    return member.same_filesystem and not member.own and member.status == "alive"


def _difference(member: ClusterMember) -> str:
    last = member.equal_since
    return f"{member.name} ({'never equal so far' if last is None else f'equal {span(last)} ago'})"


def _some(names: Iterable[str]) -> str:
    """The first few, and how many more."""
    found = [printable(name) for name in names]
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return ", ".join(found[:_NAMED]) + more


def _contents(name: str, status: Status) -> str:
    summary = status.summary
    text = f"{counted(summary.entries, 'entry')}, {counted(summary.blocks, 'block')}"
    if status.incomplete:
        text += f"; {counted(status.incomplete, 'content')} incomplete: 'basefs blocks {name}' lists them"
    if summary.orphans:
        text += f"; {counted(summary.orphans, 'entry')} waiting for what comes before"
    if summary.pending is not None and summary.pending.unpublished:
        text += f"; {counted(summary.pending.unpublished, 'name')} not published yet"
    return text


def _latest(latest: LatestEntry | None) -> str:
    if latest is None:
        return "none"
    by = printable(latest.key or latest.fingerprint[:12])
    return f"{latest.action} of {printable(latest.path)} by {by}, {span(time.time() - latest.arrived)} ago"


def _handlers(summary: Summary) -> str:
    if summary.pending is None:
        return "unknown while it is not running"
    counts = summary.pending.handlers
    if counts is None:
        return "none"
    text = f"{counts.done} done, {counts.failed} failed, {counts.running} running, {counts.queued} waiting"
    return text + ("; the daemon's log says why they failed" if counts.failed else "")


def _writable(name: str, status: Status) -> str:
    if status.writable:
        return _some(status.writable)
    if not status.keys:
        return "nowhere: this node has no key; 'basefs genkey' makes one"
    return f"nowhere: no key of this node is granted; 'basefs grant {name}:/ KEYNAME PUBKEY' on one that may"
