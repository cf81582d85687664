"""What is special about some runs: drawn from a stream of its own, so that all other runs stay what they were."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tests.simulation.faults import Plan


@dataclass(frozen=True, slots=True)
class Scene:
    """What a plan leaves out.

    Attributes:
        newcomers: nodes of a closed filesystem that join it during the run; `None`: the filesystem is open.
        invites: whether they come with invitations; otherwise a member grants their keys.
        asks: whether somebody asks now and then which nodes are in step.
        deaf: whether a member takes part in gossip whose sync port nobody reaches.
        weights: how often users do what, beside what the plan has.
    """

    newcomers: int | None = None
    invites: bool = False
    asks: bool = False
    deaf: bool = False
    weights: dict[str, float] = field(default_factory=dict)

    @classmethod
    def draw(cls, plan: Plan) -> Scene:
        """The scene of a plan."""
        rng = random.Random(f"{plan.seed} scene")
        newcomers = rng.randrange(plan.nodes) if rng.random() < 0.2 else None
        # A clock that is wrong by a century ends each invitation.
        invites = rng.random() < 0.6 and "clock" not in plan.faults
        asks, deaf = rng.random() < 0.3, rng.random() < 0.1
        weights = {kind: 1.0 for kind in ("quota", "symlink") if rng.random() < 0.15}
        if newcomers is None:
            return cls(asks=asks, deaf=deaf, weights=weights)
        if plan.twins:
            # A key that is a member's already needs nobody to let it in.
            newcomers = 0
        return cls(newcomers, invites, asks, deaf, {**weights, "expel": 0.7, "readmit": 1.5})

    @property
    def is_closed(self) -> bool:
        """Whether only members read the filesystem."""
        return self.newcomers is not None

    def __str__(self) -> str:
        closed = f"closed, {self.newcomers} newcomers{' with invitations' * self.invites}"
        parts = (closed * self.is_closed, "somebody asks" * self.asks, "deaf member" * self.deaf, *self.weights)
        return ", ".join(filter(None, parts))
