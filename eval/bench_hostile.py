"""What a key holder costs others by entries that no honest node writes: `make bench-hostile`.

Each shape is taken in, looked at from scratch, and written beside, with n and with twice as many entries: cost that is
linear in the entries concerned doubles, and a file of another directory costs the same.  Behind n of them others come
one by one, while a reader lists the root directory and waits for them.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from basefs.log import codecs
from basefs.log.blocks import Block, Encoded
from basefs.log.entries import FIRST_ANNOTATION, ROOT_NAME, Action, Entry
from basefs.log.extensions import NO_LIMIT, Extensions, Quota
from basefs.log.hashes import HASH_SIZE, BlockHash, EntryHash
from basefs.log.keys import SigningKey
from basefs.replica.replica import Replica
from basefs.view.author import Author
from basefs.view.draft import Draft
from eval.benchmark import Benchmark
from eval.rows import Row

ROOT, ALICE, MALLORY, BOB, CAROL = (SigningKey.from_seed(bytes((number,)) * 32) for number in range(5))
#: A file of another directory, and one below the directory of the key holder.
ELSEWHERE, BESIDE = (b"hot.conf",), (b"web", b"conf")


class Victim:
    """A node with a key for `/`; Alice holds a key for `/web`, and Mallory's was revoked there.

    Attributes:
        replica: with all of the tree looked at.
        web: the entry of `/web`.
        hot: the entry that began `/hot.conf`.
    """

    def __init__(self, directory: Path) -> None:
        root = ROOT.sign(bytes(HASH_SIZE), 1, Action.MKDIR, ROOT_NAME)
        self.directory = directory
        self.replica = Replica.create(directory, root.hash, [ROOT])
        self.replica.apply([root, ROOT.sign(root.hash, 1, Action.GRANT, b"root", ROOT.public)], [])
        for make in _SETTING:
            self.replica.commit(make)
        self.web = self.replica.attributes((b"web",)).entry
        self.hot = self.replica.attributes(ELSEWHERE).entry
        self.replica.observe()

    def take(self, entries: Sequence[Entry]) -> None:
        """Take entries in."""
        applied = self.replica.apply(entries, [])
        assert not applied.rejected and len(applied.entries) == len(entries)

    def look(self) -> None:
        """Resolve what lies beside, from scratch."""
        self.replica.close()
        self.replica = Replica(self.directory, [ROOT])
        self.replica.attributes(BESIDE)
        self.replica.names_in(BESIDE[:1])

    def write(self, path: tuple[bytes, ...], text: bytes) -> None:
        """Change a file, and ask for what it is then."""
        self.replica.commit(lambda author: author.write(path, text))
        self.replica.attributes(path)


_SETTING: tuple[Callable[[Author], Draft], ...] = (
    lambda author: author.make_directory(BESIDE[:1]),
    lambda author: author.write(BESIDE, b"0"),
    lambda author: author.write(ELSEWHERE, b"0"),
    lambda author: author.grant(BESIDE[:1], b"alice", ALICE.public),
    lambda author: author.grant(BESIDE[:1], b"mallory", MALLORY.public),
    lambda author: author.revoke(BESIDE[:1], b"mallory", MALLORY.fingerprint),
)


#: A delta whose only block is here: that of the file beside.
_DELTA = Encoded(Block(b"0").hash, codecs.ZSTD.tag, 1)


def _chain(key: SigningKey, parent: EntryHash, steps: Iterable[tuple[Action, bytes, bytes]]) -> list[Entry]:
    """Entries behind one another."""
    found: list[Entry] = []
    for action, name, content in steps:
        found.append(key.sign(found[-1].hash if found else parent, len(found), action, name, content))
    return found


def _annotations(victim: Victim, count: int, key: SigningKey = ALICE) -> list[Entry]:
    """Annotations behind a directory."""
    return [key.sign(victim.web, number, Action(FIRST_ANNOTATION), b"") for number in range(count)]


def _grants(victim: Victim, count: int) -> list[Entry]:
    """Grants of a key beside revokes of it, which one last grant answers."""
    revokes = _chain(ALICE, victim.web, [(Action.REVOKE, b"bob", BOB.fingerprint)] * (count // 2))
    grants = _chain(ALICE, victim.web, [(Action.GRANT, b"bob", BOB.public)] * (count // 2))
    return [*revokes, *grants, ALICE.sign(revokes[-1].hash, 0, Action.GRANT, b"bob", BOB.public)]


def _granters(victim: Victim, count: int) -> list[Entry]:
    """Keys that grant one another, each of which grants one more key, and revokes it on another chain."""
    found: list[Entry] = []
    key, at = ALICE, victim.web
    for number in range(count // 3):
        other = SigningKey.from_seed(number.to_bytes(32, "big"))
        found.append(key.sign(at, number, Action.GRANT, b"key", other.public))
        found.append(other.sign(victim.web, number, Action.REVOKE, b"bob", BOB.fingerprint))
        found.append(other.sign(found[-1].hash, number, Action.GRANT, b"bob", BOB.public))
        key, at = other, found[-3].hash
    return found


def _directories(victim: Victim, count: int) -> list[Entry]:
    """Directories below one of a revoked key."""
    top = MALLORY.sign(victim.web, 1, Action.MKDIR, b"t")
    return [top, *(MALLORY.sign(top.hash, 1, Action.MKDIR, b"%d" % number) for number in range(count))]


def _links(victim: Victim, count: int) -> list[Entry]:
    """Links to the file of another directory, half of them by a revoked key."""
    keys = (ALICE, MALLORY)
    return [keys[number % 2].sign(victim.web, 1, Action.LINK, b"l%d" % number, victim.hot) for number in range(count)]


def _linked(victim: Victim, count: int) -> list[Entry]:
    """Links at new paths, each to the one before, and at the end of them a content that nobody has."""
    found = [ALICE.sign(victim.web, 1, Action.WRITE, b"l", _DELTA.encode(), Extensions(9))]
    for number in range(count):
        found.append(ALICE.sign(victim.web, 1, Action.LINK, b"l%d" % number, found[-1].hash))
    return found


def _swapped(victim: Victim, count: int) -> list[Entry]:
    """Links at two names, each to the one before at the other name."""
    found = [ALICE.sign(victim.web, 1, Action.WRITE, b"l0")]
    for number in range(1, count):
        found.append(ALICE.sign(victim.web, number, Action.LINK, b"l%d" % (number % 2), found[-1].hash))
    return found


def _reverts(victim: Victim, count: int, key: SigningKey = ALICE) -> list[Entry]:
    """Reverts of a path behind its first entry, each to the one before."""
    first = key.sign(victim.web, 1, Action.WRITE, b"r")
    found = [first]
    for number in range(count):
        found.append(key.sign(first.hash, number, Action.REVERT, b"r", found[-1].hash))
    return found


def _branches(victim: Victim, count: int, key: SigningKey = ALICE) -> list[Entry]:
    """Branches of one path."""
    return [key.sign(victim.web, number, Action.WRITE, b"b") for number in range(count)]


def _modes(victim: Victim, count: int, key: SigningKey = ALICE) -> list[Entry]:
    """Modes behind one version of a file that all keys may write."""
    tip = victim.replica.attributes(BESIDE).entry
    return [key.sign(tip, number, Action.MODE, BESIDE[-1], b"\x01\xa4") for number in range(count)]


def _directory_modes(victim: Victim, count: int, key: SigningKey = ALICE) -> list[Entry]:
    """Modes behind a directory on which keys are granted."""
    return [key.sign(victim.web, number, Action.MODE, BESIDE[0], b"\x01\xed") for number in range(count)]


def _forked_modes(victim: Victim, count: int) -> list[Entry]:
    """Modes of a directory, each with another one beside the next."""
    found: list[Entry] = []
    at = victim.web
    for number in range(0, count, 2):
        found += [ALICE.sign(at, number + side, Action.MODE, BESIDE[0], b"\x01\xed") for side in range(2)]
        at = found[-1].hash
    return found


def _forked_directories(victim: Victim, count: int) -> list[Entry]:
    """A name that is removed and made again, each time as two directories and a file that loses."""
    found: list[Entry] = []
    at = victim.web
    for number in range(0, count, 4):
        made = [ALICE.sign(at, number + side, Action.MKDIR, b"forked") for side in range(2)]
        files = (ALICE.sign(at, each, Action.WRITE, b"forked") for each in itertools.count())
        highest = max(entry.hash for entry in made)
        found += [*made, next(file for file in files if file.hash < highest)]
        found.append(ALICE.sign(made[1].hash, number, Action.DELETE, b"forked"))
        at = found[-1].hash
    return found


def _granted(victim: Victim, count: int) -> tuple[list[Entry], list[SigningKey]]:
    """Grants of so many keys, and these keys."""
    keys = [SigningKey.from_seed(number.to_bytes(32, "big")) for number in range(1000, 1000 + count)]
    return _chain(ALICE, victim.web, [(Action.GRANT, b"key", key.public) for key in keys]), keys


def _fork(victim: Victim, name: bytes) -> list[Entry]:
    """Branches of a file, as many as make it a path that is kept; the one that wins is the last."""
    branches = [ALICE.sign(victim.web, number, Action.WRITE, name) for number in range(8)]
    return sorted(branches, key=lambda branch: branch.hash)


def _signers(victim: Victim, count: int) -> list[Entry]:
    """Versions of a file, each by another key."""
    found, keys = _granted(victim, count // 2)
    found += _fork(victim, b"s")
    for number, key in enumerate(keys):
        found.append(key.sign(found[-1].hash, number, Action.WRITE, b"s"))
    return found


def _files_of_many(victim: Victim, count: int) -> list[Entry]:
    """Files where very many keys may write."""
    found, _ = _granted(victim, count // 2)
    return found + [branch for number in range(count // 16) for branch in _fork(victim, b"s%d" % number)]


def _directories_of_many(victim: Victim, count: int) -> list[Entry]:
    """Directories where very many keys may write, and one more in each."""
    found, keys = _granted(victim, count // 3)
    for number in range(len(keys)):
        made = ALICE.sign(victim.web, 1, Action.MKDIR, b"s%d" % number)
        found += [made, ALICE.sign(made.hash, 1, Action.GRANT, b"bob", BOB.public)]
    return found


def _revokes(victim: Victim, count: int) -> list[Entry]:
    """Revokes that a revoked key signs of itself, each behind the last one."""
    return _chain(MALLORY, victim.web, [(Action.REVOKE, b"mallory", MALLORY.fingerprint)] * count)


def _revokes_above_files(victim: Victim, count: int) -> list[Entry]:
    """The same above many files, one of which a link names."""
    files = [ALICE.sign(victim.web, 1, Action.WRITE, b"f%d" % number) for number in range(count // 2)]
    return [*files, ROOT.sign(victim.web, 1, Action.LINK, b"link", files[0].hash), *_revokes(victim, count // 2)]


def _versions_with_grants(victim: Victim, count: int) -> list[Entry]:
    """Versions of a file that a link names, each with a grant of another key behind it."""
    found: list[Entry] = []
    at = victim.web
    for number in range(count // 2):
        key = SigningKey.from_seed(number.to_bytes(32, "big"))
        write = ALICE.sign(at, number, Action.WRITE, b"v")
        found += [write, ALICE.sign(write.hash, 1, Action.GRANT, b"key", key.public)]
        at = write.hash
    return [found[0], ALICE.sign(victim.web, 1, Action.LINK, b"link", found[0].hash), *found[1:]]


def _in_turn(victim: Victim, count: int) -> list[Entry]:
    """Grants of a key and revokes of it, each behind the last one."""
    steps = [(Action.GRANT, b"bob", BOB.public), (Action.REVOKE, b"bob", bytes(BOB.fingerprint))]
    return _chain(ALICE, victim.web, steps * (count // 2))


def _again(victim: Victim, count: int) -> list[Entry]:
    """A directory with a file that is made and removed again and again."""
    found: list[Entry] = []
    slot = victim.web
    for number in range(count // 4):
        made = ALICE.sign(slot, number, Action.MKDIR, b"again")
        wrote = ALICE.sign(made.hash, number, Action.WRITE, b"f")
        removed = ALICE.sign(wrote.hash, number, Action.DELETE, b"f")
        found += [made, wrote, removed, ALICE.sign(made.hash, number, Action.DELETE, b"again")]
        slot = found[-1].hash
    return found


def _limited(victim: Victim, quota: Quota) -> Entry:
    """The grant of a key with a quota."""
    return ROOT.sign(victim.web, 1, Action.GRANT, b"carol", CAROL.public, Extensions(quota=quota))


def _over_quota(victim: Victim, count: int) -> list[Entry]:
    """Files of a key over its quota, each signed before those that came before it."""
    grant = _limited(victim, Quota(NO_LIMIT, count // 2))
    return [grant, *(CAROL.sign(victim.web, -number, Action.WRITE, b"q%d" % number) for number in range(count))]


def _limited_reverts(victim: Victim, count: int) -> list[Entry]:
    """The same reverts, by a key over its quota."""
    grant = _limited(victim, Quota(NO_LIMIT, count // 2))
    return [grant, *_reverts(victim, count, CAROL)]


def _limited_below(victim: Victim, count: int) -> list[Entry]:
    """Files of a key with a quota in a directory of a revoked key."""
    grant, top = _limited(victim, Quota(NO_LIMIT, NO_LIMIT)), MALLORY.sign(victim.web, 1, Action.MKDIR, b"t")
    return [grant, top, *(CAROL.sign(top.hash, 1, Action.WRITE, b"%d" % number) for number in range(count))]


def _limited_links(victim: Victim, count: int) -> list[Entry]:
    """Hard links of a key with a quota to a file of a revoked key, each of whose entries one of them names."""
    grant = _limited(victim, Quota(NO_LIMIT, NO_LIMIT))
    steps = [(Action.WRITE, b"m", b""), *[(Action.ACK, b"m", b"")] * (count // 2 - 1)]
    named = _chain(MALLORY, victim.web, steps)
    links = [CAROL.sign(victim.web, 1, Action.LINK, b"l%d" % number, one.hash) for number, one in enumerate(named)]
    return [grant, *named, *links]


def _quotas(victim: Victim, count: int) -> list[Entry]:
    """Versions of a file, each with a grant of another quota behind it, all of which were signed after the next one."""
    found = [_limited(victim, Quota(NO_LIMIT, 1))]
    parent = victim.web
    for number in range(count // 2):
        write = CAROL.sign(parent, -number, Action.WRITE, b"q")
        quota = Extensions(quota=Quota(NO_LIMIT, count + number))
        found += [write, ROOT.sign(write.hash, 1, Action.GRANT, b"carol", CAROL.public, quota)]
        parent = write.hash
    return found


#: What a key holder can hang on its directory: about as many entries as it is asked for.
def _deltas(victim: Victim, count: int) -> list[Entry]:
    """Versions that build on a content that nobody has, each by way of the one before."""
    nowhere = Encoded(BlockHash(bytes(HASH_SIZE)), codecs.STORED.tag, 9)
    found = [ALICE.sign(victim.web, 0, Action.WRITE, b"d", nowhere.encode(), Extensions(9))]
    for number in range(1, count):
        found.append(ALICE.sign(found[-1].hash, number, Action.WRITE, b"d", _DELTA.encode(), Extensions(9)))
    return found


def _deltas_behind_modes(victim: Victim, count: int) -> list[Entry]:
    """Versions that build on one file, by way of many changes of its mode."""
    found = [ALICE.sign(victim.web, 1, Action.WRITE, b"d")]
    for number in range(count // 2):
        found.append(ALICE.sign(found[-1].hash, number, Action.MODE, b"d", (0o600).to_bytes(2, "big")))
    tip, delta = found[-1].hash, _DELTA.encode()
    return [*found, *(ALICE.sign(tip, made, Action.WRITE, b"d", delta, Extensions(9)) for made in range(count // 2))]


SHAPES: dict[str, Callable[[Victim, int], list[Entry]]] = {
    "annotations": _annotations,
    "annotations of a revoked key": partial(_annotations, key=MALLORY),
    "grants beside revokes": _grants,
    "keys that grant and revoke": _granters,
    "directories of a revoked key": _directories,
    "links to a file of others": _links,
    "links to links": _linked,
    "links to one another at two names": _swapped,
    "reverts to reverts": _reverts,
    "reverts to reverts of a revoked key": partial(_reverts, key=MALLORY),
    "branches": _branches,
    "branches of a revoked key": partial(_branches, key=MALLORY),
    "modes": _modes,
    "modes of a revoked key": partial(_modes, key=MALLORY),
    "modes of a directory": _directory_modes,
    "forked modes of a directory": _forked_modes,
    "forked directories": _forked_directories,
    "modes of a directory of a revoked key": partial(_directory_modes, key=MALLORY),
    "deltas on a content that nobody has": _deltas,
    "deltas behind modes": _deltas_behind_modes,
    "versions by a key each": _signers,
    "files where many keys are valid": _files_of_many,
    "directories where many keys are valid": _directories_of_many,
    "revokes of a revoked key": _revokes,
    "revokes of a revoked key above files": _revokes_above_files,
    "versions with a grant each": _versions_with_grants,
    "grants and revokes in turn": _in_turn,
    "a directory made again": _again,
    "files over a quota": _over_quota,
    "reverts over a quota": _limited_reverts,
    "versions with a quota each": _quotas,
    "files within a quota in a directory of a revoked key": _limited_below,
    "links within a quota to a file of a revoked key": _limited_links,
}


#: Entries that come one by one.
_MORE = 20


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=5000, help="entries, and twice as many (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured (%(default)s)")
    with Benchmark(parser) as benchmark:
        options = benchmark.options
        rows = benchmark.rows("bench_hostile", ("shape", "entries"))
        for name, shape in SHAPES.items():
            rows.measure(
                lambda shape=shape: _measure(shape, options.count, options.rounds),  # type: ignore[misc]
                shape=name,
                entries=2 * options.count,
            )


def _measure(shape: Callable[[Victim, int], list[Entry]], count: int, rounds: int) -> Row:
    """Medians of some rounds, the least and the most of the ratios."""
    pairs = [(_times(shape, count), _times(shape, 2 * count)) for _ in range(rounds)]
    row: Row = {"rounds": rounds}
    for what in pairs[0][0]:
        ratios = [many[what] / few[what] for few, many in pairs]
        row[f"{what} ms"] = 1000 * statistics.median(many[what] for _, many in pairs)
        row[f"{what} 2n/n"] = statistics.median(ratios)
        row[f"{what} 2n/n least"], row[f"{what} 2n/n most"] = min(ratios), max(ratios)
    return row


def _times(shape: Callable[[Victim, int], list[Entry]], count: int) -> dict[str, float]:
    """Processor seconds of each kind of access."""
    with tempfile.TemporaryDirectory(prefix="bench-hostile-") as place:
        victim = Victim(Path(place))
        entries = shape(victim, count + _MORE)
        entries, last = entries[:-_MORE], entries[-_MORE:]
        found = {"take": _seconds(lambda: victim.take(entries))}
        found |= _one_by_one(victim, last)
        victim.write(ELSEWHERE, b"1")
        texts = [b"%d" % number for number in range(2, 12)]
        found["elsewhere"] = min(_seconds(partial(victim.write, ELSEWHERE, text)) for text in texts)
        found["look"] = _seconds(victim.look)
        victim.replica.close()
    return found


def _one_by_one(victim: Victim, entries: Sequence[Entry]) -> dict[str, float]:
    """Processor seconds of one more entry, and the longest time that a reader of another path waits beside them."""
    waits: list[float] = []
    end = threading.Event()

    def read() -> None:
        while not end.is_set():
            start = time.perf_counter()
            victim.replica.names_in(())
            victim.replica.attributes(ELSEWHERE)
            waits.append(time.perf_counter() - start)
            end.wait(0.001)

    reader = threading.Thread(target=read)
    reader.start()
    spent = []
    for entry in entries:
        start = time.thread_time()
        victim.take([entry])
        spent.append(time.thread_time() - start)
    end.set()
    reader.join()
    return {"one more": statistics.median(spent), "reader waits": max(waits)}


def _seconds(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


if __name__ == "__main__":
    main()
