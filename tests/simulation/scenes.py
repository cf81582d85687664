"""What is special about some runs: drawn from a stream of its own, so that all other runs stay what they were."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from tests.simulation.faults import Plan
from tests.simulation.node import Tuning

#: Limits that no honest peer reaches (`basefs/sync/wire/limits.py`): what is listed is there, and nothing is asked for
#: twice.
_STRICT = {"barren": 0, "again": 8}


@dataclass(frozen=True, slots=True)
class Scene:
    """What a plan leaves out.

    Attributes:
        newcomers: nodes of a closed filesystem that join it during the run; `None`: the filesystem is open.
        invites: whether they come with invitations; otherwise a member grants their keys.
        asks: whether somebody asks now and then which nodes are in step.
        deaf: whether a member takes part in gossip whose sync port nobody reaches.
        is_strict: whether nodes allow their peers only what honest ones do.
        blacks_out: whether all processes are killed at once, in a closed filesystem soon after a node was expelled.
        pushes: whether sessions stay open; otherwise changes go by gossip.
        weights: how often users do what, beside what the plan has.
    """

    newcomers: int | None = None
    invites: bool = False
    asks: bool = False
    deaf: bool = False
    is_strict: bool = False
    blacks_out: bool = False
    pushes: bool = True
    weights: dict[str, float] = field(default_factory=dict)

    @classmethod
    def draw(cls, plan: Plan) -> Scene:
        """The scene of a plan."""
        rng = random.Random(f"{plan.seed} scene")
        newcomers = rng.randrange(plan.nodes) if rng.random() < 0.2 else None
        # A clock that is wrong by a century ends each invitation.
        invites = rng.random() < 0.6 and "clock" not in plan.faults
        asks, deaf = rng.random() < 0.3, rng.random() < 0.1
        # Keys that were granted in the place of a link are expelled.
        weights = {"symlink": 1.0, "expel": 0.7} if rng.random() < 0.15 else {}
        # What has been listed may be gone after these.
        is_strict = rng.random() < 0.3 and not {"power", "backup"} & set(plan.faults)
        blacks_out = rng.random() < (0.1 if newcomers is None else 0.4) and bool(plan.faults)
        pushes = rng.random() < 0.85
        if newcomers is None:
            return cls(None, False, asks, deaf, is_strict, blacks_out, pushes, weights)
        if plan.twins:
            # A key that is a member's already needs nobody to let it in.
            newcomers = 0
        weights |= {"expel": 0.7, "readmit": 1.5}
        return cls(newcomers, invites, asks, deaf, is_strict, blacks_out, pushes, weights)

    @property
    def is_closed(self) -> bool:
        """Whether only members read the filesystem."""
        return self.newcomers is not None

    def __str__(self) -> str:
        closed = f"closed, {self.newcomers} newcomers{' with invitations' * self.invites}"
        words = {"somebody asks": self.asks, "deaf member": self.deaf, "strict": self.is_strict}
        words |= {closed: self.is_closed, "blackout": self.blacks_out, "gossip alone": not self.pushes}
        return ", ".join([*(word for word, holds in words.items() if holds), *self.weights])

    def tune(self, tuning: Tuning) -> Tuning:
        """What each node allows, after what the plan has."""
        limits = replace(tuning.limits, **_STRICT) if self.is_strict else tuning.limits
        return replace(tuning, limits=limits, degree=tuning.degree if self.pushes else 0)
