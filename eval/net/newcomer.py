"""`basefs get` of a long history from a running daemon, beside verifying its signatures and nothing else."""

from __future__ import annotations

import os
import resource
import subprocess
import time

from eval.histories import KEY, make_log
from eval.net.scenario import Options, Scenario, cpu_seconds, network_of, peak_mib, reset_peak, say
from eval.net.verifying import verify_seconds
from eval.rows import Row, Rows
from eval.traffic import Meter
from tests.support.cluster import NAME
from tests.support.node import COMMAND, CommandFailed, Node

#: Entries of the history (docs/network.md).
ENTRIES = 130_000


def _run(options: Options, rows: Rows) -> None:
    entries = options.entries or ENTRIES
    rows.measure(lambda: _measure(entries), entries=entries)


def _measure(entries: int) -> Row:
    with network_of(2) as network:
        server, newcomer = network.nodes
        for node in network.nodes:
            # Only members read it.
            node.home.mkdir(parents=True, exist_ok=True)
            KEY.save(node.home / "key")
        say(f"making a history of {entries} entries")
        make_log(server.home / "fs" / NAME, entries)
        server.mount(NAME)
        pid = server.daemon(NAME)
        reset_peak(pid)
        used = cpu_seconds(pid)
        meter = Meter(network.nodes)
        say("fetching it")
        seconds, usage = _get(newcomer, server)
        sent = meter.total()
        verify = verify_seconds(entries)
        cpu = usage.ru_utime + usage.ru_stime
        return {
            "seconds": seconds,
            "verify cpu s": verify,
            "x verify": seconds / verify,
            "cpu s of get": cpu,
            # What else the machine does counts for neither.
            "cpu x verify": cpu / verify,
            "cpu s of the server": cpu_seconds(pid) - used,
            "peak MiB of get": usage.ru_maxrss / 1024,
            "peak MiB of the server": peak_mib(pid),
            "bytes of sync a differing entry": sent.sync / entries,
            "entries there": newcomer.summary(NAME)["entries"],
        }


def _get(node: Node, server: Node) -> tuple[float, resource.struct_rusage]:
    """Seconds, and what the process has used.  Raises `CommandFailed` if it fails."""
    start = time.monotonic()
    process = subprocess.Popen(
        [*node.prefix(), COMMAND, "get", NAME, server.endpoint],
        env=node.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise CommandFailed(f"basefs get: exit {process.returncode}")
    return seconds, usage


SCENARIO = Scenario("basefs get of 130 000 entries: seconds beside verifying alone, memory", ("entries",), _run)
