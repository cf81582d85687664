"""Tasks that last as long as the daemon."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from basefs.errors import BaseFSError

log = logging.getLogger(__name__)


async def repeat(
    what: str, step: Callable[[], Awaitable[object]], rest: float | Callable[[], Awaitable[object]]
) -> None:
    """Take a step and then a rest, of so many seconds or as long as it takes, for ever.

    An exception costs one step: a task that is gone would let a revoked key in, or leave what was saved in memory, and
    nobody would notice.  `what`: what the step does, as in "cannot find out who is a member".
    """
    while True:
        try:
            await step()
        except (BaseFSError, OSError) as error:
            log.error("cannot %s: %s", what, error)
        except Exception:
            log.exception("cannot %s", what)
        await (asyncio.sleep(rest) if isinstance(rest, float) else rest())
