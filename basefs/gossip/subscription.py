"""The records of one stream, monitor or query, as an asynchronous iterator with a bounded queue."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from basefs.errors import AgentError
from basefs.gossip.rpc import Body

#: Records that a slow consumer may leave waiting.  The agent keeps 512 more and then drops on its side.
STREAM_LIMIT = 1024


class Subscription:
    """The records of one stream, monitor or query, as an asynchronous iterator.

    Ends when the agent says that nothing more comes (query) or after `aclose`; raises AgentError when the connection
    broke.  `dropped` counts records that were lost because the consumer was too slow.
    """

    def __init__(self, close: Callable[[], Awaitable[None]], limit: int = STREAM_LIMIT) -> None:
        self._records: deque[Body] = deque()
        self._limit = limit
        self._close = close
        self._wakeup = asyncio.Event()
        self._ended = False
        self._error: AgentError | None = None
        self.dropped = 0

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Body:
        while not self._records:
            if self._error is not None:
                raise self._error
            if self._ended:
                raise StopAsyncIteration
            self._wakeup.clear()
            await self._wakeup.wait()
        return self._records.popleft()

    async def aclose(self) -> None:
        """Stop the stream in the agent.  Queued records are dropped."""
        self._records.clear()
        if not self._ended:
            self.finish(None)
            await self._close()

    def put(self, record: Body, final: bool) -> None:
        """For the client's reader: one more record has arrived, the last one if `final`."""
        if self._ended:
            return
        if len(self._records) >= self._limit:
            self._records.popleft()
            self.dropped += 1
        self._records.append(record)
        self._ended = final
        self._wakeup.set()

    def finish(self, error: AgentError | None) -> None:
        """For the client's reader: the stream has ended, because of `error` if there is one."""
        if not self._ended:
            self._ended = True
            self._error = error
            self._wakeup.set()
