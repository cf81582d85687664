"""Which peer to compare logs with next (paper, section 3.2.2: every t seconds, with probability p, one node).

Gossip brings the news; this only finds what gossip lost.  Peers not talked to for long are the ones that may have been
cut off, so they come first; but not always, since a dead peer is one of them.  Peers that were lost are tried besides
(`basefs/replication/reconnect.py`).
"""

from __future__ import annotations

import random
from collections.abc import Sequence

Address = tuple[str, int]

#: Seconds that count for a peer that was never talked to: it is as urgent as one that was away for an hour.
_NEVER = 3600.0
#: Peers remembered that are not listed any more; far beyond any cluster, so that the table cannot grow for ever.
_MAX_REMEMBERED = 10_000


class PeerSchedule:
    """Chooses peers, weighted by the time since the last session with them."""

    def __init__(self, rng: random.Random, probability: float) -> None:
        self._rng = rng
        self._probability = probability
        self._talked: dict[Address, float] = {}

    def talked(self, peer: Address, now: float) -> None:
        """There was a session with this peer, whoever began it, or an attempt that failed.

        Both count alike: a peer that does not answer would otherwise be more urgent than all that do, for ever, and
        hardly any session would meet anybody.
        """
        self._talked.pop(peer, None)
        self._talked[peer] = now
        if len(self._talked) > _MAX_REMEMBERED:
            del self._talked[next(iter(self._talked))]

    def pick(self, peers: Sequence[Address], now: float) -> Address | None:
        """A peer to talk to now, or None."""
        if not peers or self._rng.random() >= self._probability:
            return None
        weights = [max(now - self._talked.get(peer, now - _NEVER), 1.0) for peer in peers]
        return self._rng.choices(list(peers), weights)[0]
