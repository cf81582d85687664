"""`basefs serf`: Serf's own commands, on the agent of a running filesystem (paper, section 4.2)."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

import click

from basefs.daemon.config import Home
from basefs.errors import AgentError
from basefs.gossip.binary import find_serf
from basefs.management.output import examples
from basefs.management.session import ask_daemon
from basefs.management.target import parse_target


@click.command(
    context_settings={"allow_interspersed_args": False},
    epilog=examples("basefs serf etc members", "basefs serf etc info", "basefs serf etc reachability"),
)
@click.argument("target", metavar="NAME")
@click.argument("arguments", metavar="ARGS...", nargs=-1, required=True, type=click.UNPROCESSED)
def serf(target: str, arguments: Sequence[str]) -> None:
    """Run a command of Serf on the agent of the running filesystem NAME.

    All that 'serf help' lists can be used that talks to an agent; its address and key are filled in.
    """
    home = Home.from_environment()
    name = parse_target(home, target).name
    # Says why, if it does not run or has no cluster.
    ask_daemon(home, name, "network")
    path = home.run_directory() / name / "serf.json"
    try:
        config = json.loads(path.read_text())
        # In the environment: arguments can be read by everybody on the machine.
        environment = {**os.environ, "SERF_RPC_ADDR": config["rpc_addr"], "SERF_RPC_AUTH": config["rpc_auth"]}
    except (OSError, ValueError, KeyError) as error:
        raise AgentError(f"the agent of {name} is just starting: try again ({error})") from None
    binary = find_serf()
    os.execve(binary, [binary, *arguments], environment)
