"""The law of the package: any two logs of one filesystem that overlap in any way end equal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from basefs.log.entries import Action, Entry
from basefs.log.hashes import HASH_SIZE, sha224
from basefs.sync.session.result import Reason
from tests.support.examples import part
from tests.support.helpers import in_blocks
from tests.support.memory import MemoryLog
from tests.sync.helpers import ROOT, Pair, random_bytes, unsigned

#: What a random log is made of: (where: index of an existing entry, what, how many).
OPERATIONS = st.lists(
    st.tuples(
        st.integers(0, 1000),
        st.sampled_from(["mkdir", "write", "large", "delete", "grant", "slink", "many files", "many edits"]),
        st.integers(0, 3),
    ),
    max_size=25,
)


class Universe:
    """All entries that ever were; logs are subsets that contain the parent of each of their entries."""

    def __init__(self, operations):
        self.entries = [ROOT]
        self.contents = {}
        for serial, (where, what, number) in enumerate(operations):
            parent = self.entries[where % len(self.entries)]
            if what == "many files":
                for count in range(60):
                    self._add(parent, Action.WRITE, b"m%d" % count, serial, b"%d" % count)
            elif what == "many edits":
                for count in range(60):
                    parent = self._add(parent, Action.WRITE, b"e", serial + 1000 * count, b"%d" % count)
            elif what in ("write", "large"):
                size = 80_000 if what == "large" else 10 * number
                self._add(parent, Action.WRITE, b"f%d" % number, serial, random_bytes(size, serial))
            else:
                action = Action[what.upper()]
                content = {"grant": bytes(32), "slink": b"target"}.get(what, b"")
                self._add(parent, action, b"n%d" % number, serial, content)

    def _add(self, parent, action, name, serial, content):
        child = parent.action is Action.MKDIR and action in (Action.MKDIR, Action.WRITE, Action.SLINK)
        if not child and action is not Action.GRANT:
            name = self._name(parent)
            if name == b"/" and action is Action.MKDIR:
                return parent
        size = 0
        if action is Action.WRITE:
            size = len(content)
            if content:
                content, blocks = in_blocks(content)
                self.contents[content] = [block.data for block in blocks]
        entry = unsigned(parent.hash, action, name, content, size, serial)
        self.entries.append(entry)
        return entry

    def _name(self, entry):
        # A grant is named after its key, its successors after the path.
        by_hash = {found.hash: found for found in self.entries}
        while entry.action is Action.GRANT:
            entry = by_hash[entry.parent]
        return entry.name

    def choose(self, draw):
        """A random subset."""
        chosen = {ROOT.hash}
        density = draw(st.sampled_from([0, 3, 8, 10]))
        coins = draw(st.binary(min_size=len(self.entries), max_size=len(self.entries)))
        for coin, entry in zip(coins, self.entries[1:], strict=False):
            if entry.parent in chosen and coin % 10 < density:
                chosen.add(entry.hash)
        return chosen

    def log(self, chosen, blocks):
        """A log with these entries, and as many blocks of each content as `blocks` says."""
        log = MemoryLog(ROOT.hash)
        entries = [entry for entry in self.entries if entry.hash in chosen]
        result = log.add([entry.encode() for entry in entries], ())
        assert not result.rejected and not result.missing_parents, result
        for entry in entries:
            content = self.contents.get(entry.content, [])
            log.add((), content[: blocks(entry, content)])
        return log


def everything(log):
    return {Entry.decode(data).hash for data in log.walk(())}


@part(2)
@given(st.data(), OPERATIONS, st.sampled_from([1, 50, 1000, 65536]))
def test_logs_with_complete_contents_end_equal_in_one_session(data, operations, chunk):
    universe = Universe(operations)
    subsets = [universe.choose(data.draw) for _ in range(2)]
    logs = [universe.log(subset, lambda entry, content: len(content)) for subset in subsets]
    pair = Pair(*logs, chunk=chunk)
    for result in pair.run():
        assert result.reason is Reason.COMPLETE and result.equal, result
        assert result.counters.rejected == 0
    assert everything(logs[0]) == everything(logs[1]) == subsets[0] | subsets[1]
    assert logs[0].root_hash() == logs[1].root_hash()
    assert not logs[0].missing_blocks(1) and not logs[1].missing_blocks(1)


@part(2)
@given(st.data(), OPERATIONS)
def test_logs_with_partial_contents_end_equal(data, operations):
    universe = Universe(operations)
    logs = []
    for _ in range(2):
        coins = data.draw(st.binary(min_size=16, max_size=16))
        log = universe.log(
            universe.choose(data.draw),
            lambda entry, content, coins=coins: coins[entry.hash[0] % 16] % (len(content) + 1),
        )
        logs.append(log)
    union = everything(logs[0]) | everything(logs[1])
    for _ in range(4):
        for result in Pair(*logs).run():
            assert result.reason is Reason.COMPLETE and result.counters.rejected == 0, result
    assert everything(logs[0]) == everything(logs[1]) == union
    assert logs[0].root_hash() == logs[1].root_hash()
    for blocks in universe.contents.values():
        assert [logs[0].block(sha224(b)) for b in blocks] == [logs[1].block(sha224(b)) for b in blocks]


def test_hash_size_is_what_the_universe_assumes():
    assert len(ROOT.hash) == HASH_SIZE
