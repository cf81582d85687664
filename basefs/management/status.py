"""`basefs status`: how this node is, in ten lines."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import click

from basefs.daemon.api.inspection import disk_usage
from basefs.daemon.config import Home
from basefs.management.output import examples, json_option, print_fields, print_json, printable
from basefs.management.session import client
from basefs.management.target import parse_target
from basefs.management.units import counted, size, span

#: Names that are listed before the others are only counted.
_NAMED = 3


@click.command(epilog=examples("basefs status", "basefs status etc", "basefs status etc --json"))
@click.argument("target", metavar="[NAME]", required=False)
@json_option
def status(target: str | None, as_json: bool) -> None:
    """Tell how the filesystem NAME is on this node, or each of them.

    Works while it is not running, too; what only a running one knows is left out then. How many entries another node is
    ahead is not known before they are fetched: IN STEP tells with whom the logs were equal when last compared, and how
    long ago. What is wrong with the machine itself, 'basefs doctor' tells.
    """
    home = Home.from_environment()
    names = home.names() if target is None else [parse_target(home, target).name]
    found = [
        {**client(home, name).look("status"), "disk": dataclasses.asdict(disk_usage(home, name))} for name in names
    ]
    if as_json:
        print_json(found if target is None else found[0])
        return
    if not found:
        click.echo(
            "no filesystem here: 'basefs bootstrap NAME' makes one, 'basefs get NAME ADDR' fetches one", err=True
        )
    for number, row in enumerate(found):
        if number:
            click.echo()
        print_fields(_lines(row))


def _lines(row: dict[str, Any]) -> dict[str, str]:
    """What is known, a line each."""
    disk = row["disk"]
    lines = {row["name"]: row.get("identity", "unknown"), "state": _state(row)}
    if "error" not in row:
        lines["members"], lines["in step"] = _members(row), _in_step(row)
        lines["contents"] = _contents(row)
        lines["last change"] = _latest(row["latest"])
        conflicts = row["conflicts"]
        lines["conflicts"] = f"{conflicts}: 'basefs conflicts {row['name']}' lists them" if conflicts else "none"
        lines["handlers"] = _handlers(row)
        lines["may write"] = _writable(row)
    lines["disk"] = (
        f"log {size(disk['log'])}, cache {size(disk['cache'])}, other {size(disk['other'])}; "
        f"{size(disk['free'])} free of {size(disk['total'])}"
    )
    return lines


def _state(row: dict[str, Any]) -> str:
    name, state = row["name"], row["state"]
    if "error" in row:
        return f"{state}: {row['error']}"
    if state == "dead":
        return f"its daemon has died: 'basefs mount {name} DIR' or 'basefs run {name}' starts it again"
    if state == "stopped":
        return f"not running: 'basefs mount {name} DIR' or 'basefs run {name}' starts it"
    where = f"mounted on {printable(row['mountpoint'])}" if state == "mounted" else "running without a mount"
    told = f"{where} for {span(time.time() - row['since'])}, process {row['pid']}"
    if row["damaged"]:
        told += f"; read-only, because the log is damaged: 'basefs check {name}'"
    return told


def _members(row: dict[str, Any]) -> str:
    if "members" not in row:
        return "unknown while it is not running"
    if row["members"] is None:
        return "none: it runs with --single-node"
    members = [member for member in row["members"] if member["same_filesystem"]]
    away = [member for member in members if member["status"] != "alive"]
    told = f"{len(members) - len(away)} of {len(members)} alive"
    return told if not away else told + "; " + _some(f"{member['name']} {member['status']}" for member in away)


def _in_step(row: dict[str, Any]) -> str:
    """With whom the logs were equal, as far as sessions have told."""
    if not row.get("members"):
        return "-"
    others = [m for m in row["members"] if m["same_filesystem"] and not m["own"] and m["status"] == "alive"]
    if not others:
        return "nobody else is there"
    away = [member for member in others if not member["reachable"]]
    here = [member for member in others if member["reachable"]]
    behind = [member for member in here if member["differs"] or member["equal"] is False]
    unknown = [member for member in here if member["equal"] is None]
    told = f"with {len(here) - len(behind) - len(unknown)} of {len(others)}"
    if behind:
        told += f"; not with {_some(_difference(member) for member in behind)}"
    if unknown:
        told += f"; not compared yet with {_some(member['name'] for member in unknown)}"
    if away:
        told += f"; cannot reach {_some(_difference(member) for member in away)}"
    return told


def _difference(member: dict[str, Any]) -> str:
    last = member["equal_since"]
    return f"{member['name']} ({'never equal so far' if last is None else f'equal {span(last)} ago'})"


def _some(names: Any) -> str:
    """The first few, and how many more."""
    found = [printable(name) for name in names]
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return ", ".join(found[:_NAMED]) + more


def _contents(row: dict[str, Any]) -> str:
    told = f"{counted(row['entries'], 'entry')}, {counted(row['blocks'], 'block')}"
    if row["incomplete"]:
        told += f"; {counted(row['incomplete'], 'content')} incomplete: 'basefs blocks {row['name']}' lists them"
    if row["orphans"]:
        told += f"; {counted(row['orphans'], 'entry')} waiting for what comes before"
    if row.get("unpublished"):
        told += f"; {counted(row['unpublished'], 'name')} not published yet"
    return told


def _latest(latest: dict[str, Any] | None) -> str:
    if latest is None:
        return "none"
    by = printable(latest["key"] or latest["fingerprint"][:12])
    return f"{latest['action']} of {printable(latest['path'])} by {by}, {span(time.time() - latest['arrived'])} ago"


def _handlers(row: dict[str, Any]) -> str:
    if "handlers" not in row:
        return "unknown while it is not running"
    counts = row["handlers"]
    if counts is None:
        return "none"
    told = f"{counts['done']} done, {counts['failed']} failed, {counts['running']} running, {counts['queued']} waiting"
    return told + ("; the daemon's log says why they failed" if counts["failed"] else "")


def _writable(row: dict[str, Any]) -> str:
    if row["writable"]:
        return _some(row["writable"])
    if not row["keys"]:
        return "nowhere: this node has no key; 'basefs genkey' makes one"
    return f"nowhere: no key of this node is granted; 'basefs grant {row['name']}:/ KEYNAME PUBKEY' on one that may"
