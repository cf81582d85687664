"""What one session brings of a content that comes in parts, from several peers.  No I/O and no clock."""

from __future__ import annotations

from collections.abc import Sequence

from basefs.errors import RemoteProtocolError
from basefs.log.hashes import BlockHash, sha224
from basefs.log.interface import LogState
from basefs.sync.session.claims import Claims
from basefs.sync.session.peer import Peer
from basefs.sync.wire.limits import Limits
from basefs.sync.wire.messages import BlockReq, ChainReq, ForBlocks


class Share:
    """The part of one session in what `Claims.parts` has of all.

    Attributes:
        asked: the blocks that the peer was asked for, in parts or not.
    """

    def __init__(self, state: LogState, claims: Claims, owner: object, limits: Limits, peer: Peer) -> None:
        """`owner`: the session, as the other ones know it from the claims."""
        self._state = state
        self._claims = claims
        self._parts = claims.parts
        self._owner = owner
        self._limits = limits
        self._peer = peer
        #: Requests for parts that are not answered.
        self._outstanding = 0
        #: Of the blocks that were asked for, those of which it is only said that they are in a chain.
        self._told: set[BlockHash] = set()
        self._asked_chains: set[BlockHash] = set()
        self.asked: set[BlockHash] = set()
        #: Those of them that the peer did not have.
        self._absent: set[BlockHash] = set()

    def may_ask(self, hash: BlockHash) -> bool:
        """Whether the peer may be asked for a block that was found to be missing: nothing is asked for twice."""
        if hash in self.asked or len(self.asked) >= self._limits.asked or self._parts.tracks(hash):
            return False
        return not self._claims.held_by_other(hash, self._owner)

    def ask(self) -> list[ForBlocks]:
        """What to ask for next."""
        while (head := self._parts.head) is not None and (block := self._state.block(head)) is not None:
            self._parts.put(head, block)  # it has come by another way
        requests: list[ForBlocks] = []
        tail = self._parts.tail
        if tail is not None and tail not in self._asked_chains:
            self._asked_chains.add(tail)
            requests.append(ChainReq(tail))
        while len(self.asked) < self._limits.asked:
            hash = self._claims.take_part(self._owner, self.asked, self._peer.address)
            if hash is None:
                break
            self.asked.add(hash)
            self._told.add(hash)
            self._outstanding += 1
            requests.append(BlockReq(hash))
        if not self._outstanding:
            self._parts.leave(self._owner)
        return requests

    def goes_on(self, request: BlockReq, following: BlockHash) -> bool:
        """Whether the content, of which this follows what was asked for, comes in parts from now on."""
        # Whoever brings parts may have got by now what was not there before: it may be passing on what arrives.
        self.asked -= self._absent
        self._absent.clear()
        if request.hash in self._told or self._state.block(following) is not None:
            return True
        return self._parts.tracks(following) or self._parts.begin(following, self._owner)

    def let_go(self, request: BlockReq) -> None:
        """What was asked for has come, or the peer does not have it."""
        self._parts.let_go(self._owner, request.hash)
        self._outstanding -= request.hash in self._told
        if self._state.block(request.hash) is None and not self._parts.holds(request.hash):
            self._absent.add(request.hash)

    def sort(self, blocks: Sequence[bytes], request: BlockReq) -> tuple[list[bytes], list[bytes], list[bytes]]:
        """Some blocks of an answer: those that the log can take, those that are held until it can, those in vain."""
        ready: list[bytes] = []
        held: list[bytes] = []
        known: list[bytes] = []
        for block in blocks:
            hash = BlockHash(sha224(block))
            if self._parts.tracks(hash):
                (ready if self._parts.put(hash, block) else held).append(block)
            elif self._parts.holds(hash) or request.hash in self._told:
                # Others have brought it, or it is of a chain that somebody made up.
                known.append(block)
            else:
                ready.append(block)
        return ready, held, known

    def learn(self, request: object, hashes: Sequence[BlockHash]) -> None:
        """Take what the peer says of a chain.  Raises `RemoteProtocolError`."""
        if not isinstance(request, ChainReq):
            raise RemoteProtocolError("CHAIN answers no CHAIN_REQ")
        self._parts.learn(request.hash, hashes, self._owner)

    @property
    def made_up(self) -> str:
        """What the peer has told of a chain and turned out to be wrong; '': nothing."""
        return "a list of blocks that is not the one of their chain" if self._parts.is_liar(self._owner) else ""
