"""Asking to write: the members list the machines that may write nowhere, until one of them grants their keys.

A machine that was admitted to read, by an invitation or by hand, does not ask.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Sequence

from basefs.daemon.api.messages import MAX_PENDING, PendingKey
from basefs.daemon.lasting import repeat
from basefs.daemon.looks import Looks
from basefs.errors import AgentError, UsageError
from basefs.gossip.members import Ask
from basefs.gossip.service import Gossip
from basefs.log.interface import Digest
from basefs.log.keys import SigningKey, fingerprint_of, parse_public_key
from basefs.replica.replica import Replica
from basefs.sync.net.service import SyncService
from basefs.view.past import GrantRecord

log = logging.getLogger(__name__)


def key_to_ask_for(granted: Iterable[GrantRecord], keys: Sequence[SigningKey]) -> bytes | None:
    """The first key of this node (raw public bytes) if none of its keys is granted, else `None`."""
    mine = {key.fingerprint for key in keys}
    if any(one.standing == "valid" and one.fingerprint in mine for one in granted):
        return None
    return keys[0].public if keys else None


def asked_key(replica: Replica) -> str:
    """That key for the node of a log, in hex; '' if none, or if nobody can hear it.

    The members of a closed filesystem let in no other machine.
    """
    keys = replica.keys
    found = key_to_ask_for(replica.plan(lambda author: author.past.grants()), keys) if keys else None
    if found is None or not (replica.is_open or found in replica.members()):
        return ""
    return found.hex()


async def keep_asking(replica: Replica, gossip: Gossip) -> None:
    """Tell the members whether this node asks to write, whenever that changes, for ever."""
    looks = Looks(replica)
    seen: Digest | None = None
    told = gossip.requested_key
    has_failed = False

    async def look() -> None:
        nonlocal seen, told, has_failed
        has_failed, digest = False, replica.digest()
        if digest == seen:
            return
        public = await looks.look(lambda: asked_key(replica))
        if public != told:
            try:
                await gossip.ask(public)
            except AgentError as error:
                log.debug("cannot tell the members whether this node asks to write: %s", error)
                has_failed = True
                return
            told = public
        seen = digest

    # Also for other changes than of grants: removing a directory ends those on it.
    await repeat("find out whether this node may write", look, lambda: looks.wait(1.0 if has_failed else 10.0))


async def believed(gossip: Gossip, sync: SyncService, *, is_open: bool) -> list[Ask]:
    """The requests that this node accepts as genuine.

    All in an open filesystem; in a closed one those whose key the peer has proved.
    """
    asks = gossip.asks()
    if is_open:
        return asks
    await sync.confirm([ask.peer.sync_address for ask in asks])
    return [ask for ask in asks if ask.public == sync.key_at(ask.peer.sync_address).hex()]


def pending_keys(replica: Replica, asks: Iterable[Ask]) -> list[PendingKey]:
    """The keys among those asked for that may write nowhere, at most `MAX_PENDING`."""
    granted = replica.plan(lambda author: author.past.grants())
    writers = {one.fingerprint for one in granted if one.standing == "valid" and one.depth is not None}
    is_proved = not replica.is_open
    found: list[PendingKey] = []
    for ask in asks:
        public = _public(ask.public)
        if public is None or fingerprint_of(public) in writers:
            continue
        fingerprint, peer = fingerprint_of(public).hex(), ask.peer
        found.append(PendingKey(peer.node_name, peer.gossip_address, ask.public, fingerprint, is_proved, ask.since))
        if len(found) == MAX_PENDING:
            break
    return found


def _public(text: str) -> bytes | None:
    """The raw public key of a tag, `None` unless it is one as nodes write it."""
    with contextlib.suppress(UsageError):
        public = parse_public_key(text)
        if public.hex() == text:
            return public
    return None
