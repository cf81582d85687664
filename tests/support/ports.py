"""Free ports, for tests that run beside each other."""

from __future__ import annotations

import contextlib
import functools
import itertools
import socket
from collections.abc import Iterator

#: Below those that Linux gives to connections (`ip_local_port_range`), or one of them might take it meanwhile.
_FIRST = 20_000
#: How many ports a process has, and how many processes there may be.
_EACH = 200
_PROCESSES = 50


@functools.cache
def _own_ports() -> Iterator[int]:
    """The ports of this process, again and again: no other test process takes them while this one runs."""
    for number in range(_PROCESSES):
        claim = socket.socket(socket.AF_UNIX)
        try:
            # An abstract address: it ends with the process, and belongs to the network namespace as the ports do.
            claim.bind(f"\0basefs-test-ports-{number}")
        except OSError:
            claim.close()
            continue
        _claims.append(claim)
        return itertools.cycle(range(_FIRST + number * _EACH, _FIRST + (number + 1) * _EACH))
    raise AssertionError(f"{_PROCESSES} test processes run already")


_claims: list[socket.socket] = []


def free_port(host: str = "127.0.0.1") -> int:
    """A port that is free for TCP and UDP, and stays so until the test takes it."""
    for port in _own_ports():
        with socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp, contextlib.suppress(OSError):
            tcp.bind((host, port))
            udp.bind((host, port))
            return port
    raise AssertionError("there is no end of them")
