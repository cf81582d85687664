"""The ports of a node: gossip on one, TCP and UDP, and sync on the next one."""

from __future__ import annotations

import socket

from basefs.daemon.config import SYNC_PORT_OFFSET


def try_port(host: str, port: int, kind: socket.SocketKind) -> OSError | None:
    """Why a port cannot be listened on, `None` if it can; `kind`: of TCP or UDP."""
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


def try_gossip(host: str, port: int) -> OSError | None:
    """Why gossip cannot have a port, `None` if it can."""
    return try_port(host, port, socket.SOCK_STREAM) or try_port(host, port, socket.SOCK_DGRAM)


def free_pair(host: str, port: int) -> int:
    """A gossip port beyond this one that is free, and so is the one of sync; the next one if none is found."""
    after = port + 2 * SYNC_PORT_OFFSET
    for one in range(after, min(after + 2 * 200, 65536 - SYNC_PORT_OFFSET), 2):
        if try_gossip(host, one) is None and try_port(host, one + SYNC_PORT_OFFSET, socket.SOCK_STREAM) is None:
            return one
    return after
