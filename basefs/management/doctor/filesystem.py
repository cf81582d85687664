"""What can be wrong with one filesystem: its log, its daemon, its keys, its peers and their clocks.

Nodes that run answer with their time; half of the time that an answer took is in doubt.  A clock plays no part in any
decision of BaseFS: a wrong one makes times in listings wrong, and 'basefs revert --at'.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterator, Sequence

from basefs.daemon.addresses import own_addresses
from basefs.daemon.api.inspection import known_peers
from basefs.daemon.api.logfile import LogFile
from basefs.daemon.api.messages import (
    ClusterMember,
    CompareViews,
    ContentPiece,
    GetClocks,
    GetNetwork,
    GetStatus,
    ListKeys,
    ListLivePaths,
    NodeClock,
    Ping,
    ReadContents,
    RunningNode,
    Status,
)
from basefs.daemon.api.probing import greet, tls_trouble
from basefs.daemon.api.runfile import RunFile
from basefs.daemon.config import Home, NodeAddress, parse_address
from basefs.daemon.keyfiles import default_keys, unused_key
from basefs.daemon.lock import is_held
from basefs.daemon.mounts import mounts
from basefs.errors import BaseFSError, DaemonError, NotRunning, OtherVersion, StoreError, UsageError
from basefs.management.doctor import peers
from basefs.management.doctor.finding import Diagnosis, note, problem
from basefs.management.doctor.machine import POLICY, disk, examine_ports
from basefs.management.grant import permission
from basefs.management.members import clones_in_words
from basefs.management.output import SHORT, counted, printable
from basefs.management.session import client, connections
from basefs.management.status import lost_in_words

#: Seconds in which a daemon answers, however busy it is.
PATIENCE = 10.0


class FilesystemExamination:
    """Looks at one filesystem."""

    def __init__(self, node: Home, name: str) -> None:
        self._home = node
        self._name = name
        self._client = client(node, name)

    def run(self, bind: tuple[str, int]) -> list[Diagnosis]:
        """Everything; if its log cannot be used, only that."""
        file = LogFile(self._home, self._name)
        found = _examine_log(self._name, file)
        if found:
            return found
        try:
            found = self._silent()
            if found:
                return found
            status = self._client.ask(GetStatus())
            keys = self._client.ask(ListKeys(every=True))
            own = {key.fingerprint for key in keys if key.own}
            found += [*self._log(status), *self._keys(status), *_examine_times(self._name, file, own)]
            if status.node is not None:
                found += [*self._running(status, status.node)]
            else:
                found += [*self._stopped(bind)]
            trouble = None if status.summary.open else tls_trouble()
            if trouble is not None:
                found.append(problem("openssl", trouble, POLICY))
            elif status.node is None or status.node.members is not None:
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
            rows = counted(status.summary.damaged, "damaged row")
            what = f"the log of {self._name} has {rows}, so it takes no writes"
            yield problem("log", what, f"basefs unmount {self._name}; basefs check --repair {self._name}")
        if status.limit_reached:
            what = f"{self._name} takes no contents of other nodes: {status.limit_reached} is reached"
            room = f"make room ('du -x {self._home.path}')" if status.limit_reached == "min_free" else "raise it"
            yield problem(
                "disk", what, f"{room}, or change it in {self._home.settings_path} and start {self._name} again"
            )
        elif newest := lost_in_words(status):
            what = f"no member of {self._name} that answers has the content of {newest}"
            remedy = "start the machine that wrote it; if it is gone, write the file again, or 'basefs revert' it"
            yield note("log", what, remedy)
        elif status.summary.incomplete and not status.lost_contents:
            what = f"{self._name} has {counted(status.summary.incomplete, 'incomplete content')} here"
            yield note("log", what, f"basefs blocks {self._name}; they arrive once a node that has them is connected")

    def _keys(self, status: Status) -> Iterator[Diagnosis]:
        unused = None if status.node is None else unused_key(self._home, status.fingerprints)
        if unused is not None:
            what = f"the daemon of {self._name} does not use {unused}"
            yield note(
                "keys", what, "it is newer than the daemon, or -k names another one: restart the daemon without -k"
            )
        if status.may_write:
            return
        facts = RunFile(self._home, self._name).read()
        point = None if facts is None else facts[1]
        # A replica without a mount is not written to, and needs no key; nor does a machine that was admitted to read.
        reads_only = status.node is not None and point is None
        kind = note if reads_only or (status.summary.member and not status.summary.open) else problem
        if not status.fingerprints:
            yield kind(
                "keys", f"this node has no key, so {self._name} can only be read here", "basefs genkey, and mount again"
            )
        else:
            what = f"no key of this node may write anywhere in {self._name}"
            if not (status.summary.open or status.summary.member):
                what = f"no key of this node is a member of {self._name}"
            yield kind("keys", what, permission(self._home, self._name))

    def _stopped(self, bind: tuple[str, int]) -> Iterator[Diagnosis]:
        facts = RunFile(self._home, self._name).read()
        if facts is not None:
            pid, point = facts
            what = f"the daemon of {self._name}, process {pid}, has died"
            if point is not None and any(mount.point == point for mount in mounts()):
                what += f"; what is written on {point} is not published until there is another one"
            where = "DIR" if point is None else printable(str(point))
            yield problem(
                "daemon", what, f"basefs mount {self._name} {where}; {self._home.log_path(self._name)} may say why"
            )
        if not any(is_held(self._home.directory(name)) for name in self._home.names()):
            # Another filesystem of this node may use them, as it should.
            yield from examine_ports(*bind)

    def _running(self, status: Status, node: RunningNode) -> Iterator[Diagnosis]:
        name = self._name
        handlers = None if status.summary.pending is None else status.summary.pending.handlers
        if handlers is not None and handlers.failed:
            what = f"handlers of {name} have failed {counted(handlers.failed, 'time')} since its start"
            yield note("handlers", what, f"see {self._home.log_path(name)}")
        if node.members is not None:
            yield from self._cluster(node.members, is_open=status.summary.open)
            # In Serf's wan profile a question takes up to 2 s to reach all.
            yield from _compare_clocks(self._client.ask_daemon(GetClocks(6.0)))
            for other in self._client.ask_daemon(CompareViews(6.0)):
                if other.view == "differs":
                    what = f"{printable(other.name)} shows something else in {name}, although the logs are equal"
                    remedy = f"unmount and 'basefs check {name}' on both; if both logs are intact, report a bug"
                    yield problem("view", what, remedy)

    def _cluster(self, members: list[ClusterMember], *, is_open: bool) -> Iterator[Diagnosis]:
        name = self._name
        network = self._client.ask_daemon(GetNetwork())
        if network.serf_restarts:
            what = f"the Serf agent of {name} was restarted {counted(network.serf_restarts, 'time')}"
            yield note("serf", what, f"see {self._home.log_path(name)}")
        if not network.serf_connected:
            yield problem("serf", f"the Serf agent of {name} is not running", f"see {self._home.log_path(name)}")
        for what in clones_in_words(members):
            remedy = (
                "nobody can tell which of them has written an entry; on the copy: basefs genkey -f, unmount and mount "
                "again, and have the new key granted"
            )
            yield problem("keys", what, remedy)
        alive = [member for member in members if member.same_filesystem and member.status in ("alive", "silent")]
        if network.serf_trouble and all(member.own for member in alive):
            what = f"this node is the only member of {name}: {printable(network.serf_trouble)}"
            remedy = "is --encrypt-key-file the same on all nodes, and their ports open?"
            if not is_open:
                remedy = "are their ports open, and is a key of this node a member: basefs keys, on one of them?"
            yield problem("peers", what, remedy)
        for member in alive:
            if member.own:
                yield from self._own_disk(full=member.disk_full)
            elif member.disk_full:
                yield problem("peers", f"{member.name} has no room: its disk is full", f"basefs doctor {name}, there")
            elif member.lag is not None and member.lag.contents_waiting:
                waiting = counted(member.lag.contents_waiting, "content")
                what = f"{member.name} has no room for {waiting}: max_log_bytes or min_free is reached there"
                yield problem("peers", what, f"basefs doctor {name}, there")
            elif member.trouble:
                what = f"the last sync of {name} with {member.name} failed: {printable(member.trouble)}"
                yield problem("peers", what, f"basefs doctor {name}, there")

    def _own_disk(self, *, full: bool) -> list[Diagnosis]:
        """Whether something did not fit, where the examination of this machine does not say so of its disk."""
        if not full or disk(self._home.path):
            return []
        what = f"something of {self._name} did not fit on the disk of {self._home.path}"
        return [problem("disk", what, f"make room there ('du -x {self._home.path}')")]

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
        with connections():
            reached = asyncio.run(peers.reach(wanted, encrypted=encrypted))
            answering = [one.address for one in reached if one.sync_tcp]
            return [*peers.examine(self._name, reached), *self._greet(status, answering)]

    def _greet(self, status: Status, addresses: Sequence[NodeAddress]) -> list[Diagnosis]:
        """Whether nodes that answer and this node let each other in."""
        key = next(iter(default_keys(self._home)), None)
        if not status.summary.open and (key is None or unused_key(self._home, status.fingerprints)):
            # It would not show the key that the daemon shows.
            return []
        granted = self._client.ask(ListKeys(every=True))
        access = peers.Standing(
            name=self._name,
            identity=status.summary.identity,
            fingerprint="" if key is None else key.fingerprint.hex(),
            keys=granted,
            permission=permission(self._home, self._name),
        )
        # Those of keys that were revoked as well: which one it is tells more than that it is no member.
        trusted = None if status.summary.open else {one.public for one in granted}
        return peers.explain(access, asyncio.run(greet(addresses, access.identity, key, trusted, peers.PATIENCE)))

    def _cluster_file(self) -> list[str]:
        try:
            (row,) = self._client.ask(ListLivePaths("/.cluster"))
            (content,) = self._client.ask(ReadContents([ContentPiece(row.entry, 0, row.size)]))
        except (BaseFSError, ValueError):
            return []
        return [] if content is None else content.decode("utf-8", "replace").split()


def _examine_log(name: str, log: LogFile) -> list[Diagnosis]:
    """Whether SQLite can read the file, and whether it has our format; rows and hashes are `basefs check`'s."""
    other = log.other_format()
    if other is not None:
        what = f"the log of {name} has format {other[0]}, this version reads {other[1]}"
        return [problem("log", what, "upgrade BaseFS" if other[0] > other[1] else "basefs get NAME ADDRESS")]
    damage = log.damage()
    if damage is None:
        return []
    return [
        problem(
            "log", f"the log of {name} {damage}", f"basefs check --repair {name}, or fetch it again with 'basefs get'"
        )
    ]


