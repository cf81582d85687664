"""A flood of strangers: a program that connects to a port from many addresses, and never says who it is."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator

#: Holds 400 connections to a port of 127.0.0.1, each from an address in another /24, and begins a new one for each that
#: is cut off, 200 a second.  Says "full" once the first ones are there.  A local user can do that.
FLOOD = """
import os, select, socket, ssl, sys, time
os.nice(19)
port, says = int(sys.argv[1]), b""
if sys.argv[2] == "hello":
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["basefs/3"])
    outgoing = ssl.MemoryBIO()
    try:
        context.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    except ssl.SSLWantReadError:
        says = outgoing.read()
poll, found, number = select.epoll(), {}, 0
while True:
    time.sleep(0.005 if number >= 400 else 0)
    number += 1
    one = socket.socket()
    one.bind((f"127.{1 + number // 250 % 250}.{number % 250}.1", 0))
    try:
        one.connect(("127.0.0.1", port))
        one.send(says)
    except OSError:
        continue
    one.setblocking(False)
    found[one.fileno()] = one
    poll.register(one, select.EPOLLIN | select.EPOLLHUP | select.EPOLLRDHUP)
    if number == 400:
        print("full", flush=True)
    for descriptor, event in poll.poll(0):
        try:
            gone = not found[descriptor].recv(65536)
        except OSError:
            gone = True
        if gone:
            found.pop(descriptor).close()
    while len(found) > 500:
        found.pop(next(iter(found))).close()
"""


@contextlib.contextmanager
def flood(port: int, says: str) -> Iterator[Callable[[], str]]:
    """A program that does nothing but come in; yields what waits until it is there."""
    command = [sys.executable, "-c", FLOOD, str(port), says]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        try:
            yield program.stdout.readline
            assert program.poll() is None, "it went on to the end"
        finally:
            program.kill()
