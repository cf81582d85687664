"""Bad networks: what happens to the packets of a node.

Delay, loss, reordering and duplication are netem's where the kernel has it, on what a node sends; elsewhere an emulator
with the same definition does it to what a node receives (`netem.py`, `eval/emulator.py`), which is the same
when all nodes have the same condition.  The rate is a token bucket filter on what a node sends, with either.
"""

from __future__ import annotations

import functools
import json
import math
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.support.netem import Netem
from tests.support.node import Node
from tests.support.patience import DEADLINE
from tests.support.project import ROOT

#: Bytes that may leave at once at any rate: a full packet and a bit.
_BURST = 4096
#: Seconds that a packet may wait in the queue of a slow link before it is dropped.
_LATENCY = 2.0
#: Standard deviation of a delay by its mean, correlation of loss and reordering in percent (paper, section 5.1).
_JITTER = 0.2
_CORRELATION = 25.0
#: Milliseconds that a packet waits which others overtake.  (The paper does not say.)
_REORDER_DELAY = 100.0
#: Number of the netfilter queue, which is the network namespace's own.
_QUEUE = "1"


@dataclass(frozen=True, slots=True)
class Condition:
    """What a network is like.

    Attributes:
        netem: what happens to each packet.
        rate: kbit/s that each node can send, 0: no limit.
    """

    netem: Netem = field(default_factory=Netem)
    rate: int = 0

    @classmethod
    def parse(cls, text: str) -> Condition:
        """`none`, or what the paper's data calls its conditions, several joined by `+`.  Raises `ValueError`.

        delay-MS      normally distributed, standard deviation a fifth of it
        loss-PERCENT  with a correlation of 25 %
        reorder-PERCENT  of packets do not wait 100 ms as the others do, with a correlation of 25 %
        duplicate-PERCENT
        bw-KBITS      a second
        """
        condition = cls()
        for word in text.split("+") if text != "none" else ():
            kind, _, number = word.partition("-")
            if kind not in _KINDS:
                raise ValueError(
                    f"{word!r} is no condition: use none, {', '.join(f'{kind}-NUMBER' for kind in _KINDS)}"
                )
            condition = _KINDS[kind](condition, float(number))
        return condition


def _delay(condition: Condition, number: float) -> Condition:
    return replace(condition, netem=replace(condition.netem, delay=number, jitter=number * _JITTER))


def _loss(condition: Condition, number: float) -> Condition:
    return replace(condition, netem=replace(condition.netem, loss=number, loss_correlation=_CORRELATION))


def _reorder(condition: Condition, number: float) -> Condition:
    delay = condition.netem.delay or _REORDER_DELAY
    netem = replace(condition.netem, delay=delay, reorder=number, reorder_correlation=_CORRELATION)
    return replace(condition, netem=netem)


def _duplicate(condition: Condition, number: float) -> Condition:
    return replace(condition, netem=replace(condition.netem, duplicate=number))


def _rate(condition: Condition, number: float) -> Condition:
    return replace(condition, rate=int(number))


_KINDS = {"delay": _delay, "loss": _loss, "reorder": _reorder, "duplicate": _duplicate, "bw": _rate}