def _examine_times(name: str, log: LogFile, own: Container[str]) -> list[Diagnosis]:
    """Whether entries came before the time that they carry; those of this node's own keys say nothing of clocks.

    `own`: fingerprints in hex.
    """
    found = []
    for fingerprint, ahead in log.entries_ahead().items():
        if fingerprint not in own:
            what = (
                f"entries of the key {fingerprint[:SHORT]} in {name} have times up to {ahead:.0f} s after their arrival"
            )
            remedy = "compare 'date' on this machine and on the one with that key: one of the clocks was wrong"
            found.append(note("clock", what, remedy))
    return found


def _compare_clocks(readings: Sequence[NodeClock]) -> list[Diagnosis]:
    """What the clocks of other nodes say: whether ours or one of theirs is far off."""
    # Machines that set their clocks differ by milliseconds.
    off = [one for one in readings if abs(one.offset) > one.doubt + 5.0]
    if len(off) > len(readings) / 2 and len(readings) > 1:
        # Most of them disagree with this one: it is more likely the wrong one.
        middle = sorted(float(one.offset) for one in off)[len(off) // 2]
        what = f"this machine's clock is {_ahead(-middle)} {len(off)} of {len(readings)} other nodes"
        return [problem("clock", what, "timedatectl set-ntp true, on this machine")]
    remedy = "timedatectl set-ntp true, on the machine whose clock is wrong"
    whats = (f"the clock of {one.name} is {_ahead(one.offset)} this machine's" for one in off)
    return [problem("clock", what, remedy) for what in whats]


def _ahead(seconds: float) -> str:
    return f"{abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'}"
