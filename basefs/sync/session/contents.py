"""The contents whose blocks the sessions of a node exchange, and who has which of them.  No I/O, no clock."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from basefs.log.blocks import LISTED, Encoded, places
from basefs.log.entries import encoded_of, signer_of
from basefs.log.hashes import BlockHash, Fingerprint
from basefs.log.interface import LogState
from basefs.sync.wire.limits import INLINE_BLOCKS

#: Bytes of an encoded content up to which it follows its entry: so little is on all nodes sooner than it is asked for,
#: although it comes twice to some (docs/lab-notes.md).
FOLLOWS = 3 * 1024
#: Seconds since a block of a content came, or a peer asked for one, after which it is not exchanged any more, and
#: since it was asked for, after which it may be asked for over another session that stands.  What is missing then comes
#: by sessions that compare.
KEPT_SECONDS = 30.0
#: Seconds without a new entry or block after which a session, or a content that peers have told of, does not count as
#: coming any more, whatever they send or tell: a peer that drips bytes would keep the node from asking anybody else.  A
#: block of 32 KiB takes as long on a link of 32 kbit/s.
FRUITLESS = 10.0
#: Contents that are exchanged at once.
MOST_CONTENTS = 64


def is_exchanged(length: int) -> bool:
    """Whether a content of so many encoded bytes may be exchanged block by block."""
    return FOLLOWS < length <= INLINE_BLOCKS


@dataclass(slots=True)
class Side:
    """What one session knows of the blocks of a content, each a set as in `Listed`.

    Attributes:
        heard: those that the peer has or was sent.
        told: those that the peer was told of.
        asked: those that the peer was asked for.  The log may not take what it sends, so it is asked only once.
        is_told: whether the peer is told which are here.
    """

    heard: int = 0
    told: int = 0
    asked: int = 0
    is_told: bool = False

    @property
    def offered(self) -> int:
        """Those that the peer may be asked for."""
        return self.heard & ~self.asked


@dataclass(slots=True, eq=False)
class Listed:
    """A content whose blocks are exchanged.

    Blocks are numbered in the order of the content, its list first; sets of them are numbers, bit 0 for the first one.

    Attributes:
        blocks: all of them.
        signer: of the write.
        moved_at: when a block last came or was asked for, in seconds.
        came_at: when a block last came.
        here: those that are here.
        wanted: those that are to be fetched.
        is_told: whether all peers are told which blocks are here: some were missing.
        sides: what each session knows.
    """

    blocks: tuple[BlockHash, ...]
    signer: Fingerprint
    moved_at: float
    came_at: float
    here: int = 0
    wanted: int = 0
    is_told: bool = False
    sides: dict[object, Side] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether all are here."""
        return self.here == (1 << len(self.blocks)) - 1

    @property
    def is_offered(self) -> bool:
        """Whether a peer may be asked for some that are to be fetched."""
        return any(side.offered & self.wanted for side in self.sides.values())

    def side(self, owner: object) -> Side:
        """What a session knows."""
        return self.sides.setdefault(owner, Side())

    def bits(self, hashes: frozenset[BlockHash]) -> int:
        """The set of those of these blocks that belong to it."""
        return sum(1 << number for number, hash in enumerate(self.blocks) if hash in hashes)

    def holders(self, number: int) -> int:
        """How many peers may be asked for a block."""
        return sum(side.offered >> number & 1 for side in self.sides.values())

    def look(self, state: LogState) -> bool:
        """See what has come; returns whether something has."""
        before = self.here
        self.wanted = 0
        for number, hash in enumerate(self.blocks):
            if not self.here >> number & 1:
                if state.has_block(hash):
                    self.here |= 1 << number
                elif state.wants_block(hash):
                    self.wanted |= 1 << number
        return self.here != before


