"""The contents whose blocks the sessions of a node exchange, and who has which of them.  No I/O, no clock."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from basefs.log.blocks import LISTED, places
from basefs.log.entries import encoded_of
from basefs.log.hashes import BlockHash
from basefs.log.interface import LogState
from basefs.sync.wire.limits import INLINE_BLOCKS

#: Bytes of an encoded content up to which it follows its entry: so little is on all nodes sooner than it is asked for,
#: although it comes twice to some (docs/lab-notes.md).
FOLLOWS = 3 * 1024
#: Seconds for which peers are told of a content that is complete here.
KEPT_SECONDS = 30.0
#: Contents that are exchanged at once.  The blocks of older ones come by sessions that compare.
MOST_CONTENTS = 64


def is_exchanged(length: int) -> bool:
    """Whether a content of so many encoded bytes may be exchanged block by block."""
    return FOLLOWS < length <= INLINE_BLOCKS


@dataclass(slots=True, eq=False)
class Listed:
    """A content whose blocks are exchanged.

    Blocks are numbered in the order of the content, its list first; sets of them are numbers, bit 0 for the first one.

    Attributes:
        blocks: all of them.
        here: those that are here.
        wanted: those that are to be fetched.
        offers: those that peers have, by session.
        complete_at: when all had come, in seconds; `None` before.
    """

    blocks: tuple[BlockHash, ...]
    here: int = 0
    wanted: int = 0
    offers: dict[object, int] = field(default_factory=dict)
    complete_at: float | None = None

    @property
    def is_complete(self) -> bool:
        """Whether all are here."""
        return self.here == (1 << len(self.blocks)) - 1

    def bits(self, hashes: frozenset[BlockHash]) -> int:
        """The set of those of these blocks that belong to it."""
        return sum(1 << number for number, hash in enumerate(self.blocks) if hash in hashes)

    def holders(self, number: int) -> int:
        """How many peers have a block."""
        return sum(bits >> number & 1 for bits in self.offers.values())

    def look(self, state: LogState) -> None:
        """See what has come."""
        self.wanted = 0
        for number, hash in enumerate(self.blocks):
            if not self.here >> number & 1:
                if state.has_block(hash):
                    self.here |= 1 << number
                elif state.wants_block(hash):
                    self.wanted |= 1 << number


class ContentTable:
    """What the sessions of a node exchange."""

    def __init__(self, chance: Callable[[], float]) -> None:
        """`chance` gives random numbers: nodes that lack the same ask for different blocks of it."""
        self.chance = chance
        self._contents: OrderedDict[BlockHash, Listed] = OrderedDict()
        self._places: dict[BlockHash, tuple[Listed, int]] = {}

    def __contains__(self, root: BlockHash) -> bool:
        """Whether a content is exchanged, by the hash of its first block."""
        return root in self._contents

    def __iter__(self) -> Iterator[tuple[BlockHash, Listed]]:
        """Each content with the hash of its first block, the oldest first."""
        return iter(self._contents.items())

    def begin(self, state: LogState, entry: bytes, *, whole: bool) -> None:
        """Exchange the content of an encoded entry from now on, if it is of that size and its list is here.

        Not if all of it is here, and is sent `whole`.
        """
        encoded = encoded_of(entry)
        if encoded is None or not is_exchanged(encoded.length) or encoded.root in self._contents:
            return
        if encoded.place.role in LISTED and not state.has_block(encoded.root):
            return
        content = Listed(tuple(dict.fromkeys(place.hash for place in places(encoded.place, state.block))))
        content.look(state)
        if whole and content.is_complete:
            return
        self._contents[encoded.root] = content
        self._places.update((hash, (content, number)) for number, hash in enumerate(content.blocks))
        if len(self._contents) > MOST_CONTENTS:
            self._drop(next(iter(self._contents)))

    def tick(self, now: float) -> None:
        """Tell the time, in seconds."""
        for root, content in list(self._contents.items()):
            if content.is_complete and content.complete_at is None:
                content.complete_at = now
            if content.complete_at is not None and now - content.complete_at > KEPT_SECONDS:
                self._drop(root)

    def _drop(self, root: BlockHash) -> None:
        content = self._contents.pop(root)
        for hash in content.blocks:
            if self._places.get(hash, (None, 0))[0] is content:
                del self._places[hash]

    def look(self, state: LogState) -> None:
        """Blocks have come."""
        for content in self._contents.values():
            if not content.is_complete:
                content.look(state)

    def forget(self, owner: object) -> None:
        """A session has ended."""
        for content in self._contents.values():
            content.offers.pop(owner, None)

    def offering(self, hash: BlockHash) -> list[object]:
        """The sessions whose peers have a block."""
        content, number = self._places.get(hash, (None, 0))
        return [] if content is None else [owner for owner, bits in content.offers.items() if bits >> number & 1]

    def sources(self) -> set[object]:
        """The sessions whose peers have blocks that are to be fetched."""
        return {
            owner
            for content in self._contents.values()
            for owner, bits in content.offers.items()
            if bits & content.wanted
        }
