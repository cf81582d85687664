"""The table of experiments."""

from __future__ import annotations

from eval.lab import convergence, etc, files, peers, quiet, scaling, workload
from eval.lab.plan import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    "gossip": convergence.GOSSIP,
    "sync": convergence.SYNC,
    "both": convergence.BOTH,
    "workload": workload.WORKLOAD,
    "community": workload.COMMUNITY,
    "scaling": scaling.SCALING,
    "defaults": convergence.DEFAULTS,
    "quiet": quiet.QUIET,
    "peers": peers.PEERS,
    "etc": etc.ETC,
    "files": files.FILES,
}
