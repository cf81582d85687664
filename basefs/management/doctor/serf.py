"""Whether there is a Serf that is good enough."""

from __future__ import annotations

from basefs.errors import AgentError
from basefs.gossip.binary import OLDEST, dotted, find_serf, version_of
from basefs.management.doctor.finding import Finding, problem

_REMEDY = "basefs installserf, or 'apt-get install serf'; a node alone can do without: basefs mount -s NAME DIR"


def examine() -> list[Finding]:
    """The binary on PATH, and its version."""
    try:
        binary = find_serf()
    except AgentError:
        return [problem("serf", "Serf is not installed", _REMEDY)]
    try:
        version = version_of(binary)
    except AgentError as error:
        return [problem("serf", str(error), _REMEDY)]
    if version < OLDEST:
        what = f"{binary} is version {dotted(version)}, and {dotted(OLDEST)} is the oldest that will do"
        return [problem("serf", what, _REMEDY)]
    return []
