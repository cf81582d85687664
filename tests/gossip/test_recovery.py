"""A recovery travels by gossip like any entry, and is checked on arrival."""

from __future__ import annotations

import pathlib

from basefs.gossip.events import MAX_EVENT, decode_event, encode_events
from basefs.log.entries import Action
from basefs.log.extensions import Extensions
from tests.support.helpers import GUARDIANS, HEIR, ROOT_KEY, genesis, make_replica, recovery_keys, recovery_of


def test_a_recovery_of_two_keys_fits_one_event_and_a_false_one_is_refused(tmp_path: pathlib.Path) -> None:
    born = genesis((ROOT_KEY,), recovery=recovery_keys())
    replica = make_replica(tmp_path, born=born)
    for signers, accepted in ((GUARDIANS[:1], 0), (GUARDIANS[:2], 1)):
        recovery = Extensions(recovery=recovery_of(born[0], 1, HEIR, signers))
        entry = HEIR.sign(born[-1].hash, 1, Action.GRANT, b"root", HEIR.public, recovery)
        (event,) = encode_events([entry.encode()], [], None)
        assert len(event) <= MAX_EVENT
        found = decode_event(event)
        result = replica.add(list(found.entries), list(found.blocks), peer="somebody")
        assert (result.accepted, len(result.rejected)) == (accepted, 1 - accepted)
    confirmed = HEIR.sign(entry.hash, 2, Action.GRANT, b"root", HEIR.public)
    replica.add([confirmed.encode()], [], peer="somebody")
    assert replica.is_root_key(HEIR.fingerprint)
    replica.close()
