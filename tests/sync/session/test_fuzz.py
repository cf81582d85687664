"""The invariant: any input is answered, ignored, or ends this session; nothing is raised and memory is bounded.

Crashers are kept in `CRASHERS`.
"""

from __future__ import annotations

import random
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from basefs.sync.session.protocol import SyncProtocol
from basefs.sync.session.states import Role
from basefs.sync.wire.limits import Limits
from tests.support.examples import part
from tests.support.memory import MemoryLog
from tests.sync.helpers import ROOT, Pair, Writer, cut, random_bytes, work

CRASHERS = [
    b"\n",
    b"HASH",
    b"HASH \n",
    b"\xff" * 70_000,
    b"CLOSE NO \xff x\n",
    b"HASH 3 A A 1 0 0 - 0 -\n",
    b"HASH 3 A A 99999999999999999999 0 0 - 0 -\n",
]


def make_logs():
    left, right = Writer(), Writer()
    for number in range(60):
        left.write((b"d", b"l%d" % number), b"x%d" % number)
        right.write((b"d", b"r%d" % number), b"y%d" % number)
    left.write((b"big",), random_bytes(100_000, 1))
    right.write((b"part",), random_bytes(100_000, 2))
    right.entries.append(left.write((b"parts",), random_bytes(4000, 3)).encode())
    behind = MemoryLog(ROOT.hash)
    behind.add(right.entries, right.blocks[:-2])
    return left.log(), behind


def transcript():
    pair = Pair(*make_logs(), chunk=40)
    pair.run()
    return {Role.RESPONDER: bytes(pair.sent[pair.left]), Role.INITIATOR: bytes(pair.sent[pair.right])}


#: What each role hears in a good session.
HEARD = transcript()


def feed(role, data, chunk=65536):
    """A fresh core that hears this."""
    left, right = make_logs()
    core = SyncProtocol(left if role is Role.INITIATOR else right, role)
    for start in range(0, len(data), chunk):
        core.receive_data(data[start : start + chunk])
        for _ in range(100_000):
            if not (core.wants_work or core.wants_send):
                break
            work(core)
            core.data_to_send(65536)
        else:
            raise AssertionError("it never rests")
    cut(core)
    core.data_to_send(1 << 20)
    assert core.closed and core.result is not None
    return core


@pytest.mark.parametrize("role", Role)
# With more it asks in another order than in the recording, so that the answers are those to other requests.
@pytest.mark.parametrize("chunk", [1])
def test_the_transcript_itself_is_heard_to_the_end(role, chunk):
    assert feed(role, HEARD[role], chunk).result.equal


@pytest.mark.parametrize("data", CRASHERS)
@pytest.mark.parametrize("role", Role)
def test_crashers(role, data):
    feed(role, data)


@given(st.sampled_from(Role), st.binary(max_size=500))
def test_random_bytes(role, data):
    feed(role, data)


@part(2)
@given(st.sampled_from(Role), st.data())
def test_mutated_lines(role, data):
    lines = HEARD[role].split(b"\n")
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(lines) - 1))
        kind = data.draw(st.sampled_from(["drop", "repeat", "swap", "cut", "byte", "field"]))
        line = lines[place]
        if kind == "drop":
            del lines[place]
        elif kind == "repeat":
            lines.insert(place, line)
        elif kind == "swap":
            other = data.draw(st.integers(0, len(lines) - 1))
            lines[place], lines[other] = lines[other], lines[place]
        elif kind == "cut":
            lines[place] = line[: data.draw(st.integers(0, len(line)))]
        elif kind == "byte" and line:
            index = data.draw(st.integers(0, len(line) - 1))
            lines[place] = line[:index] + data.draw(st.binary(min_size=1, max_size=2)) + line[index + 1 :]
        elif kind == "field":
            fields = line.split(b" ")
            fields.insert(data.draw(st.integers(1, len(fields))), fields[-1])
            lines[place] = b" ".join(fields)
        if not lines:
            lines = [b""]
    feed(role, b"\n".join(lines))


@part(3)
@given(st.sampled_from(Role), st.integers(0, 10**6), st.sampled_from([100, 3000, 65536]))
@example(Role.RESPONDER, 109, 100)
def test_lines_in_any_order(role, seed, chunk):
    greeting, *lines = HEARD[role].splitlines(keepends=True)
    random.Random(seed).shuffle(lines)
    feed(role, greeting + b"".join(lines), chunk)


@pytest.mark.slow
def test_memory_under_requests_is_bounded():
    writer = Writer()
    for number in range(300):
        writer.write((b"d", b"%d" % number), b"x")
    log = writer.log()
    core = SyncProtocol(log, Role.RESPONDER, limits=Limits(useless_bytes=1 << 40, again=1 << 40))
    greeting, *_ = HEARD[Role.RESPONDER].splitlines(keepends=True)
    core.receive_data(greeting)
    work(core)
    listing = b"LS /d - " + b" ".join(b"C:%x:%s" % (digit, b"A" * 38) for digit in range(16)) + b"\n"
    tracemalloc.start()
    try:
        # A peer that asks and asks, and never answers what that leads to.
        for _ in range(3000):
            core.receive_data(listing)
            while core.wants_work:
                work(core)
            while core.wants_send:
                core.data_to_send(65536)
        assert core.result is None
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
