"""netem for kernels without it: packets wait in a netfilter queue until it is decided what becomes of them.

A program that runs in a node's network and judges what arrives there (`tests/support/shaping.py` starts it and sends
it the packets).  On arrival, and not when they are sent: a packet that waits at its sender counts against the sender's
socket, which then stops sending.  A line of JSON on standard input sets what happens from now on, an empty line asks
for counters; each is answered by one line.  The end of the input is the end of the program.
"""

from __future__ import annotations

import heapq
import itertools
import json
import random
import select
import socket
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from netfilterqueue import NetfilterQueue, Packet

from tests.support.netem import LIMIT, Fate, Netem

#: Packets that the kernel keeps for us: delayed ones and new ones.
_QUEUE_LENGTH = 8 * LIMIT
#: Bytes of the socket to the kernel: a full queue of full packets.
_SOCKET_BYTES = 16 << 20
#: Where the source address is in an IPv4 header (RFC 791, section 3.1).
_SOURCE = slice(12, 16)


@dataclass
class Counters:
    """What was done to packets since the last setting.

    Attributes:
        packets: that arrived.
        lost: of these, on purpose.
        overflow: of these, because too many were under way.
        duplicated: of these.
        passed: copies that went on.
        reordered: of these, after one that had arrived later (RFC 4737, section 3.3).
        waited: seconds that those that went on have waited, in sum.
        waited_squares: the sum of their squares.
        late: the longest that one went on after its time, in seconds.
    """

    packets: int = 0
    lost: int = 0
    overflow: int = 0
    duplicated: int = 0
    passed: int = 0
    reordered: int = 0
    waited: float = 0.0
    waited_squares: float = 0.0
    late: float = 0.0


class Emulator:
    """The packets in flight, and the decision about new ones."""

    def __init__(self) -> None:
        self.counters = Counters()
        self._fates: dict[bytes, Fate] = {}
        self._default = Fate(Netem(), 0)
        #: time to go on, number of arrival, packet, copy of a duplicated packet or nothing, time of arrival
        self._waiting: list[tuple[float, int, Packet | None, bytes, float]] = []
        self._numbers = itertools.count()
        self._latest = -1
        self._raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)

    def set(self, setting: dict[str, Any]) -> None:
        """Judge by something else from now on: {"seed": ..., "netem": {...}, "links": {address of a peer: {...}}}."""
        seeds = random.Random(setting["seed"])
        self._default = Fate(Netem(**setting["netem"]), seeds.getrandbits(64))
        self._fates = {
            socket.inet_aton(address): Fate(Netem(**netem), seeds.getrandbits(64))
            for address, netem in sorted(setting["links"].items())
        }
        self.counters = Counters()

    def take(self, packet: Packet) -> None:
        """A packet arrives, perhaps one of many that have waited for us: those that are due go on first."""
        self.release()
        now = time.monotonic()
        payload = packet.get_payload()
        seconds = self._fates.get(payload[_SOURCE], self._default).decide()
        self.counters.packets += 1
        self.counters.lost += not seconds
        if len(self._waiting) >= LIMIT:
            self.counters.overflow += bool(seconds)
            seconds = []
        if not seconds:
            packet.drop()
            return
        packet.retain()
        heapq.heappush(self._waiting, (now + seconds[0], next(self._numbers), packet, b"", now))
        for more in seconds[1:]:
            self.counters.duplicated += 1
            heapq.heappush(self._waiting, (now + more, next(self._numbers), None, payload, now))

    def release(self, *, all_of_them: bool = False) -> float | None:
        """Let those go on whose time has come; returns the seconds until the next one, `None` if none waits."""
        while self._waiting:
            now = time.monotonic()
            due, number, packet, copy, arrival = self._waiting[0]
            if due > now and not all_of_them:
                return due - now
            heapq.heappop(self._waiting)
            if packet is not None:
                packet.accept()
            else:
                # To the node's own address, so that it arrives by the loopback interface, which is not shaped.
                self._raw.sendto(copy, (socket.inet_ntoa(copy[16:20]), 0))
            self._count(now - arrival, now - due, number)
        return None

    def _count(self, waited: float, late: float, number: int) -> None:
        self.counters.passed += 1
        self.counters.waited += waited
        self.counters.waited_squares += waited * waited
        self.counters.late = max(self.counters.late, late)
        self.counters.reordered += number < self._latest
        self._latest = max(self._latest, number)


def main() -> None:
    """Judge packets of the netfilter queue that the argument names until the input ends."""
    emulator = Emulator()
    queue = NetfilterQueue()
    queue.bind(int(sys.argv[1]), emulator.take, max_len=_QUEUE_LENGTH, sock_len=_SOCKET_BYTES)
    try:
        while True:
            readable, _, _ = select.select([queue.get_fd(), sys.stdin], [], [], emulator.release())
            if queue.get_fd() in readable:
                queue.run(block=False)
            if sys.stdin in readable:
                line = sys.stdin.readline()
                if not line:
                    return
                if line.strip():
                    emulator.set(json.loads(line))
                print(json.dumps(asdict(emulator.counters)), flush=True)
    finally:
        emulator.release(all_of_them=True)
        queue.unbind()


if __name__ == "__main__":
    main()
