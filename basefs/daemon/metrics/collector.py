"""What the control socket can tell, as metric families."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

#: Answers a command of the control socket that takes no arguments; called in any thread.
Ask = Callable[[str], Any]

#: Key in the status of the log -> what it is.
_LEVELS = {
    "entries": "Entries in the log",
    "blocks": "Blocks in the log",
    "bytes": "Bytes of the log on disk",
    "orphans": "Entries that wait for what they build on",
    "incomplete": "Contents of which blocks are missing",
    "conflicts": "Revisions that lost a conflict",
    "damaged": "Rows of the log found damaged",
    "unpublished": "Names that were changed here and are not in the log yet",
}
_EVENTS = ("sent", "received", "dropped", "missed")
_RUNS = ("done", "failed", "coalesced", "dropped")


class DaemonCollector(Collector):
    """Asks a daemon when somebody asks for metrics."""

    def __init__(self, name: str, version: str, ask: Ask) -> None:
        """`name` of the filesystem, `version` of this program."""
        self._name = name
        self._version = version
        self._ask = ask

    def collect(self) -> Iterator[Metric]:
        """All families; those of the network only where there is one."""
        status = self._ask("status")
        info = {"name": self._name, "identity": status["identity"], "version": self._version}
        yield InfoMetricFamily("basefs", "The filesystem", value=info)
        for key, text in _LEVELS.items():
            yield GaugeMetricFamily(f"basefs_{key}", text, value=status[key])
        yield GaugeMetricFamily("basefs_start_time_seconds", "When the daemon was started", value=status["since"])
        if status["handlers"] is not None:
            yield from _handlers(status["handlers"])
        if status["members"] is not None:
            yield from _peers(status["members"])
            yield from _network(self._ask("network"), self._ask("resources"))

    def describe(self) -> list[Metric]:
        """Nothing: the registry would ask for all of it before there is anything to tell."""
        return []


def _handlers(counts: Mapping[str, int]) -> Iterator[Metric]:
    runs = CounterMetricFamily("basefs_handler_runs", "Runs of handlers by what became of them", labels=["outcome"])
    for outcome in _RUNS:
        runs.add_metric([outcome], counts[outcome])
    yield runs
    yield GaugeMetricFamily("basefs_handlers_queued", "Runs of handlers that wait", value=counts["queued"])
    yield GaugeMetricFamily("basefs_handlers_running", "Handlers that run", value=counts["running"])


def _peers(members: list[Mapping[str, Any]]) -> Iterator[Metric]:
    mine = [member for member in members if member["same_filesystem"]]
    counted = GaugeMetricFamily("basefs_members", "Members of the cluster by their status", labels=["status"])
    for status in ("alive", "leaving", "left", "failed"):
        counted.add_metric([status], sum(member["status"] == status for member in mine))
    yield counted
    lag = GaugeMetricFamily(
        "basefs_peer_lag_seconds",
        "0 while the logs of a peer and this node were equal when last compared, else seconds since they were",
        labels=["peer"],
    )
    compared = GaugeMetricFamily(
        "basefs_peer_compared_seconds", "Seconds since the logs were compared", labels=["peer"]
    )
    entries = GaugeMetricFamily(
        "basefs_peer_lag_entries",
        "Entries that a peer is behind or ahead of this node, at least, as far as it has told",
        labels=["peer", "side"],
    )
    for member in mine:
        for side in ("behind", "ahead"):
            if member["lag"] is not None:
                entries.add_metric([member["name"], side], member["lag"][side])
        if member["own"] or member["compared"] is None:
            continue
        compared.add_metric([member["name"]], member["compared"])
        if member["equal"] and not member["differs"] and member["reachable"]:
            lag.add_metric([member["name"]], 0)
        elif member["equal_since"] is not None:
            lag.add_metric([member["name"]], member["equal_since"])
    yield lag
    yield entries
    yield compared


def _network(network: Mapping[str, Any], resources: Mapping[str, Any]) -> Iterator[Metric]:
    for name, text, sources in (
        (
            "basefs_sync_bytes",
            "Bytes of sync sessions, open ones included, without headers",
            ("sync_sent", "sync_received"),
        ),
        ("basefs_serf_udp_bytes", "Bytes of Serf's UDP messages, as it says", ("serf_udp_sent", "serf_udp_received")),
        ("basefs_serf_tcp_bytes", "Bytes that Serf sent by TCP, as it says", ("serf_tcp_sent",)),
    ):
        family = CounterMetricFamily(name, text, labels=["direction"])
        for source in sources:
            family.add_metric([source.rpartition("_")[2]], resources[source])
        yield family
    events = CounterMetricFamily("basefs_gossip_events", "Gossip events by what became of them", labels=["what"])
    for what in _EVENTS:
        events.add_metric([what], network[what])
    yield events
    rejected = CounterMetricFamily(
        "basefs_rejected", "Entries, blocks and events that were refused, by the way they came", labels=["source"]
    )
    rejected.add_metric(["gossip"], network["malformed"] + network["refused"])
    rejected.add_metric(["sync"], network["sync_rejected"])
    yield rejected
    yield GaugeMetricFamily("basefs_gossip_queued", "Gossip events that wait for their turn", value=network["queued"])
    yield CounterMetricFamily(
        "basefs_serf_restarts", "How often Serf had to be restarted", value=network["serf_restarts"]
    )
