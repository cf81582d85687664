"""DNS TXT records, from a name server on loopback."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import dns.flags
import dns.message
import dns.rcode
import dns.resolver
import dns.rrset
import pytest

from basefs.daemon.api.creation import find_nodes
from basefs.errors import UsageError

ZONE = {
    "cluster.example.": ['"basefs=10.0.0.2"', '"basefs=10.0.0.1:4000"', '"v=spf1 -all"', '"basefs=host:port"'],
    "six.example.": ['"basefs=[fd00::1]:5000"', '"base" "fs=10.0.0.3"'],
    "mail.example.": ['"v=spf1 -all"'],
}


@pytest.fixture
def resolver() -> Iterator[dns.resolver.Resolver]:
    """One that asks a server of ours, which answers from `ZONE`."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(0.1)
        stop = threading.Event()

        def serve() -> None:
            while not stop.is_set():
                try:
                    data, peer = server.recvfrom(4096)
                except TimeoutError:
                    continue
                query = dns.message.from_wire(data)
                answer = dns.message.make_response(query)
                answer.flags |= dns.flags.AA
                name = query.question[0].name
                records = ZONE.get(str(name))
                if records is None:
                    answer.set_rcode(dns.rcode.NXDOMAIN)
                else:
                    answer.answer.append(dns.rrset.from_text(name, 60, "IN", "TXT", *records))
                server.sendto(answer.to_wire(), peer)

        thread = threading.Thread(target=serve)
        thread.start()
        asking = dns.resolver.Resolver(configure=False)
        asking.nameservers = ["127.0.0.1"]
        asking.port = server.getsockname()[1]
        yield asking
        stop.set()
        thread.join()


def test_an_address_asks_nobody() -> None:
    nobody = dns.resolver.Resolver(configure=False)
    assert find_nodes("10.0.0.1", nobody) == [("10.0.0.1", 18374)]
    assert find_nodes("[fd00::1]:7", nobody) == [("fd00::1", 7)]


@pytest.mark.logs("is not an address")
def test_the_nodes_that_a_name_lists(resolver: dns.resolver.Resolver) -> None:
    assert find_nodes("cluster.example:9", resolver) == [("10.0.0.1", 4000), ("10.0.0.2", 9)]
    assert find_nodes("six.example", resolver) == [("10.0.0.3", 18374), ("fd00::1", 5000)]


@pytest.mark.parametrize("name", ["mail.example", "unknown.example"])
def test_a_name_without_such_records_is_a_host(resolver: dns.resolver.Resolver, name: str) -> None:
    assert find_nodes(f"{name}:9", resolver) == [(name, 9)]


def test_a_server_that_does_not_answer_leaves_the_host() -> None:
    nobody = dns.resolver.Resolver(configure=False)
    assert find_nodes("cluster.example", nobody) == [("cluster.example", 18374)]


def test_what_is_no_address() -> None:
    with pytest.raises(UsageError):
        find_nodes("host:port")
