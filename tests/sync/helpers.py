"""Logs to synchronize, and two cores wired back to back."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from weakref import WeakKeyDictionary

from basefs.log.blocks import Encoded, split
from basefs.log.codecs import STORED
from basefs.log.entries import Action, Entry
from basefs.log.extensions import Extensions
from basefs.log.hashes import HASH_SIZE, addend, sum_hash
from basefs.log.interface import Digest, LogState
from basefs.log.keys import SigningKey
from basefs.path import Path
from basefs.sync.session.protocol import SyncProtocol
from basefs.sync.session.push import Notice
from basefs.sync.session.result import RemotePeer, Result
from basefs.sync.session.states import Role
from basefs.sync.wire.limits import DEFAULT_LIMITS, Limits
from tests.support.memory import MemoryLog

KEY = SigningKey.from_seed(bytes(32))
KEYS = {KEY.fingerprint: KEY.public}
ROOT = KEY.sign(bytes(HASH_SIZE), 0, Action.MKDIR, b"/")
#: The root hash of a log that holds nothing else.
ROOT_ALONE = sum_hash(addend(ROOT.hash))
STRANGER_ROOT = KEY.sign(b"x" * HASH_SIZE, 0, Action.MKDIR, b"/")


def unsigned(parent: bytes, action: Action, name: bytes, content: bytes = b"", size: int = 0, made: int = 0) -> Entry:
    """An entry with a signature of zeros: most tests are not about signatures, and these are quick."""
    return Entry(parent, made, action, name, content, Extensions(size), KEY.fingerprint, bytes(64))  # type: ignore[arg-type]


def blocks_of(content: bytes) -> list[bytes]:
    """The blocks of a content that is stored as it is, the root first."""
    return [block.data for block in split(content)[1]] if content else []


class Writer:
    """Makes entries and remembers them in the order of a log."""

    def __init__(self, root: Entry = ROOT) -> None:
        self.root = root
        self.heads: dict[Path, Entry] = {(): root}
        self.entries: list[bytes] = [root.encode()]
        self.blocks: list[bytes] = []
        self._time = 0

    def log(self, **options: object) -> MemoryLog:
        """A new log with everything written so far."""
        log = MemoryLog(self.root.hash, **options)  # type: ignore[arg-type]
        result = log.add(self.entries, self.blocks)
        assert not result.rejected and not result.missing_parents, result
        return log

    def put(self, parent: Entry, action: Action, name: bytes, content: bytes = b"", size: int = 0) -> Entry:
        """Append an entry."""
        self._time += 1
        entry = unsigned(parent.hash, action, name, content, size, self._time)
        self.entries.append(entry.encode())
        return entry

    def mkdir(self, path: Path) -> Entry:
        """Make a directory, and those above it."""
        if path not in self.heads:
            self.heads[path] = self.put(self.mkdir(path[:-1]), Action.MKDIR, path[-1])
        return self.heads[path]

    def write(self, path: Path, content: bytes = b"") -> Entry:
        """Create or update a file."""
        parent = self.heads.get(path) or self.mkdir(path[:-1])
        named = b""
        if content:
            root, blocks = split(content)
            self.blocks += [block.data for block in blocks]
            named = Encoded(root, STORED.tag, len(content)).encode()
        self.heads[path] = self.put(parent, Action.WRITE, path[-1], named, len(content))
        return self.heads[path]


_NOTICES: WeakKeyDictionary[SyncProtocol, set[Notice]] = WeakKeyDictionary()


def noticed(core: SyncProtocol, notice: Notice) -> bool:
    """Whether something has happened in a session that stands since this was asked last."""
    seen = _NOTICES.setdefault(core, set())
    seen.update(core.next_events())
    found = notice in seen
    seen.discard(notice)
    return found


def work(core: SyncProtocol) -> None:
    """A slice of work, and what it gives to the log."""
    write = core.work()
    while write is not None:
        write = core.work(write())


def cut(core: SyncProtocol) -> None:
    """The connection has ended; what has come is looked at."""
    core.receive_data(b"")
    while core.wants_work:
        work(core)


def listening(told: list[tuple[int, Digest, int]], log: LogState) -> RemotePeer:
    """A peer whose log is noted each time that it tells of it."""
    return RemotePeer(on_log=lambda port, theirs: told.append((port, theirs, log.digest().entries)))


class Pair:
    """Two cores and the bytes between them."""

    def __init__(
        self,
        left: LogState,
        right: LogState,
        limits: Limits = DEFAULT_LIMITS,
        chunk: int = 65536,
        full: Sequence[bool] = (False, False),
    ) -> None:
        """`full`: whether the disk of each side takes nothing."""
        #: What each side has told the other of its log, with the length of the other's log by then.
        self.told_left: list[tuple[int, Digest, int]] = []
        self.told_right: list[tuple[int, Digest, int]] = []
        peer = listening(self.told_left, left)
        self.left = SyncProtocol(left, Role.INITIATOR, port=1000, limits=limits, peer=peer, full=lambda: full[0])
        peer = listening(self.told_right, right)
        self.right = SyncProtocol(right, Role.RESPONDER, port=2000, limits=limits, peer=peer, full=lambda: full[1])
        self.chunk = chunk
        self.sent = {self.left: bytearray(), self.right: bytearray()}
        self.most = 0

    def turn(self) -> bool:
        """Move one chunk in each direction; returns whether anything happened."""
        busy = False
        for here, there in ((self.left, self.right), (self.right, self.left)):
            if here.wants_send:
                busy = True
                data = here.data_to_send(self.chunk)
                self.sent[here] += data
                if data:
                    there.receive_data(data)
            while there.wants_work:
                busy = True
                work(there)
        return busy

    def run(self, each: Callable[[], None] | None = None) -> tuple[Result, Result]:
        """Run to the end of both."""
        for _ in range(1_000_000):
            if not self.turn():
                break
            if each:
                each()
        assert self.left.closed and self.right.closed, (self.left.state, self.right.state)
        assert self.left.result and self.right.result
        return self.left.result, self.right.result

    @property
    def bytes(self) -> int:
        """Sent in both directions."""
        return sum(map(len, self.sent.values()))


def sync(left: MemoryLog, right: MemoryLog, **options: object) -> Pair:
    """Run a session that must succeed."""
    pair = Pair(left, right, **options)  # type: ignore[arg-type]
    for result in pair.run():
        assert result.reason.value == "complete", result
        assert result.equal, result
    assert left.root_hash() == right.root_hash()
    return pair


def random_bytes(size: int, seed: int = 0) -> bytes:
    """The same each time."""
    return random.Random(seed).randbytes(size)
