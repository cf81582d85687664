"""Where a node keeps its state, and the numbers that it runs with (docs/operations.md)."""

from __future__ import annotations

import ipaddress
import logging
import os
import re
import secrets
import socket
import stat
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from basefs.durable import write_file
from basefs.errors import NotFound, UsageError, suggestion
from basefs.gossip.members import join_host_port
from basefs.log.hashes import sha224

log = logging.getLogger(__name__)

#: Gossip port, TCP and UDP, unless told otherwise; sync listens on the next one.
DEFAULT_PORT = 18374
SYNC_PORT_OFFSET = 1

#: Events that a burst of changes may cost before it is announced instead of gossiped.  With more, Serf's queue delays a
#: file; with fewer, a pull is as quick, and fails where connections stall (`eval/REPORT.md`, "The choice of defaults").
MAX_BLOCK_MESSAGES = 4
#: Seconds of which a node waits a random part before it fetches what gossip has told it of, so that a packet which
#: reaches several nodes does not make all of them connect at once.  More costs time and spares the announcer nothing
#: (`eval/REPORT.md`, "The choice of defaults").
PULL_JITTER = 0.05
#: Seconds without a change after which what was saved is published: tools that save a file by way of others take a few
#: milliseconds.  More would be seen as latency, less would publish names that are about to go (`eval/REPORT.md`).
QUIET_SECONDS = 0.05
#: Seconds between periodic syncs with a random peer (paper, FULL_SYNC_INTERVAL).  They find what gossip lost, and peers
#: that are cut off: a node that hears nothing cannot tell a quiet cluster from a broken link.  Between equal nodes one
#: costs a few hundred bytes.
FULL_SYNC_INTERVAL = 5.0
#: Sessions that each node keeps open for news, whoever opened them.  With three the graph of all of them is connected
#: almost surely, whatever the number of nodes; more bring the same news more often twice.
PUSH_SESSIONS = 3
#: Sessions that others may have with a node at once.  More: a busy node serves more peers, each more slowly.
SYNC_SESSIONS = 16
#: Probability that a node does so each time (paper, section 3.2.2, the probability p).
SYNC_PROBABILITY = 1.0
#: Seconds between looks for lost peers and for files whose blocks stopped coming.
WATCH_SECONDS = 0.5
#: Seconds between looks at the keys that Serf has: what a member changes there holds for as long, and each time the
#: agents start again.
KEYRING_SECONDS = 15.0
#: Seconds until what was committed survives a power cut (docs/log.md).
DURABLE_SECONDS = 0.1

