"""The advertised address of a node while the addresses of its machine change: in a network of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.cluster

#: A machine with a tunnel to the others; prints the advertised address at each step.
MACHINE = """
import subprocess
from basefs.daemon.addresses import MISSED_LOOKS, Whereabouts, advertised

def ip(line):
    subprocess.run(["ip", *line.split()], check=True)

def looks():
    found = [whereabouts.look() for _ in range(MISSED_LOOKS)]
    return found[-1], any(found[:-1])

ip("link set lo up")
for name, address in (("eth0", "192.168.1.5/24"), ("tun0", "10.8.0.2/24")):
    ip(f"link add {name} type veth peer name {name}-peer")
    ip(f"link set {name}-peer up")
    ip(f"addr add {address} dev {name}")
    ip(f"link set {name} up")
ip("route add default via 192.168.1.1")
others = ["10.8.0.1", "10.8.0.3"]
print(told := advertised("0.0.0.0", 18374, others))
whereabouts = Whereabouts(told, "0.0.0.0", others)
print(*looks())
ip("addr del 10.8.0.2/24 dev tun0")
print(whereabouts.look())
ip("addr add 10.8.0.2/24 dev tun0")
print(*looks())
ip("addr del 10.8.0.2/24 dev tun0")
print(*looks())
ip("addr add 10.8.0.2/24 dev tun0")
print(whereabouts.look())
"""

#: A machine with addresses of both families; prints the advertised address if it listens on all of them.
BOTH = """
import subprocess
from basefs.daemon.addresses import MISSED_LOOKS, Whereabouts, advertised

def ip(line):
    subprocess.run(["ip", *line.split()], check=True)

ip("link set lo up")
ip("link add eth0 type veth peer name peer")
ip("link set peer up")
ip("link set eth0 up")
print(advertised("::", 18374))
ip("addr add fd00::5/64 dev eth0 nodad")
print(advertised("0.0.0.0", 18374), advertised("::", 18374))
ip("addr add 192.168.1.5/24 dev eth0")
for others in ([], ["192.168.1.1"], ["fd00::1", "192.168.1.1"]):
    print(advertised("::", 18374, others))
whereabouts = Whereabouts("[fd00::5]:18374", "::", ["fd00::1", "192.168.1.1"])
ip("addr del fd00::5/64 dev eth0")
print([whereabouts.look() for _ in range(MISSED_LOOKS)][-1])
ip("addr add fd00::5/64 dev eth0 nodad")
print(whereabouts.look())
"""


def lines(machine: str) -> list[str]:
    told = subprocess.run(
        ["unshare", "--net", sys.executable, "-c", machine],
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return told.stdout.splitlines()


def test_a_machine_that_listens_on_the_addresses_of_both_families() -> None:
    assert lines(BOTH) == [
        "127.0.0.1:18374",
        "127.0.0.1:18374 [fd00::5]:18374",
        "192.168.1.5:18374",
        "192.168.1.5:18374",
        "[fd00::5]:18374",
        "192.168.1.5:18374",
        "[fd00::5]:18374",
    ]


def test_a_tunnel_that_starts_again() -> None:
    assert lines(MACHINE) == [
        "10.8.0.2:18374",
        "None False",
        "None",
        "None False",
        "192.168.1.5:18374 False",
        "10.8.0.2:18374",
    ]
