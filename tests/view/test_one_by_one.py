"""Paths with many entries that come one by one show what they would if they were resolved from all of them."""

from __future__ import annotations

import pathlib
import random
import tempfile

from hypothesis import given

from basefs.log.entries import Action, Entry
from basefs.log.keys import SigningKey
from basefs.replica.replica import Replica
from eval.bench_hostile import ALICE, BESIDE, BOB, MALLORY, ROOT, Victim
from tests.support.examples import part
from tests.view.histories import SEEDS, memory

#: Alice's key is valid, Mallory's was revoked; Bob's is granted among the entries.
KEYS = (ROOT, ALICE, ALICE, MALLORY, MALLORY, BOB)
ACTIONS = (*(Action.REVERT,) * 5, *(Action.MODE,) * 4, *(Action.WRITE,) * 2, Action.ACK, Action.DELETE, Action.XATTR)
CONTENTS = {Action.MODE: b"\x01\xa4", Action.XATTR: b"\x01a\x00\x05value"}


def crowded(victim: Victim, chance: random.Random) -> list[Entry]:
    """Entries of a file and of the directory that holds it, parents first."""
    conf = victim.replica.attributes(BESIDE).entry
    last = victim.replica.attributes(BESIDE[:1]).entry
    found = [ROOT.sign(last, 0, Action.MODE, b"web", b"\x01\xed")]
    files: list[tuple[bytes, bytes]] = [(conf, b"conf")]
    keys: list[bytes] = [victim.web]
    for number in range(70):
        key: SigningKey = chance.choice(KEYS)
        kind = chance.random()
        if kind < 0.1:
            entry = key.sign(chance.choice((victim.web, last, found[0].hash)), number, Action.MODE, b"web", b"\x01\xed")
        elif kind < 0.25:
            granted = chance.choice((MALLORY, BOB))
            action, content = chance.choice(
                ((Action.GRANT, granted.public), (Action.REVOKE, bytes(granted.fingerprint)))
            )
            entry = key.sign(chance.choice(keys[-6:]), number, action, b"key", content)
            keys.append(entry.hash)
        elif kind < 0.4:
            name = chance.choice((b"conf", b"b"))
            entry = key.sign(victim.web, number, Action.WRITE, name)
            files.append((entry.hash, name))
        else:
            # Most follow one of a few, so that there are forks as well as chains.
            parent, name = chance.choice(files if chance.random() < 0.5 else files[-4:])
            action = chance.choice(ACTIONS)
            named = chance.choice(files)[0] if chance.random() < 0.9 else bytes((number,)) * 28
            entry = key.sign(
                parent, number, action, name, named if action is Action.REVERT else CONTENTS.get(action, b"")
            )
            files.append((entry.hash, name))
        found.append(entry)
    return found


def late(entries: list[Entry], chance: random.Random) -> list[Entry]:
    """The same in another order, parents first; so reverts come before what they name."""
    left = list(entries)
    mine = {entry.hash for entry in entries}
    ready: list[Entry] = []
    while left:
        free = [entry for entry in left if entry.parent not in mine]
        entry = chance.choice(free)
        left.remove(entry)
        mine.discard(entry.hash)
        ready.append(entry)
    return ready


def shown(replica: Replica) -> dict[tuple[bytes, ...], tuple[object, ...]]:
    """What each path is, and by which entries."""
    found: dict[tuple[bytes, ...], tuple[object, ...]] = {}
    for names, kind in replica.live_paths():
        it = replica.attributes(names)
        found[names] = (kind, it.mode, it.version, it.origin, it.writable, sorted(map(str, replica.grants(names))))
    return found


@part(3)
@given(SEEDS)
def test_entries_that_come_one_by_one_show_what_all_of_them_show(seed: int) -> None:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(dir=memory()) as directory:
        pathlib.Path(directory, "slow").mkdir()
        victim = Victim(pathlib.Path(directory, "slow"))
        entries = crowded(victim, chance)
        # A key that is granted nowhere yet waits, in any order.
        for entry in late(entries, chance):
            victim.replica.apply([entry], [])
            assert victim.replica.check_view() == []
        victim.replica.apply(entries, [])
        seen = shown(victim.replica)
        victim.replica.close()
        victim.replica = Replica(victim.directory, [ROOT])
        assert shown(victim.replica) == seen
        victim.replica.close()
