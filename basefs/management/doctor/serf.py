"""Whether there is a Serf that is good enough."""

from __future__ import annotations

from basefs.daemon.serf.program import find_problem
from basefs.management.doctor.finding import Diagnosis, problem

_REMEDY = "basefs installserf, or 'apt-get install serf'; a node alone can do without: basefs mount -s NAME DIR"


def examine() -> list[Diagnosis]:
    """The program on PATH, and its version."""
    what = find_problem()
    return [] if what is None else [problem("serf", what, _REMEDY)]
