"""Blocks over sessions that stand: peers tell what they have, and ask for it.  No I/O; time is an argument.

Sent whole to each neighbour, a content takes that many times its time on a narrow link, and those behind the neighbours
wait for all of it.  So an entry goes with the list of its blocks alone.  Each side tells which of the blocks it has,
and asks for a few that the other has, first for those that fewest of its neighbours have.  Soon all neighbours have
different ones, which they exchange (B. Cohen, Incentives Build Robustness in BitTorrent, 2003).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

from basefs.log.hashes import BlockHash
from basefs.sync.session.contents import MOST_CONTENTS, Listed
from basefs.sync.session.inflight import RequestTable
from basefs.sync.wire.messages import BlockReq, Have

#: Blocks that one peer is asked for at once: one that is on its way, and one that waits for the link.  More would wait
#: behind each other there, while another peer may have them sooner.
DEPTH = 2
#: Seconds between two lines about what has come since: each costs a packet and its acknowledgement.
TELL_SECONDS = 0.25


class BlockExchange:
    """One side of one session."""

    def __init__(
        self,
        claims: RequestTable,
        owner: object,
        tell: Callable[[Have], None],
        ask: Callable[[Sequence[BlockReq]], None],
    ) -> None:
        """`claims`: of all sessions of this node; `owner`: this one there.  `tell` and `ask` send lines."""
        self._claims = claims
        self._contents = claims.contents
        self._owner = owner
        self._tell = tell
        self._ask = ask
        #: What the peer has of contents that are not exchanged here yet.
        self._early: OrderedDict[BlockHash, int] = OrderedDict()
        #: What it was told or has told, and what it was asked for.
        self._told: OrderedDict[BlockHash, int] = OrderedDict()
        self._absent: OrderedDict[BlockHash, int] = OrderedDict()
        self._told_at = -TELL_SECONDS

    # What the peer says

    def heard(self, have: Have) -> None:
        """The peer has these blocks."""
        _note(self._early, have.root, have.blocks)
        self._adopt()

    def serve(self, request: BlockReq) -> None:
        """The peer has asked for blocks, which it will have."""
        self._adopt()
        hashes = frozenset(request.hashes)
        for root, content in self._contents:
            if bits := content.bits(hashes) & content.here:
                self._offer(root, content, bits)
        # The answer has room for it.
        self._tell_all()

    # What it is told, and asked for

    @property
    def waits(self) -> bool:
        """Whether there is something to tell or to ask for."""
        self._adopt()
        return any(
            self._news(root, content) or content.offers.get(self._owner, 0) & content.wanted
            for root, content in self._contents
        )

    def go_on(self, now: float, *, is_idle: bool) -> None:
        """Send what may be sent now, in seconds; `is_idle`: the peer has received all that was sent before."""
        self._adopt()
        completes = any(content.is_complete and self._news(root, content) for root, content in self._contents)
        if is_idle and (completes or now - self._told_at >= TELL_SECONDS):
            self._told_at = now if self._tell_all() else self._told_at
        room = DEPTH - self._claims.outstanding(self._owner)
        if room > 0 and (chosen := self._choose()[:room]):
            self._expect(frozenset(chosen))
            self._claims.take(tuple(chosen), self._owner)
            self._ask([BlockReq(tuple(chosen))])

    def _expect(self, hashes: frozenset[BlockHash]) -> None:
        """The peer is asked for these blocks, and for each one only once: the log may not take what it sends."""
        for root, content in self._contents:
            if bits := content.bits(hashes):
                _note(self._absent, root, bits)
                _note(self._told, root, bits)
                content.offers[self._owner] = content.offers.get(self._owner, 0) & ~bits

    def _tell_all(self) -> bool:
        lines = [Have(root, content.here) for root, content in self._contents if self._news(root, content)]
        for line in lines:
            _note(self._told, line.root, line.blocks)
            self._tell(line)
        return bool(lines)

    def _choose(self) -> list[BlockHash]:
        """Blocks that the peer has and no session has asked for, those first that fewest peers have."""
        found: dict[BlockHash, tuple[int, float]] = {}
        for _, content in self._contents:
            bits = content.offers.get(self._owner, 0) & content.wanted
            for number, hash in enumerate(content.blocks) if bits else ():
                if bits >> number & 1 and not self._claims.is_asked(hash):
                    found[hash] = content.holders(number), self._contents.chance()
        return sorted(found, key=found.__getitem__)

    def _news(self, root: BlockHash, content: Listed) -> int:
        return content.here & ~content.offers.get(self._owner, 0) & ~self._told.get(root, 0)

    def _adopt(self) -> None:
        """Take in what the peer has told of contents that are exchanged here by now."""
        if self._early:
            for root, content in self._contents:
                if bits := self._early.pop(root, 0):
                    self._offer(root, content, bits)

    def _offer(self, root: BlockHash, content: Listed, bits: int) -> None:
        content.offers[self._owner] = content.offers.get(self._owner, 0) | bits & ~self._absent.get(root, 0)


def _note(table: OrderedDict[BlockHash, int], root: BlockHash, bits: int) -> None:
    table[root] = table.pop(root, 0) | bits
    if len(table) > MOST_CONTENTS:
        table.popitem(last=False)
