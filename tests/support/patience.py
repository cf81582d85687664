"""How long tests wait for what should come true at once."""

from __future__ import annotations

#: Seconds after which it counts as never coming true.  Many, since a test that passes does not wait for them: for a
#: machine that is far slower than usual, or stands still for a while.
DEADLINE = 120.0
