"""Whether the clock of this machine is right, as far as one can tell.

The kernel knows whether anything keeps its clock in step.  Nodes that run tell their time when they are asked; half of
the time that an answer took is in doubt.  A clock plays no part in any decision of BaseFS: it makes times in listings
wrong, and 'basefs revert --at'.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from basefs.daemon.api.messages import NodeClock
from basefs.management.doctor.finding import Diagnosis, note, problem

#: Seconds of difference that are far off.  Machines that set their clocks differ by milliseconds.
FAR_OFF = 5.0
#: Bytes of `struct timex` on any system, generously; all zero asks and changes nothing, adjtimex(2).
_TIMEX = 512
_TIME_ERROR = 5


def examine() -> list[Diagnosis]:
    """Whether something sets the clock of this machine."""
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.create_string_buffer(_TIMEX))
    if state != _TIME_ERROR:
        return []
    remedy = "timedatectl set-ntp true, or install chrony; a container gets its time from its host"
    return [note("clock", "the kernel says that nothing keeps this machine's clock in step", remedy)]


def compare(readings: Sequence[NodeClock]) -> list[Diagnosis]:
    """What the clocks of other nodes say: whether ours or one of theirs is far off."""
    off = [one for one in readings if abs(one.offset) > one.doubt + FAR_OFF]
    if len(off) > len(readings) / 2 and len(readings) > 1:
        # Most of them disagree with this one: it is more likely the wrong one.
        middle = sorted(float(one.offset) for one in off)[len(off) // 2]
        what = f"this machine's clock is {_told(-middle)} {len(off)} of {len(readings)} other nodes"
        return [problem("clock", what, "timedatectl set-ntp true, here")]
    remedy = "set the wrong one of both: timedatectl set-ntp true"
    whats = (f"the clock of {one.name} is {_told(one.offset)} this machine's" for one in off)
    return [problem("clock", what, remedy) for what in whats]


def _told(seconds: float) -> str:
    return f"{abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'}"
