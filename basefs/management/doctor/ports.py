"""Whether the ports that a node needs are free here."""

from __future__ import annotations

import contextlib
import errno
import socket

import psutil

from basefs.daemon.config import SYNC_PORT_OFFSET
from basefs.management.doctor.finding import Diagnosis, problem


def examine(host: str, port: int) -> list[Diagnosis]:
    """Gossip (TCP and UDP) and sync (TCP), on the address that a node would listen on."""
    found = []
    for number, kind, name in (
        (port, socket.SOCK_STREAM, "tcp"),
        (port, socket.SOCK_DGRAM, "udp"),
        (port + SYNC_PORT_OFFSET, socket.SOCK_STREAM, "tcp"),
    ):
        error = _try(host, number, kind)
        if error is not None:
            found.append(_finding(host, port, f"{number}/{name}", error, _user(number, kind)))
    return found


def _finding(host: str, port: int, what: str, error: OSError, user: str) -> Diagnosis:
    if error.errno == errno.EADDRNOTAVAIL:
        remedy = "basefs mount -b IP NAME DIR, with one that 'ip address' lists"
        return problem("port", f"{host} is no address of this machine", remedy)
    if error.errno == errno.EADDRINUSE:
        remedy = f"stop it, or use other ports: basefs mount -b {host}:{port + 2 * SYNC_PORT_OFFSET} NAME DIR"
        return problem("port", f"port {what} is taken{user}", remedy)
    return problem("port", f"cannot listen on port {what}: {error.strerror}", "another port: basefs mount -b IP:PORT")


def _try(host: str, port: int, kind: socket.SocketKind) -> OSError | None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, kind) as probe:
        if kind is socket.SOCK_STREAM:
            # As the servers do: connections of before that linger are in nobody's way.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            if kind is socket.SOCK_STREAM:
                probe.listen(1)
        except OSError as error:
            return error
    return None


def _user(port: int, kind: socket.SocketKind) -> str:
    """The process that has a port, as far as this user may see it."""
    with contextlib.suppress(psutil.Error, OSError):
        for one in psutil.net_connections("inet"):
            listens = one.status == psutil.CONN_LISTEN or kind is socket.SOCK_DGRAM
            if one.type is kind and listens and one.laddr and one.laddr.port == port and one.pid:
                return f" by {psutil.Process(one.pid).name()}, process {one.pid}"
    return ""
