"""`basefs serf`: Serf's own commands, on the agent of a running filesystem (paper, section 4.2)."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click

from basefs.daemon.api.messages import GetNetwork
from basefs.daemon.config import Home
from basefs.daemon.serf.program import serf_command
from basefs.errors import UsageError, suggestion
from basefs.management.output import examples
from basefs.management.session import ask_daemon
from basefs.management.target import parse_name


@click.command(
    context_settings={"allow_interspersed_args": False},
    epilog=examples("basefs serf etc members", "basefs serf etc info", "basefs serf etc reachability"),
)
@click.argument("target", metavar="NAME")
@click.argument("arguments", metavar="ARGS...", nargs=-1, required=True, type=click.UNPROCESSED)
def serf(target: str, arguments: Sequence[str]) -> None:
    """Run a command of Serf on the agent of the running filesystem NAME.

    Every command in 'serf help' that talks to an agent works. The agent's address and key are filled in.
    """
    home = Home.from_environment()
    name = parse_name(home, target)
    # Says why, if it does not run or has no cluster.
    ask_daemon(home, name, GetNetwork())
    found = serf_command(home, name)
    # It would print its usage, and no word of what is wrong.
    if found.names and not arguments[0].startswith("-") and arguments[0] not in (*found.names, "help"):
        near = suggestion(arguments[0], found.names)
        raise UsageError(f"Serf has no command {arguments[0]}{near}: 'basefs serf {name} help' lists its commands")
    os.execve(found.program, [found.program, *arguments], found.environment)
