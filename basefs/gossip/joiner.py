"""Finds the other nodes: joins at start until one answers, and again and again those that were lost.

Serf itself tries to reach a failed member for 24 hours and a member that left never; we remember for ever.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

from basefs.errors import AgentError
from basefs.gossip.client import Client
from basefs.gossip.connect import probe
from basefs.gossip.members import join_host_port, split_host_port

log = logging.getLogger(__name__)

#: Seconds between rounds in the long run.  Shorter heals a partition faster, longer saves connection attempts to nodes
#: that are switched off.
INTERVAL = 30.0
#: Addresses tried in one round: 1024 dead ones are all tried within an hour and a half.
PER_ROUND = 8


class Joiner:
    """Joins the addresses that `candidates` lists, unless they are among `alive` (ip:port, this node included).

    `joined` is called after each success: Serf's own member events come a second later.
    """

    def __init__(
        self,
        candidates: Callable[[], Sequence[str]],
        alive: Callable[[], Awaitable[Iterable[str]]],
        dial: Callable[[], Awaitable[Client]],
        joined: Callable[[], None],
    ) -> None:
        self._candidates = candidates
        self._alive = alive
        self._dial = dial
        self._joined = joined
        # With `replay` false Serf ignores everything up to the other side's event clock, including events that are on
        # their way.  So that is for a node without a past only, which has to fetch everything by sync anyway; later
        # the up to 512 replayed events are those that we missed, and the others are known and cheap.
        self.replay = True
        #: Why the last join was refused, '' if it was not.
        self.trouble = ""
        self._tried: dict[str, None] = {}

    async def run(self) -> None:
        """Never returns.  Logs a failed round; the supervisor decides whether the agent lives."""
        # Also where the first round found a node: agents that start at once, as for a new gossip key, find each other
        # in pairs.
        delay = 0.5
        while True:
            try:
                await self.round()
            except AgentError as error:
                log.info("cannot join the Serf cluster: %s", error)
            # Others may have joined this node meanwhile, and have sent events.
            self.replay = True
            await asyncio.sleep(delay)
            delay = min(delay * 2, INTERVAL)

    async def round(self) -> None:
        """One attempt.  Raises AgentError if the agent is gone."""
        alive = set(await self._alive())
        wanted = self.choose([address for address in self._candidates() if address not in alive])
        probed = await asyncio.gather(*(probe_address(address) for address in wanted))
        reached = [address for address, ip in zip(wanted, probed, strict=True) if ip and ip not in alive]
        if reached:
            async with await self._dial() as client:
                for address in reached:
                    await self._join(client, address)

    def choose(self, addresses: Sequence[str]) -> list[str]:
        """The addresses for this round: those not tried yet in the order given, then those tried longest ago."""
        current = set(addresses)
        for address in [address for address in self._tried if address not in current]:
            del self._tried[address]
        fresh = [address for address in addresses if address not in self._tried]
        chosen = [*fresh, *self._tried][:PER_ROUND]
        for address in chosen:
            self._tried.pop(address, None)
            self._tried[address] = None
        return chosen

    async def _join(self, client: Client, address: str) -> None:
        try:
            await client.join([address], self.replay)
        except AgentError as error:
            if client.closed:
                raise
            log.info("cannot join %s: %s", address, error)
            self.trouble = str(error)
            return
        self.replay = True
        self.trouble = ""
        self._joined()


async def probe_address(address: str) -> str | None:
    """The "ip:port" behind the address if it accepts a TCP connection; None if it does not, or is malformed."""
    try:
        # `join` of a dead address takes Serf 10 to 30 s, during which it does nothing else for that connection and no
        # other join for anybody, so the address is tried from here first.
        found = await probe(*split_host_port(address), 3.0)
    except ValueError:
        return None
    return None if found is None else join_host_port(*found)
