"""What can be wrong with this machine: FUSE, Serf, ports, the directory of a node, its disk, its clock, its mounts.

The kernel knows whether its clock is synchronized.
"""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import errno
import os
import shutil
import socket
import stat
import threading
from pathlib import Path

import psutil

from basefs.daemon.addresses import free_pair, try_port
from basefs.daemon.api.probing import signing_trouble
from basefs.daemon.config import SYNC_PORT_OFFSET, Home, NodeAddress
from basefs.daemon.serf.program import find_problem
from basefs.daemon.settings import Settings
from basefs.errors import UsageError
from basefs.management.doctor.finding import Diagnosis, note, problem
from basefs.management.output import size

DEVICE = Path("/dev/fuse")
#: What to do where OpenSSL refuses Ed25519.
POLICY = (
    "allow Ed25519 in the crypto policy of this machine; these commands show it: "
    "'fips-mode-setup --check', 'update-crypto-policies --show'"
)


def examine_fuse() -> list[Diagnosis]:
    """The device, and the helper that mounts."""
    return [*_device(), *_helper()]


def _device() -> list[Diagnosis]:
    try:
        if not stat.S_ISCHR(DEVICE.stat().st_mode):
            return [problem("fuse", f"{DEVICE} is not a device", f"rm {DEVICE}; modprobe fuse")]
        os.close(os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        remedy = "modprobe fuse; a container needs the device from its host (docker run --device /dev/fuse)"
        return [problem("fuse", f"there is no {DEVICE}", remedy)]
    except OSError as error:
        remedy = f"chmod 666 {DEVICE}; a container needs permission for the device from its host"
        return [problem("fuse", f"{DEVICE} cannot be opened: {error.strerror}", remedy)]
    return []


def _helper() -> list[Diagnosis]:
    if shutil.which("fusermount3"):
        return []
    return [problem("fuse", "fusermount3 is missing: without it, nothing can be mounted", "apt-get install fuse3")]


_SERF_REMEDY = "basefs installserf, or 'apt-get install serf'; a single node runs without: basefs mount -s NAME DIR"


def examine_serf() -> list[Diagnosis]:
    """The program on PATH, and its version."""
    what = find_problem()
    return [] if what is None else [problem("serf", what, _SERF_REMEDY)]


def examine_ports(host: str, port: int) -> list[Diagnosis]:
    """Gossip (TCP and UDP) and sync (TCP), on the address that a node would listen on."""
    found = []
    for number, kind, name in (
        (port, socket.SOCK_STREAM, "tcp"),
        (port, socket.SOCK_DGRAM, "udp"),
        (port + SYNC_PORT_OFFSET, socket.SOCK_STREAM, "tcp"),
    ):
        error = try_port(host, number, kind)
        if error is not None:
            found.append(_port_problem(host, port, f"{number}/{name}", error, _port_user(number, kind)))
    return found


def _port_problem(host: str, port: int, what: str, error: OSError, user: str) -> Diagnosis:
    if error.errno == errno.EADDRNOTAVAIL:
        remedy = "basefs mount -b IP NAME DIR, with one that 'ip address' lists"
        return problem("port", f"{host} is not an address of this machine", remedy)
    if error.errno == errno.EADDRINUSE:
        remedy = f"stop it, or use other ports: basefs mount -b {NodeAddress(host, free_pair(host, port))} NAME DIR"
        return problem("port", f"port {what} is taken{user}", remedy)
    return problem("port", f"cannot listen on port {what}: {error.strerror}", "another port: basefs mount -b IP:PORT")


def _port_user(port: int, kind: socket.SocketKind) -> str:
    """The process that has a port, as far as this user may see it."""
    with contextlib.suppress(psutil.Error, OSError):
        for one in psutil.net_connections("inet"):
            listens = one.status == psutil.CONN_LISTEN or kind is socket.SOCK_DGRAM
            if one.type is kind and listens and one.laddr and one.laddr.port == port and one.pid:
                return f" by {psutil.Process(one.pid).name()}, process {one.pid}"
    return ""


#: Bytes below which a disk counts as nearly full, as below a fiftieth of it: a copy of /etc takes some 2 MB, and
#: SQLite needs room for its own files.
LOW_BYTES = 100_000_000


def examine_keys() -> list[Diagnosis]:
    """Whether this machine can sign."""
    trouble = signing_trouble()
    return [] if trouble is None else [problem("openssl", trouble, POLICY)]


def examine_home(home: Home) -> list[Diagnosis]:
    """Permissions and room; nothing if there is no home yet."""
    if not home.path.exists():
        return []
    return [
        *_home_directory(home.path),
        *_key_file(home.default_key),
        *disk(home.path),
        *_settings(home),
    ]


def _home_directory(path: Path) -> list[Diagnosis]:
    found = []
    status = path.stat()
    if status.st_uid not in (os.geteuid(), 0):
        what = f"{path} belongs to another user (id {status.st_uid}), who can replace everything in it"
        found.append(problem("home", what, f"chown -R {os.geteuid()} {path}, or set BASEFS_HOME"))
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        found.append(problem("home", f"{path} is writable by other users", f"chmod 700 {path}"))
    if not os.access(path, os.W_OK | os.X_OK):
        what = f"{path} is not writable by this user"
        found.append(problem("home", what, f"chown -R {os.geteuid()} {path}, or set BASEFS_HOME"))
    return found


def _key_file(path: Path) -> list[Diagnosis]:
    try:
        mode = path.stat().st_mode
    except OSError:
        return []
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        return [problem("home", f"the private key {path} is readable by other users", f"chmod 600 {path}")]
    return []


def _settings(home: Home) -> list[Diagnosis]:
    try:
        Settings.load(home.settings_path)
    except UsageError as error:
        what = f"nothing can be mounted: {error}"
        return [problem("home", what, f"correct {home.settings_path}, or move it away: it is optional")]
    return []


def disk(path: Path) -> list[Diagnosis]:
    """Whether the disk that holds a directory has room left."""
    usage = shutil.disk_usage(path)
    low = min(LOW_BYTES, int(usage.total * 0.1)) if usage.total else LOW_BYTES
    if usage.free >= max(low, int(usage.total / 50)):
        return []
    # Hardly anything fits.
    how = "full" if usage.free < 64 * 1024 else "nearly full"
    what = f"the disk of {path} is {how}: {size(usage.free)} of {size(usage.total)} are free"
    return [problem("disk", what, f"make room there ('du -x {path}'), or move BASEFS_HOME to another disk")]


def examine_clock() -> list[Diagnosis]:
    """Whether something sets the clock of this machine."""
    # More bytes than `struct timex` has on any system; all zero asks and changes nothing.
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.create_string_buffer(512))
    # `TIME_ERROR` of adjtimex(2).
    if state != 5:
        return []
    remedy = "timedatectl set-ntp true, or install chrony; a container gets its time from its host"
    return [note("clock", "the kernel says that this machine's clock is not synchronized", remedy)]


def examine_mount(name: str, point: Path, server: int | None, patience: float = 5.0) -> list[Diagnosis]:
    """One mount of this node; `server` is the process that serves it, if there is one."""
    answer: list[OSError | None] = []

    def ask() -> None:
        try:
            os.statvfs(point)
            answer.append(None)
        except OSError as error:
            answer.append(error)

    # What waits for a mount that hangs cannot be called back; the thread ends with this process.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(patience)
    if not answer:
        what = f"{name} on {point} does not answer within {patience:g} s"
        if server is None:
            return [problem("mount", what, f"basefs unmount --lazy {name}")]
        what += f": its mount server, process {server}, is stopped or hangs"
        return [problem("mount", what, f"kill -CONT {server}, or kill -KILL {server}")]
    if answer[0] is not None:
        what = f"the mount of {name} on {point} is dead: {answer[0].strerror}"
        return [problem("mount", what, f"basefs mount {name} {point}, or basefs unmount {point}")]
    return []
