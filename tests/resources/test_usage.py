"""What a process uses, against what this one knows of itself."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

from basefs.resources.usage import usage_of
from eval.wait import wait_until


def test_of_this_process() -> None:
    before = usage_of(os.getpid())
    assert before is not None
    opened = [open(os.devnull) for _ in range(20)]  # noqa: SIM115
    done = threading.Event()
    waiting = [threading.Thread(target=done.wait) for _ in range(5)]
    for thread in waiting:
        thread.start()
    block = bytearray(os.urandom(1)) * 50_000_000
    start = time.process_time()
    while time.process_time() - start < 0.3:
        pass
    after = usage_of(os.getpid())
    done.set()
    for thread in waiting:
        thread.join()
    for file in opened:
        file.close()
    assert after is not None
    assert after.files >= before.files + 20
    assert after.threads >= before.threads + 5
    assert after.memory >= before.memory + 40_000_000 and len(block) == 50_000_000
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
