"""Blocks over sessions that stand: peers tell what they have, and ask for it.  No I/O; time is an argument.

Sent whole to each neighbour, a content takes that many times its time on a narrow link, and those behind the neighbours
wait for all of it.  So an entry goes with the list of its blocks alone.  Each side tells which of the blocks it has,
and asks for a few that the other has, first for those that fewest of its neighbours have.  Soon all neighbours have
different ones, which they exchange (B. Cohen, Incentives Build Robustness in BitTorrent, 2003).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from basefs.log.hashes import BlockHash
from basefs.log.interface import LogState
from basefs.sync.session.contents import MOST_CONTENTS, Listed
from basefs.sync.session.inflight import DEPTH, RequestTable
from basefs.sync.session.recent import Recent
from basefs.sync.wire.messages import BlockReq, Have

#: Seconds between two lines about what has come since: each costs a packet and its acknowledgement.
TELL_SECONDS = 0.25


class BlockExchange:
    """One side of one session."""

    def __init__(
        self,
        requests: RequestTable,
        owner: object,
        tell: Callable[[Have], None],
        ask: Callable[[Sequence[BlockReq]], None],
    ) -> None:
        """`requests`: of all sessions of this node; `owner`: this one there.  `tell` and `ask` send lines."""
        self._requests = requests
        self._contents = requests.contents
        self._owner = owner
        self._tell = tell
        self._ask = ask
        #: What the peer has of contents that are not exchanged here yet.
        self._early: Recent[BlockHash, int] = Recent(MOST_CONTENTS)
        self._told_at = -TELL_SECONDS

    def begin(self, state: LogState, entry: bytes, *, whole: bool) -> None:
        """The content of an encoded entry is exchanged with the peer; `whole`: it has it, or is sent all of it."""
        self._contents.begin(state, entry, self._owner, whole=whole)

    # What the peer says

    def heard(self, have: Have) -> None:
        """The peer has these blocks."""
        self._early[have.root] = self._early.get(have.root, 0) | have.blocks
        self._adopt()

    def serve(self, request: BlockReq) -> BlockReq:
        """The peer has asked for blocks; returns those that it is to be sent."""
        self._adopt()
        served = self._contents.serve(request.hashes, self._owner)
        # The answer has room for it.
        self._tell_all()
        return BlockReq(tuple(served))

    # What it is told, and asked for

    @property
    def waits(self) -> bool:
        """Whether there is something to tell or to ask for."""
        self._adopt()
        return any(self._news(content) or self._offered(content) for _, content in self._contents)

    def go_on(self, now: float, *, is_idle: bool) -> None:
        """Send what may be sent now, in seconds; `is_idle`: the peer has received all that was sent before."""
        self._adopt()
        completes = any(content.is_complete and self._news(content) for _, content in self._contents)
        if is_idle and (completes or now - self._told_at >= TELL_SECONDS):
            self._told_at = now if self._tell_all() else self._told_at
        # More would wait behind each other there, while another peer may have them sooner.
        room = DEPTH - self._requests.outstanding(self._owner)
        if room > 0 and (chosen := tuple(self._choose()[:room])):
            for _, content in self._contents:
                content.side(self._owner).asked |= content.bits(frozenset(chosen))
            self._requests.take(chosen, self._owner)
            self._ask([BlockReq(chosen)])

    def _tell_all(self) -> bool:
        news = [(root, content) for root, content in self._contents if self._news(content)]
        for root, content in news:
            content.side(self._owner).told |= content.here
            self._tell(Have(root, content.here))
        return bool(news)

    def _choose(self) -> list[BlockHash]:
        """Blocks that the peer has and no session has asked for, those first that fewest peers have."""
        found: dict[BlockHash, tuple[int, float]] = {}
        for _, content in self._contents:
            bits = self._offered(content)
            for number, hash in enumerate(content.blocks) if bits else ():
                if bits >> number & 1 and not self._requests.is_asked(hash):
                    found[hash] = content.holders(number), self._contents.chance()
        return sorted(found, key=found.__getitem__)

    def _offered(self, content: Listed) -> int:
        return content.side(self._owner).offered & content.wanted

    def _news(self, content: Listed) -> int:
        side = content.side(self._owner)
        return content.here & ~side.heard & ~side.told if content.is_told or side.is_told else 0

    def _adopt(self) -> None:
        """Take in what the peer has told of contents that are exchanged here by now."""
        if self._early:
            for root, content in self._contents:
                if root in self._early:
                    side = content.side(self._owner)
                    side.heard |= self._early.pop(root)
                    side.is_told = True