#: The home of root where the package is installed, which makes it; the service units use it as well.
SYSTEM_HOME = Path("/var/lib/basefs")
MACHINE_ID = Path("/etc/machine-id")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Home:
    """The directory of one node: `$BASEFS_HOME`, or `~/.basefs`; for root `/var/lib/basefs` if only that is there.

    fs/NAME/    one log each: log.db, cache.db, lock, agent.lock
    run/        control sockets and what a running daemon tells about itself
    logs/       what daemons in the background print
    key         the default private key
    NAME.root.key  the root key of a filesystem that was made here, until it is moved away
    config      settings, see `basefs/daemon/settings.py`
    identities  what fetched filesystems were the last time, see `KnownIdentities`
    node        a few random digits that make the node's name its own, and a hash of machine and place that they are for
    """

    path: Path

    @classmethod
    def from_environment(cls) -> Home:
        """The home that the environment names."""
        own = Path.home() / ".basefs"
        if os.geteuid() == 0 and SYSTEM_HOME.is_dir() and not own.exists():
            own = SYSTEM_HOME
        return cls(Path(os.environ.get("BASEFS_HOME") or own).absolute())

    def other(self) -> Home | None:
        """The other home of root on this machine, if there are filesystems in it, and none was chosen."""
        other = Home(Path.home() / ".basefs" if self.path == SYSTEM_HOME else SYSTEM_HOME)
        if os.geteuid() != 0 or os.environ.get("BASEFS_HOME") or other == self or not other.names():
            return None
        return other

    @property
    def default_key(self) -> Path:
        """Where genkey puts the key and all others look for it."""
        return self.path / "key"

    def root_key(self, name: str) -> Path:
        """Where bootstrap puts the root key of a filesystem, unless it is told which one to take."""
        return self.path / f"{name}.root.key"

    @property
    def settings_path(self) -> Path:
        """Where the settings are, if there are any."""
        return self.path / "config"

    def directory(self, name: str) -> Path:
        """The directory of a filesystem, existing or not.  Raises `UsageError` for a bad name."""
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} is not a filesystem name: use up to 64 letters, digits, '.', '_' and '-'")
        return self.path / "fs" / name

    def existing(self, name: str) -> Path:
        """The directory of a filesystem that is here.  Raises `NotFound`, saying what to do."""
        directory = self.directory(name)
        if not (directory / "log.db").exists():
            other = self.other()
            if other is not None and name in other.names():
                raise NotFound(
                    f"there is no filesystem {name} in {self.path}; it is in {other.path}: set BASEFS_HOME={other.path}"
                )
            near = suggestion(name, self.names())
            raise NotFound(
                f"there is no filesystem {name} in {self.path}{near}: make it with 'basefs bootstrap {name}', or fetch "
                f"it with 'basefs get {name} ADDRESS'"
            )
        return directory

    def make(self) -> None:
        """Make the directory if it is missing, for its owner only.

        One that was there stays as it is where somebody chose it, with all that is in it; `basefs doctor` looks at it.
        """
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self.path in (Path.home() / ".basefs", SYSTEM_HOME):
            _close(self.path)

    def subdirectory(self, name: str) -> Path:
        """A directory in the home, which is made if it is missing; only its owner can enter it."""
        self.make()
        directory = self.path / name
        directory.mkdir(exist_ok=True, mode=0o700)
        _close(directory)
        return directory

    def names(self) -> list[str]:
        """The filesystems that are here."""
        return sorted(path.parent.name for path in self.path.glob("fs/*/log.db") if _NAME.fullmatch(path.parent.name))

    def socket_path(self, name: str) -> Path:
        """The control socket of a filesystem's daemon."""
        return self.run_directory() / f"{name}.sock"

    def run_directory(self) -> Path:
        """The directory of sockets, made if it is missing; readable by its owner only."""
        return self.subdirectory("run")

    def log_path(self, name: str) -> Path:
        """Where a daemon in the background prints."""
        return self.subdirectory("logs") / f"{name}.log"

    def node_name(self, machine: Path = MACHINE_ID) -> str:
        """The node's default name: the host's, and digits of this home, so that two homes on a host differ.

        A home that was copied, or restored elsewhere from a backup, gets new digits: of two nodes with one name none
        sees the other as a member.  `machine`: the file that says which machine this is, machine-id(5).
        """
        path = self.path / "node"
        here = sha224(_content(machine) + os.fsencode(self.path)).hex()[:16]
        try:
            digits, *place = path.read_text().split()
        except (FileNotFoundError, ValueError):
            digits, place = secrets.token_hex(3), []
        if place and place != [here]:
            digits = secrets.token_hex(3)
        if place != [here]:
            self.make()
            write_file(path, f"{digits} {here}\n".encode())
        return f"{socket.gethostname().split('.')[0][:48]}-{digits}"


def _close(directory: Path) -> None:
    """Take a directory of this user away from all others, and say so where they had it."""
    status = directory.stat()
    if status.st_mode & 0o077 and status.st_uid == os.geteuid():
        directory.chmod(0o700)
        mode = stat.S_IMODE(status.st_mode)
        log.warning("%s was open to other users of this machine (mode %04o), and is not any more", directory, mode)


def _content(file: Path) -> bytes:
    """What is in a file; nothing where there is no such thing."""
    try:
        return file.read_bytes()
    except OSError:
        return b""


class NodeAddress(NamedTuple):
    """Where a node takes gossip: a host, by its IP address or name, and a port.  Sync is on the next port."""

    host: str
    port: int

    def __str__(self) -> str:
        return join_host_port(self.host, self.port)


def command_line(arguments: Sequence[str]) -> list[str]:
    """The command line that starts this very program, with other arguments.

    Not by `-m`, which would let a module in the working directory take the place of one of ours.
    """
    return [sys.executable, str(Path(__file__).parent.parent / "__main__.py"), *arguments]


def parse_address(text: str, default_port: int = DEFAULT_PORT) -> NodeAddress:
    """`HOST`, `HOST:PORT`, `IPV6`, `[IPV6]` or `[IPV6]:PORT`.  Raises `UsageError`."""
    host, colon, port = text.rpartition(":")
    if not colon or (":" in host and not host.endswith("]")):
        host, port = text, str(default_port)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    # With digits and dots alone it is meant as an address of IPv4, and no name server knows another one.
    numbers = not set(host) - set("0123456789.")
    bad_host = not host or set(host) & set("[], \t\n") or (numbers and not is_ip(host))
    if bad_host or not port.isdecimal() or not 0 < int(port) < 65536 - SYNC_PORT_OFFSET:
        raise UsageError(f"{text!r} is not an address: use IP or IP:PORT, with a port from 1 to {65534}")
    return NodeAddress(host, int(port))


def is_ip(host: str) -> bool:
    """Whether a host is an address, of IPv4 or IPv6, and no name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
