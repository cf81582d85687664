"""The configuration of one Serf agent: our settings, and the file that Serf reads."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from basefs.durable import write_file
from basefs.errors import AgentError
from basefs.gossip.account import Account
from basefs.gossip.outgoing import PROFILES

#: Serf's limit for a user event after encoding, bytes.  Encoding adds 30 B (measured), the length of the name, and up
#: to 8 B of logical time to our 512, so the default of 512 is too small.  Above about 1300 B Serf would take an
#: event that never fits a UDP packet and therefore never arrives.
USER_EVENT_SIZE_LIMIT = 1024

#: The file beside the configuration in which Serf keeps its keys, and whether others have changed them.
KEYRING_FILE = "serf.keyring"

#: Seconds from the start of an agent until its RPC port answers.  It takes 0.05 s on an idle machine, and a busy one
#: deserves patience.
CONNECT_TIMEOUT = 15.0


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """The settings of an agent.

    `node_name`: what people call this node.  `bind`: "ip:port" (TCP and UDP).
    `advertise`: "ip:port" that others should use, where a NAT is between.  `interface`: taken instead of the address if
    that is all of them.  `profile`: wan, lan or local.  `encrypt_key`: base64 of 16, 24 or 32 bytes, the same on all
    nodes.  `tags`: at most 512 bytes in all.  `snapshot_path`: file where Serf keeps its clock and its members across
    restarts.
    `join`: "host:port" of nodes to join.  `log_level`: Serf's (debug, info, warn, err); at info it logs every event,
    which costs it more than delivering the event.  `serf_path`: the binary, if it is not to be searched for.
    `statsd`: "ip:port" that is sent Serf's counters.  `poll_interval`: seconds between looks at Serf's queue while this
    node sends.  `probe_interval`: seconds between two of them while it does not, since an agent that hangs does not
    answer and is replaced; sooner is work on an idle node, later the others take the node for failed for as long.
    `connect_timeout`: seconds from the start until the RPC port answers.  `peers_path`: our file of known addresses.
    `account`: the user as which it runs, `None` for ours.
    """

    node_name: str
    bind: str
    advertise: str | None = None
    interface: str | None = None
    profile: str = "wan"
    encrypt_key: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    snapshot_path: Path | None = None
    join: tuple[str, ...] = ()
    log_level: str = "warn"
    serf_path: str | None = None
    statsd: str | None = None
    poll_interval: float = 1.0
    probe_interval: float = 15.0
    connect_timeout: float = CONNECT_TIMEOUT
    peers_path: Path | None = None
    account: Account | None = None

    def __post_init__(self) -> None:
        if self.profile not in PROFILES:
            raise AgentError(f"unknown profile {self.profile!r}: use {', '.join(PROFILES)}")

    @property
    def agent_name(self) -> str:
        """The name in Serf: two agents of one name at two addresses would not see each other."""
        return f"{self.node_name}@{self.advertise or self.bind}"

    def as_serf(self, rpc_port: int, rpc_auth: str, directory: Path) -> dict[str, Any]:
        """The agent's configuration file, as JSON values; `directory`: where it will be."""
        values: dict[str, Any] = {
            "node_name": self.agent_name,
            "bind": self.bind,
            "profile": self.profile,
            "tags": dict(self.tags),
            "log_level": self.log_level,
            "rpc_addr": f"127.0.0.1:{rpc_port}",
            "rpc_auth": rpc_auth,
            "user_event_size_limit": USER_EVENT_SIZE_LIMIT,
            "disable_coordinates": False,
            # Our log is the daemon's; a second copy in syslog would only say it twice.
            "enable_syslog": False,
            # A node that stops cleanly says so: the others then neither wait for the failure detector (many seconds in
            # the wan profile) nor try to reach it for a day.  Both polite signals leave; only SIGKILL does not.
            "leave_on_terminate": True,
            "skip_leave_on_interrupt": False,
            # Having left must not mean staying away: after a restart the snapshot's members are joined again.
            "rejoin_after_leave": True,
            # How long to wait until a leave was sent to enough nodes: two gossip intervals (1 s in the wan profile) do.
            # If the last peer has just gone as well it never happens, and Serf's 5 s would only delay the unmount.
            "broadcast_timeout": "3s",
            # With resolution on, the nodes vote and the loser of a name shuts down: any node could stop our agent
            # by using its name, with the address in it.  Off, the first holder keeps the name.
            "disable_name_resolution": True,
        }
        if self.advertise is not None:
            values["advertise"] = self.advertise
        if self.interface is not None:
            values["interface"] = self.interface
        if self.encrypt_key is not None:
            values["keyring_file"] = str(directory / KEYRING_FILE)
        if self.statsd is not None:
            values["statsd_addr"] = self.statsd
        if self.snapshot_path is not None:
            values["snapshot_path"] = str(self.snapshot_path)
        return values


def write_config(directory: Path, values: Mapping[str, Any], group: int | None = None) -> Path:
    """Write `serf.json` into the directory, readable by its owner only (it holds a key), or by a group as well.

    Raises OSError.
    """
    path = directory / "serf.json"
    write_file(path, json.dumps(values, indent=1).encode(), mode=0o600)
    if group is not None:
        os.chown(path, -1, group)
        path.chmod(0o640)
    return path


class Keyring:
    """The keys of one run of an agent, in a file.

    Serf installs, uses and removes keys on the word of any member, and then writes them there.
    """

    def __init__(self, directory: Path, key: str) -> None:
        """The only key that there is to be."""
        self._path = directory / KEYRING_FILE
        self._data = json.dumps([key]).encode()

    def write(self, account: Account | None) -> None:
        """Write the file, which the agent owns.  Raises OSError."""
        write_file(self._path, self._data, mode=0o600)
        if account is not None:
            os.chown(self._path, account.uid, account.gid)

    @property
    def is_changed(self) -> bool:
        """Whether the agent has other keys now."""
        try:
            with self._path.open("rb") as file:
                return file.read(len(self._data) + 1) != self._data
        except OSError:
            # It is written anew for the next run.
            return True
