"""What a bad network does to a packet: netem's definition, without a queue, a clock or a packet.

The parameters mean what `tc-netem(8)` says and what Linux's `sch_netem.c` does, its correlation included: a correlated
random number is the mean of a new one and the one before, so it is no longer uniform: `loss 10% 25%` loses 1.8 % of
the packets, 30 % 23 %, 50 % 50 %, 70 % 77 % and 90 % 98 %.  The paper's networks were made by netem, so ours are the
same; every result also says what share was lost in truth.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, fields
from statistics import NormalDist

#: Packets that may be under way at once; one more is lost (netem's own default).
LIMIT = 1000
#: Furthest value of netem's table of the normal distribution, in standard deviations.
_MOST_DEVIATIONS = 4.0


@dataclass(frozen=True, slots=True)
class Netem:
    """What happens to packets on one way.

    Attributes:
        delay: mean, in milliseconds.
        jitter: standard deviation of the normally distributed delay, in milliseconds.
        delay_correlation: percent of a packet's random number that is its predecessor's; so for the others.
        loss: percent of packets, at correlation 0.
        loss_correlation: percent.
        duplicate: percent of packets that arrive twice.
        reorder: percent of packets that overtake the delayed ones, by not waiting; needs a delay.
        reorder_correlation: percent.
    """

    delay: float = 0.0
    jitter: float = 0.0
    delay_correlation: float = 0.0
    loss: float = 0.0
    loss_correlation: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    reorder_correlation: float = 0.0

    def __post_init__(self) -> None:
        """Raises `ValueError` for what netem refuses."""
        for field in fields(self):
            most = float("inf") if field.name in ("delay", "jitter") else 100.0
            if not 0 <= getattr(self, field.name) <= most:
                raise ValueError(f"{field.name} is from 0 to {most:g}, not {getattr(self, field.name):g}")
        if (self.reorder or self.jitter) and not self.delay:
            raise ValueError("reordering and jitter need a delay: what does not wait cannot be overtaken")

    def arguments(self) -> list[str]:
        """The words for `tc qdisc ... netem`."""
        words = ["limit", str(LIMIT)]
        if self.delay:
            words += ["delay", f"{self.delay:g}ms"]
        if self.jitter:
            words += [f"{self.jitter:g}ms", f"{self.delay_correlation:g}%", "distribution", "normal"]
        if self.loss:
            words += ["loss", f"{self.loss:g}%", f"{self.loss_correlation:g}%"]
        if self.duplicate:
            words += ["duplicate", f"{self.duplicate:g}%"]
        if self.reorder:
            words += ["reorder", f"{self.reorder:g}%", f"{self.reorder_correlation:g}%"]
        return words

    def to_json(self) -> dict[str, float]:
        """What differs from a perfect network, by name; `Netem(**)` reads it."""
        return {name: value for name, value in asdict(self).items() if value}


class Correlated:
    """Random numbers from 0 to 1, each a mean of a new one and the one before (`get_crandom` of `sch_netem.c`)."""

    def __init__(self, source: random.Random, percent: float) -> None:
        self._source = source
        self._share = percent / 100
        self._last = source.random()

    def draw(self) -> float:
        """The next one."""
        self._last = self._share * self._last + (1 - self._share) * self._source.random()
        return self._last


class Fate:
    """Decides about one packet after the other, from a seed."""

    def __init__(self, netem: Netem, seed: int) -> None:
        source = random.Random(seed)
        self._netem = netem
        self._loss = Correlated(source, netem.loss_correlation)
        self._delay = Correlated(source, netem.delay_correlation)
        self._reorder = Correlated(source, netem.reorder_correlation)
        self._duplicate = Correlated(source, 0)
        self._normal = NormalDist()

    def decide(self) -> list[float]:
        """The seconds after which each copy of the packet goes on: none if it is lost, two if it is duplicated."""
        copies = 1
        if self._netem.duplicate and self._duplicate.draw() < self._netem.duplicate / 100:
            copies += 1
        if self._netem.loss and self._loss.draw() < self._netem.loss / 100:
            copies -= 1
        return [self._seconds() for _ in range(copies)]

    def _seconds(self) -> float:
        if self._netem.reorder and self._reorder.draw() <= self._netem.reorder / 100:
            return 0.0
        if not self._netem.jitter:
            return self._netem.delay / 1000
        uniform = min(max(self._delay.draw(), 1e-9), 1 - 1e-9)
        deviations = max(-_MOST_DEVIATIONS, min(_MOST_DEVIATIONS, self._normal.inv_cdf(uniform)))
        return max(0.0, self._netem.delay + self._netem.jitter * deviations) / 1000
