"""Fetching what peers have told of."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from basefs.replication.fetching import Fetcher
from tests.sync.net.test_transport import run, until

ONE, TWO = (("10.0.0.1", 1), ("10.0.0.2", 1))


def test_a_session_that_ends_when_everything_stops_leads_to_no_other():
    async def main():
        asked = []
        sync = SimpleNamespace(
            kept=SimpleNamespace(differs=lambda address: True, graft=lambda address: False),
            request=lambda address, reason: asked.append(address),
        )
        loop = asyncio.get_running_loop()
        fetcher = Fetcher(sync, loop)
        fetcher.told(ONE)
        fetcher.told(TWO)
        await until(lambda: asked)
        fetcher.stop()
        ended = loop.time()
        fetcher.ended(asked[0])
        fetcher.told(ONE)
        await until(lambda: loop.time() > ended + 0.2)
        assert len(asked) == 1

    run(main())
