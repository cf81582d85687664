"""The hash of all that a node shows.

Equal logs show equal trees.  Where they do not, there is a bug in the view, or a derived row of a log is damaged, and
nothing else would show it.  `basefs check --peers` compares the hashes (docs/sync-protocol.md, section 6).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from basefs.log.hashes import ZERO_HASH, sha224
from basefs.view.permissions import Authority
from basefs.view.states import State
from basefs.view.tree import Node
from basefs.view.walk import Outcome

#: A directory (`None`: the root) and what is in it, by name.
Peek = Callable[[Node | None], tuple[Node, list[tuple[bytes, Node]]]]


class ViewHash:
    """The hash of the tree of one replica.  Thread-safe."""

    def __init__(self, state: Callable[[], bytes], peek: Peek) -> None:
        """`state`: a hash of all that the tree follows from; `ZERO_HASH` while that is not known."""
        self._state = state
        self._peek = peek
        #: One thread hashes, others wait for what it finds.
        self._lock = threading.Lock()
        self._known = ZERO_HASH, ZERO_HASH

    def of(self, wanted: bytes | None = None) -> tuple[bytes, bytes]:
        """The state of the log, and the hash of the tree that it shows; others may read and write meanwhile.

        The hash is `ZERO_HASH` where the log is not in the state that is wanted, or has changed meanwhile.
        """
        with self._lock:
            state = self._state()
            if state == ZERO_HASH or wanted not in (None, state):
                return state, ZERO_HASH
            if self._known[0] != state and (found := self._hash(state)) != ZERO_HASH:
                self._known = state, found
            return state, self._known[1] if self._known[0] == state else ZERO_HASH

    def _hash(self, state: bytes) -> bytes:
        hashes = _OutcomeHashes()
        found: list[bytes] = []
        todo: list[tuple[bytes, Node | None]] = [(b"", None)]
        while todo:
            name, known = todo.pop()
            node, children = self._peek(known)
            if self._state() != state:
                return ZERO_HASH
            found.append(sha224(_joined((name, hashes.of(node.outcome)))))
            found.append(len(children).to_bytes(4, "big"))
            children.sort(key=lambda child: child[0])
            found.extend(sha224(_joined((name, hashes.of(child.outcome)))) for name, child in children)
            todo.extend((name, child) for name, child in children if child.is_directory)
        return sha224(b"".join(found))


class _OutcomeHashes:
    """The hashes of outcomes: kind, attributes, the entries that hold the content, the keys there."""

    def __init__(self) -> None:
        #: Most paths share the authority of a directory.
        self._authorities: dict[int, tuple[Authority, bytes]] = {}

    def of(self, outcome: Outcome) -> bytes:
        """The hash of what a path shows; without the times that only this node saw."""
        return sha224(_joined((*_parts(outcome.state), self._authority(outcome.authority))))

    def _authority(self, authority: Authority) -> bytes:
        known = self._authorities.get(id(authority))
        if known is None:
            depths = sorted(authority.depths.items())
            parts = [part for key, depth in depths for part in (key, depth.to_bytes(4, "big"))]
            found = sha224(_joined((*parts, *sorted({admit.fingerprint for admit in authority.admits}))))
            # The object is kept, so that no other one gets its number.
            known = self._authorities[id(authority)] = authority, found
        return known[1]


def _joined(parts: Iterable[bytes]) -> bytes:
    """These bytes, each after its length, so that no two sequences look alike."""
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def _parts(state: State) -> Iterable[bytes]:
    yield state.kind.value.encode()
    yield state.mode.to_bytes(2, "big")
    yield b"" if state.owner is None else repr(tuple(state.owner)).encode()
    yield state.mtime.to_bytes(9, "big", signed=True)
    yield state.size.to_bytes(8, "big")
    for entry in (state.content, state.origin):
        yield entry or b""
    yield state.target
    yield state.rdev.to_bytes(8, "big")
    for name, value in state.xattrs:
        yield _joined((name, value))
