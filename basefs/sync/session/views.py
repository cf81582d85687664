"""Whether two nodes with equal logs show the same, and if not, where.  No I/O.

The initiator, which has chosen the peer, asks for the hash of the root directory and goes down by names until it has
the path.  The other side only answers: a stranger may have opened the session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from basefs.errors import RemoteProtocolError
from basefs.log.hashes import ZERO_HASH
from basefs.log.interface import Audit, ShownDirectory
from basefs.path import Path
from basefs.sync.wire.codec import encode, path_size
from basefs.sync.wire.limits import MAX_ITEMS, MAX_PATH
from basefs.sync.wire.messages import View, ViewReq


class ViewComparison:
    """The comparison of one session.  Nothing is compared if there is no audit."""

    def __init__(self, audit: Audit | None, peer: Callable[[], str]) -> None:
        """`peer` names the other side, once it has greeted."""
        self._audit = audit
        self._peer = peer
        #: What is here at the path that was asked for, and the names of it that were not in the answer so far.
        self._ours = ShownDirectory()
        self._unseen: dict[bytes, bytes] = {}
        #: Of the answer: the hashes of the path, and the first name at which both differ.
        self._theirs: View | None = None
        self._differing: bytes | None = None

    def begin(self) -> list[ViewReq]:
        """The first request, if a comparison with this peer is due."""
        root = None if self._audit is None else self._audit.begin(self._peer())
        return [] if root is None else self._request(root, ())

    def _request(self, root: bytes, path: Path) -> list[ViewReq]:
        assert self._audit is not None
        ours = self._audit.shown(root, path)
        if ours is None:
            return []  # the log that is hashed here is another one by now
        if path and (ours.value == ZERO_HASH or path_size(path) > MAX_PATH):
            # No directory here: this is where both differ.
            self._audit.compared(root, self._peer(), path)
            return []
        self._ours = ours
        self._unseen = ours.names()
        self._theirs = self._differing = None
        return [ViewReq(root, path, ours.value)]

    def answer(self, request: ViewReq) -> Iterator[bytes]:
        """The lines that answer a request; none if this node has not hashed that log."""
        if self._audit is None:
            return
        ours = self._audit.shown(request.root, request.path)
        if ours is None:
            self._audit.wanted(request.root)
            return
        items = [] if ours.value == request.value else list(ours.names().items())
        for start in range(0, max(len(items), 1), MAX_ITEMS):
            yield encode(View(ours.value, ours.own, tuple(items[start : start + MAX_ITEMS])))

    def heard(self, request: object, view: View) -> None:
        """A line of the answer to a request of ours.  Raises `RemoteProtocolError`."""
        if not isinstance(request, ViewReq):
            raise RemoteProtocolError("VIEW answers no VIEW_REQ")
        self._theirs = view
        for name, value in view.names:
            if self._unseen.pop(name, ZERO_HASH) != value:
                self._differs_at(name)

    def _differs_at(self, name: bytes) -> None:
        self._differing = name if self._differing is None else min(self._differing, name)

    def answered(self, request: object) -> list[ViewReq]:
        """The answer to a request of ours has ended: what to ask next."""
        theirs = self._theirs
        if not isinstance(request, ViewReq) or self._audit is None or theirs is None:
            return []
        if theirs.value == self._ours.value:
            if not request.path:
                self._audit.compared(request.root, self._peer(), None)
            return []
        for name in self._unseen:
            self._differs_at(name)
        if theirs.own == self._ours.own and self._differing is not None:
            return self._request(request.root, (*request.path, self._differing))
        self._audit.compared(request.root, self._peer(), request.path)
        return []
