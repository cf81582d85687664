"""How much of the work for other nodes is done at once.  No I/O; time is an argument."""

from __future__ import annotations

from collections.abc import Callable

from basefs.sync.session.protocol import SyncProtocol

#: Seconds of making answers after which everything else in the event loop has its turn.  Longer: news waits for as
#: long at each of its steps; shorter: the turns cost more than the answers.
SLICE = 0.002
#: Bytes made between two looks at the clock, and in a slice at the most.
_PIECE = 8 * 1024
_MOST = 8 * _PIECE


def slice_of_answers(core: SyncProtocol, now: Callable[[], float]) -> bytes:
    """What a session has to send while its peer waits for answers, as far as it can be made in `SLICE`.

    64 KiB of answers are up to 300 entries with their blocks, 20 ms.  An answer that waits for another session of this
    node ends the slice: what it waits for does not come while this one works.
    """
    end = now() + SLICE
    data = core.data_to_send(_PIECE)
    while len(data) < _MOST and core.uploads and not core.dormant and now() < end:
        data += core.data_to_send(_PIECE)
    return data
