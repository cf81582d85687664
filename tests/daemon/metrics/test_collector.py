"""What a scrape asks of the daemon."""

from __future__ import annotations

from typing import Any

from basefs.daemon.api.messages import GetStatus, Request
from basefs.daemon.api.services import LogServices
from basefs.daemon.metrics.collector import STATUS_SECONDS, DaemonCollector
from tests.support.commands import Cli


def test_scrapes_in_a_row_share_a_status(conf: Cli) -> None:
    asked: list[Request[Any]] = []
    now = [1000.0]
    with conf.replica("conf") as replica:
        services = LogServices(replica)

        def ask(request: Request[Any]) -> Any:
            asked.append(request)
            return services.answer(request)

        def entries() -> float:
            (found,) = (family for family in collector.collect() if family.name == "basefs_entries")
            return float(found.samples[0].value)

        collector = DaemonCollector("conf", "1", ask, lambda: now[0])
        before = entries()
        replica.commit(lambda author: author.write((b"news",), b"x"))
        now[0] += STATUS_SECONDS / 2
        assert entries() == before and asked == [GetStatus()]
        now[0] += STATUS_SECONDS
        assert entries() == before + 1 and len(asked) == 2
