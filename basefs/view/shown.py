"""What a path shows as a hash, so that two nodes with equal logs can find out whether they show the same."""

from __future__ import annotations

from collections.abc import Iterable

from basefs.log.hashes import sha224
from basefs.view.permissions import Authority
from basefs.view.states import State
from basefs.view.walk import Outcome


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
    yield state.mode.to_bytes(2, "big")
    yield b"" if state.owner is None else _joined(state.owner)
    yield state.mtime.to_bytes(8, "big", signed=True)
    yield state.size.to_bytes(8, "big")
    for entry in (state.content, state.origin, state.link):
        yield entry or b""
    yield state.target
