"""`basefs doctor`: what is wrong, and what to type."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from collections.abc import Iterator

import click

from basefs.daemon.addresses import own_addresses
from basefs.daemon.api.inspection import LogFile, known_peers
from basefs.daemon.api.messages import (
    ClusterMember,
    GetClocks,
    GetContent,
    GetNetwork,
    GetStatus,
    ListKeys,
    ListLivePaths,
    Ping,
    RunningNode,
    Status,
)
from basefs.daemon.api.runfile import RunFile
from basefs.daemon.config import ALL_ADDRESSES, Home, parse_address
from basefs.daemon.lock import is_held
from basefs.daemon.mounts import mounts as all_mounts
from basefs.errors import BaseFSError, DaemonError, NotRunning, OtherVersion, StoreError, UsageError
from basefs.management.doctor import clock, fuse, home, log, mounts, peers, ports, serf
from basefs.management.doctor.finding import Diagnosis, Severity, note, problem
from basefs.management.output import coloured, counted, examples, json_option, print_json, print_table, printable
from basefs.management.session import client
from basefs.management.target import parse_target

#: Seconds that the others have to tell their time: in Serf's wan profile a question takes up to 2 s to reach all.
CLOCK_PATIENCE = 6.0
#: Seconds in which a daemon answers, however busy it is.
PATIENCE = 10.0


@click.command(epilog=examples("basefs doctor", "basefs doctor etc", "basefs doctor etc -b 10.0.0.2:18400"))
@click.argument("target", metavar="[NAME]", required=False)
@click.option("-b", "--bind", default=ALL_ADDRESSES, metavar="IP[:PORT]", help="Address that a mount would use.")
@json_option
def doctor(target: str | None, bind: str, as_json: bool) -> None:
    """Find what is wrong with this machine and with the filesystem NAME, or with each of them, and say what to type.

    Looks at FUSE, Serf, the ports, this node's directory, key, disk and clock, at dead mounts, at each log (quickly;
    'basefs check' verifies all of it), and tries the ports of all known peers. A running filesystem also asks the other
    nodes for their time.

    What cannot be seen from here: whether others can connect to this node (run it there too), whether the UDP of an
    encrypted cluster is blocked, and, while NAME does not run, what time it is elsewhere.

    Ends with 0 if there is no problem (there may be notes), with 1 if there is one.
    """
    node = Home.from_environment()
    names = node.names() if target is None else [parse_target(node, target).name]
    address = parse_address(bind)
    found = list(_machine(node))
    for name in names:
        found += _Filesystem(node, name).examine(address)
    problems = sum(finding.severity is Severity.PROBLEM for finding in found)
    if as_json:
        print_json([{**dataclasses.asdict(finding), "severity": finding.severity.value} for finding in found])
    else:
        _print(found)
        if problems:
            click.echo(f"basefs: {problems} {'problem' if problems == 1 else 'problems'} found", err=True)
    sys.exit(1 if problems else 0)


def _print(found: list[Diagnosis]) -> None:
    if not sys.stdout.isatty() or not found:
        rows = [(one.severity.value, one.subject, one.what, one.remedy) for one in found]
        print_table(("", "ABOUT", "WHAT", "WHAT TO DO"), rows, "all is well")
        return
    # One below the other: a command that is wrapped inside a table cannot be copied.
    for one in found:
        colour = "red" if one.severity is Severity.PROBLEM else "yellow"
        severity = coloured(one.severity.value, fg=colour, bold=True)
        click.echo(f"{severity}  {one.subject}: {printable(one.what)}\n         {printable(one.remedy)}")


def _machine(node: Home) -> Iterator[Diagnosis]:
    """What concerns all filesystems."""
    yield from fuse.examine()
    yield from serf.examine()
    yield from home.examine(node)
    yield from clock.examine()
    names = node.names()
    for mount in all_mounts():
        if mount.name not in names:
            continue
        facts = RunFile(node, mount.name).read()
        if facts is not None and facts[1] == mount.point:
            yield from mounts.examine(mount.name, mount.point, facts[0])


class _Filesystem:
    """Looks at one filesystem."""

    def __init__(self, node: Home, name: str) -> None:
        self._home = node
        self._name = name
        self._client = client(node, name)

    def examine(self, bind: tuple[str, int]) -> list[Diagnosis]:
        """Everything; if its log cannot be used, only that."""
        file = LogFile(self._home, self._name)
        found = log.examine(self._name, file)
        if found:
            return found
        try:
            found = self._silent()
            if found:
                return found
            status = self._client.ask(GetStatus())
            keys = self._client.ask(ListKeys(every=True))
            own = {key.fingerprint for key in keys if key.own}
            found += [*self._log(status), *self._keys(status), *log.examine_times(self._name, file, own)]
            if status.node is not None:
                found += [*self._running(status, status.node)]
            else:
                found += [*self._stopped(bind)]
            if status.node is None or status.node.members is not None:
                found += self._peers(status)
        except StoreError as error:
            found.append(problem("log", str(error), f"basefs check --repair {self._name}"))
        except BaseFSError as error:
            found.append(problem("daemon", str(error), f"see {self._home.log_path(self._name)}"))
        return found

    def _silent(self) -> list[Diagnosis]:
        """Whether there is a daemon that does not answer."""
        try:
            self._client.ask_daemon(Ping(), PATIENCE)
        except NotRunning:
            return []
        except OtherVersion as error:
            remedy = f"basefs unmount {self._name}, and mount it again"
            return [problem("daemon", str(error), remedy)]
        except DaemonError as error:
            facts = RunFile(self._home, self._name).read()
            if facts is None:
                return [problem("daemon", str(error), f"see {self._home.log_path(self._name)}")]
            remedy = f"kill -CONT {facts[0]}, or kill -KILL {facts[0]} and mount again"
            return [problem("daemon", f"{error}: process {facts[0]} is stopped or hangs", remedy)]
        return []

    def _log(self, status: Status) -> Iterator[Diagnosis]:
        if status.summary.damaged:
            what = f"{status.summary.damaged} rows of the log of {self._name} are damaged, and it takes no writes"
            yield problem("log", what, f"basefs unmount {self._name}; basefs check --repair {self._name}")
        if status.incomplete:
            what = f"{status.incomplete} contents of {self._name} are not complete here"
            yield note("log", what, f"basefs blocks {self._name}; they come as soon as a node that has them is there")

    def _keys(self, status: Status) -> Iterator[Diagnosis]:
        if status.writable:
            return
        facts = RunFile(self._home, self._name).read()
        point = None if facts is None else facts[1]
        # A replica without a mount is not written to, and needs no key.
        kind = note if status.node is not None and point is None else problem
        if not status.keys:
            yield kind(
                "keys", f"this node has no key, so {self._name} can only be read here", "basefs genkey, and mount again"
            )
        else:
            what = f"no key of this node may write anywhere in {self._name}"
            remedy = f"where somebody may: basefs grant {self._name}:/ KEYNAME PUBKEY; 'basefs keys' here prints PUBKEY"
            yield kind("keys", what, remedy)

    def _stopped(self, bind: tuple[str, int]) -> Iterator[Diagnosis]:
        facts = RunFile(self._home, self._name).read()
        if facts is not None:
            what = f"the daemon of {self._name}, process {facts[0]}, has died"
            yield problem(
                "daemon", what, f"basefs mount {self._name} DIR; {self._home.log_path(self._name)} may say why"
            )
        if not any(is_held(self._home.directory(name)) for name in self._home.names()):
            # Another filesystem of this node may use them, as it should.
            yield from ports.examine(*bind)

    def _running(self, status: Status, node: RunningNode) -> Iterator[Diagnosis]:
        name = self._name
        handlers = None if status.summary.pending is None else status.summary.pending.handlers
        if handlers is not None and handlers.failed:
            what = f"{handlers.failed} runs of handlers of {name} have failed since it was started"
            yield note("handlers", what, f"see {self._home.log_path(name)}")
        if node.members is not None:
            yield from self._cluster(node.members)
            yield from clock.compare(self._client.ask_daemon(GetClocks(CLOCK_PATIENCE)))

    def _cluster(self, members: list[ClusterMember]) -> Iterator[Diagnosis]:
        name = self._name
        network = self._client.ask_daemon(GetNetwork())
        if network.serf_restarts:
            what = f"the Serf agent of {name} had to be started again, {counted(network.serf_restarts, 'time')}"
            yield note("serf", what, f"see {self._home.log_path(name)}")
        if not network.serf_connected:
            yield problem("serf", f"the Serf agent of {name} does not run", f"see {self._home.log_path(name)}")
        alive = [member for member in members if member.same_filesystem and member.status == "alive"]
        if network.serf_trouble and all(member.own for member in alive):
            what = f"no node of {name} is a member beside this one: {printable(network.serf_trouble)}"
            yield problem("peers", what, "is --encrypt-key-file the same on all nodes, and their ports open?")
        for member in alive:
            if member.trouble:
                what = f"the last sync of {name} with {member.name} failed: {printable(member.trouble)}"
                yield problem("peers", what, f"basefs doctor {name}, there")

    def _peers(self, status: Status) -> list[Diagnosis]:
        """Try the ports of every known node that has not left."""
        members = [] if status.node is None else status.node.members or []
        own = {member.address for member in members if member.own}
        left = {member.address for member in members if member.status in ("left", "leaving")}
        texts = [member.address for member in members] + known_peers(self._home, self._name)
        texts += self._cluster_file()
        here = set(own_addresses())
        wanted = []
        for text in dict.fromkeys(texts):
            try:
                address = parse_address(text)
            except UsageError:
                continue
            if text not in own | left and address.host not in here:
                wanted.append(address)
        # Without a daemon it is unknown whether they encrypt.
        encrypted = status.node is None or self._client.ask_daemon(GetNetwork()).encrypted
        return peers.examine(self._name, asyncio.run(peers.reach(wanted, encrypted=encrypted)))

    def _cluster_file(self) -> list[str]:
        try:
            (row,) = self._client.ask(ListLivePaths("/.cluster"))
            content = self._client.ask(GetContent(row.entry))
        except (BaseFSError, ValueError):
            return []
        return content.decode("utf-8", "replace").split()