class Shaper:
    """Makes the network of one node bad, one condition instead of the other."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._emulator: subprocess.Popen[str] | None = None
        self._rate = 0
        self._netem: Netem | None = None

    def impose(self, condition: Condition, *, seed: int = 0, links: Mapping[str, Netem] | None = None) -> None:
        """From now on.  Raises `OSError`.

        Args:
            condition: what the network is like.
            seed: of the emulator's random numbers.
            links: what the way from some peers is like instead, by their addresses; always emulated.
        """
        perfect = condition.netem == Netem() and not links
        if perfect or (has_netem() and not links):
            self.close()
            self._queue(condition)
            return
        self._queue(Condition(rate=condition.rate))
        setting = {
            "seed": seed,
            "netem": condition.netem.to_json(),
            "links": {address: netem.to_json() for address, netem in (links or {}).items()},
        }
        self._ask(setting)

    def in_force(self) -> dict[str, float | str]:
        """What was really done to packets since the condition was imposed: shares from 0 to 1, milliseconds."""
        rate: dict[str, float | str] = {"rate_kbit": self._rate} if self._rate else {}
        if self._emulator is not None:
            return {"by": "emulator", **rate, **_summary(self._ask(None))}
        if self._netem is None:
            return {"by": "tbf" if self._rate else "nothing", **rate}
        shown = json.loads(_in(self._node, "tc", "-s", "-j", "qdisc", "show", "dev", "eth0"))
        queue = next(row for row in shown if row["kind"] == "netem")
        seen = queue["packets"] + queue["drops"]
        return {"by": "netem", **rate, "packets": seen, "lost": queue["drops"] / max(1, seen)}

    def close(self) -> None:
        """End the emulator, if there is one; the packets that wait go on."""
        if self._emulator is None:
            return
        _in(self._node, "iptables", "-t", "mangle", "-F", "PREROUTING")
        self._emulator.communicate(timeout=DEADLINE)
        self._emulator = None

    def _queue(self, condition: Condition) -> None:
        """The queueing disciplines of what the node sends."""
        rate = ("rate", f"{condition.rate}kbit", "burst", str(_BURST), "latency", f"{_LATENCY:g}s")
        self._rate, self._netem = condition.rate, None
        if condition.netem != Netem():
            self._netem = condition.netem
            _in(self._node, "tc", *_ROOT, "handle", "1:", "netem", *condition.netem.arguments())
            if condition.rate:
                _in(self._node, "tc", "qdisc", "add", "dev", "eth0", "parent", "1:1", "tbf", *rate)
        elif condition.rate:
            _in(self._node, "tc", *_ROOT, "tbf", *rate)
        else:
            _in(self._node, "tc", *_ROOT, "pfifo_fast")

    def _ask(self, setting: dict[str, Any] | None) -> dict[str, float]:
        """Give the emulator a setting, or only ask for its counters."""
        if self._emulator is None:
            self._emulator = subprocess.Popen(
                [*self._node.prefix(), sys.executable, "-m", "eval.emulator", _QUEUE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
            )
            answer = self._tell(setting)
            # Not before it listens: nothing comes through a queue without a listener.
            _in(self._node, "iptables", "-t", "mangle", "-A", "PREROUTING", *_TO_QUEUE)
            return answer
        return self._tell(setting)

    def _tell(self, setting: dict[str, Any] | None) -> dict[str, float]:
        assert self._emulator is not None and self._emulator.stdin is not None and self._emulator.stdout is not None
        print("" if setting is None else json.dumps(setting), file=self._emulator.stdin, flush=True)
        line = self._emulator.stdout.readline()
        if not line:
            raise OSError(f"the emulator of {self._node.address} has ended: exit {self._emulator.wait(DEADLINE)}")
        answer: dict[str, float] = json.loads(line)
        return answer


_ROOT = ("qdisc", "replace", "dev", "eth0", "root")
_TO_QUEUE = ("-i", "eth0", "-j", "NFQUEUE", "--queue-num", _QUEUE)


def _summary(counters: Mapping[str, float]) -> dict[str, float | str]:
    passed, packets = max(1, counters["passed"]), max(1, counters["packets"])
    mean = counters["waited"] / passed
    return {
        "packets": counters["packets"],
        "lost": counters["lost"] / packets,
        "overflow": counters["overflow"] / packets,
        "duplicated": counters["duplicated"] / packets,
        "reordered": counters["reordered"] / passed,
        "delay_ms": 1000 * mean,
        "deviation_ms": 1000 * math.sqrt(max(0.0, counters["waited_squares"] / passed - mean * mean)),
        "late_ms": 1000 * counters["late"],
    }


@functools.cache
def has_netem() -> bool:
    """Whether the kernel has netem: tried in a private network namespace."""
    command = ["unshare", "--net", "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _in(node: Node, *command: str) -> str:
    done = subprocess.run([*node.prefix(), *command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
