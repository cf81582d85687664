"""What is to be sent, lazily: nothing is made before the transport can take it.

Three sources, in this order: control lines (HASH, CLOSE), own requests as far as the window allows (for blocks last),
answers to the peer's requests in the order in which these came, each with its EOF.

Answers never wait for the window: two sides that wait for each other would wait for ever.  Requests that an answer
leads to wait in the backlog instead, deepest part of the tree first, which keeps it short; what does not fit is
dropped and found again in the next round.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from basefs.errors import RemoteProtocolError
from basefs.path import path_size
from basefs.sync.session.compare import MissingSubtrees, Subtree
from basefs.sync.wire.codec import encode
from basefs.sync.wire.limits import MAX_REQUESTS, REQUEST_WINDOW
from basefs.sync.wire.messages import LATER, PAUSE, WHOLE, BlockReq, EntryReq, Eof, PathReq

#: A request of ours.  A `Subtree` becomes an LS when its turn comes, so that the backlog holds no lists, and a
#: `MissingSubtrees` a PATH_REQ; or nothing, if what the peer has there has come from somebody else.
Wish = Subtree | MissingSubtrees | PathReq | EntryReq | BlockReq


def _size(wish: Wish) -> int:
    """Bytes of a request in memory, about."""
    size = 100 + (path_size(wish.path) if isinstance(wish, Subtree | MissingSubtrees | PathReq) else 0)
    return size + (sum(100 + len(name) for name in wish.theirs) if isinstance(wish, MissingSubtrees) else 0)


def wanted(wish: Wish) -> int:
    """How much that the peer has listed a request asks for with its entries, at the most."""
    if isinstance(wish, MissingSubtrees):
        return len(wish.theirs)
    return int(isinstance(wish, PathReq | EntryReq))


class RequestQueue:
    """The queues of one session.

    Attributes:
        asked: requests sent in this round.
        answered: requests of the peer answered in this round.
        dormant: an answer goes on when another session has brought something; look again, in a while.
    """

    def __init__(
        self,
        write: Callable[[Wish], Iterator[bytes | Subtree]],
        backlog: int,
        turn: Callable[[bool], bool] = lambda done: True,
    ) -> None:
        """`write` makes the line of a request: an iterator of `PAUSE`s and, last, the line; or no line, if the request
        is not needed any more.  A `Subtree` that it yields besides is to be listed next.  `backlog`: bytes of requests
        that may wait.  `turn(False)` tells whether requests for entries may be sent now; `turn(True)` hears that the
        last one has been answered.
        """
        self._write = write
        self._turn = turn
        self._room = backlog
        self._buffer = bytearray()
        self._control: deque[bytes] = deque()
        self._control_bytes = 0
        self._wishes: deque[Wish] = deque()
        self._later: deque[Wish] = deque()  # for blocks
        self._blocks_outstanding = 0
        self._writing: tuple[Wish, Iterator[bytes | Subtree]] | None = None
        self._outstanding: deque[tuple[Wish, int]] = deque()
        self._outstanding_bytes = 0
        self._answers: deque[tuple[Iterator[bytes], int]] = deque()
        self._answer_bytes = 0
        self.asked = 0
        self.answered = 0
        self.dormant = False

    def new_round(self) -> None:
        """Count anew."""
        self.asked = self.answered = 0

    def control(self, line: bytes) -> None:
        """Send a line before anything else that waits."""
        self._control.append(line)
        self._control_bytes += len(line)

    @property
    def waiting(self) -> int:
        """Bytes of lines that are made and not taken."""
        return len(self._buffer) + self._control_bytes

    def ask(self, wishes: Sequence[Wish]) -> None:
        """Send these requests, in this order, before those that wait already; for blocks after all others."""
        fits = []
        for wish in wishes:
            size = _size(wish)
            if size > self._room:
                break
            self._room -= size
            fits.append(wish)
        self._wishes.extendleft(wish for wish in reversed(fits) if not isinstance(wish, BlockReq))
        self._later.extend(wish for wish in fits if isinstance(wish, BlockReq))

    def answer(self, lines: Iterator[bytes], size: int) -> None:
        """Send these lines as the answer to a request of `size` bytes.  Raises `RemoteProtocolError` if the peer has
        more requests outstanding than it may."""
        if len(self._answers) >= MAX_REQUESTS or self._answer_bytes >= REQUEST_WINDOW:
            raise RemoteProtocolError(f"more than {MAX_REQUESTS} requests or {REQUEST_WINDOW} bytes of them wait")
        self._answers.append((lines, size))
        self._answer_bytes += size

    def close_answer(self) -> Wish:
        """An EOF came.  Returns the request that it answers; raises `RemoteProtocolError` if there is none."""
        if not self._outstanding:
            raise RemoteProtocolError("EOF answers no request")
        wish, size = self._outstanding.popleft()
        self._outstanding_bytes -= size
        self._blocks_outstanding -= isinstance(wish, BlockReq)
        if not self.expects_entries:
            self._turn(True)
        return wish

    @property
    def current(self) -> Wish | None:
        """The request that the peer is answering."""
        return self._outstanding[0][0] if self._outstanding else None

    @property
    def idle(self) -> bool:
        """Nothing to ask, nothing outstanding, nothing to answer."""
        return not (self._wishes or self._later or self._writing or self._outstanding or self._answers)

    @property
    def expects_entries(self) -> bool:
        """Whether entries may still arrive in answer to what was asked or is about to be."""
        return bool(self._wishes or self._writing) or len(self._outstanding) > self._blocks_outstanding

    @property
    def entries_follow(self) -> bool:
        """Whether the answer behind the one that is arriving may hold entries: blocks that were asked for do not belong
        to any that have just come."""
        return len(self._outstanding) > 1 and not isinstance(self._outstanding[1][0], BlockReq)

    @property
    def ready(self) -> bool:
        """Whether `take` would do something."""
        answers = self._answers and not self.dormant
        return bool(self._buffer or self._control or self._writing or answers or self._may_ask)

    @property
    def answering(self) -> bool:
        """Whether the peer waits for answers."""
        return bool(self._answers)

    def take(self, max_bytes: int, *, answers: bool = True) -> bytes:
        """Up to `max_bytes` to be sent now; fewer or none if it takes a while to find more (see `ready`).

        `answers`: whether those to the peer's requests may be among them.
        """
        # Most lines take some 50 us, the comparison of two full lists 300 us.
        for _ in range(16):
            if len(self._buffer) >= max_bytes:
                break
            piece = self._next(answers=answers)
            self.dormant = piece == LATER
            if piece is None or piece in (PAUSE, LATER):
                break
            self._buffer += piece
        data = bytes(self._buffer[:max_bytes])
        del self._buffer[:max_bytes]
        return data

    def drop(self) -> None:
        """Forget everything that was not begun: the session is over."""
        self._control.clear()
        self._control_bytes = 0
        self._wishes.clear()
        self._later.clear()
        self._writing = None
        self._answers.clear()
        self._outstanding.clear()

    @property
    def _may_ask(self) -> bool:
        if len(self._outstanding) >= MAX_REQUESTS or self._outstanding_bytes >= REQUEST_WINDOW:
            return False
        return self._may_compare or bool(self._later)

    @property
    def _may_compare(self) -> bool:
        return bool(self._wishes) and self._turn(False)

    @property
    def held_back(self) -> bool:
        """Whether requests wait for other sessions of this node."""
        return bool(self._wishes) and not self._turn(False)

    def _next(self, *, answers: bool) -> bytes | None:
        if self._control:
            first = self._control.popleft()
            self._control_bytes -= len(first)
            return first
        if (request := self._next_request()) is not None:
            return request
        return self._next_answer() if self._answers and answers else None

    def _next_request(self) -> bytes | None:
        """The line of a request, or `PAUSE`; `None` if no request may be sent now."""
        while self._writing or self._may_ask:
            if self._writing is None:
                wish = self._wishes.popleft() if self._may_compare else self._later.popleft()
                self._room += _size(wish)
                self._writing = wish, self._write(wish)
            wish, lines = self._writing
            line = next(lines, None)
            if isinstance(line, Subtree):
                self._room -= _size(line)
                self._wishes.appendleft(line)
                continue
            if line != PAUSE:
                self._writing = None
            if line is None:
                if not self.expects_entries:
                    self._turn(True)
                continue
            if line:
                self._sent(wish, line)
            return line
        return None

    def _sent(self, wish: Wish, line: bytes) -> None:
        if isinstance(wish, PathReq) and line.startswith(b"LS "):
            # Something of it has come meanwhile, and is listed: the answer need not hold any entries.
            wish = Subtree(wish.path, WHOLE)
        self._outstanding.append((wish, len(line)))
        self._outstanding_bytes += len(line)
        self._blocks_outstanding += isinstance(wish, BlockReq)
        self.asked += 1

    def _next_answer(self) -> bytes | None:
        lines, size = self._answers[0]
        line = next(lines, None)
        if line is not None:
            return line
        if self._may_ask:  # what the answer led to goes before its EOF, so that the peer knows of it in time
            return self._next(answers=True)
        self._answers.popleft()
        self._answer_bytes -= size
        self.answered += 1
        return encode(Eof())
