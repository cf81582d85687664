"""What a peer answers to BLOCK_REQs, beside what others bring.  No I/O and no clock."""

from __future__ import annotations

from collections.abc import Sequence

from basefs.errors import RemoteProtocolError
from basefs.log.hashes import HASH_SIZE, ZERO_HASH, BlockHash, sha224
from basefs.sync.session.claims import Claims
from basefs.sync.wire.limits import MAX_REPEATED, PART_BLOCKS
from basefs.sync.wire.messages import BlockReq


class Stream:
    """The blocks that come in one session."""

    def __init__(self, claims: Claims) -> None:
        self._claims = claims
        self._request: BlockReq | None = None
        self._next = b""
        #: Blocks that have come of the answer.
        self._count = 0
        #: Bytes since a block was new.
        self._repeated = 0
        #: What all sessions had brought when the peer said that this one has to wait.
        self._waits_since: int | None = None

    def check(self, request: BlockReq, blocks: Sequence[bytes]) -> None:
        """Some blocks of an answer, in order.  Raises `RemoteProtocolError` for one that was not asked for."""
        if self._request is not request:
            self._request, self._next, self._count = request, request.hash, 0
        for block in blocks:
            if sha224(block) != self._next:
                raise RemoteProtocolError("a block that is not the next one of the content that was asked for")
            self._next = block[:HASH_SIZE]
        self._count += len(blocks)
        if self._count > PART_BLOCKS:
            raise RemoteProtocolError(f"an answer with more than {PART_BLOCKS} blocks")

    def rest(self, request: BlockReq) -> BlockHash | None:
        """What follows an answer that has ended: `None` if it was all, or all that the peer has."""
        goes_on = self._request is request and self._count == PART_BLOCKS and self._next != ZERO_HASH
        return BlockHash(self._next) if goes_on else None

    def waits(self) -> None:
        """The peer serves others first."""
        if self._waits_since is None:
            self._waits_since = self._claims.bytes

    def came(self, block: BlockHash, size: int) -> None:
        """A block has come."""
        self._claims.came(block, size)
        self._repeated += size

    def gained(self) -> None:
        """Something that came was new."""
        self._repeated = 0
        self._waits_since = None

    @property
    def is_late(self) -> bool:
        """Whether others have brought so much meanwhile that it is better to ask again, for what is not here yet."""
        waited = 0 if self._waits_since is None else self._claims.bytes - self._waits_since
        return max(self._repeated, waited) > MAX_REPEATED
