"""How long one peer keeps a node busy at a time."""

from __future__ import annotations

from basefs.log.hashes import BlockHash, sha224
from basefs.log.interface import Digest
from basefs.sync.net.transport import SLICE, slice_of_answers
from basefs.sync.session.inflight import RequestTable
from basefs.sync.session.protocol import SyncProtocol, Upload
from basefs.sync.session.states import Role
from basefs.sync.wire.codec import encode
from basefs.sync.wire.limits import VERSION
from basefs.sync.wire.messages import WHOLE, BlockReq, Hash, Ls, PathReq
from tests.support.memory import MemoryLog
from tests.sync.helpers import ROOT, Writer, random_bytes, work

#: Seconds of looking up one entry or block, of a slow machine.
LOOKUP = 0.0005


class SlowLog:
    """A log that counts what is looked up, and whose clock tells how long that takes."""

    def __init__(self, log):
        self._log = log
        self.lookups = 0

    def __getattr__(self, name):
        return getattr(self._log, name)

    def entry(self, hash):
        self.lookups += 1
        return self._log.entry(hash)

    def block(self, hash):
        self.lookups += 1
        return self._log.block(hash)

    def walk(self, path):
        for data in self._log.walk(path):
            self.lookups += 1
            yield data

    def now(self):
        return self.lookups * LOOKUP


def server(log, peer, requests=None):
    """A core that was greeted by another one of the same filesystem, with another root hash."""
    core = SyncProtocol(log, Role.RESPONDER, requests=requests)
    core.receive_data(encode(Hash(VERSION, log.identity, Digest(bytes(28), 0), 0)) + peer)
    while core.wants_work:
        work(core)
    while core.wants_send and core.upload is Upload.NONE:
        core.data_to_send(65536)
    return core


def filled(files):
    writer = Writer()
    for number in range(files):
        writer.write((b"f%d" % number,), random_bytes(100, number))
    return SlowLog(writer.log())


def test_the_whole_log_is_answered_in_short_slices():
    log = filled(300)
    core = server(log, encode(PathReq(())))
    slices, answer = [], b""
    while core.upload is not Upload.NONE:
        before = log.lookups
        answer += slice_of_answers(core, log.now)
        slices.append((log.lookups - before) * LOOKUP)
    assert answer.endswith(b"EOF\n") and sum(line.startswith(b"ENTRIES ") for line in answer.split(b"\n")) >= 9
    assert sum(slices) > 50 * SLICE, "it was a long answer"
    # What was begun when the time was over: eight entries, and a block each.
    assert max(slices) < 3 * SLICE + 16 * LOOKUP


def test_a_flood_of_lists_is_looked_at_a_few_at_a_time():
    log = filled(1)
    names = [b"n%d" % number for number in range(48)]
    line = encode(Ls((), WHOLE, children=tuple((name, bytes([number]) * 28) for number, name in enumerate(names))))
    core = server(log, b"")
    core.receive_data(line * 20)
    rounds = 0
    while core.wants_work:
        work(core)
        rounds += 1
    assert rounds >= 10


def test_an_answer_that_waits_for_another_session_is_looked_at_once_in_a_slice():
    writer = Writer()
    writer.write((b"large",), random_bytes(300_000))
    held = MemoryLog(ROOT.hash)
    held.add(writer.entries, writer.blocks[:2])
    requests, another = RequestTable(), object()
    requests.moved(another)
    requests.take((BlockHash(sha224(writer.blocks[2])),), another)
    log = SlowLog(held)
    core = server(log, encode(BlockReq(tuple(BlockHash(sha224(block)) for block in writer.blocks))), requests)
    sent = slice_of_answers(core, log.now)
    while core.wants_send:
        sent += slice_of_answers(core, log.now)
    assert sent.count(b"BLOCKS ") == 2 and core.upload is not Upload.NONE
    before = log.lookups
    assert slice_of_answers(core, log.now) == b""
    assert log.lookups - before == 1
    held.add([], writer.blocks[2:])
    requests.ended(another)
    while core.upload is not Upload.NONE:
        sent += slice_of_answers(core, log.now)
    assert sent.count(b"BLOCKS ") == len(writer.blocks)
