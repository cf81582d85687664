"""What the emulator decides is what netem's manual says."""

from __future__ import annotations

import itertools
import random
import statistics
import subprocess

import pytest

from tests.support.netem import Correlated, Fate, Netem
from tests.support.shaping import Condition

MANY = 100_000


def decisions(netem: Netem, seed: int = 7) -> list[list[float]]:
    fate = Fate(netem, seed)
    return [fate.decide() for _ in range(MANY)]


def lost(netem: Netem) -> list[bool]:
    return [not copies for copies in decisions(netem)]


def test_a_perfect_network_changes_nothing() -> None:
    assert decisions(Netem()) == [[0.0]] * MANY


@pytest.mark.cluster
def test_tc_understands_what_it_would_be_told() -> None:
    """Kernels without netem refuse it too, but only after tc has read every word."""
    netem = Netem(delay=100, jitter=20, delay_correlation=10, loss=30, loss_correlation=25, duplicate=5, reorder=20)
    command = ["unshare", "--net", "tc", "qdisc", "add", "dev", "lo", "root", "netem", *netem.arguments()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 or "qdisc kind is unknown" in done.stderr
    misread = subprocess.run([*command, "nonsense"], capture_output=True, text=True, check=False)
    assert 'What is "nonsense"?' in misread.stderr


def test_the_same_seed_decides_the_same() -> None:
    netem = Condition.parse("delay-100+loss-30+reorder-20+duplicate-5").netem
    assert decisions(netem, 3) == decisions(netem, 3) != decisions(netem, 4)


def test_delays_are_normally_distributed() -> None:
    delays = [delay for copies in decisions(Netem(delay=100, jitter=20)) for delay in copies]
    assert statistics.fmean(delays) == pytest.approx(0.1, rel=0.01)
    assert statistics.stdev(delays) == pytest.approx(0.02, rel=0.02)
    within = sum(abs(delay - 0.1) < 0.02 for delay in delays) / len(delays)
    assert within == pytest.approx(0.683, abs=0.01), "68.3 % are within a standard deviation"


def test_no_delay_is_negative() -> None:
    delays = [delay for copies in decisions(Netem(delay=10, jitter=50)) for delay in copies]
    assert min(delays) == 0.0


@pytest.mark.parametrize("percent", [10, 30, 50, 90])
def test_independent_loss_is_what_was_asked_for(percent: float) -> None:
    fates = lost(Netem(loss=percent))
    share = sum(fates) / MANY
    again = sum(map(all, itertools.pairwise(fates))) / sum(fates)
    assert share == pytest.approx(percent / 100, abs=0.006)
    assert again == pytest.approx(share, abs=0.015), "one loss says nothing about the next"


@pytest.mark.parametrize(("percent", "share"), [(10, 0.018), (30, 0.233), (50, 0.50), (70, 0.766), (90, 0.983)])
def test_correlated_loss_comes_in_bursts_and_is_netems(percent: float, share: float) -> None:
    fates = lost(Netem(loss=percent, loss_correlation=25))
    assert sum(fates) / MANY == pytest.approx(share, abs=0.01)
    again = sum(map(all, itertools.pairwise(fates))) / sum(fates)
    assert again > sum(fates) / MANY


@pytest.mark.parametrize("percent", [0, 25, 75])
def test_correlation_is_that_of_neighbours(percent: float) -> None:
    """A mean of two with weights c and 1 - c: an autoregressive series, whose neighbours correlate by c."""
    numbers = Correlated(random.Random(1), percent)
    series = [numbers.draw() for _ in range(MANY)]
    assert statistics.correlation(series[:-1], series[1:]) == pytest.approx(percent / 100, abs=0.01)
    share = percent / 100
    assert statistics.variance(series) == pytest.approx((1 - share) / (1 + share) / 12, rel=0.03)


def test_those_that_overtake_do_not_wait() -> None:
    delays = [delay for copies in decisions(Netem(delay=100, reorder=30)) for delay in copies]
    assert set(delays) == {0.0, 0.1}
    assert delays.count(0.0) / MANY == pytest.approx(0.3, abs=0.01)


def test_duplicates_come_twice() -> None:
    copies = [len(found) for found in decisions(Netem(duplicate=10))]
    assert copies.count(2) / MANY == pytest.approx(0.1, abs=0.005)
    assert set(copies) == {1, 2}


@pytest.mark.parametrize(
    "wrong", [{"loss": 101}, {"delay": -1}, {"jitter": 5}, {"reorder": 5}, {"loss": 5, "loss_correlation": 200}]
)
def test_what_netem_refuses(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"is from 0 to|need a delay"):
        Netem(**wrong)


def test_conditions_have_the_papers_names() -> None:
    assert Condition.parse("none") == Condition()
    assert Condition.parse("delay-320").netem == Netem(delay=320, jitter=64)
    assert Condition.parse("loss-50+bw-128") == Condition(Netem(loss=50, loss_correlation=25), 128)
    assert Condition.parse("reorder-30").netem == Netem(delay=100, reorder=30, reorder_correlation=25)
    for text in ("", "rain", "rain-5", "loss-", "loss-x"):
        with pytest.raises(ValueError, match=r"no condition|float"):
            Condition.parse(text)


def test_netem_is_told_the_same() -> None:
    words = " ".join(Condition.parse("delay-100+loss-50+reorder-5+duplicate-1").netem.arguments())
    assert words == "limit 1000 delay 100ms 20ms 0% distribution normal loss 50% 25% duplicate 1% reorder 5% 25%"
