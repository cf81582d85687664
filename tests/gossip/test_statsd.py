"""What Serf says of its own traffic."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basefs.gossip.statsd import SerfTraffic
from tests.gossip.helpers import Node, nodes, run, until


def test_lines_are_added_up_and_others_left_out() -> None:
    traffic = SerfTraffic()
    traffic.take(
        b"serf-agent.memberlist.udp.sent:129.000000|c\nserf-agent.memberlist.udp.sent:1|c\n"
        b"serf-agent.memberlist.udp.received:7|c\nserf-agent.memberlist.tcp.sent:212.000000|c\n"
        b"serf-agent.memberlist.tcp.accept:1|c\nserf-agent.memberlist.gossip:0.04|ms\n"
        b"other.memberlist.udp.sent:5|g\nserf-agent.memberlist.udp.sent:-4|c\nserf-agent.memberlist.udp.sent:1e300|c"
    )
    assert traffic == SerfTraffic(udp_sent=130, udp_received=7, tcp_sent=212)


@given(st.binary() | st.from_regex(rb"(x\.memberlist\.udp\.sent:.*\|c\n)*", fullmatch=True))
def test_whatever_comes_is_taken(datagram: bytes) -> None:
    traffic = SerfTraffic()
    traffic.take(datagram)
    assert traffic.udp_sent >= 0


@pytest.mark.serf
def test_what_real_agents_say(tmp_path: Path) -> None:
    async def main() -> None:
        a = Node(tmp_path, "a")
        b = Node(tmp_path, "b", join=(a.address,))
        async with nodes(a, b):
            await until(lambda: a.sees("b") and b.sees("a"))
            for node in (a, b):
                traffic = node.gossip.traffic
                await until(lambda traffic=traffic: traffic.udp_sent and traffic.udp_received and traffic.tcp_sent)
            # What one sends the other receives, as far as it has come.
            sent = a.gossip.traffic.udp_sent
            await until(lambda: b.gossip.traffic.udp_received >= sent)

    run(main())
