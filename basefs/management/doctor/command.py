"""`basefs doctor`: what is wrong, and what to type."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator

import click

from basefs.daemon.addresses import all_addresses
from basefs.daemon.config import Home, parse_address
from basefs.daemon.mounts import is_own, mounts, server_of
from basefs.management.doctor.filesystem import FilesystemExamination
from basefs.management.doctor.finding import Diagnosis, Severity
from basefs.management.doctor.machine import (
    examine_clock,
    examine_fuse,
    examine_home,
    examine_keys,
    examine_mount,
    examine_serf,
)
from basefs.management.output import (
    coloured,
    counted,
    examples,
    json_option,
    note,
    print_json,
    print_table,
    printable,
    wrapped,
)
from basefs.management.target import parse_name


@click.command(epilog=examples("basefs doctor", "basefs doctor etc", "basefs doctor etc -b 10.0.0.2:18400"))
@click.argument("target", metavar="[NAME]", required=False)
@click.option("-b", "--bind", default=all_addresses, metavar="IP[:PORT]", help="Address that a mount would listen on.")
@json_option
def doctor(target: str | None, bind: str, as_json: bool) -> None:
    """Diagnose this machine and the filesystem NAME, or all filesystems, and print a remedy for each problem.

    Checks FUSE, Serf, OpenSSL, the ports, this node's directory, key, disk and clock, dead mounts, and each log
    (quickly; 'basefs check' verifies all of it). Tries the ports of all known peers, and greets them with this node's
    key: where one of them turns the other away, it says why. While a filesystem runs, the clocks of the other nodes are
    compared as well; no clock decides about access, except for the end of an invitation.

    To check connections from other nodes to this one, run it there. Whether the UDP ports of an encrypted cluster are
    blocked, it cannot check.

    Exit code: 0 without problems (notes do not count), 1 otherwise.
    """
    node = Home.from_environment()
    names = node.names() if target is None else [parse_name(node, target)]
    address = parse_address(bind)
    unusable = examine_keys()
    found = [*_machine(node), *unusable]
    for name in () if unusable else names:
        found += FilesystemExamination(node, name).run(address)
    problems = sum(finding.severity is Severity.PROBLEM for finding in found)
    if as_json:
        print_json([{**dataclasses.asdict(finding), "severity": finding.severity.value} for finding in found])
    else:
        _print(found)
        if problems:
            note(f"basefs: {counted(problems, 'problem')} found")
    sys.exit(1 if problems else 0)


def _print(found: list[Diagnosis]) -> None:
    if not sys.stdout.isatty() or not found:
        rows = [(one.severity.value, one.subject, one.what, one.remedy) for one in found]
        print_table(("", "ABOUT", "WHAT", "WHAT TO DO"), rows, "all is well")
        return
    # One below the other: a command that is wrapped inside a table cannot be copied.
    for one in found:
        colour = "red" if one.severity is Severity.PROBLEM else "yellow"
        what, remedy = (wrapped(printable(text), " " * 9) for text in (f"{one.subject}: {one.what}", one.remedy))
        severity = one.severity.value
        click.echo(coloured(severity, fg=colour, bold=True) + "\n".join([*what, *remedy])[len(severity) :])


def _machine(node: Home) -> Iterator[Diagnosis]:
    """What concerns all filesystems."""
    yield from examine_fuse()
    yield from examine_serf()
    yield from examine_home(node)
    yield from examine_clock()
    names = node.names()
    for mount in mounts():
        if mount.name in names and is_own(node, mount):
            server = server_of(node, mount.name)
            yield from examine_mount(mount.name, mount.point, None if server is None else server.pid)