class ContentTable:
    """What the sessions of a node exchange."""

    def __init__(self, chance: Callable[[], float]) -> None:
        """`chance` gives random numbers: nodes that lack the same ask for different blocks of it."""
        self.chance = chance
        self._contents: OrderedDict[BlockHash, Listed] = OrderedDict()
        self._places: dict[BlockHash, Listed] = {}
        self._now = 0.0

    def __contains__(self, root: BlockHash) -> bool:
        """Whether peers are told of a content, by the hash of its first block."""
        content = self._contents.get(root)
        return content is not None and (content.is_told or any(side.is_told for side in content.sides.values()))

    def __iter__(self) -> Iterator[tuple[BlockHash, Listed]]:
        """Each content with the hash of its first block, the oldest first."""
        return iter(self._contents.items())

    def begin(self, state: LogState, entry: bytes, owner: object, *, whole: bool) -> None:
        """Exchange the content of an encoded entry from now on, if it is of that size and its list is here.

        If all of it is here, and the peer of a session has it or is sent it `whole`, that peer is not told of it before
        it tells of it itself.
        """
        encoded = encoded_of(entry)
        if encoded is None or not is_exchanged(encoded.length):
            return
        content = self._contents.get(encoded.root) or self._list(state, encoded, signer_of(entry))
        if content is not None and not whole:
            content.side(owner).is_told = True

    def _list(self, state: LogState, encoded: Encoded, signer: Fingerprint) -> Listed | None:
        if encoded.place.role in LISTED and not state.has_block(encoded.root):
            return None
        blocks = tuple(dict.fromkeys(place.hash for place in places(encoded.place, state.block)))
        content = Listed(blocks, signer, self._now, self._now)
        content.look(state)
        content.is_told = not content.is_complete
        self._contents[encoded.root] = content
        self._places.update(dict.fromkeys(blocks, content))
        if len(self._contents) > MOST_CONTENTS:
            self._drop(self._superfluous())
        return content

    def _superfluous(self) -> BlockHash:
        """The oldest content of the key that has most here: one that writes much pushes out nobody else's."""
        counts = Counter(content.signer for content in self._contents.values())
        most = max(counts.values())
        return next(root for root, content in self._contents.items() if counts[content.signer] == most)

    def tick(self, now: float) -> None:
        """Tell the time, in seconds."""
        self._now = now
        for root, content in list(self._contents.items()):
            if now - content.moved_at > KEPT_SECONDS:
                self._drop(root)

    def _drop(self, root: BlockHash) -> None:
        content = self._contents.pop(root)
        for hash in content.blocks:
            if self._places.get(hash) is content:
                del self._places[hash]

    def look(self, state: LogState) -> None:
        """Blocks have come."""
        for content in self._contents.values():
            if not content.is_complete and content.look(state):
                content.moved_at = content.came_at = self._now

    def forget(self, owner: object) -> None:
        """A session has ended."""
        for content in self._contents.values():
            content.sides.pop(owner, None)

    def serve(self, hashes: Sequence[BlockHash], owner: object) -> list[BlockHash]:
        """Those of these blocks that the peer of a session is sent, as it has asked for them.

        Those that are here, of contents that are exchanged, and each once: so a peer that asks costs no more than a
        content that is pushed to it.
        """
        served: set[BlockHash] = set()
        wanted = frozenset(hashes)
        for content in self._contents.values():
            side = content.side(owner)
            if bits := content.bits(wanted) & content.here & ~side.heard:
                side.heard |= bits
                content.moved_at = self._now
                served.update(hash for number, hash in enumerate(content.blocks) if bits >> number & 1)
        return [hash for hash in hashes if hash in served]

    def is_coming(self, hash: BlockHash) -> bool:
        """Whether a block belongs to a content that peers have, and of which blocks come."""
        content = self._places.get(hash)
        return content is not None and self._comes(content)

    @property
    def comes(self) -> bool:
        """Whether some content comes."""
        return any(map(self._comes, self._contents.values()))

    def _comes(self, content: Listed) -> bool:
        return self._now - content.came_at < FRUITLESS and content.is_offered
