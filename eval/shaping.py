"""Bad networks: what the kernel can do to the packets of a node.

Loss is the `statistic` match of iptables on what comes in, independent for each packet, over TCP and UDP alike; the
rate is a token bucket filter on what goes out.  (Delay and reordering need netem, which not every kernel has.)
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

from eval.node import Node

#: Bytes that may leave at once at any rate: a full packet and a bit.
_BURST = 4096
#: Seconds that a packet may wait in the queue of a slow link before it is dropped.
_LATENCY = 2.0


@dataclass(frozen=True, slots=True)
class Condition:
    """What a network is like.

    Attributes:
        loss: percent of packets that never arrive.
        rate: kbit/s that each node can send, 0: no limit.
    """

    loss: float = 0.0
    rate: int = 0

    @classmethod
    def parse(cls, text: str) -> Condition:
        """`none`, `loss-50` or `bw-32`, as the paper's data calls them.  Raises `ValueError`."""
        kind, _, number = text.partition("-")
        if kind == "none":
            return cls()
        if kind == "loss" and 0 < float(number) < 100:
            return cls(loss=float(number))
        if kind == "bw" and int(number) > 0:
            return cls(rate=int(number))
        raise ValueError(f"{text!r} is no condition: use none, loss-PERCENT or bw-KBITS")

    def apply(self, node: Node) -> None:
        """Impose it on a node, instead of what was there.  Raises `OSError`."""
        _in(node, "iptables", "-F", "INPUT")
        _in(node, "tc", "qdisc", "replace", "dev", "eth0", "root", "pfifo_fast")
        if self.loss:
            probability = f"{self.loss / 100:.4f}"
            rule = ("-i", "eth0", "-m", "statistic", "--mode", "random", "--probability", probability, "-j", "DROP")
            _in(node, "iptables", "-A", "INPUT", *rule)
        if self.rate:
            shape = ("rate", f"{self.rate}kbit", "burst", str(_BURST), "latency", f"{_LATENCY:g}s")
            _in(node, "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", *shape)


def _in(node: Node, *command: str) -> None:
    done = subprocess.run([*node.prefix(), *command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
