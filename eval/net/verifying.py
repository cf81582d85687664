"""What verifying signatures costs here and now, alone: what fetching a history is compared with."""

from __future__ import annotations

import time

from basefs.log.keys import verify
from eval.histories import KEY, history

#: Entries that are verified for it; the time grows with their number.
_SAMPLE = 3000


def verify_seconds(entries: int) -> float:
    """Seconds of processor time that verifying the signatures of some entries takes, and nothing else."""
    signed = [entry for entry, _ in history(_SAMPLE)]
    start = time.process_time()
    for entry in signed:
        verify(entry, KEY.public)
    return (time.process_time() - start) / len(signed) * entries
