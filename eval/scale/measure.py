"""What is asked of simulated clusters: each function makes one, plays it and returns a row."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence

from basefs.log.entries import Entry
from eval.rows import Row
from eval.scale.cluster import Change, Cluster, Setup, SimulatedNode, Spent

#: Seconds until a new cluster has its push sessions, and nothing of its beginning is under way any more.
_SETTLED = 5.0
#: Seconds for which an idle cluster is watched: one periodic session of each node.
_IDLE = 5.0
#: Seconds from a change to the next one: what it causes besides itself, root hashes over lazy sessions, is over then.
_SPACING = 2.0
#: Seconds until something is given up.
_PATIENCE = 300.0
#: Changes that make the tree of eager sessions, before any counts.
_TREE = 3
#: Moments after a change, in seconds, at which is counted which nodes have it.
MOMENTS = [round(0.01 * 10 ** (step / 10), 4) for step in range(36)]


def changes(setup: Setup, count: int) -> tuple[Row, list[Row]]:
    """Small changes on an idle cluster, one after the other, and the share of nodes that have them after a while."""
    with Cluster(setup) as cluster:
        cluster.advance(_SETTLED)
        idle = _watch(cluster, _IDLE)
        first = _spread(cluster, idle)
        for _ in range(_TREE - 1):
            _spread(cluster, idle)
        found = [_spread(cluster, idle) for _ in range(count)]
        nodes, standing = len(cluster.nodes), [node.standing for node in cluster.nodes]
    row = {
        "changes": count,
        "first, s": first[0].arrivals[-1],
        "first, bytes a node": first[1].sync / nodes,
        **_spreads("seconds", [change.arrivals[-1] for change, _ in found]),
        "median node s": statistics.median(arrival for change, _ in found for arrival in change.arrivals),
        "bytes a node": statistics.median(spent.sync / nodes for _, spent in found),
        "packets a node": statistics.median(spent.packets / nodes for _, spent in found),
        "cpu us a node": statistics.median(1e6 * spent.processor / nodes for _, spent in found),
        "idle bytes a node a s": idle.sync / nodes / _IDLE,
        "idle cpu us a node a s": 1e6 * idle.processor / nodes / _IDLE,
        "push sessions": statistics.fmean(standing),
        "most push sessions": max(standing),
    }
    arrivals = sorted(arrival for change, _ in found for arrival in change.arrivals)
    pairs = count * (nodes - 1)
    return row, [{"after s": moment, "share": _below(arrivals, moment) / pairs, "pairs": pairs} for moment in MOMENTS]


def _spread(cluster: Cluster, idle: Spent) -> tuple[Change, Spent]:
    """A small change on a random node until all have it, and what it cost above an idle cluster."""
    before = cluster.spent()
    _, change = cluster.write(cluster.rng.choice(cluster.running))
    _await(cluster, change)
    cluster.advance(max(0.0, change.written + _SPACING - cluster.now))
    spent = cluster.spent().since(before)
    share = spent.virtual / idle.virtual
    return change, Spent(
        spent.virtual,
        spent.processor - share * idle.processor,
        round(spent.sync - share * idle.sync),
        round(spent.packets - share * idle.packets),
        spent.serf - round(share * idle.serf),
    )


def _await(cluster: Cluster, change: Change) -> None:
    others = len(cluster.running) - 1
    cluster.wait(lambda: len(change.arrivals) >= others, _PATIENCE, "a change")


def _watch(cluster: Cluster, seconds: float) -> Spent:
    before = cluster.spent()
    cluster.advance(seconds)
    return cluster.spent().since(before)


def heal(setup: Setup, count: int, seconds: float) -> Row:
    """Two halves that are cut apart for some seconds, so many changes on each, and healed: until all are equal."""
    with Cluster(setup) as cluster:
        cluster.advance(_SETTLED)
        cluster.cut()
        began, nodes = cluster.now, len(cluster.nodes)
        for _ in range(count):
            for side in range(2):
                cluster.write(cluster.rng.choice(cluster.nodes[side::2]))
            cluster.advance(0.7 * seconds / count)
        cluster.advance(max(0.0, began + seconds - cluster.now))
        halves = [{node.log.root_hash() for node in cluster.nodes[side::2]} for side in range(2)]
        before, had = cluster.spent(), sum(len(node.log) for node in cluster.nodes)
        cluster.heal()
        everything = 1 + 2 * count
        took = cluster.wait(lambda: _equal(cluster.nodes, everything), _PATIENCE, "healing")
        spent, lacked = cluster.spent().since(before), everything * nodes - had
    return {
        "entries a node lacked": lacked / nodes,
        "halves equal in the cut": sum(len(roots) == 1 for roots in halves),
        "equal after s": took,
        "cpu ms a differing entry": 1000 * spent.processor / lacked,
        "bytes of sync a differing entry": spent.sync / lacked,
        "bytes a node": spent.sync / nodes,
        "of them serf": spent.serf / nodes,
    }


def _equal(nodes: Sequence[SimulatedNode], entries: int) -> bool:
    # The last to come are as a rule the last in the list that lacked something.
    return all(len(node.log) >= entries for node in nodes)


def crowd(setup: Setup, entries: int) -> Row:
    """A tenth as many newcomers as there are nodes, all at once, each with an empty log, and a change meanwhile."""
    with Cluster(setup) as cluster:
        _fill(cluster, entries)
        cluster.advance(_SETTLED)
        idle = _watch(cluster, _IDLE)
        old, before, sent = list(cluster.nodes), cluster.spent(), cluster.sent()
        came = [cluster.rise() for _ in range(max(1, setup.nodes // 10))]
        began, complete = cluster.now, dict[SimulatedNode, float]()
        _, change = cluster.write(cluster.rng.choice(old))

        def done() -> bool:
            for node in came:
                if node not in complete and len(node.log) > entries:
                    complete[node] = cluster.now - began
            return len(complete) == len(came)

        cluster.wait(done, _PATIENCE, "the last newcomer")
        _await(cluster, change)
        spent = cluster.spent().since(before)
        above = spent.sync - idle.sync * spent.virtual / idle.virtual
        busiest = max((cluster.sent() - sent).values())
        log = sum(len(raw) for raw in old[0].log.walk(()))
    return {
        "newcomers": len(came),
        **_spreads("seconds", sorted(complete.values())),
        "a change meanwhile s": change.arrivals[-1],
        "log bytes": log,
        "bytes a newcomer": above / len(came),
        "busiest node bytes": busiest,
        "cpu ms a newcomer": 1000 * (spent.processor - idle.processor * spent.virtual / idle.virtual) / len(came),
    }


def _fill(cluster: Cluster, entries: int) -> None:
    """Give all nodes a log of so many changes, as if they had had it before they started."""
    raw = []
    blocks = []
    for _ in range(entries):
        entry, content = cluster.draft()
        raw.append(entry.encode())
        blocks += [block.data for block in content]
    for node in cluster.nodes:
        node.log.add(raw, blocks)


def churn(setup: Setup, minutes: float, away: float, seconds: float, pause: float) -> Row:
    """Machines that are on for `minutes` and off for `away` minutes on average, by an exponential law.

    `setup.nodes`: that there are; some are off at the beginning.  For `seconds`; a change each `pause` seconds.
    """
    with Cluster(setup) as cluster:
        cluster.advance(_SETTLED)
        coming = _Coming(cluster, 60 * minutes, 60 * away)
        coming.begin()
        cluster.advance(_SETTLED)
        before, end = cluster.spent(), cluster.now + seconds
        stale = lacking = samples = 0
        written: list[Change] = []
        next_write = cluster.now
        while cluster.now < end:
            if cluster.now >= next_write:
                written.append(cluster.write(cluster.rng.choice(cluster.running))[1])
                next_write += pause
            cluster.advance(1.0)
            for node in cluster.running:
                ages = [cluster.now - c.written for c in written if node.log.entry(c.hash) is None]
                samples += 1
                lacking += any(age > 1.0 for age in ages)
                stale += any(age > 10.0 for age in ages)
        spent = cluster.spent().since(before)
        nodes = coming.on_average
    return {
        "nodes on": nodes,
        "comings": coming.comings,
        "written": len(written),
        "lacks what is older than 1 s, %": 100 * lacking / samples,
        "lacks what is older than 10 s, %": 100 * stale / samples,
        **_spreads("back until current s", coming.catching_up or [math.nan]),
        "bytes a node a s": spent.sync / nodes / spent.virtual,
        "gossip bytes a node a s": spent.serf / nodes / spent.virtual,
        "cpu us a node a s": 1e6 * spent.processor / nodes / spent.virtual,
    }


class _Coming:
    """Machines that come and go."""

    def __init__(self, cluster: Cluster, on: float, off: float) -> None:
        """Seconds that a machine is on and off, on average."""
        self._cluster = cluster
        self._on, self._off = on, off
        self._rng = random.Random(f"{cluster.setup.seed} coming")
        self.comings = 0
        self.catching_up: list[float] = []
        self.on_average = len(cluster.nodes) * on / (on + off)

    def begin(self) -> None:
        """Some are off from now on, and all come and go."""
        for node in self._cluster.nodes:
            if self._rng.random() < self._off / (self._on + self._off):
                self._fall(node)
            else:
                self._later(self._on, self._fall, node)

    def _later(self, mean: float, what: Callable[[SimulatedNode], None], node: SimulatedNode) -> None:
        self._cluster.loop.call_later(self._rng.expovariate(1 / mean), what, node)

    def _fall(self, node: SimulatedNode) -> None:
        self._cluster.fall(node)
        self._later(self._off, self._rise, node)

    def _rise(self, node: SimulatedNode) -> None:
        best = max(self._cluster.running, key=lambda each: len(each.log))
        lacks = [raw for raw in best.log.hashes() if node.log.entry(raw) is None]
        self._cluster.rise(node)
        self._later(self._on, self._fall, node)
        self.comings += 1
        if lacks:
            self._cluster.when(lambda: all(node.log.entry(h) for h in lacks), self.catching_up.append)


def conflicts(setup: Setup, writers: int, rate: float, files: int, count: int) -> Row:
    """Changes of some files by some nodes, each at random moments, `rate` a second in all: how many conflict.

    A change conflicts if its author has not seen the last one of the file, whoever made that.
    """
    with Cluster(setup) as cluster:
        cluster.advance(_SETTLED)
        rng = random.Random(f"{setup.seed} conflicts")
        authors = rng.sample(cluster.nodes, writers)
        last: list[Entry | None] = []
        for number in range(files):
            entry, change = cluster.write(authors[0], name=b"file%d" % number)
            _await(cluster, change)
            last.append(entry)
        found = 0
        made: list[Change] = []
        heads = [[entry] for entry in last]
        for _ in range(count):
            cluster.advance(rng.expovariate(rate))
            author, file = rng.choice(authors), rng.randrange(files)
            seen = next(entry for entry in reversed(heads[file]) if entry and author.log.entry(entry.hash))
            found += seen is not heads[file][-1]
            entry, change = cluster.write(author, name=b"file%d" % file, parent=seen)
            heads[file].append(entry)
            made.append(change)
        cluster.advance(_SPACING)
        delays = [arrival for change in made for arrival in change.arrivals]
    # A change conflicts if another author has changed the file within the time that this takes to arrive.
    others = rate / files * (writers - 1) / writers
    expected = 1 - statistics.fmean(math.exp(-others * delay) for delay in delays)
    return {"conflicts": found, "conflicts %": 100 * found / count, "expected %": 100 * expected}


def _spreads(name: str, values: Sequence[float]) -> Row:
    return {name: statistics.median(values), f"{name} least": min(values), f"{name} most": max(values)}


def _below(ordered: Sequence[float], most: float) -> int:
    return sum(value <= most for value in ordered)
