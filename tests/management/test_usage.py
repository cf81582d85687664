"""What a process uses, against what it was told to use."""

from __future__ import annotations

import subprocess
import sys

from basefs.management.resources import usage_of
from tests.support.wait import wait_until

#: Uses 20 files, 5 threads, 50 MB and 0.3 s of a core when it is told to.
_USES = """
import os, sys, threading, time
print(flush=True); input()
opened = [open(os.devnull) for _ in range(20)]
done = threading.Event()
waiting = [threading.Thread(target=done.wait) for _ in range(5)]
for thread in waiting: thread.start()
block = bytearray(b"x") * 50_000_000
start = time.process_time()
while time.process_time() - start < 0.3: pass
print(flush=True); input()
done.set()
"""


def test_of_a_process() -> None:
    # One of its own: what other tests have left in this one may be freed at any moment.
    with subprocess.Popen([sys.executable, "-c", _USES], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None and child.stdout is not None
        child.stdout.readline()
        before = usage_of(child.pid)
        child.stdin.write(b"\n")
        child.stdin.flush()
        child.stdout.readline()
        after = usage_of(child.pid)
        child.communicate(b"\n")
    assert before is not None and after is not None
    assert after.files >= before.files + 20
    assert after.threads >= before.threads + 5
    assert after.memory >= before.memory + 40_000_000
    assert after.cpu >= before.cpu + 0.2


def test_switches_of_all_threads_count() -> None:
    code = (
        "import threading\ndone = threading.Event()\n"
        "def work():\n    while not done.wait(0.001): pass\n"
        "threads = [threading.Thread(target=work) for _ in range(4)]\n"
        "[t.start() for t in threads]; input(); done.set()"
    )
    # The main thread waits for a line and hardly switches at all.
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as child:

        def switches() -> int:
            found = usage_of(child.pid)
            return 0 if found is None else found.switches

        wait_until(lambda: switches() >= 500, 60.0, "switches of the other threads")
        child.communicate(b"\n")


def test_of_nobody() -> None:
    assert usage_of(None) is None
    child = subprocess.Popen(["true"])
    child.wait()
    assert usage_of(child.pid) is None
