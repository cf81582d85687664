"""How long the changes of others took."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from basefs.daemon.metrics.collector import Convergence
from basefs.log.entries import Action
from basefs.replica.applied import Applied
from tests.support.helpers import BIRTH, ROOT_KEY, genesis


def applied(seconds: int, *, local: bool = False) -> Applied:
    """An entry that says it was written that many seconds after the filesystem was born."""
    entry = ROOT_KEY.sign(genesis()[0].hash, (BIRTH + seconds) * 10**9, Action.MKDIR, b"d")
    return Applied((entry,), (), (), local)


def test_only_entries_of_others_count_by_their_age() -> None:
    registry = CollectorRegistry()
    convergence = Convergence(registry)
    convergence.applied(applied(0), BIRTH + 1.5)
    convergence.applied(applied(0), BIRTH + 20.0)
    convergence.applied(applied(0, local=True), BIRTH + 2.5)

    def bucket(bound: str) -> float | None:
        return registry.get_sample_value("basefs_convergence_seconds_bucket", {"le": bound})

    assert (bucket("1.0"), bucket("2.0"), bucket("10.0"), bucket("30.0"), bucket("+Inf")) == (0, 1, 1, 2, 2)
    assert registry.get_sample_value("basefs_convergence_seconds_sum") == 21.5
    assert registry.get_sample_value("basefs_entries_ahead_total") == 0


def test_what_comes_before_its_time_counts_as_none() -> None:
    registry = CollectorRegistry()
    Convergence(registry).applied(applied(3600), BIRTH + 1.0)
    assert registry.get_sample_value("basefs_convergence_seconds_sum") == 0
    assert registry.get_sample_value("basefs_entries_ahead_total") == 1
