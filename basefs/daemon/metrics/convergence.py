"""How long the changes of other nodes took until they were here: arrival minus the time in the entry.

That time is what the clock of its author said, in whole seconds, and for a write it is the time of the file: a copy
that keeps old times looks as if it had been on its way for years, and a clock that is ahead makes entries come before
their time, which count as 0.  So the low buckets and how they change are what to look at; 'basefs doctor' finds wrong
clocks.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

from basefs.replica.applied import Applied


class Convergence:
    """Takes what the replica applies; thread-safe."""

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
