"""The view as a tree of hashes, and the peers that show something else although they have the same log.

Equal logs make equal trees.  Where they do not, there is a bug in the view, or a derived row of a log is damaged, and
nothing else would ever show it.  So the tree is hashed now and then, while the log is quiet or because a peer has done
so, and sessions compare the hashes (docs/sync-protocol.md, section 6).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass

from basefs.log.hashes import ZERO_HASH, sha224
from basefs.log.interface import ShownDirectory
from basefs.path import Path, display
from basefs.view.permissions import Authority
from basefs.view.states import State, encode_mode, encode_xattrs
from basefs.view.tree import Node
from basefs.view.walk import Outcome

log = logging.getLogger(__name__)

#: Seconds without a change before the tree is hashed, since others can only compare the same log.
QUIET_SECONDS = 10.0
#: Seconds from one time to the next, and if a peer has hashed the tree of this very log.
PAUSE_SECONDS = 600.0
ASKED_PAUSE_SECONDS = 60.0


def _joined(parts: Iterable[bytes]) -> bytes:
    """These bytes, each after its length, so that no two sequences look alike."""
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


class OutcomeHashes:
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


def _parts(state: State) -> Iterable[bytes]:
    yield state.kind.value.encode()
    yield encode_mode(state.mode, state.owner)
    yield encode_xattrs(state.xattrs)
    for number in (state.mtime, state.size, state.rdev):
        yield b"%d" % number
    for entry in (state.content, state.origin):
        yield entry or b""
    yield state.target


@dataclass(frozen=True, slots=True)
class ViewDifference:
    """A peer that shows something else at a path, and the root hash of the log that both have."""

    peer: str
    path: Path
    root: bytes


#: A directory (`None`: the root) and what is in it, by name.
Peek = Callable[[Node | None], tuple[Node, list[tuple[bytes, Node]]]]


class ViewAudit:
    """Thread-safe, and implements `Audit` of the sync protocol."""

    def __init__(self, root: Callable[[], bytes], peek: Peek, is_complete: Callable[[], bool]) -> None:
        """`root`: the root hash now, which says what is shown if `is_complete` does: not while a content arrives."""
        self._root = root
        self._peek = peek
        self._is_complete = is_complete
        self._lock = threading.Lock()
        #: The log that was hashed last, its directories, and the peers that have compared it.
        self._hashed: tuple[bytes, dict[Path, ShownDirectory]] | None = None
        self._compared: set[str] = set()
        self._hashed_at: float | None = None
        self._seen: tuple[bytes, float] | None = None
        self._wanted: bytes | None = None
        self._differences: dict[str, ViewDifference] = {}

    # -- when, and what ---------------------------------------------------------------------------------------------

    def is_due(self, now: float) -> bool:
        """Whether to `update` now, seconds of any steady clock; to be called now and then."""
        root = self._root()
        if self._seen is None or self._seen[0] != root:
            self._seen = root, now
        if root == ZERO_HASH or (self._hashed is not None and self._hashed[0] == root):
            return False
        asked = self._wanted == root
        pause = ASKED_PAUSE_SECONDS if asked else PAUSE_SECONDS
        is_early = self._hashed_at is not None and now - self._hashed_at < pause
        if is_early or not (asked or now - self._seen[1] >= QUIET_SECONDS) or not self._is_complete():
            return False
        self._hashed_at = now
        return True

    def update(self) -> bool:
        """Hash the tree as it is now; False if the log has changed meanwhile.  Holds no lock for more than a look."""
        root = self._root()
        hashes = OutcomeHashes()
        found: dict[Path, tuple[bytes, dict[bytes, bytes]]] = {}
        todo: list[tuple[Path, Node | None]] = [((), None)]
        while todo:
            path, node = todo.pop()
            node, children = self._peek(node)
            if self._root() != root:
                return False
            found[path] = hashes.of(node.outcome), {name: hashes.of(child.outcome) for name, child in children}
            todo.extend(((*path, name), child) for name, child in children if child.is_directory)
        directories: dict[Path, ShownDirectory] = {}
        # What is in a directory was found after it.
        for path, (own, names) in reversed(found.items()):
            for name in names:
                if (inner := directories.get((*path, name))) is not None:
                    names[name] = inner.value
            items = b"".join(bytes((len(name),)) + name + names[name] for name in sorted(names))
            directories[path] = ShownDirectory(sha224(own + items), own, items)
        with self._lock:
            self._hashed = root, directories
            self._compared.clear()
        return True

    # -- of the sync protocol ---------------------------------------------------------------------------------------

    def begin(self, peer: str) -> bytes | None:
        """See `Audit`."""
        with self._lock:
            return None if self._hashed is None or peer in self._compared else self._hashed[0]

    def shown(self, root: bytes, path: Path) -> ShownDirectory | None:
        """See `Audit`."""
        hashed = self._hashed
        if hashed is None or hashed[0] != root:
            return None
        return hashed[1].get(path, ShownDirectory())

    def wanted(self, root: bytes) -> None:
        """See `Audit`."""
        self._wanted = root

    def compared(self, root: bytes, peer: str, path: Path | None) -> None:
        """See `Audit`."""
        with self._lock:
            if self._hashed is not None and self._hashed[0] == root:
                self._compared.add(peer)
            before = self._differences.pop(peer, None)
            if path is not None:
                self._differences[peer] = ViewDifference(peer, path, root)
        if path is not None and (before is None or before.path != path):
            log.error("%s shows something else at %s, although both logs are equal", peer, display(path))

    def keep(self, peers: Container[str]) -> None:
        """Forget what comparisons with all others have shown: a peer that returns is compared again."""
        with self._lock:
            self._compared = {peer for peer in self._compared if peer in peers}
            for peer in [peer for peer in self._differences if peer not in peers]:
                found = self._differences.pop(peer)
                log.info("%s, which shows something else at %s, is no member now", peer, display(found.path))

    @property
    def differences(self) -> list[ViewDifference]:
        """The peers that showed something else when trees were compared last, by path."""
        with self._lock:
            return sorted(self._differences.values(), key=lambda found: (found.path, found.peer))
