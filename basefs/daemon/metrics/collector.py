"""What a daemon answers to commands, as metric families."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from basefs.daemon.api.messages import (
    BusiestKey,
    ClusterMember,
    GetNetwork,
    GetResources,
    GetStatus,
    HandlerCounts,
    NetworkState,
    Request,
    Status,
    TrafficTotals,
)
from basefs.replica.applied import Applied

_Answer = TypeVar("_Answer")

#: Seconds for which an answer counts: a status asks all members for their logs, and several programs may scrape.  Not
#: longer than what "in step" means.
STATUS_SECONDS = 2.0


class AskDaemon(Protocol):
    """Answers a request, in any thread."""

    def __call__(self, request: Request[_Answer], /) -> _Answer: ...


class DaemonCollector(Collector):
    """Asks the daemon for what is scraped, no more often than every `STATUS_SECONDS`."""

    def __init__(self, name: str, version: str, ask: AskDaemon, clock: Callable[[], float] = time.monotonic) -> None:
        """`name` of the filesystem, `version` of this program."""
        self._clock = clock
        self._lock = threading.Lock()
        self._found: tuple[float, list[Metric]] | None = None
        self._name = name
        self._version = version
        self._ask = ask

    def collect(self) -> list[Metric]:
        """All families; those of the network only where there is one."""
        # Who scrapes at the same time waits for the same answer.
        with self._lock:
            if self._found is None or self._clock() - self._found[0] > STATUS_SECONDS:
                families = list(self._families())
                self._found = self._clock(), families
            return self._found[1]

    def _families(self) -> Iterator[Metric]:
        status = self._ask(GetStatus())
        yield from _levels(status)
        info = {"name": self._name, "identity": status.summary.identity, "version": self._version}
        yield InfoMetricFamily("basefs", "The filesystem", value=info)
        if status.node is not None:
            yield GaugeMetricFamily(
                "basefs_start_time_seconds", "When the daemon was started", value=status.node.started
            )
            text = "1 while what was saved here, or has come from a peer, does not fit on the disk of the log"
            yield GaugeMetricFamily("basefs_disk_full", text, value=status.node.disk_full)
            yield from _busiest(status.node.busiest)
        if status.node is not None and status.node.members is not None:
            yield from _peers([member for member in status.node.members if member.same_filesystem])
            traffic = self._ask(GetResources()).traffic
            if traffic is not None:
                yield from _traffic(traffic)
            yield from _network(self._ask(GetNetwork()))

    def describe(self) -> list[Metric]:
        """Nothing: the registry would ask for all of it before there is anything to tell."""
        return []


def _levels(status: Status) -> Iterator[Metric]:
    summary = status.summary
    yield GaugeMetricFamily("basefs_entries", "Entries in the log", value=summary.entries)
    yield GaugeMetricFamily("basefs_blocks", "Blocks in the log", value=summary.blocks)
    yield GaugeMetricFamily("basefs_bytes", "Bytes of the log on disk", value=summary.bytes)
    yield GaugeMetricFamily("basefs_orphans", "Entries that wait for what they build on", value=summary.orphans)
    yield GaugeMetricFamily(
        "basefs_incomplete", "Contents of which blocks are missing", value=status.summary.incomplete
    )
    text = "Whether contents of other nodes wait, because max_log_bytes or min_free is reached"
    yield GaugeMetricFamily("basefs_limit_reached", text, value=bool(status.limit_reached))
    yield GaugeMetricFamily("basefs_conflicts", "Revisions that lost a conflict", value=status.conflicts)
    yield GaugeMetricFamily("basefs_damaged", "Rows of the log found damaged", value=summary.damaged)
    if summary.pending is not None:
        text = "Names that were changed here and are not in the log yet"
        yield GaugeMetricFamily("basefs_unpublished", text, value=summary.pending.unpublished)
        if summary.pending.handlers is not None:
            yield from _handlers(summary.pending.handlers)


def _busiest(busiest: BusiestKey | None) -> Iterator[Metric]:
    if busiest is not None:
        text = "{} that the key which writes most has written in the last hour, or in the one before"
        for what, value in (("entries", busiest.entries), ("bytes", busiest.bytes)):
            found = GaugeMetricFamily(f"basefs_busiest_key_{what}", text.format(what.capitalize()), labels=["key"])
            found.add_metric([busiest.key or busiest.fingerprint[:12]], value)
            yield found


def _handlers(counts: HandlerCounts) -> Iterator[Metric]:
    runs = CounterMetricFamily("basefs_handler_runs", "Runs of handlers by what became of them", labels=["outcome"])
    runs.add_metric(["done"], counts.done)
    runs.add_metric(["failed"], counts.failed)
    runs.add_metric(["coalesced"], counts.coalesced)
    runs.add_metric(["dropped"], counts.dropped)
    yield runs
    yield GaugeMetricFamily("basefs_handlers_queued", "Runs of handlers that wait", value=counts.queued)
    yield GaugeMetricFamily("basefs_handlers_running", "Handlers that run", value=counts.running)


def _peers(members: Sequence[ClusterMember]) -> Iterator[Metric]:
    counted = GaugeMetricFamily("basefs_members", "Members of the cluster by their status", labels=["status"])
    for status in ("alive", "silent", "leaving", "left", "failed"):
        counted.add_metric([status], sum(member.status == status for member in members))
    yield counted
    text = "Members that use the key of another member"
    yield GaugeMetricFamily("basefs_clones", text, value=sum(bool(member.clones) for member in members))
    lag = GaugeMetricFamily(
        "basefs_peer_lag_seconds",
        "0 for a peer that is in step, else seconds since the first entry that one side lacks, or since it was heard",
        labels=["peer"],
    )
    heard = GaugeMetricFamily("basefs_peer_heard_seconds", "Seconds since a peer told of its log", labels=["peer"])
    entries = GaugeMetricFamily(
        "basefs_peer_lag_entries",
        "Entries that a peer is behind or ahead of this node, at least, as far as it has told",
        labels=["peer", "side"],
    )
    waiting = GaugeMetricFamily("basefs_peer_waiting", "Contents that a peer has no room for", labels=["peer"])
    for member in members:
        if member.own or not member.same_filesystem:
            continue
        if member.lag is None or member.heard is None:
            # Never heard: an alarm on a long lag rings for it, too.
            lag.add_metric([member.name], math.inf)
            continue
        entries.add_metric([member.name, "behind"], member.lag.behind)
        entries.add_metric([member.name, "ahead"], member.lag.ahead)
        waiting.add_metric([member.name], member.lag.contents_waiting)
        heard.add_metric([member.name], member.heard)
        apart = member.heard if member.lag.apart is None else member.lag.apart
        lag.add_metric([member.name], 0.0 if member.lag.in_step else apart)
    yield lag
    yield entries
    yield waiting
    yield heard


def _traffic(totals: TrafficTotals) -> Iterator[Metric]:
    family = CounterMetricFamily(
        "basefs_sync_bytes", "Bytes of sync sessions, open ones included, without headers", labels=["direction"]
    )
    family.add_metric(["sent"], totals.sync_sent)
    family.add_metric(["received"], totals.sync_received)
    yield family
    family = CounterMetricFamily(
        "basefs_serf_udp_bytes", "Bytes of Serf's UDP messages, as it says", labels=["direction"]
    )
    family.add_metric(["sent"], totals.serf_udp_sent)
    family.add_metric(["received"], totals.serf_udp_received)
    yield family
    family = CounterMetricFamily(
        "basefs_serf_tcp_bytes", "Bytes that Serf sent by TCP, as it says", labels=["direction"]
    )
    family.add_metric(["sent"], totals.serf_tcp_sent)
    yield family


def _network(network: NetworkState) -> Iterator[Metric]:
    events = CounterMetricFamily("basefs_gossip_events", "Gossip events by what became of them", labels=["what"])
    events.add_metric(["sent"], network.sent)
    events.add_metric(["received"], network.received)
    events.add_metric(["dropped"], network.dropped)
    events.add_metric(["missed"], network.missed)
    yield events
    rejected = CounterMetricFamily(
        "basefs_rejected", "Entries, blocks and events that were refused, by the way they came", labels=["source"]
    )
    rejected.add_metric(["gossip"], network.malformed + network.refused)
    rejected.add_metric(["sync"], network.sync_rejected)
    yield rejected
    yield GaugeMetricFamily("basefs_gossip_queued", "Gossip events that wait for their turn", value=network.queued)
    yield CounterMetricFamily("basefs_serf_restarts", "How often Serf had to be restarted", value=network.serf_restarts)


class Convergence:
    """How long the changes of other nodes took until they were here: arrival minus the time in the entry.

    That time is what the clock of its author said, in whole seconds, and for a write it is the time of the file: a copy
    that keeps old times looks as if it had been on its way for years, and a clock that is ahead makes entries come
    before their time, which count as 0.  So the low buckets and how they change are what to look at; 'basefs doctor'
    finds wrong clocks.  Thread-safe.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        # Seconds.  Entries carry whole ones, so nothing finer can be told.
        self._seconds = Histogram(
            "basefs_convergence_seconds",
            "Arrival of other nodes' entries minus the time that they carry: whole seconds by their clocks, "
            "for a write the time of the file; before its time counts as 0",
            buckets=(1, 2, 3, 5, 10, 30, 60, 300, 1800, 3600, 86400),
            registry=registry,
        )
        self._ahead = Counter(
            "basefs_entries_ahead", "Entries of others that came before the time that they carry", registry=registry
        )

    def applied(self, applied: Applied, now: float) -> None:
        """A change of the log, at a time in UNIX seconds."""
        if applied.local:
            return
        for entry in applied.entries:
            seconds = now - entry.made / 10**9
            self._seconds.observe(max(seconds, 0.0))
            if seconds < 0:
                self._ahead.inc()
